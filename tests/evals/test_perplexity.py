"""Perplexity of real models held against their own logits, against what a model must say that knows nothing, and what
becomes of models that cannot be scored."""

import dataclasses
import math
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
import pytest

from marin_core.data.tokens.tokenizer import read_tokenizer
from marin_core.errors import MarinError
from marin_core.evals.perplexity import DocumentScores
from marin_core.evals.result import RESULT, EvalResult
from marin_core.store import Artifact, ArtifactSpec, Store
from marin_core.tasks.evals import score_perplexity
from marin_core.training.model import trained_model
from tests.data.parts import identity
from tests.evals.models import (
    SEQ_LEN,
    TEXTS,
    commit_model,
    commit_texts,
    commit_tokenizer,
    perplexity_spec,
    run,
    tiny_plan,
    uniform,
)

VOCAB = 300


@dataclasses.dataclass(frozen=True)
class Lab:
    store: Store
    folder: Path
    tokenizer: ArtifactSpec
    documents: dict[str, ArtifactSpec]

    def evaluated(self, checkpoint: ArtifactSpec, **config: Any) -> Artifact:
        spec = perplexity_spec(checkpoint, self.tokenizer, self.documents, **config)
        run(self.store, spec, score_perplexity, self.folder)
        return self.store.artifact(spec)


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Lab:
    folder = tmp_path_factory.mktemp("lab")
    store = Store(str(folder / "store"))
    documents = {name: commit_texts(store, name, texts) for name, texts in (("a", TEXTS[:3]), ("b", TEXTS[2:]))}
    return Lab(store, folder, commit_tokenizer(store, VOCAB), documents)


@pytest.fixture(scope="module")
def checkpoint(lab: Lab) -> ArtifactSpec:
    return commit_model(lab.store, tiny_plan(VOCAB), lab.tokenizer)


@pytest.fixture(scope="module")
def evaluation(lab: Lab, checkpoint: ArtifactSpec) -> Artifact:
    return lab.evaluated(checkpoint)


def test_losses_are_those_of_the_models_own_logits(lab: Lab, checkpoint: ArtifactSpec, evaluation: Artifact) -> None:
    """Document by document, window by window, without batches, masks or weights."""
    files = read_tokenizer(lab.store.artifact(lab.tokenizer))
    expected = _nats_from_logits(lab, checkpoint, files.bos_id)
    scores = DocumentScores.read(evaluation).table
    assert len(scores) == 5
    for row in scores.iter_rows(named=True):
        nats, tokens, size = expected[row["id"]]
        assert row["nats"] == pytest.approx(nats, rel=1e-5)
        assert (row["tokens"], row["bytes"]) == (tokens, size)
        assert row["ends"][-1] == size and sum(row["losses"]) == pytest.approx(nats, rel=1e-5)


def test_metrics_are_sums_over_documents(evaluation: Artifact) -> None:
    result = EvalResult.from_json(evaluation.read_json(RESULT))
    table = DocumentScores.read(evaluation).table
    assert result.status == "succeeded" and result.examples == len(table) == 5
    by_set = table.group_by("set", maintain_order=True).agg(pl.col("nats", "bytes", "tokens").sum())
    bits = {row["set"]: row["nats"] / math.log(2) / row["bytes"] for row in by_set.iter_rows(named=True)}
    value = {name: metric.value for name, metric in result.metrics.items()}
    assert value["a/bits_per_byte"] == pytest.approx(bits["a"])
    assert value["macro/bits_per_byte"] == pytest.approx((bits["a"] + bits["b"]) / 2)
    nats, size, tokens = by_set.select(pl.col("nats", "bytes", "tokens").sum()).row(0)
    assert value["micro/bits_per_byte"] == pytest.approx(nats / math.log(2) / size)
    assert value["micro/nats_per_token"] == pytest.approx(nats / tokens)
    assert all(metric.stderr and not metric.higher_is_better for metric in result.metrics.values())
    assert result.details["sets"]["a"]["bytes"] == sum(len(text.encode()) for text in TEXTS[:3])
    assert evaluation.record.summary["speed"].keys() >= {"compile_seconds", "seconds"}


def test_the_result_names_its_model(lab: Lab, checkpoint: ArtifactSpec, evaluation: Artifact) -> None:
    model = EvalResult.from_json(evaluation.read_json(RESULT)).model
    assert model.run == checkpoint.fingerprint and model.content == lab.store.artifact(checkpoint).record.content
    assert (model.partition, model.recipe, model.step) == ("1e11-d0016", "nano", 2)
    assert model.tokens == tiny_plan(VOCAB).tokens


def test_a_model_that_knows_nothing_needs_the_logarithm_of_the_vocabulary(lab: Lab) -> None:
    guesses = lab.evaluated(commit_model(lab.store, tiny_plan(VOCAB, seed=1), lab.tokenizer, uniform))
    metrics = EvalResult.from_json(guesses.read_json(RESULT)).metrics
    for name in ("a", "b", "macro", "micro"):
        assert metrics[f"{name}/nats_per_token"].value == pytest.approx(math.log(VOCAB), rel=1e-6)
        assert metrics[f"{name}/nats_per_token"].stderr == pytest.approx(0, abs=1e-6)


def test_only_the_first_bytes_of_a_set_are_scored(lab: Lab, checkpoint: ArtifactSpec, evaluation: Artifact) -> None:
    some = DocumentScores.read(lab.evaluated(checkpoint, max_bytes=100))
    assert some.table.group_by("set").agg(pl.col("bytes").sum())["bytes"].to_list() == [100, 100]
    # A cut document begins like the whole one: what comes after changes nothing before, but in the token that is cut.
    whole = DocumentScores.read(evaluation).table
    for row in some.table.iter_rows(named=True):
        same = whole.filter((pl.col("id") == row["id"]) & (pl.col("set") == row["set"])).row(0, named=True)
        count = len(row["ends"]) - 4
        assert row["ends"][:count] == same["ends"][:count]
        assert row["losses"][:count] == pytest.approx(same["losses"][:count], rel=1e-4)


def test_a_run_that_diverged_is_a_failed_evaluation(lab: Lab) -> None:
    diverged = ArtifactSpec("checkpoints/delphi", "train", "1", {"diverges": True}, partition="1e11-d0016")
    with lab.store.writer(diverged) as writer:
        writer.write_json("plan.json", tiny_plan(VOCAB).to_json())
        writer.commit({"status": "diverged", "steps": 2})
    result = EvalResult.from_json(lab.evaluated(diverged).read_json(RESULT))
    assert (result.status, result.metrics) == ("failed", {})
    assert result.error == "the run diverged after 2 steps and left no model; nothing can be evaluated"


def test_a_model_without_finite_losses_is_a_failed_evaluation(lab: Lab) -> None:
    broken = commit_model(lab.store, tiny_plan(VOCAB, seed=2), lab.tokenizer, _with_nan)
    artifact = lab.evaluated(broken)
    result = EvalResult.from_json(artifact.read_json(RESULT))
    assert result.status == "failed" and "have no finite loss" in str(result.error)
    assert "retryable" not in artifact.record.summary


def test_another_tokenizer_than_the_models_is_an_error(lab: Lab, checkpoint: ArtifactSpec) -> None:
    other = dataclasses.replace(lab, tokenizer=commit_tokenizer(lab.store, VOCAB + 8))
    with pytest.raises(MarinError, match="has 308 entries, the model of 1e11-d0016 300"):
        other.evaluated(checkpoint)


def _nats_from_logits(lab: Lab, checkpoint: ArtifactSpec, head: int | None) -> dict[str, tuple[float, int, int]]:
    """Of every document its nats, tokens and bytes."""
    import haliax as hax
    import jax
    from levanter.layers.attention import AttentionMask
    from tokenizers import Tokenizer

    plan = tiny_plan(VOCAB)
    tokenizer = Tokenizer.from_str(lab.store.artifact(lab.tokenizer).read("tokenizer.json").decode())
    tokenizer.encode_special_tokens = True
    folder = lab.store.artifact(checkpoint).path("checkpoints", f"step-{plan.steps - 1}")
    found = {}

    @hax.named_jit
    def probabilities(model: Any, ids: Any) -> Any:
        return jax.nn.log_softmax(model(ids, AttentionMask.causal()).rearrange((model.Pos, ...)).array)

    with trained_model(plan, folder, lab.store.url(lab.tokenizer), lab.folder) as trained:
        for text in TEXTS:
            ids = [head, *tokenizer.encode(text, add_special_tokens=False).ids]
            nats = 0.0
            for begin in range(0, len(ids) - 1, SEQ_LEN - 1):
                content = ids[begin : begin + SEQ_LEN]
                padded = np.asarray(content + [0] * (SEQ_LEN - len(content)), np.int32)
                logs = np.asarray(probabilities(trained.model, hax.named(padded, trained.model.Pos)), np.float64)
                nats -= sum(logs[at, token] for at, token in enumerate(content[1:]))
            found[identity(text)] = (nats, len(ids) - 1, len(text.encode()))
    return found


def _with_nan(model: Any) -> Any:
    import equinox as eqx

    return eqx.tree_at(lambda m: m.lm_head.weight, model, model.lm_head.weight * float("nan"))
