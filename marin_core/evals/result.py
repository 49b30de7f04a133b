"""The result of one evaluation of one model: the same shape whatever was evaluated.

An evaluation that the model does not pass is still an outcome. `succeeded` has metrics; `failed` is the evaluation's
own fault, the same on every try (no such task, losses that are not numbers); `infra_failed` is that of the place (an
endpoint that did not answer, memory), and another try may end differently. All three are committed. The record of the
last is `retryable`: it can be read, but whoever asks for the artifact again has it made again.
"""

import dataclasses
import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Self

from marin_core.errors import MarinError, in_one_line
from marin_core.recipes import TrainPlan
from marin_core.store import Artifact

Status = Literal["succeeded", "failed", "infra_failed"]

RESULT = "result.json"


@dataclass(frozen=True)
class Metric:
    """A number with its standard error over the examples, None where it has none. Always finite."""

    value: float
    stderr: float | None
    unit: str
    higher_is_better: bool

    def __post_init__(self) -> None:
        if not (math.isfinite(self.value) and (self.stderr is None or math.isfinite(self.stderr))):
            raise MarinError(
                f"a metric in {self.unit} is {self.value} +- {self.stderr}; only finite numbers are results, "
                f"report the evaluation as failed"
            )


@dataclass(frozen=True)
class ModelIdentity:
    """Which model was evaluated: `run` and `content` are fingerprint and content digest of its training artifact,
    `step` the last completed step of the checkpoint, `tokens` those it was trained on by then."""

    run: str
    content: str
    partition: str | None
    recipe: str
    recipe_version: str
    params: int
    tokens: int
    step: int

    @classmethod
    def of(cls, checkpoint: Artifact, plan: TrainPlan) -> Self:
        """The model that a training artifact ended with."""
        record = checkpoint.record
        return cls(
            run=record.fingerprint,
            content=record.content,
            partition=record.partition,
            recipe=plan.recipe,
            recipe_version=plan.recipe_version,
            params=plan.params,
            tokens=plan.tokens,
            step=plan.steps - 1,
        )


@dataclass(frozen=True)
class EvalResult:
    """What `result.json` of an evaluation says. JSON both ways (`to_json`, `from_json`).

    `version` is the task's, `examples` how many were scored (documents or questions). `sources` names the evaluation
    sources that hold its text, `details` is whatever else it found. `error` says in one line why there are no metrics.
    `contamination` is what training sources had of the text, by evaluation source (`contamination.py`); None where
    nobody looked.
    """

    status: Status
    evaluation: str
    version: str
    model: ModelIdentity
    examples: int = 0
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    sources: tuple[str, ...] = ()
    details: Mapping[str, Any] = field(default_factory=dict)
    error: str | None = None
    contamination: Mapping[str, Any] | None = None

    def __post_init__(self) -> None:
        if (self.status == "succeeded") != (self.error is None):
            raise MarinError(f"evaluation {self.evaluation} {self.status} with error {self.error!r}; one has to change")
        if self.status == "succeeded" and not self.metrics:
            raise MarinError(f"evaluation {self.evaluation} succeeded without a metric; report it as failed")

    def to_json(self) -> dict[str, Any]:
        return dataclasses.asdict(self)

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> Self:
        return cls(
            **{
                **data,
                "model": ModelIdentity(**data["model"]),
                "sources": tuple(data["sources"]),
                "metrics": {name: Metric(**metric) for name, metric in data["metrics"].items()},
            }
        )

    @property
    def summary(self) -> dict[str, Any]:
        """For an artifact's record: what happened, and each metric as a number (`value`, `stderr`)."""
        return {
            "status": self.status,
            "evaluation": self.evaluation,
            "version": self.version,
            "partition": self.model.partition,
            "examples": self.examples,
            "metrics": {name: {"value": each.value, "stderr": each.stderr} for name, each in self.metrics.items()},
            **({} if self.error is None else {"error": self.error}),
            **({"retryable": True} if self.status == "infra_failed" else {}),
        }


def memory_ran_out(error: Exception) -> str | None:
    """One line about an error that says that this place has too little memory, for an `infra_failed` result; None if it
    is any other."""
    out_of_memory = isinstance(error, MemoryError) or (
        type(error).__name__ in ("JaxRuntimeError", "XlaRuntimeError") and "RESOURCE_EXHAUSTED" in str(error)
    )
    return f"out of memory: {in_one_line(error)[:300]}; evaluate on a larger pool" if out_of_memory else None
