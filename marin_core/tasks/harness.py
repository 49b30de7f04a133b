"""Tasks of lm-evaluation-harness: the files of a task as an artifact, and a checkpoint's result on one."""

import contextlib
import dataclasses
import shutil
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path

import zstandard

from marin_core.build import Build, Outcome
from marin_core.data.sources.declaration import FolderOrigin
from marin_core.data.sources.folder import list_folder
from marin_core.data.tokens.tokenizer import CONFIG, TEMPLATE, TOKENIZER, read_tokenizer
from marin_core.errors import MarinError
from marin_core.evals.config import DOCUMENTS_ROLE, TASK_ROLE, HarnessTask
from marin_core.evals.documents import are_conversations, validation_texts
from marin_core.evals.harness import ModelServer, TaskOutcome, run_task
from marin_core.evals.harness_tasks import continuation_task
from marin_core.evals.result import RESULT, EvalResult, ModelIdentity, memory_ran_out
from marin_core.recipes import TrainPlan
from marin_core.store import Artifact
from marin_core.tasks.evals import evaluated_plan, no_model


def write_harness_task(build: Build) -> Outcome:
    """The YAML and data of a task. Config: `name`; and `folder`, the identity of a local folder whose path stands in
    the context, or `questions`, `shares` by validation set and `max_bytes` of each for a task about the continuation
    of their documents, with an input `documents/<set>` for each.

    Raises:
        MarinError: the folder has changed or has no file, or the documents give too few questions.
    """
    name, folder = build.spec.config["name"], build.spec.context.get("folder")
    files = _folder_files(build, folder) if folder is not None else _continuation_files(build)
    for path, content in files.items():
        with build.writer.open(path) as file:
            file.write(content)
    questions = {"questions": build.spec.config["questions"]} if folder is None else {}
    return Outcome({"task": name, "files": len(files), **questions})


def run_harness_task(build: Build) -> Outcome:
    """`result.json`, and where the task ran `harness.json`, what the harness reports, and `samples.jsonl.zst`, a line
    for each example. Config: the fields of `HarnessTask`. Inputs: `checkpoint`, `tokenizer`, and `task` with the task's
    files unless the harness ships it. Where the task names an `endpoint`, the score is of the model there, and the
    details of the result say so.

    Raises:
        MarinError: what was read is damaged, or does not fit together.
    """
    began = time.monotonic()
    task = _task(build)
    checkpoint = build.input("checkpoint")
    plan = evaluated_plan(checkpoint)
    with _scratch(build.options.scratch) as scratch:
        if cause := no_model(checkpoint):
            outcome = TaskOutcome("failed", error=cause)
        else:
            try:
                outcome = _asked(build, task, checkpoint, plan, scratch)
            except Exception as error:
                if not (cause := memory_ran_out(error)):
                    raise
                outcome = TaskOutcome("infra_failed", error=cause)
        result = EvalResult(
            outcome.status,
            evaluation=task.name,
            version=outcome.version,
            model=ModelIdentity.of(checkpoint, plan),
            examples=outcome.examples,
            metrics=outcome.metrics,
            details={**outcome.details, **_elsewhere(task)},
            sources=() if task.source is None else (task.source,),
            error=outcome.error,
        )
        _write(build, outcome, result)
    _tell(build, result)
    return Outcome({**result.summary, "seconds": round(time.monotonic() - began, 3)})


def _task(build: Build) -> HarnessTask:
    names = {field.name for field in dataclasses.fields(HarnessTask)}
    return HarnessTask(**{key: value for key, value in build.spec.config.items() if key in names})


def _asked(build: Build, task: HarnessTask, checkpoint: Artifact, plan: TrainPlan, scratch: Path) -> TaskOutcome:
    folder = _copied(build.input(TASK_ROLE), scratch / "task") if TASK_ROLE in build.spec.inputs else None
    with _model_server(build, task, checkpoint, plan, scratch) as server:
        (scratch / "output").mkdir()
        return run_task(task, folder, server, scratch / "output", build.options.scratch)


def _elsewhere(task: HarnessTask) -> dict[str, str | None]:
    """Which model was asked in place of the checkpoint, if one was: the score is that one's."""
    return {} if task.endpoint is None else {"endpoint": task.endpoint, "endpoint_model": task.endpoint_model}


@contextlib.contextmanager
def _scratch(folder: Path) -> Iterator[Path]:
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="harness-", dir=folder) as scratch:
        yield Path(scratch)


@contextlib.contextmanager
def _model_server(
    build: Build, task: HarnessTask, checkpoint: Artifact, plan: TrainPlan, scratch: Path
) -> Iterator[ModelServer]:
    """The endpoint that the task names, or the checkpoint's own for as long as this lasts."""
    # Here: whoever only makes a task's files needs none of the model's libraries.
    from marin_core.evals.serving import MODEL, serving
    from marin_core.training.model import trained_model

    artifact = build.input("tokenizer")
    files = read_tokenizer(artifact)
    if files.vocab_size != plan.vocab_size:
        raise MarinError(
            f"{artifact.record.name} has {files.vocab_size} entries, the model of {build.spec.partition} "
            f"{plan.vocab_size}; evaluate it with the tokenizer that it was trained with"
        )
    tokenizer = _copied(artifact, scratch / "tokenizer", (TOKENIZER, CONFIG, TEMPLATE))

    def server(endpoint: str, model: str, *, here: bool) -> ModelServer:
        return ModelServer(endpoint, model, tokenizer, files.bos_id, plan.seq_len, here)

    if task.endpoint is not None:
        yield server(task.endpoint, task.endpoint_model or MODEL, here=False)
        return
    folder = checkpoint.path("checkpoints", f"step-{plan.steps - 1}")
    with trained_model(plan, folder, artifact.url, scratch) as trained, serving(trained, files) as endpoint:
        yield server(endpoint, MODEL, here=True)


def _copied(artifact: Artifact, folder: Path, names: tuple[str, ...] | None = None) -> Path:
    """Files of an artifact, all or those of some names, in a local folder."""
    for entry in artifact.record.files:
        if names is None or entry.path in names:
            (folder / entry.path).parent.mkdir(parents=True, exist_ok=True)
            (folder / entry.path).write_bytes(artifact.read(entry.path))
    return folder


def _write(build: Build, outcome: TaskOutcome, result: EvalResult) -> None:
    build.writer.write_json(RESULT, result.to_json())
    if outcome.results is not None:
        build.writer.write_json("harness.json", dict(outcome.results))
    if outcome.samples is not None:
        compressor = zstandard.ZstdCompressor()
        with (
            open(outcome.samples, "rb") as samples,
            build.writer.open("samples.jsonl.zst") as file,
            compressor.stream_writer(file, closefd=False) as compressed,
        ):
            shutil.copyfileobj(samples, compressed)


def _tell(build: Build, result: EvalResult) -> None:
    if result.error is not None:
        build.log(f"{build.spec.label} {result.status}: {result.error}")
        return
    shown = ", ".join(f"{name} {metric.value:.4g}" for name, metric in list(result.metrics.items())[:4])
    build.log(f"{build.spec.label}: {shown} over {result.examples} examples")


def task_folder_origin(folder: str) -> FolderOrigin:
    """The files of a task in a local folder; `identity()` of it is the `folder` of the config."""
    return FolderOrigin(folder)


def _folder_files(build: Build, folder: str) -> dict[str, bytes]:
    origin = task_folder_origin(folder)
    if origin.identity() != build.spec.config["folder"]:
        raise MarinError(f"the task's files in {folder} have changed since this was planned; run it again")
    root = Path(folder).expanduser()
    return {file.path: (root / file.path).read_bytes() for file in list_folder(origin)}


def _continuation_files(build: Build) -> dict[str, bytes]:
    config = build.spec.config
    texts = []
    for name, share in config["shares"].items():
        documents = build.input(f"{DOCUMENTS_ROLE}{name}")
        if not are_conversations(documents):
            texts += validation_texts(name, documents, share, config["max_bytes"])
    files = continuation_task(texts, config["questions"], config["name"])
    return {path: text.encode() for path, text in files.items()}
