"""A real model behind the completions protocol, asked over HTTP: its numbers are those of Levanter's own scoring, and
what it continues is what it finds likeliest."""

import dataclasses
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import httpx
import pytest

from marin_core.data.tokens.tokenizer import TokenizerFiles, read_tokenizer
from marin_core.evals.serving import serving
from marin_core.evals.serving_model import ServedModel
from marin_core.store import Store
from marin_core.training.model import TrainedModel, trained_model
from tests.evals.harness_lab import VOCAB, not_a_number
from tests.evals.models import SEQ_LEN, TEXTS, commit_model, commit_tokenizer, tiny_plan


@dataclass(frozen=True)
class Served:
    trained: TrainedModel
    files: TokenizerFiles
    url: str

    def ask(self, **request: Any) -> httpx.Response:
        return httpx.post(f"{self.url}/completions", json=request, timeout=120)

    def choices(self, **request: Any) -> list[dict[str, Any]]:
        answer = self.ask(**request)
        assert answer.status_code == 200, answer.text
        return answer.json()["choices"]

    def encode(self, text: str) -> list[int]:
        from tokenizers import Tokenizer

        return Tokenizer.from_str(self.files.tokenizer_json).encode(text, add_special_tokens=False).ids

    def decode(self, ids: Sequence[int]) -> str:
        from tokenizers import Tokenizer

        return Tokenizer.from_str(self.files.tokenizer_json).decode(list(ids), skip_special_tokens=False)

    def greedy(self, prompts: Sequence[Sequence[int]], tokens: int) -> list[list[int]]:
        """What follows each prompt, one token after the other, each the likeliest after all those before it."""
        model = ServedModel(self.trained)
        continued = [list(prompt) for prompt in prompts]
        for _ in range(tokens):
            for ids, scores in zip(continued, model.score(continued), strict=True):
                ids.append(int(scores.likeliest[-1]))
        return [ids[len(prompt) :] for ids, prompt in zip(continued, prompts, strict=True)]


@pytest.fixture(scope="module")
def store(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return Store(str(tmp_path_factory.mktemp("serving") / "store"))


@pytest.fixture(scope="module")
def served(store: Store, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    tokenizer, plan = commit_tokenizer(store, VOCAB), tiny_plan(VOCAB)
    checkpoint = store.artifact(commit_model(store, plan, tokenizer))
    files = read_tokenizer(store.artifact(tokenizer))
    folder = checkpoint.path("checkpoints", f"step-{plan.steps - 1}")
    scratch = tmp_path_factory.mktemp("scratch")
    with trained_model(plan, folder, store.url(tokenizer), scratch) as trained, serving(trained, files) as url:
        yield Served(trained, files, url)


def test_echoed_log_probabilities_are_levanters(served: Served) -> None:
    """Of prompts of all lengths up to the whole context, packed into few rows. A prompt's are those of any that it
    begins, so that Levanter has to score only the longest."""
    from levanter.inference.engine import score_token_sequence_logprobs

    ids = [0, *(token for text in TEXTS for token in served.encode(text))][:SEQ_LEN]
    expected = score_token_sequence_logprobs(served.trained.model, ids, 1)
    best = [next(iter(top.items())) for top in expected.top_token_logprobs]
    lengths = [1, 2, 5, 9, SEQ_LEN - 1, SEQ_LEN, 3, 17, 4]
    prompts = [ids[:length] for length in lengths]
    answers = served.choices(prompt=prompts, echo=True, logprobs=1, max_tokens=1, temperature=0)
    for length, answer in zip(lengths, answers, strict=True):
        said = answer["logprobs"]
        assert len(said["token_logprobs"]) == len(said["top_logprobs"]) == len(said["tokens"]) == length + 1
        assert said["token_logprobs"][0] is None and said["top_logprobs"][0] is None
        assert said["token_logprobs"][1:-1] == pytest.approx(expected.token_logprobs[1:length], abs=1e-4)
        tops = [next(iter(top.items())) for top in said["top_logprobs"][1:]]
        assert [text for text, _ in tops][:-1] == [served.decode([token]) for token, _ in best[1:length]]
        assert [value for _, value in tops][:-1] == pytest.approx([value for _, value in best[1:length]], abs=1e-4)
        # The token that is appended is the likeliest one, and says so.
        assert tops[-1] == (said["tokens"][-1], said["token_logprobs"][-1])
        assert answer["text"] == served.decode(ids[:length]) + said["tokens"][-1]


def test_a_token_is_the_likeliest_exactly_if_the_two_numbers_are_equal(served: Served) -> None:
    """The harness compares them so; JSON must not round one and not the other."""
    prompt = [0, *served.encode("x = [i for")]
    likeliest = served.greedy([prompt], 3)[0]
    answer = served.choices(prompt=prompt + likeliest, echo=True, logprobs=1, max_tokens=0, temperature=0)[0]
    said = answer["logprobs"]
    equal = [
        logprob == next(iter(top.values()))
        for logprob, top in zip(said["token_logprobs"][1:], said["top_logprobs"][1:], strict=True)
    ]
    assert equal[-3:] == [True] * 3 and not all(equal)


def test_a_text_begins_as_a_document_does_in_training(served: Served) -> None:
    text, ids = TEXTS[3][:20], [served.files.bos_id, *served.encode(TEXTS[3][:20])]
    assert served.files.bos_id is not None
    as_text, as_ids = (served.choices(prompt=prompt, echo=True, logprobs=1, max_tokens=0) for prompt in (text, [ids]))
    assert as_text == as_ids


def test_continues_with_the_likeliest_tokens_up_to_a_stop_text(served: Served) -> None:
    prompts = [[0, *served.encode(text)] for text in ("print(", "area", "the ", "x")]
    expected = [served.decode(ids) for ids in served.greedy(prompts, 6)]
    stop = expected[0][2:4]
    answers = served.choices(prompt=prompts, max_tokens=6, temperature=0, stop=[stop])
    assert [answer["text"] for answer in answers] == [text.split(stop)[0] for text in expected]
    assert [answer["finish_reason"] for answer in answers] == ["stop" if stop in t else "length" for t in expected]


@pytest.mark.parametrize(
    ("request_", "status", "says"),
    [
        ({"prompt": [[0] * (SEQ_LEN + 1)], "echo": True, "logprobs": 1, "max_tokens": 0}, 400, "33 tokens"),
        ({"prompt": [[0] * 30], "max_tokens": 3, "temperature": 0}, 400, "30 tokens, and 3 are to follow"),
        ({"prompt": [[VOCAB]], "echo": True, "logprobs": 1}, 400, "below 300"),
        ({"prompt": []}, 400, "0 tokens"),
        ({"prompt": [[0]], "echo": True, "logprobs": 5, "max_tokens": 1}, 400, "logprobs 1"),
        ({"prompt": [[0]], "n": 2}, 400, "n is 2"),
        ({"prompt": [[0]], "temperature": "warm"}, 400, "temperature is 'warm'"),
        ({"prompt": {"a": 1}}, 400, "prompt is no text"),
    ],
)
def test_refuses_what_it_cannot_answer(served: Served, request_: dict[str, Any], status: int, says: str) -> None:
    answer = served.ask(**request_)
    assert answer.status_code == status
    assert says in answer.json()["error"]["message"]


def test_refuses_what_is_no_request(served: Served) -> None:
    assert httpx.post(f"{served.url}/completions", content=b"{").status_code == 400
    assert httpx.post(f"{served.url}/completions", json=[1]).status_code == 400
    assert httpx.post(f"{served.url}/embeddings", json={}).status_code == 404
    assert [model["object"] for model in httpx.get(f"{served.url}/models").json()["data"]] == ["model"]


def test_a_model_that_gives_no_numbers_is_told_as_such(served: Served) -> None:
    broken = dataclasses.replace(served.trained, model=not_a_number(served.trained.model))
    with serving(broken, served.files) as url:
        answer = httpx.post(
            f"{url}/completions", json={"prompt": [[0, 5]], "echo": True, "logprobs": 1, "max_tokens": 0}, timeout=120
        )
    assert answer.status_code == 422
    assert "not finite" in answer.json()["error"]["message"]
