"""Which outcomes are asked for."""

import re
from collections.abc import Sequence
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from fnmatch import fnmatchcase

from marin_core.errors import MarinError
from marin_core.records.outcome import ExitClass, Outcome

_AGO = re.compile(r"(\d+)([smhdw])")
_UNITS = {"s": "seconds", "m": "minutes", "h": "hours", "d": "days", "w": "weeks"}


@dataclass(frozen=True)
class Selection:
    """What an outcome must be; None asks nothing. `since` is a time in UTC, `asset` a pattern with * and ?, `run` the
    beginning of the id of a Dagster run."""

    failed: bool = False
    exit_class: ExitClass | None = None
    since: datetime | None = None
    asset: str | None = None
    partition: str | None = None
    run: str | None = None

    def of(self, outcomes: Sequence[Outcome]) -> list[Outcome]:
        """Those that fit, newest first."""
        return [outcome for outcome in reversed(outcomes) if self._fits(outcome)]

    def _fits(self, outcome: Outcome) -> bool:
        return (
            not (self.failed and outcome.status == "succeeded")
            and self.exit_class in (None, outcome.exit_class)
            and (self.since is None or datetime.fromisoformat(outcome.ended) >= self.since)
            and (self.asset is None or fnmatchcase(outcome.asset, self.asset))
            and self.partition in (None, outcome.partition)
            and (self.run is None or outcome.dagster_run.startswith(self.run))
        )


def parse_since(text: str, now: datetime) -> datetime:
    """The time that `7d`, `12h`, `2026-11-01` or `2026-11-01T08:00` means; in UTC, where it says nothing else.

    Raises:
        MarinError: it means none.
    """
    if ago := _AGO.fullmatch(text):
        try:
            return now - timedelta(**{_UNITS[ago[2]]: int(ago[1])})
        except OverflowError:
            return datetime.min.replace(tzinfo=UTC)
    try:
        time = datetime.fromisoformat(text)
    except ValueError:
        raise MarinError(f"{text!r} is no time; write an age like 7d or 12h, or a date like 2026-11-01") from None
    return time if time.tzinfo else time.replace(tzinfo=UTC)
