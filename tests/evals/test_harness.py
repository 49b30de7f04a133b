"""lm-evaluation-harness on models that say nothing, or the same thing over and over: every score is known beforehand.
And what becomes of tasks, servers and processes that fail."""

import dataclasses
import json
import math
import os
import shutil
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import httpx
import pytest

from marin_core.data.tokens.tokenizer import read_tokenizer
from marin_core.evals import harness_client
from marin_core.evals.harness_client import HarnessProcess
from marin_core.evals.harness_request import HarnessRequest, Reply
from marin_core.evals.serving import serving
from marin_core.store import ArtifactSpec, Store
from marin_core.training.model import trained_model
from tests.evals.harness_lab import TASKS, VOCAB, HarnessLab, echoing, not_a_number, write_files
from tests.evals.models import commit_model, commit_tokenizer, tiny_plan, uniform

pytest.importorskip("lm_eval", reason="the optional extra `evals` is not installed")


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Iterator[HarnessLab]:
    folder = tmp_path_factory.mktemp("harness")
    store = Store(str(folder / "store"))
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("OPENAI_API_KEY", "secret")  # for the process that all tests share
        yield HarnessLab(store, folder / "scratch", commit_tokenizer(store, VOCAB))
    if harness_client._warm is not None:
        harness_client._warm.kill()


@pytest.fixture(scope="module")
def knows_nothing(lab: HarnessLab) -> ArtifactSpec:
    """A model that finds every token equally likely."""
    return commit_model(lab.store, tiny_plan(VOCAB), lab.tokenizer, uniform)


@pytest.fixture(scope="module")
def repeats(lab: HarnessLab) -> ArtifactSpec:
    """A model that repeats the last token."""
    return commit_model(lab.store, tiny_plan(VOCAB, seed=1), lab.tokenizer, echoing)


@pytest.fixture(scope="module")
def arithmetic(lab: HarnessLab) -> ArtifactSpec:
    return lab.task("arithmetic", TASKS / "arithmetic")


@pytest.fixture(scope="module")
def tokens_of(lab: HarnessLab) -> Any:
    """How many tokens a text has after another."""
    from tokenizers import Tokenizer

    tokenizer = Tokenizer.from_str(read_tokenizer(lab.store.artifact(lab.tokenizer)).tokenizer_json)

    def count(context: str, text: str) -> int:
        return len(tokenizer.encode(context + text).ids) - len(tokenizer.encode(context).ids)

    return count


def test_multiple_choice_of_a_model_that_knows_nothing(
    lab: HarnessLab, knows_nothing: ArtifactSpec, arithmetic: ArtifactSpec, tokens_of: Any
) -> None:
    """To it a choice is as unlikely as it has tokens."""
    evaluation = lab.evaluated(knows_nothing, "arithmetic", arithmetic)
    result, metrics = evaluation.result, evaluation.result.metrics
    assert (result.status, result.version, result.examples) == ("succeeded", "1.2", 4)
    assert (result.model.run, result.model.partition) == (knows_nothing.fingerprint, "1e11-d0016")
    right, shares, logprobs, bits = [], [], [], []
    for line in (TASKS / "arithmetic" / "questions.jsonl").read_text().splitlines():
        asked = json.loads(line)
        costs = [tokens_of(asked["question"], choice) * math.log(VOCAB) for choice in asked["choices"]]
        at = asked["answer"]
        right.append(float(costs.index(min(costs)) == at))
        logprobs.append(-costs[at])
        shares.append(-costs[at] - math.log(sum(math.exp(-cost) for cost in costs)))
        bits.append(costs[at] / math.log(2) / len(asked["choices"][at]))
    expected = {"acc": right, "choice_logprob": shares, "logprob": logprobs, "bpb": bits}
    for name, values in expected.items():
        mean = sum(values) / 4
        deviation = math.sqrt(sum((value - mean) ** 2 for value in values) / 3)
        assert metrics[name].value == pytest.approx(mean, rel=1e-5), name
        assert metrics[name].stderr == pytest.approx(deviation / 2, rel=1e-4), name
    assert 0 < metrics["acc"].value < 1 and metrics["chance"].value == 0.25
    assert metrics["choice_logprob"].unit == "nats" and metrics["choice_logprob"].higher_is_better
    assert metrics["bpb"].unit == "bits per byte" and not metrics["bpb"].higher_is_better


def test_few_shot_examples_and_a_limit(lab: HarnessLab, knows_nothing: ArtifactSpec, arithmetic: ArtifactSpec) -> None:
    evaluation = lab.evaluated(knows_nothing, "arithmetic", arithmetic, few_shot=1, limit=2, metric="acc")
    assert evaluation.result.examples == 2
    samples = list(evaluation.samples)
    assert [sample["document"] for sample in samples] == [0, 1]
    assert all(sample["arguments"][0][0].count("=") == 2 for sample in samples)
    assert evaluation.artifact.read_json("harness.json")["n-shot"] == {"arithmetic": 1}


def test_a_group_has_its_tasks_metrics_beside_its_own(
    lab: HarnessLab, repeats: ArtifactSpec, arithmetic: ArtifactSpec
) -> None:
    """`last_digit` asks for what the model repeats, and for something else."""
    result = lab.evaluated(repeats, "numbers", arithmetic).result
    assert (result.status, result.version, result.examples) == ("succeeded", "4", 6)
    assert result.metrics["last_digit/acc"].value == 0.5
    of_arithmetic = result.metrics["arithmetic/acc"].value
    assert result.metrics["acc"].value == pytest.approx((4 * of_arithmetic + 2 * 0.5) / 6)


def test_generation_up_to_a_stop_text_is_compared_with_the_answer(lab: HarnessLab, repeats: ArtifactSpec) -> None:
    """Right are two spans that it goes on with four times, and nothing before a line break. Of the answer that is wrong
    because it ends too early, every token is likely all the same."""
    evaluation = lab.evaluated(repeats, "repetition", lab.task("repetition", TASKS / "repetition"))
    result = evaluation.result
    assert (result.status, result.version, result.examples) == ("succeeded", "2.0", 4)
    samples = list(evaluation.samples)
    assert [sample["filter"] for sample in samples] == ["none"] * 4 + ["first-letter"] * 4
    said = {sample["arguments"][0][0]: sample["filtered"][0] for sample in samples[:4]}
    assert said == {"Go on: QQQ": "QQQQ", "Go on: ZZZ": "ZZZZ", "Go on: @@": "@@@@", "Go on: Q\n": ""}
    assert (result.metrics["exact_match"].value, result.metrics["exact_match/first-letter"].value) == (0.75, 0.0)
    assert 0 <= result.metrics["bpb"].value < 1e-3


def test_one_process_evaluates_one_model_after_another(
    lab: HarnessLab, knows_nothing: ArtifactSpec, repeats: ArtifactSpec, arithmetic: ArtifactSpec
) -> None:
    first = lab.evaluated(knows_nothing, "arithmetic", arithmetic)
    process = harness_client._warm
    second = lab.evaluated(repeats, "arithmetic", arithmetic)
    assert process is not None and harness_client._warm is process and process.alive
    assert first.result.metrics["logprob"].value != second.result.metrics["logprob"].value


@pytest.mark.parametrize(
    ("files", "fields", "says"),
    [
        ({"arithmetic.yaml": "task: [arithmetic\n"}, {}, "no task 'arithmetic'"),
        ({"other.yaml": "task: other\noutput_type: multiple_choice\n"}, {}, "no task 'arithmetic'"),
        ({"arithmetic.yaml": (TASKS / "arithmetic" / "arithmetic.yaml").read_text()}, {}, "questions.jsonl"),
        (
            {
                "arithmetic.yaml": (TASKS / "arithmetic" / "arithmetic.yaml").read_text(),
                "questions.jsonl": '{"question": "1", "choices": [" 1", " 2"]}\n',
            },
            {},
            "no example a right choice",
        ),
        (
            {name: (TASKS / "arithmetic" / name).read_text() for name in ("arithmetic.yaml", "questions.jsonl")},
            {"metric": "rouge"},
            "no metric 'rouge'; there are acc, choice_logprob",
        ),
    ],
    ids=["broken YAML", "other task", "no data", "no column of answers", "unknown metric"],
)
def test_a_task_that_does_not_run_has_failed(
    lab: HarnessLab,
    knows_nothing: ArtifactSpec,
    tmp_path: Path,
    files: dict[str, str],
    fields: dict[str, Any],
    says: str,
) -> None:
    task = lab.task("arithmetic", write_files(tmp_path / "task", files))
    result = lab.evaluated(knows_nothing, "arithmetic", task, **fields).result
    assert result.status == "failed" and result.error
    assert says in result.error and "\n" not in result.error
    assert not result.metrics


def test_a_model_without_numbers_has_failed(lab: HarnessLab, arithmetic: ArtifactSpec) -> None:
    broken = commit_model(lab.store, tiny_plan(VOCAB, seed=2), lab.tokenizer, not_a_number)
    result = lab.evaluated(broken, "arithmetic", arithmetic).result
    assert result.status == "failed" and "not finite" in str(result.error)


def test_a_run_that_left_no_model_has_failed(lab: HarnessLab, arithmetic: ArtifactSpec) -> None:
    plan = tiny_plan(VOCAB, seed=3)
    spec = ArtifactSpec("checkpoints/delphi", "train", "1", {"plan": plan.to_json()}, partition="diverged")
    with lab.store.writer(spec) as writer:
        writer.write_json("plan.json", plan.to_json())
        writer.commit({"status": "diverged", "steps": 2})
    result = lab.evaluated(spec, "arithmetic", arithmetic).result
    assert result.status == "failed" and "diverged after 2 steps" in str(result.error)


def test_a_model_that_is_too_large_for_this_place_is_no_result(lab: HarnessLab, arithmetic: ArtifactSpec) -> None:
    """Its MLP is wider than any memory, and of its parameters nearly all are those that were never written: zeros."""
    import tensorstore

    plan, wide = tiny_plan(VOCAB, seed=4), 1 << 42
    small = commit_model(lab.store, plan, lab.tokenizer)
    large = dataclasses.replace(small, config={"plan": dataclasses.replace(plan, mlp_dim=wide).to_json()})
    with lab.store.writer(large) as writer:
        shutil.copytree(lab.store.artifact(small).path("checkpoints"), writer.path("checkpoints"))
        folder = writer.path("checkpoints", f"step-{plan.steps - 1}")
        arrays = tensorstore.KvStore.open({"driver": "ocdbt", "base": f"file://{folder}/"}).result()
        for key in arrays.list().result():
            if b"/mlp/" in key and key.endswith(b"zarr.json"):
                described = json.loads(arrays.read(key).result().value)
                described["shape"] = [wide if size == plan.mlp_dim else size for size in described["shape"]]
                arrays.write(key, json.dumps(described).encode()).result()
        writer.write_json("plan.json", large.config["plan"])
        writer.commit({"status": "succeeded", "steps": plan.steps})
    evaluation = lab.evaluated(large, "arithmetic", arithmetic)
    assert evaluation.result.status == "infra_failed" and "out of memory" in str(evaluation.result.error)
    assert evaluation.artifact.record.summary["retryable"]


@pytest.fixture(scope="module")
def endpoint(lab: HarnessLab, repeats: ArtifactSpec) -> Iterator[str]:
    """The model that repeats, served elsewhere: behind a door that wants a key."""
    files, plan = read_tokenizer(lab.store.artifact(lab.tokenizer)), tiny_plan(VOCAB, seed=1)
    folder = lab.store.artifact(repeats).path("checkpoints", f"step-{plan.steps - 1}")
    lab.scratch.mkdir(exist_ok=True)
    with (
        trained_model(plan, folder, lab.store.url(lab.tokenizer), lab.scratch) as trained,
        serving(trained, files) as url,
        _door(url) as door,
    ):
        yield door


class _door:
    """A server that passes on requests with the key `secret`, and answers paths like `/500/completions` by that
    status."""

    def __init__(self, behind: str):
        class Door(BaseHTTPRequestHandler):
            def do_POST(self) -> None:
                body = self.rfile.read(int(self.headers["Content-Length"]))
                if (status := self.path.split("/")[1]).isdigit():
                    return self._send(int(status), b'{"error": {"message": "told to"}}')
                if self.headers["Authorization"] != "Bearer secret":
                    return self._send(401, b'{"error": {"message": "no such key"}}')
                answer = httpx.post(f"{behind}/completions", content=body, timeout=60)
                return self._send(answer.status_code, answer.content)

            def do_GET(self) -> None:
                self._send(404, b"")

            do_HEAD = do_GET

            def _send(self, status: int, body: bytes) -> None:
                self.send_response(status)
                self.send_header("Content-Length", str(len(body)))
                self.end_headers()
                self.wfile.write(body)

            def log_message(self, format: str, *args: object) -> None: ...

        self._server = ThreadingHTTPServer(("127.0.0.1", 0), Door)

    def __enter__(self) -> str:
        threading.Thread(target=self._server.serve_forever, daemon=True).start()
        return f"http://127.0.0.1:{self._server.server_address[1]}"

    def __exit__(self, *error: object) -> None:
        self._server.shutdown()
        self._server.server_close()


def test_a_server_elsewhere_is_asked_in_place_of_the_checkpoint(
    lab: HarnessLab,
    knows_nothing: ArtifactSpec,
    repeats: ArtifactSpec,
    arithmetic: ArtifactSpec,
    endpoint: str,
) -> None:
    here = lab.evaluated(repeats, "arithmetic", arithmetic).result
    there = lab.evaluated(knows_nothing, "arithmetic", arithmetic, endpoint=endpoint, endpoint_model="it").result
    assert there.metrics == here.metrics
    # Whoever reads it can tell whose score it is.
    assert there.details == {"endpoint": endpoint, "endpoint_model": "it"} and not here.details
    for code, status in ((500, "infra_failed"), (400, "failed")):
        result = lab.evaluated(repeats, "arithmetic", arithmetic, endpoint=f"{endpoint}/{code}").result
        assert result.status == status and f"answered {code}" in str(result.error) and "told to" in str(result.error)
    nobody = lab.evaluated(repeats, "arithmetic", arithmetic, endpoint="http://127.0.0.1:9/v1").result
    assert nobody.status == "infra_failed" and "127.0.0.1:9" in str(nobody.error)


def test_data_that_a_hub_has_and_cannot_give_is_no_fault_of_the_task(
    lab: HarnessLab, knows_nothing: ArtifactSpec, endpoint: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A task in files is evaluated offline; when its data turn out to be a hub's, the hub is asked."""
    monkeypatch.setenv("HF_ENDPOINT", endpoint)
    text = (TASKS / "arithmetic" / "arithmetic.yaml").read_text().split("dataset_path")[0]
    remote = f"{text}dataset_path: nobody/has-this\ntest_split: test\ndoc_to_text: a\ndoc_to_target: b\n"
    task = lab.task("arithmetic", write_files(tmp_path / "task", {"arithmetic.yaml": remote}))
    evaluation = lab.evaluated(knows_nothing, "arithmetic", task)
    assert evaluation.result.status == "infra_failed" and "cannot be fetched" in str(evaluation.result.error)
    # Whoever asks for it again has it made again.
    assert evaluation.artifact.record.summary["retryable"]


def _request(folder: Path, **changes: Any) -> HarnessRequest:
    request = HarnessRequest(
        name="arithmetic",
        folder=str(TASKS / "arithmetic"),
        few_shot=0,
        limit=None,
        endpoint="http://127.0.0.1:9/v1",
        model="m",
        tokenizer=str(folder),
        bos=0,
        context=32,
        batch_size=8,
        tries=1,
        timeout_seconds=60,
        output=str(folder),
    )
    return dataclasses.replace(request, **changes)


def test_a_process_that_is_killed_is_told_with_its_last_lines(tmp_path: Path) -> None:
    process = HarnessProcess(tmp_path, offline=True)
    replies: list[Reply] = []
    request = _request(tmp_path)
    asked = threading.Thread(target=lambda: replies.append(process.run(request)), daemon=True)
    asked.start()
    deadline = time.monotonic() + 30
    while "--- arithmetic" not in process.log.read_text() and time.monotonic() < deadline:
        time.sleep(0.02)
    os.kill(process.pid, signal.SIGKILL)
    asked.join(10)
    assert not asked.is_alive() and not process.alive
    assert replies[0].status == "infra_failed"
    assert "killed by SIGKILL" in str(replies[0].error) and "--- arithmetic" in str(replies[0].error)


def test_a_task_that_takes_too_long_is_ended(tmp_path: Path) -> None:
    process = HarnessProcess(tmp_path, offline=True)
    began = time.monotonic()
    reply = process.run(_request(tmp_path, timeout_seconds=1))
    assert reply.status == "infra_failed" and "more than 1 seconds" in str(reply.error)
    assert time.monotonic() - began < 10 and not process.alive


def test_a_harness_that_is_not_installed_is_named_with_the_remedy(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    hidden = 'import sys\nsys.modules["lm_eval"] = None\n'
    monkeypatch.setenv("PYTHONPATH", str(write_files(tmp_path / "path", {"sitecustomize.py": hidden})))
    process = HarnessProcess(tmp_path, offline=True)
    reply = process.run(_request(tmp_path))
    process.close()
    assert reply.status == "infra_failed" and "uv sync --extra evals" in str(reply.error)


def test_workers_that_share_a_folder_do_not_share_a_log(tmp_path: Path) -> None:
    start = "import sys, pathlib; from marin_core.evals.harness_client import HarnessProcess"
    there = f"{start}; print(HarnessProcess(pathlib.Path(sys.argv[1]), offline=True).log)"
    other = subprocess.run([sys.executable, "-c", there, tmp_path], capture_output=True, text=True, check=True)
    process = HarnessProcess(tmp_path, offline=True)
    process.close()
    assert process.log.exists() and Path(other.stdout.strip()).exists()
    assert process.log != Path(other.stdout.strip())


def test_a_process_ends_with_its_parents_pipe(tmp_path: Path) -> None:
    process = HarnessProcess(tmp_path, offline=True)
    process.close()
    assert not process.alive
