"""The outcome of one piece of work: what an asset, or a partition of it, came to in one run."""

import dataclasses
import enum
import functools
import re
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from marin_core.store.spec import canonical_json, digest


class ExitClass(enum.Enum):
    """Why work ended without its artifact. A closed list; `reason` says the rest."""

    PREEMPTED = "preempted"
    DIVERGED = "diverged"
    OUT_OF_MEMORY = "out of memory"
    INFRASTRUCTURE = "infrastructure"
    BUG = "bug"
    CANCELLED = "cancelled"


@dataclass(frozen=True)
class Outcome:
    """One row of the record. Times are ISO 8601 in UTC.

    `last_step` is the index of the last step, from 0 as in a run's table of losses, and `steps` how many its plan has.
    `loss` is in nats per token: the final evaluation's of a run that succeeded, the last training loss of one that
    failed, and None of one that diverged.
    `status` is `succeeded`, `failed` or `cancelled`; `exit_class` is set unless it succeeded; a run that diverged has
    failed. `chip_hours` counts cores on `cpu` pools; None where nobody knows. `corrects` names the record in whose
    place this one stands: nothing is rewritten. `record` is derived: the same work in the same run has the same id.
    """

    dagster_run: str
    asset: str
    partition: str | None
    status: str
    began: str | None
    ended: str
    fingerprint: str | None = None
    exit_class: ExitClass | None = None
    reason: str = ""
    last_step: int | None = None
    steps: int | None = None
    loss: float | None = None
    log_tail: tuple[str, ...] = ()
    commit: str | None = None
    dirty: bool | None = None
    command: str | None = None
    user: str | None = None
    host: str | None = None
    profile: str | None = None
    pool: str | None = None
    wandb_url: str | None = None
    chip_hours: float | None = None
    preemptions: int = 0
    failures: int = 0
    corrects: str | None = None
    note: str = ""

    @functools.cached_property
    def record(self) -> str:
        """16 hex digits."""
        correction = [self.corrects, self.ended] if self.corrects else []
        return digest(canonical_json([self.dagster_run, self.asset, self.partition, *correction]))

    @property
    def label(self) -> str:
        return f"{self.asset} [{self.partition}]" if self.partition else self.asset

    @property
    def cause(self) -> str:
        """The reason, for where the label stands beside it: without the label that many begin with."""
        return re.sub(rf"^{re.escape(self.label)}:? (?=[a-z])", "", self.reason)

    def to_json(self) -> dict[str, Any]:
        """A row; `record` is its first column."""
        row = dataclasses.asdict(self)
        exit_class = self.exit_class.value if self.exit_class else None
        return {"record": self.record, **row, "exit_class": exit_class, "log_tail": list(self.log_tail)}

    @classmethod
    def from_json(cls, row: Mapping[str, Any]) -> "Outcome":
        known = {key: value for key, value in row.items() if key != "record"}
        exit_class = None if row["exit_class"] is None else ExitClass(row["exit_class"])
        return cls(**{**known, "exit_class": exit_class, "log_tail": tuple(row["log_tail"] or ())})
