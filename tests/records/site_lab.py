"""A small store with what a site shows, made through its own API: an experiment of two arms, a source, failures."""

import dataclasses
import io
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import polars as pl

from marin_core.records.experiment import DifferenceForecast, Verdict
from marin_core.records.outcome import ExitClass, Outcome
from marin_core.records.outcomes import record_correction, record_run
from marin_core.records.site.build import build_site
from marin_core.records.site.content import gather
from marin_core.records.verdicts import record_ruling
from marin_core.store import ArtifactRecord, ArtifactSpec, Store

# What a page must show and never do.
HOSTILE = "<script>document.title='owned'</script><img src=x onerror=alert(1)>"
TITLE = "Records of a test"


def commit(store: Store, spec: ArtifactSpec, files: Mapping[str, bytes], summary: Mapping[str, Any]) -> ArtifactRecord:
    with store.writer(spec) as writer:
        for path, data in files.items():
            with writer.open(path) as file:
                file.write(data)
        return writer.commit(summary)


def parquet(**columns: list[Any]) -> bytes:
    file = io.BytesIO()
    pl.DataFrame(columns).write_parquet(file)
    return file.getvalue()


def curve(steps: int, last: float) -> dict[str, list[Any]]:
    return {"step": list(range(steps)), "loss": [last + 3 * 0.99**step for step in range(steps)]}


RAW = ArtifactSpec("raw/web", "acquire", "1", {"origin": {"path": "/data", "files": [HOSTILE]}})
NORMALIZED = ArtifactSpec("normalized/web", "normalize", "1", {"licence": "CC-BY-4.0"}, {"raw": RAW})
CURATED = ArtifactSpec("curated/web", "curate", "1", {"source": "web"}, {"normalized": NORMALIZED})
MIXTURE = ArtifactSpec("mixture/small", "mix", "1", {}, {"curated": CURATED})


def run_spec(arm: str, cell: str) -> ArtifactSpec:
    plan = {"optimizer": arm, "cell": cell}
    return ArtifactSpec("checkpoints/delphi", "train", "1", {"plan": plan}, {"mixture": MIXTURE}, f"{cell}-{arm}")


RUNS = {arm: [run_spec(arm, cell) for cell in ("1e9-d0008", "1e9-d0016")] for arm in ("adamh", "adamw")}
# Its run came to nothing.
FAILED = RUNS["adamw"][1]


def failure(run: str = "run-1", spec: ArtifactSpec = FAILED, **changes: Any) -> Outcome:
    known = Outcome(
        dagster_run=run,
        asset=spec.name,
        partition=spec.partition,
        status="failed",
        began="2026-05-01T10:00:00.000+00:00",
        ended="2026-05-01T10:01:00.000+00:00",
        fingerprint=spec.fingerprint,
        exit_class=ExitClass.DIVERGED,
        reason=f"diverged at step 7: loss is nan {HOSTILE}",
        last_step=7,
        steps=100,
        log_tail=("step 6, loss 9.1", f"step 7, loss nan {HOSTILE}"),
        commit="0123456789abcdef0123456789abcdef01234567",
        dirty=True,
        command="dagster asset materialize --select checkpoints/delphi",
        user="someone",
        host="somewhere",
        chip_hours=0.25,
        wandb_url="javascript:alert(1)",
    )
    return dataclasses.replace(known, **changes)


def small_lab(root: Path) -> Store:
    """The store; its site has every kind of page."""
    store = Store(str(root))
    commit(store, RAW, {"files/part.jsonl": b"{}"}, {"documents": 3, "bytes": 2, "licences": ["CC-BY-4.0"]})
    texts = [f"a document {HOSTILE} {'x' * 2000}", "another", "a third"]
    documents = parquet(id=["a", "b", "c"], text=texts, licence=["CC-BY-4.0"] * 3)
    commit(store, NORMALIZED, {"documents/part.parquet": documents}, {"documents": 3, "bytes": 2050})
    removed = {"documents": 2, "bytes": 2040, "removed": {"quality/too_few_words": 1}}
    commit(store, CURATED, {"documents/part.parquet": documents}, removed)
    commit(store, MIXTURE, {"mixture.json": b"{}"}, {"train_tokens": 1000})
    registration = _register(store)
    for specs in RUNS.values():
        for number, spec in enumerate(specs):
            if spec is not FAILED:
                metrics = parquet(**curve(1000, 2.0 + number))
                status = "diverged" if spec is RUNS["adamw"][0] else "succeeded"
                told = {"status": status, "eval_loss": 2.0 + number, "steps": 1000, "wandb_url": HOSTILE}
                commit(store, spec, {"metrics.parquet": metrics}, told)
    inputs = {"adamh/0": RUNS["adamh"][0], "adamw/0": RUNS["adamw"][0], "registration": registration}
    result = ArtifactSpec("experiments/optimizers/result", "compare_arms", "1", {}, inputs)
    told = {
        "compared": "adamh minus adamw",
        "difference": -0.25,
        "forecast_low": -0.1,
        "forecast_high": 0.0,
        "forecast_held": False,
        "registered_before_runs": True,
        "loss_adamw_high": 2.5,
        "figures": ["loss_curves"],
    }
    commit(store, result, {"result.json": b"{}"}, told)
    ruling = {"experiment": "optimizers", "verdict": "in progress", "conclusion": "", "said": None, "by": None}
    prose = (
        f"# A heading\n\nText, {HOSTILE} and [a link](javascript:alert(1)).\n\n### A deeper one\n\n![](http://x/y.png)\n\n"
        f"| cell | {HOSTILE} |\n| --- | ---: |\n| 1e9 | 2.5 |\n"
    )
    retrospective = ArtifactSpec(
        "experiments/optimizers/retrospective",
        "write_retrospective",
        "1",
        {"ruling": ruling, "prose": prose},
        {"registration": registration, "result": result},
    )
    commit(store, retrospective, {"retrospective.md": prose.encode()}, {"lines": 7})
    first = failure()
    record_run(store, "run-1", [first, failure(spec=RUNS["adamh"][0], status="succeeded", exit_class=None, loss=2.0)])
    record_run(store, "run-2", [failure("run-2", MIXTURE, exit_class=ExitClass.BUG, reason="a wrong guess")])
    corrected = failure("run-2", MIXTURE, exit_class=ExitClass.OUT_OF_MEMORY, reason="the kernel killed it")
    wrong = failure("run-2", MIXTURE)
    later = "2026-05-01T11:00:00.000+00:00"
    record_correction(store, dataclasses.replace(corrected, corrects=wrong.record, ended=later, note="I looked."))
    record_ruling(store, "optimizers", Verdict.PROMISING, "Too early to say.", "a@example.org")
    record_ruling(store, "optimizers", Verdict.MIXED, f"Neither is better. {HOSTILE}", "b@example.org")
    return store


def _register(store: Store) -> ArtifactSpec:
    declared = {
        "id": "optimizers",
        "title": f"AdamH against AdamW {HOSTILE}",
        "hypothesis": "One of them is better.",
        "metric": "validation loss, nats per token",
        "forecast": DifferenceForecast("adamh", "adamw", -0.1, 0.0).to_json(),
        "owner": "team:lab",
        "where": "any lab",
        "issue": "https://example.org/issues",
        "tags": ["optimizer", "nano"],
        "selection": [],
        "runs": {
            arm: [{"name": s.name, "partition": s.partition, "fingerprint": s.fingerprint} for s in specs]
            for arm, specs in RUNS.items()
        },
    }
    spec = ArtifactSpec("experiments/optimizers/registration", "register_experiment", "1", declared)
    commit(store, spec, {"experiment.json": b"{}"}, {"title": declared["title"]})
    return spec


def built(store: Store, folder: Path) -> dict[str, Any]:
    """Build the site of a store into a folder."""

    def write(path: str, data: bytes) -> None:
        file = folder / path
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(data)

    return build_site(gather(store, TITLE), store, write)
