"""The export task: a run's last checkpoint as a Hugging Face folder."""

import shutil
import tempfile
from pathlib import Path

import numpy as np

from marin_core.build import Build, Outcome
from marin_core.data.mixing.mixture import component_artifact
from marin_core.data.tokens.cache import LEDGER, CacheReader
from marin_core.errors import MarinError
from marin_core.exports.export import export_folder
from marin_core.exports.folder import ExportTokenizer
from marin_core.recipes import TrainPlan
from marin_core.store import Artifact, ArtifactSpec, Store, Writer

EXPORT = "export.json"
# What is compared: enough positions that each rotation turns visibly, few enough that the logits of a vocabulary of
# 128,256 entries fit in a gigabyte.
SEQUENCES, POSITIONS = 4, 512
_COPY_BYTES = 16 << 20


def export_checkpoint(build: Build) -> Outcome:
    """Write the files of a Hugging Face model repository, and `export.json`: which checkpoint it is, and how its logits
    compare with the trained model's.

    Raises:
        MarinError: the run has no checkpoint, the tokenizer is not the run's, or the folder read back is not the model
            that was trained; nothing is committed.
    """
    run, tokenizer = build.input("checkpoint"), build.input("tokenizer")
    plan = TrainPlan.from_json(dict(build.spec.inputs["checkpoint"].config["plan"]))
    status = run.record.summary["status"]
    if status != "succeeded":
        raise MarinError(f"{build.spec.label}: its run {status} and has no checkpoint; export one that succeeded")
    read = ExportTokenizer.of(tokenizer)
    if read.parsed.vocab_size != plan.vocab_size:
        raise MarinError(
            f"{tokenizer.record.name} has {read.parsed.vocab_size} entries, the run was trained with "
            f"{plan.vocab_size}; export it with its own tokenizer"
        )
    tokens = probe_tokens(build.store, build.spec.inputs["checkpoint"].inputs["mixture"], plan.seq_len)
    build.options.scratch.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix="export-", dir=build.options.scratch) as scratch:
        folder = Path(scratch) / "model"
        build.log(f"{build.spec.label}: writing {plan.params:,} parameters in {build.spec.config['dtype']}")
        exported = export_folder(
            build.spec.label,
            plan,
            run.path("checkpoints", f"step-{plan.steps - 1}"),
            tokenizer.url,
            read,
            build.spec.config["dtype"],
            tokens,
            folder,
        )
        check = exported.check
        build.log(
            f"{build.spec.label}: {check.library} reads it back to the same logits, largest difference "
            f"{check.max_abs_difference:.2g} of {check.max_abs_logit:.1f}"
        )
        size = _copy(folder, build.writer)
    build.writer.write_json(EXPORT, {**exported.to_json(), "checkpoint": _identity(run, plan)})
    summary = {
        "dtype": exported.dtype,
        "parameters": exported.parameters,
        "bytes": size,
        "checked_with": check.library,
        "max_abs_difference": check.max_abs_difference,
        "tolerance": check.tolerance,
    }
    return Outcome(summary)


def probe_tokens(store: Store, mixture: ArtifactSpec, seq_len: int) -> np.ndarray:
    """Token sequences (sequences, positions) int32 from the beginning of the validation sets of a mixture's components,
    in turn; as many and as long as `SEQUENCES` and `POSITIONS`, or less where there is less.

    Raises:
        MarinError: a component's shards are gone.
    """
    content = store.artifact(mixture).read_json("mixture.json")
    names = sorted(content["components"])
    wanted = -(-SEQUENCES // len(names)) * min(seq_len, POSITIONS)
    streams = [_validation_tokens(component_artifact(store, content, name), wanted) for name in names[:SEQUENCES]]
    length = min(seq_len, POSITIONS, max(map(len, streams)))
    starts = range(0, wanted, length)
    rows = [stream[s : s + length] for s in starts for stream in streams if s + length <= len(stream)]
    return np.stack(rows[:SEQUENCES])


def _validation_tokens(tokenized: Artifact, wanted: int) -> np.ndarray:
    """The first ids of a validation set, as many as `wanted` or all."""
    found: list[np.ndarray] = [np.empty(0, np.int32)]
    for part, rows in tokenized.read_json(f"validation/{LEDGER}")["shard_rows"].items():
        if not rows:
            continue
        reader = CacheReader(tokenized.fs, tokenized.path("validation", part), ["input_ids"])
        for row in range(rows):
            if sum(map(len, found)) >= wanted:
                return np.concatenate(found)[:wanted]
            found.append(reader.row("input_ids", row))
    return np.concatenate(found)[:wanted]


def _copy(folder: Path, writer: Writer) -> int:
    """Copy a folder's files into the artifact; returns their bytes."""
    paths = sorted(path for path in folder.rglob("*") if path.is_file())
    for path in paths:
        with path.open("rb") as source, writer.open(path.relative_to(folder).as_posix()) as target:
            shutil.copyfileobj(source, target, _COPY_BYTES)
    return sum(path.stat().st_size for path in paths)


def _identity(run: Artifact, plan: TrainPlan) -> dict[str, str | int]:
    record = run.record
    return {
        "name": record.name,
        "fingerprint": record.fingerprint,
        "content": record.content,
        "step": plan.steps - 1,
        "seq_len": plan.seq_len,
    }
