"""A small lab for lm-evaluation-harness: tasks in local files, and models whose every answer is known beforehand."""

import dataclasses
import json
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import zstandard

from marin_core.evals.config import HarnessTask
from marin_core.evals.result import RESULT, EvalResult
from marin_core.store import Artifact, ArtifactSpec, Store
from marin_core.tasks.harness import run_harness_task, task_folder_origin, write_harness_task
from tests.evals.models import run

TASKS = Path(__file__).parent / "tasks"
VOCAB = 300


def echoing(model: Any) -> Any:
    """The model with layers that add nothing and an output layer that finds the token that was read: it repeats the
    last token for ever, and is sure of it."""
    import equinox as eqx
    import haliax as hax
    import jax
    import jax.numpy as jnp

    table = model.embeddings.token_embeddings.weight
    directions = table / hax.sqrt(hax.sum(table * table, axis="embed"))
    head = model.lm_head.weight
    model = eqx.tree_at(lambda m: m.lm_head.weight, model, 50 * directions.rearrange(head.axes))
    layers = jax.tree.map(lambda leaf: jnp.zeros_like(leaf) if eqx.is_array(leaf) else leaf, model.transformer.layers)
    return eqx.tree_at(lambda m: m.transformer.layers, model, layers)


def not_a_number(model: Any) -> Any:
    """The model with an output layer that is no number."""
    import equinox as eqx

    return eqx.tree_at(lambda m: m.lm_head.weight, model, model.lm_head.weight * float("nan"))


@dataclass(frozen=True)
class Evaluation:
    result: EvalResult
    artifact: Artifact

    @property
    def samples(self) -> Iterator[dict[str, Any]]:
        """From the compressed file."""
        with self.artifact.open("samples.jsonl.zst") as file, zstandard.ZstdDecompressor().stream_reader(file) as text:
            yield from map(json.loads, text.read().decode().splitlines())


@dataclass(frozen=True)
class HarnessLab:
    """A store, where its workers keep what they need, and the tokenizer of its models."""

    store: Store
    scratch: Path
    tokenizer: ArtifactSpec

    def task(self, name: str, folder: Path) -> ArtifactSpec:
        """The committed artifact of a task whose files are in a folder."""
        config = {"name": name, "folder": task_folder_origin(str(folder)).identity()}
        context = {"folder": str(folder)}
        spec = ArtifactSpec(f"harness_tasks/{name}", "write_harness_task", "1", config, context=context)
        if self.store.record(spec.name, spec.fingerprint) is None:
            run(self.store, spec, write_harness_task, self.scratch)
        return spec

    def evaluated(self, checkpoint: ArtifactSpec, name: str, task: ArtifactSpec | None, **fields: Any) -> Evaluation:
        """A checkpoint's evaluation, made anew every time."""
        config = dataclasses.asdict(HarnessTask(name, **fields))
        inputs = {"checkpoint": checkpoint, "tokenizer": self.tokenizer, **({"task": task} if task else {})}
        version = str(len(self.store.records(f"evals/delphi/{name}")))
        spec = ArtifactSpec(f"evals/delphi/{name}", "run_harness_task", version, config, inputs, checkpoint.partition)
        run(self.store, spec, run_harness_task, self.scratch)
        artifact = self.store.artifact(spec)
        return Evaluation(EvalResult.from_json(artifact.read_json(RESULT)), artifact)


def write_files(folder: Path, files: Mapping[str, str]) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for name, text in files.items():
        (folder / name).write_text(text)
    return folder
