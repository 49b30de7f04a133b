"""All results of a checkpoint together, with what the training sources had of each evaluation's text."""

from collections.abc import Mapping

import polars as pl
import pytest

from marin_core.data.contamination.stage import contamination_stage
from marin_core.data.stages import run_stage
from marin_core.evals.result import RESULT, EvalResult, Metric, ModelIdentity
from marin_core.store import ArtifactSpec, Store
from marin_core.tasks.evals import collect_evals
from tests.data.parts import commit_documents, commit_parts, documents, source
from tests.evals.models import run

MODEL = ModelIdentity("f00", "c0ffee", "1e11-d0016", "nano", "nano_v1", 10_000, 200_000, 99)
ITEMS = [
    "Natalia sold clips to 48 of her friends in April, and then she sold half as many clips in May, so how many is it?",
    "A robe takes two bolts of blue fiber and half that much white fiber, how many bolts in total does it take then?",
    "The quick brown fox is said to jump over the lazy dog, but nobody who was asked has ever seen it happen at night.",
]


Collected = tuple[list[EvalResult], pl.DataFrame, Mapping[str, object]]


@pytest.fixture(scope="module")
def collected(tmp_path_factory: pytest.TempPathFactory) -> Collected:
    folder = tmp_path_factory.mktemp("store")
    store = Store(str(folder))
    items = ArtifactSpec("normalized/riddles", "normalize", "1")
    commit_parts(store, items, {"documents": [documents(ITEMS)]}, {"documents": len(ITEMS)})
    sources = {
        "web": [
            f"Found on a forum: {ITEMS[0]} Answer: 72.",
            f"Again: {ITEMS[0].upper()}",
            "A page about nothing at all.",
        ],
        "books": ["Once upon a time there was a lab.", "And it trained models until the very end."],
    }
    looked = {
        f"contamination/{name}": commit_contamination(store, name, texts, items) for name, texts in sources.items()
    }
    results = {
        "perplexity": EvalResult(
            "succeeded",
            "perplexity",
            "1",
            MODEL,
            5,
            {"macro/bits_per_byte": Metric(1.5, 0.1, "bits per byte", False)},
            ("riddles", "web"),
        ),
        "quiz": EvalResult(
            "succeeded", "quiz", "2.0", MODEL, 9, {"acc": Metric(0.5, None, "accuracy", True)}, ("other",)
        ),
        "hub_task": EvalResult("infra_failed", "hub_task", "3", MODEL, error="the hub did not answer"),
        "broken": EvalResult("failed", "broken", "1", MODEL, error="no such metric"),
    }
    inputs = {name: commit_result(store, result) for name, result in results.items()}
    spec = ArtifactSpec("evals/delphi", "collect_evals", "1", {}, {**inputs, **looked}, "1e11-d0016")
    record = run(store, spec, collect_evals, folder)
    artifact = store.artifact(spec)
    written = [EvalResult.from_json(result) for result in artifact.read_json("evals.json")]
    return written, pl.read_parquet(artifact.read("evals.parquet")), record.summary


def test_contamination_stands_beside_the_score(collected: Collected) -> None:
    results = {result.evaluation: result for result in collected[0]}
    found = results["perplexity"].contamination
    assert found is not None
    # `web` is no evaluation source: nothing is held against what is trained on.
    assert list(found) == ["riddles"]
    assert found["riddles"]["items"] == 3
    web, books = (found["riddles"]["training_sources"][name] for name in ("web", "books"))
    assert (web["documents_checked"], web["documents_removed"], web["items_found"]) == (3, 2, 1)
    assert web["items_share"] == pytest.approx(1 / 3)
    assert web["highest_overlap"] == 1.0
    assert (books["documents_removed"], books["items_found"], books["highest_overlap"]) == (0, 0, 0.0)
    # Nobody looked for the text of the quiz.
    assert results["quiz"].contamination is None


def test_the_table_has_a_row_for_every_metric_and_every_failure(collected: Collected) -> None:
    rows = {row["evaluation"]: row for row in collected[1].iter_rows(named=True)}
    assert len(collected[1]) == 4
    perplexity = rows["perplexity"]
    assert (perplexity["partition"], perplexity["run"]) == ("1e11-d0016", "f00")
    assert (perplexity["metric"], perplexity["value"], perplexity["stderr"]) == ("macro/bits_per_byte", 1.5, 0.1)
    assert perplexity["higher_is_better"] is False and perplexity["examples"] == 5
    assert (perplexity["contaminated_documents"], rows["quiz"]["contaminated_documents"]) == (2, None)
    assert {name: row["status"] for name, row in rows.items()} == {
        "perplexity": "succeeded",
        "quiz": "succeeded",
        "hub_task": "infra_failed",
        "broken": "failed",
    }
    assert rows["broken"]["metric"] is rows["hub_task"]["value"] is None


def test_the_summary_tells_scores_and_failures_apart(collected: Collected) -> None:
    summary = collected[2]
    assert summary["scores"] == {"perplexity": {"macro/bits_per_byte": 1.5}, "quiz": {"acc": 0.5}}
    assert (summary["failed"], summary["infra_failed"]) == (["broken"], ["hub_task"])
    assert summary["contaminated_documents"] == {"perplexity": 2}


def commit_result(store: Store, result: EvalResult) -> ArtifactSpec:
    spec = ArtifactSpec(f"evals/delphi/{result.evaluation}", "any", "1", partition="1e11-d0016")
    with store.writer(spec) as writer:
        writer.write_json(RESULT, result.to_json())
        writer.commit(result.summary)
    return spec


def commit_contamination(store: Store, name: str, texts: list[str], items: ArtifactSpec) -> ArtifactSpec:
    """The stage's own artifact of a source whose documents all passed the stages before."""
    normalized = ArtifactSpec(f"normalized/{name}", "normalize", "1")
    committed = commit_documents(store, texts, spec=normalized)
    ids = documents(texts)["id"]
    verdicts = pl.DataFrame({"id": ids, "keep": True, "reason": pl.Series([None] * len(ids), dtype=pl.String)})
    quality = commit_parts(store, ArtifactSpec(f"quality/{name}", "quality", "1"), {"verdicts": [verdicts]})
    kept = pl.DataFrame({"id": ids, "cluster": "c", "duplicate": False})
    near = commit_parts(store, ArtifactSpec(f"near_duplicates/{name}", "near", "1"), {"duplicates": [kept]})
    spec = ArtifactSpec(f"contamination/{name}", "find", "1", {}, {"evaluation/riddles": items})
    with store.writer(spec) as writer:
        evaluations = {"riddles": store.artifact(items)}
        stage = contamination_stage(source(name), committed, quality, near, evaluations, writer, print)
        writer.commit(run_stage(stage, writer))
    return spec
