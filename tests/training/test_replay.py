"""What `marin data at` says a run saw is what a real run read."""

import dataclasses
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from marin_core.build import Build, BuildOptions
from marin_core.data.mixing.replay import Replay, ReplayedSequence
from marin_core.graph import LabGraph
from marin_core.jobs.process import worker_environment
from marin_core.recipes import TrainPlan
from marin_core.store import ArtifactSpec, Store
from tests.conftest import REPOSITORY, LabEnvironment
from tests.reference import load_tokenizer, special_ids

pytestmark = pytest.mark.slow
CELL = "8e9-d0040"
STEPS = 6


@pytest.fixture(scope="module")
def plan(shards: tuple[LabEnvironment, LabGraph]) -> TrainPlan:
    _, graph = shards
    return dataclasses.replace(graph.plan(graph.candidates[CELL]), steps=STEPS)


@pytest.fixture(scope="module")
def consumed(shards: tuple[LabEnvironment, LabGraph], plan: TrainPlan) -> dict[int, list[int]]:
    """Token ids by index, as a run of six steps read them."""
    lab, graph = shards
    written = lab.folder / "consumed.json"
    (lab.folder / "plan.json").write_text(json.dumps(plan.to_json()))
    (lab.folder / "mixture.json").write_text(json.dumps(graph.mixture.to_json()))
    subprocess.run(
        [sys.executable, "-m", "tests.training.test_replay", str(lab.folder), str(lab.store)],
        cwd=REPOSITORY,
        env=lab.variables | worker_environment(1, lab.folder / "state") | compile_cache(lab),
        check=True,
        timeout=300,
    )
    return {int(index): tokens for index, tokens in json.loads(written.read_text()).items()}


def compile_cache(lab: LabEnvironment) -> dict[str, str]:
    return {"JAX_COMPILATION_CACHE_DIR": lab.variables["JAX_COMPILATION_CACHE_DIR"]}


def test_replay_names_the_documents_that_a_run_read(
    shards: tuple[LabEnvironment, LabGraph], plan: TrainPlan, consumed: dict[int, list[int]]
) -> None:
    lab, graph = shards
    store = Store(str(lab.store))
    replay = Replay(store, store.artifact(graph.mixture), seq_len=plan.seq_len, seed=plan.seed, characters=10**9)
    assert set(range(STEPS * plan.batch_size)) <= consumed.keys()
    sequences = [s for step in range(STEPS) for s in replay.batch(step, plan.batch_size)]
    encode = reference(store, graph)
    for sequence in sequences:
        assert tokens_of(sequence, encode) == consumed[sequence.index]
    assert {sequence.source for sequence in sequences} == {"code", "prose", "math"}
    # Documents that begin before their sequence, that end after it, and several in one.
    spans = [span for sequence in sequences for span in sequence.documents]
    assert any(span.offset > 0 for span in spans)
    assert any(len(sequence.documents) > 1 for sequence in sequences)


def test_the_command_prints_the_batch_of_a_step(
    shards: tuple[LabEnvironment, LabGraph], plan: TrainPlan, consumed: dict[int, list[int]]
) -> None:
    lab, _ = shards
    at = ["marin", "data", "at", "--step", "3"]
    by_run = lab.run(*at, "--run", CELL, "--json")
    assert by_run.returncode == 0, by_run.stderr
    by_hand = lab.run(*at, "--mixture", "tiny", "--seed", "0", "--batch", str(plan.batch_size), "--json")
    assert by_hand.stdout == by_run.stdout
    sequences = json.loads(by_run.stdout)
    assert [s["index"] for s in sequences] == list(range(3 * plan.batch_size, 4 * plan.batch_size))
    assert all(sum(d["tokens"] for d in s["documents"]) == plan.seq_len for s in sequences)
    table = lab.run(*at, "--run", CELL).stdout
    assert sequences[0]["documents"][0]["id"] in table


def test_one_hash_stands_for_an_order(shards: tuple[LabEnvironment, LabGraph]) -> None:
    lab, _ = shards

    def order_hash(*options: str) -> str:
        result = lab.run("marin", "data", "order-hash", "--sequences", "20000", *options)
        assert result.returncode == 0, result.stderr
        return result.stdout.strip()

    first = order_hash()
    assert len(first) == 32
    assert order_hash("--seed", "0") == first
    assert order_hash("--mixture", "tiny") == first
    assert order_hash("--seed", "1") != first
    assert order_hash("--seq-len", "128") != first


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["at", "--step", "0"], "give --batch, or --run"),
        (["at", "--step", "0", "--run", "1e9-d0001"], "no run '1e9-d0001' in the ladder of profile tiny"),
        (["at", "--step", "0", "--batch", "2", "--mixture", "nano"], "no mixture 'nano' in the store"),
        (["order-hash", "--mixture", "tiny@0123456789abcdef"], "mixture/tiny (0123456789abcdef) is not in the store"),
        (["at", "--step", "-1", "--batch", "2"], "Invalid value for '--step'"),
    ],
)
def test_a_question_that_cannot_be_answered_is_one_line(
    shards: tuple[LabEnvironment, LabGraph], options: list[str], message: str
) -> None:
    result = shards[0].run("marin", "data", *options)
    assert result.returncode != 0
    assert message in result.stderr
    assert "Traceback" not in result.stderr


def reference(store: Store, graph: LabGraph) -> Any:
    """Text -> BOS + ids + EOS by the `tokenizers` library."""
    artifact = store.artifact(graph.tokenizer)
    tokenizer = load_tokenizer(artifact)
    bos, eos = special_ids(artifact, tokenizer)
    return lambda text: [bos, *tokenizer.encode(text, add_special_tokens=False).ids, eos]


def tokens_of(sequence: ReplayedSequence, encode: Any) -> list[int]:
    return [id_ for span in sequence.documents for id_ in encode(span.text)[span.offset : span.offset + span.tokens]]


def run_and_record(folder: Path, root: str) -> None:
    """Train the plan in `folder` for real, and write down what the loader was given."""
    from marin_core.tasks.training import train_data
    from marin_core.training import examples
    from marin_core.training.run import RunOptions, train

    plan = TrainPlan.from_json(json.loads((folder / "plan.json").read_text()))
    mixture = ArtifactSpec.from_json(json.loads((folder / "mixture.json").read_text()))
    spec = ArtifactSpec("checkpoints/recorded", "train", "1", {"plan": plan.to_json()}, {"mixture": mixture})
    recorded: dict[int, list[int]] = {}
    make = examples._ordered

    def watched(components: dict[str, Any], order: Any) -> Any:
        dataset = make(components, order)
        read = dataset.get_batch

        async def get_batch(indices: Any) -> Any:
            batch = await read(indices)
            recorded.update({int(i): np.asarray(e.tokens).tolist() for i, e in zip(indices, batch, strict=True)})
            return batch

        dataset.get_batch = get_batch
        return dataset

    examples._ordered = watched
    store = Store(root)
    with Store(str(folder / "recorded")).writer(ArtifactSpec("checkpoints/recorded", "train", "1")) as writer:
        data = train_data(Build(spec, store, writer, BuildOptions(folder), print), mixture, plan)
        summary, _ = train(plan, data, writer, RunOptions(folder, None), print, lambda progress: None)
    assert summary["status"] == "succeeded"
    (folder / "consumed.json").write_text(json.dumps(recorded))


if __name__ == "__main__":
    run_and_record(Path(sys.argv[1]), sys.argv[2])
