"""What the harness's own process is asked, and what it answers: a line of JSON each."""

import dataclasses
import json
from dataclasses import dataclass
from typing import Literal, Self

# `needs_hub`: the task's data are not on this machine, and this process was told to ask nobody for them.
Status = Literal["succeeded", "failed", "infra_failed", "needs_hub"]
RESULTS, SAMPLES = "results.json", "samples.jsonl"


@dataclass(frozen=True)
class HarnessRequest:
    """One task on one model.

    `folder` has the task's YAML and data; None means a task that the harness ships. `endpoint` is the base URL of a
    server of the completions protocol (`…/v1`) and `model` the model's name there. `tokenizer` is a folder with its
    files, `bos` the token id that begins every text, if any, `context` the tokens that the model takes. A request to
    the server holds `batch_size` prompts, and is made up to `tries` times. `RESULTS` and `SAMPLES` are written into the
    folder `output`.
    """

    name: str
    folder: str | None
    few_shot: int
    limit: int | None
    endpoint: str
    model: str
    tokenizer: str
    bos: int | None
    context: int
    batch_size: int
    tries: int
    timeout_seconds: int
    output: str

    def to_line(self) -> bytes:
        return json.dumps(dataclasses.asdict(self)).encode() + b"\n"

    @classmethod
    def from_line(cls, line: str) -> Self:
        return cls(**json.loads(line))


@dataclass(frozen=True)
class Reply:
    """How it went; `error` says in one line why it did not succeed."""

    status: Status
    error: str | None = None

    def to_line(self) -> str:
        return json.dumps(dataclasses.asdict(self)) + "\n"

    @classmethod
    def from_line(cls, line: str | bytes) -> Self:
        return cls(**json.loads(line))
