"""Which evaluations a checkpoint gets: `[scale.evals]` of a profile."""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

# The evaluation that every checkpoint gets.
PERPLEXITY = "perplexity"
# Roles of inputs: of an evaluation, a validation set's documents (and the set's name) and the files of its task; of
# all results together, what was found of a source's text (and the source's name).
DOCUMENTS_ROLE, TASK_ROLE, CONTAMINATION_ROLE = "documents/", "task", "contamination/"


@dataclass(frozen=True)
class HarnessTask:
    """A task of lm-evaluation-harness. Every field is part of the result's identity.

    `name` is the harness's. With `folder` the task is read from the YAML files in it; with `questions` the lab makes it
    itself, of so many, from its validation documents (`harness_tasks.py`); else it is one that the harness ships, whose
    data it fetches from the hub. `few_shot` examples precede each question; `limit` takes that many of its first
    examples. `metric` is the one that stands for the task, `soft_metric` the one that changes smoothly with the model;
    None takes the first that the task reports and, of multiple choice, the log-probability of the right choice.
    `source` names the evaluation source of the profile that holds the task's text, from which its contamination is
    known. `endpoint` is the base URL of an OpenAI-compatible server to ask instead of the checkpoint, and
    `endpoint_model` the model's name there. A task that takes more than `timeout_seconds` is ended.
    """

    name: str
    few_shot: int = 0
    limit: int | None = None
    folder: str | None = None
    questions: int | None = None
    metric: str | None = None
    soft_metric: str | None = None
    source: str | None = None
    endpoint: str | None = None
    endpoint_model: str | None = None
    timeout_seconds: int = 3600


@dataclass(frozen=True)
class ExternalScore:
    """What a model that is none of ours scores at `evaluation`: it joins ours in the step from soft to hard metric."""

    evaluation: str
    model: str
    soft: float
    hard: float
    # Questions behind `hard`; unknown if None.
    examples: int | None = None


@dataclass(frozen=True)
class EvalsConfig:
    """The first `max_bytes` of UTF-8 of each validation set are scored by perplexity."""

    max_bytes: int = 65536
    tasks: tuple[HarnessTask, ...] = ()
    external: tuple[ExternalScore, ...] = ()

    def perplexity(self, framing: str, shares: Mapping[str, float]) -> dict[str, Any]:
        """What identifies a scoring by perplexity, beside its inputs: the framing of the shards, and of each validation
        set the share of its documents that is held out, 1 where all are."""
        return {"max_bytes": self.max_bytes, "framing": framing, "shares": dict(shares)}
