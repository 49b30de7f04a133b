"""A trained model behind the part of OpenAI's completions protocol that evaluations use, on this machine only.

    POST /v1/completions   prompts as texts or token ids; `echo` with `logprobs: 1` gives the log-probability of each
                           token of the prompt and the likeliest in its place; else the prompt is continued, up to
                           `max_tokens` or one of `stop`
    GET  /v1/models        the one model

Answers one request after the other: a request holds many prompts, and a model computes them together.
"""

import contextlib
import itertools
import json
import threading
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from http.server import BaseHTTPRequestHandler, HTTPServer
from typing import TYPE_CHECKING, Any

import numpy as np

from marin_core.data.tokens.tokenizer import TokenizerFiles
from marin_core.evals.serving_model import Sampling, ServedModel, TokenScores

if TYPE_CHECKING:
    from tokenizers import Tokenizer

    from marin_core.training.model import TrainedModel

MODEL = "marin"
_PATHS = "POST /v1/completions and GET /v1/models"
# A client that connects and then says nothing must not keep the others waiting for ever. Seconds.
_SILENCE = 60
_NUMBERS: Mapping[str, tuple[float, float]] = {"temperature": (0, 2), "top_p": (0, 1), "max_tokens": (0, 1 << 31)}
# What would change an answer and is not done here.
_REFUSED: Mapping[str, tuple[Any, ...]] = {
    "n": (None, 1),
    "best_of": (None, 1),
    "stream": (None, False),
    "suffix": (None, ""),
    "logit_bias": (None, {}),
    "presence_penalty": (None, 0),
    "frequency_penalty": (None, 0),
}


class RequestError(Exception):
    """A request that cannot be answered, with the HTTP status that says whose fault it is."""

    def __init__(self, status: int, message: str):
        super().__init__(message)
        self.status = status


@contextlib.contextmanager
def serving(trained: "TrainedModel", tokenizer: TokenizerFiles) -> Iterator[str]:
    """The URL under which the model is served (`http://127.0.0.1:PORT/v1`), in here."""
    from tokenizers import Tokenizer

    completions = Completions(ServedModel(trained), Tokenizer.from_str(tokenizer.tokenizer_json), tokenizer)

    class Handler(_Handler):
        answers = completions

    with HTTPServer(("127.0.0.1", 0), Handler) as server:

        def answer() -> None:
            # The mesh is a thread's own: whatever computes has to run in this one.
            with trained.trainer.use_device_mesh():
                server.serve_forever(poll_interval=0.05)

        thread = threading.Thread(target=answer, daemon=True)
        thread.start()
        try:
            yield f"http://127.0.0.1:{server.server_address[1]}/v1"
        finally:
            server.shutdown()
            thread.join()


@dataclass(frozen=True)
class Completions:
    """Answers to completion requests, as JSON."""

    model: ServedModel
    tokenizer: "Tokenizer"
    files: TokenizerFiles

    def answer(self, request: Mapping[str, Any]) -> dict[str, Any]:
        """Raises RequestError if the request is wrong, too long, or the model's answer is no number."""
        _check(request)
        prompts = self._prompts(request.get("prompt"))
        max_tokens = int(_number(request, "max_tokens", 16))
        for ids in prompts:
            if not 0 < len(ids) <= self.model.context or (not request.get("echo") and not self._fits(ids, max_tokens)):
                raise RequestError(
                    400,
                    f"a prompt has {len(ids)} tokens, and {max_tokens} are to follow; the model's context holds "
                    f"1 to {self.model.context}",
                )
        if request.get("echo"):
            choices = self._scored(prompts, request, max_tokens)
        else:
            choices = self._continued(prompts, request, max_tokens)
        return {
            "id": f"cmpl-{time.time_ns():x}",
            "object": "text_completion",
            "created": int(time.time()),
            "model": request.get("model") or MODEL,
            "choices": [{"index": index, **choice} for index, choice in enumerate(choices)],
        }

    def _fits(self, ids: Sequence[int], max_tokens: int) -> bool:
        return len(ids) + max_tokens <= self.model.context

    def _prompts(self, prompt: Any) -> list[list[int]]:
        """Token ids of one or several prompts. A text has BOS in front, as documents have in training."""
        given = prompt if isinstance(prompt, list) and not all(isinstance(each, int) for each in prompt) else [prompt]
        return [self._ids(each) for each in given]

    def _ids(self, prompt: Any) -> list[int]:
        if isinstance(prompt, str):
            head = [] if self.files.bos_id is None else [self.files.bos_id]
            return head + self.tokenizer.encode(prompt, add_special_tokens=False).ids
        size = self.files.vocab_size
        if isinstance(prompt, list) and all(isinstance(each, int) and 0 <= each < size for each in prompt):
            return prompt
        raise RequestError(400, f"prompt is no text and no list of token ids below {size}")

    def _scored(
        self, prompts: Sequence[list[int]], request: Mapping[str, Any], max_tokens: int
    ) -> Iterator[dict[str, Any]]:
        if max_tokens > 1 or request.get("logprobs") != 1 or request.get("temperature"):
            raise RequestError(400, "echo is answered with logprobs 1, temperature 0 and max_tokens 0 or 1 only")
        for ids, scores in zip(prompts, self.model.score(prompts), strict=True):
            if not (np.isfinite(scores.actual).all() and np.isfinite(scores.likeliest_logprob).all()):
                raise RequestError(422, "the model gives log-probabilities that are not finite")
            yield self._echo(ids, scores, max_tokens)

    def _echo(self, ids: list[int], scores: TokenScores, max_tokens: int) -> dict[str, Any]:
        """The prompt, its first token without a log-probability, and the token that the model would go on with."""
        follows = int(scores.likeliest[-1])
        likeliest = list(zip(scores.likeliest.tolist(), scores.likeliest_logprob.tolist(), strict=True))
        all_ids = ids + [follows] * max_tokens
        tokens = [self._text([each]) for each in all_ids]
        actual = [None, *scores.actual.tolist(), likeliest[-1][1]]
        top = [None, *({self._text([token]): logprob} for token, logprob in likeliest)]
        return {
            "text": self._text(all_ids),
            "finish_reason": "length",
            "logprobs": {
                "tokens": tokens,
                "token_logprobs": actual[: len(all_ids)],
                "top_logprobs": top[: len(all_ids)],
                "text_offset": [0, *itertools.accumulate(map(len, tokens[:-1]))],
            },
        }

    def _continued(
        self, prompts: Sequence[list[int]], request: Mapping[str, Any], max_tokens: int
    ) -> Iterator[dict[str, Any]]:
        if request.get("logprobs"):
            raise RequestError(400, "log-probabilities are given for prompts only; set echo")
        stops = request.get("stop") or []
        stops = [stops] if isinstance(stops, str) else stops
        # A stop text may be spelled by other tokens than its own; these only save computing, the text decides.
        encoded = [tuple(self.tokenizer.encode(stop, add_special_tokens=False).ids) for stop in stops]
        sampling = Sampling(
            max_tokens=max_tokens,
            stops=((self.files.eos_id,), *encoded),
            temperature=_number(request, "temperature", 1.0),
            top_p=_number(request, "top_p", 1.0),
            seed=int(request.get("seed") or 0),
        )
        for ids in self.model.continue_(prompts, sampling) if max_tokens else [[] for _ in prompts]:
            yield self._completion(ids, stops)

    def _completion(self, ids: list[int], stops: Sequence[str]) -> dict[str, Any]:
        ended = self.files.eos_id in ids
        text = self._text(ids[: ids.index(self.files.eos_id)] if ended else ids)
        found = [at for at in (text.find(stop) for stop in stops) if at >= 0]
        return {
            "text": text[: min(found, default=len(text))],
            "finish_reason": "stop" if ended or found else "length",
            "logprobs": None,
        }

    def _text(self, ids: Sequence[int]) -> str:
        return self.tokenizer.decode(ids, skip_special_tokens=False)


def _check(request: Mapping[str, Any]) -> None:
    for name, allowed in _REFUSED.items():
        if request.get(name) not in allowed:
            raise RequestError(400, f"{name} is {request[name]!r}, which this server does not do")
    for name, (least, most) in _NUMBERS.items():
        value = request.get(name)
        if value is not None and not (isinstance(value, int | float) and least <= value <= most):
            raise RequestError(400, f"{name} is {value!r}; give a number from {least} to {most}")


def _number(request: Mapping[str, Any], name: str, default: float) -> float:
    """A field's value, or the protocol's default if it is not given or null."""
    value = request.get(name)
    return default if value is None else float(value)


class _Handler(BaseHTTPRequestHandler):
    answers: Completions
    timeout = _SILENCE

    def do_GET(self) -> None:
        if self.path != "/v1/models":
            return self._refuse(404, f"there is no {self.path}; there are {_PATHS}")
        return self._send(200, {"object": "list", "data": [{"id": MODEL, "object": "model", "owned_by": "marin"}]})

    def do_POST(self) -> None:
        body = self.rfile.read(int(self.headers.get("Content-Length") or 0))
        if self.path != "/v1/completions":
            return self._refuse(404, f"there is no {self.path}; there are {_PATHS}")
        try:
            request = json.loads(body)
            if not isinstance(request, dict):
                raise RequestError(400, "the request is no JSON object")
            return self._send(200, self.answers.answer(request))
        except json.JSONDecodeError as error:
            return self._refuse(400, f"the request is no JSON: {error}")
        except RequestError as error:
            return self._refuse(error.status, str(error))
        except Exception as error:  # XLA's and whatever else a model may raise: the client is told, the server goes on
            return self._refuse(500, f"{type(error).__name__}: {error}")

    def _refuse(self, status: int, message: str) -> None:
        kind = "invalid_request_error" if status < 500 else "server_error"
        self._send(status, {"error": {"message": " ".join(message.split())[:2000], "type": kind}})

    def _send(self, status: int, answer: Mapping[str, Any]) -> None:
        body = json.dumps(answer).encode()
        self.send_response(status)
        self.send_header("Content-Type", "application/json")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, format: str, *args: object) -> None:
        """Not a line per request."""
