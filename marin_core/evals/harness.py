"""One task of lm-evaluation-harness on one model: asked in the harness's own process, told as a result.

Whatever goes wrong is a result too, and nothing hangs: a task that is not there or does not run has failed, and so has
one whose scores are no numbers; a harness that is not installed, is killed or takes too long, a server that does not
answer and data that cannot be fetched are failures of the place.
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any, Literal

from marin_core.evals.config import HarnessTask
from marin_core.evals.harness_client import warm_process
from marin_core.evals.harness_metrics import (
    NotFinite,
    example_count,
    harness_metrics,
    soft_metrics,
    task_version,
    without_right_choice,
)
from marin_core.evals.harness_request import RESULTS, SAMPLES, HarnessRequest, Reply
from marin_core.evals.result import Metric

# Prompts in a request to a server. Ours packs them into batches of its own; others have limits on a request.
_PROMPTS_HERE, _PROMPTS_ELSEWHERE = 512, 32
# Ours does not answer a second time what it could not answer at first.
_TRIES_HERE, _TRIES_ELSEWHERE = 1, 3
_UNKNOWN = "unknown"


@dataclass(frozen=True)
class ModelServer:
    """Where a model answers: base URL (`…/v1`) and name of an OpenAI-compatible server, the folder of its tokenizer's
    files, the token that begins every text, if any, and the tokens that its context holds. `here` is one of ours."""

    endpoint: str
    model: str
    tokenizer: Path
    bos: int | None
    context: int
    here: bool


@dataclass(frozen=True)
class TaskOutcome:
    """How a task ended: the fields of `EvalResult` that do not depend on the model's identity. `results` is what the
    harness wrote, `samples` the file with a line of JSON for each example; both only if it ran."""

    status: Literal["succeeded", "failed", "infra_failed"]
    version: str = _UNKNOWN
    examples: int = 0
    metrics: Mapping[str, Metric] = field(default_factory=dict)
    error: str | None = None
    details: Mapping[str, Any] = field(default_factory=dict)
    results: Mapping[str, Any] | None = None
    samples: Path | None = None


def run_task(
    task: HarnessTask, folder: Path | None, server: ModelServer, output: Path, worker_folder: Path
) -> TaskOutcome:
    """Evaluate a model. `folder` holds the task's files, None stands for a task that the harness ships; `output` is an
    empty folder of this evaluation's own. The harness's process is kept for the next, its files in `worker_folder`.

    Raises:
        BaseException: this process is asked to end; the harness has ended before.
    """
    request = HarnessRequest(
        name=task.name,
        folder=None if folder is None else str(folder.absolute()),
        few_shot=task.few_shot,
        limit=task.limit,
        endpoint=server.endpoint.rstrip("/"),
        model=server.model,
        tokenizer=str(server.tokenizer.absolute()),
        bos=server.bos,
        context=server.context,
        batch_size=_PROMPTS_HERE if server.here else _PROMPTS_ELSEWHERE,
        tries=_TRIES_HERE if server.here else _TRIES_ELSEWHERE,
        timeout_seconds=task.timeout_seconds,
        output=str(output.absolute()),
    )
    # Nobody is asked for a task that is here, unless its own files say that its data are at a hub.
    reply = _ask(request, worker_folder, offline=folder is not None)
    if reply.status == "needs_hub":
        reply = _ask(request, worker_folder, offline=False)
    if reply.status == "succeeded":
        return _outcome(task, output)
    return TaskOutcome("failed" if reply.status == "failed" else "infra_failed", error=reply.error)


def _ask(request: HarnessRequest, folder: Path, *, offline: bool) -> Reply:
    return warm_process(folder, offline=offline).run(request)


def _outcome(task: HarnessTask, output: Path) -> TaskOutcome:
    results = json.loads((output / RESULTS).read_text())
    samples = [json.loads(line) for line in (output / SAMPLES).read_text().splitlines()]
    ran = TaskOutcome(
        "failed",
        version=task_version(results, task.name),
        examples=example_count(results, task.name),
        results=results,
        samples=output / SAMPLES,
    )
    try:
        metrics = {**harness_metrics(results, task.name), **soft_metrics(samples)}
    except NotFinite as error:
        return replace(ran, error=f"task {task.name}: {error}")
    for name in (task.metric, task.soft_metric):
        if name is not None and name not in metrics:
            return replace(ran, error=f"task {task.name} has no metric {name!r}; there are {', '.join(metrics)}")
    if not metrics:
        return replace(ran, error=f"task {task.name} reports no metric")
    if (wrong := without_right_choice(samples)) == ran.examples:
        return replace(ran, error=f"task {task.name} names for no example a right choice that is among the choices")
    details = {"examples_without_right_choice": wrong} if wrong else {}
    return replace(ran, status="succeeded", metrics=metrics, details=details)
