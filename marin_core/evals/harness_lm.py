"""lm-evaluation-harness on one task, against a completions server. Imported only in the harness's own process: it is an
optional dependency, and takes seconds to import.
"""

import json
import random
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import requests
from lm_eval.api.instance import Instance
from lm_eval.api.task import ConfigurableTask
from lm_eval.evaluator import evaluate
from lm_eval.models.openai_completions import LocalCompletionsAPI
from lm_eval.tasks import TaskManager
from lm_eval.utils import handle_non_serializable

from marin_core.evals.harness_request import HarnessRequest

# The harness's own defaults (lm_eval/defaults.py): results compare with those of others.
_RANDOM_SEED, _OTHER_SEED = 0, 1234
# Resamples for the standard error of metrics that are no means.
_RESAMPLES = 1000
# Answers that another key, address or hour may change.
_OF_THE_PLACE = (401, 403, 404, 408, 429)
# Tokens that a task may generate if it does not say.
_GENERATED = 256


class Unanswered(Exception):
    """The server did not answer, or answered with an error of its own."""


class Refused(Exception):
    """The server found the request, or the model, wrong: trying again changes nothing."""


class NeedsHub(Exception):
    """The task's data are not here."""


def run(request: HarnessRequest) -> None:
    """Evaluate, and write `results.json` and `samples.jsonl` into the request's `output`.

    Raises:
        Unanswered, Refused, NeedsHub: see there.
        Exception: whatever else the harness or the task's own code raises.
    """
    loaded = _load(request)
    for task in loaded["tasks"].values():
        task.set_config(key="num_fewshot", value=request.few_shot)
        task.set_fewshot_seed(seed=_OTHER_SEED)
    random.seed(_RANDOM_SEED)
    np.random.seed(_OTHER_SEED)
    lm = _Completions(request)
    try:
        found = evaluate(lm, loaded, limit=request.limit, bootstrap_iters=_RESAMPLES, log_samples=True)
        assert found is not None
        samples = found.pop("samples")
        lines = [line for name, task in loaded["tasks"].items() for line in _lines(lm, task, samples[name])]
    except requests.HTTPError as error:
        raise _of_server(error) from None
    except requests.RequestException as error:
        raise Unanswered(f"{request.endpoint}: {error}") from None
    _write(Path(request.output), found, lines)


def _of_server(error: requests.HTTPError) -> Exception:
    answer = error.response
    status, said = (answer.status_code, answer.text) if answer is not None else (500, "")
    kind = Unanswered if status in _OF_THE_PLACE or status >= 500 else Refused
    return kind(f"the model's server answered {status}: {said}")


def _load(request: HarnessRequest) -> Any:
    """The task, or the tasks of a group or a tag. Read here, so that a task that cannot be had costs no model's time.

    Raises:
        NeedsHub: its data cannot be fetched.
    """
    # The index of the tasks that the harness ships takes seconds.
    manager = TaskManager(include_path=request.folder, include_defaults=request.folder is None)
    if request.name not in manager.all_tasks:
        where = f"the YAML files of {request.folder}" if request.folder else "the harness"
        raise KeyError(f"{where} have no task {request.name!r}")
    try:
        return manager.load([request.name])
    except FileNotFoundError as error:
        # A file of the task's own is its own fault; of a data set `datasets` says where it looked.
        raise (NeedsHub(str(error)) if "Hub" in str(error) else error) from None
    except (OSError, requests.RequestException, httpx.HTTPError) as error:
        raise NeedsHub(f"{type(error).__name__}: {error}") from None


# For the type checker its registration hides what the class is.
_Base: Any = LocalCompletionsAPI


class _Completions(_Base):
    """Every text has BOS in front, as documents have in training, whether or not the tokenizer's files say so. A text
    that is longer than the context is cut on the left, its BOS with it."""

    def __init__(self, request: HarnessRequest):
        self._bos = [] if request.bos is None else [request.bos]
        self._context = request.context
        super().__init__(
            base_url=f"{request.endpoint}/completions",
            tokenizer_backend="huggingface",
            tokenizer=request.tokenizer,
            model=request.model,
            # It takes one off, for a token to generate; the server needs no room for that one.
            max_length=request.context + 1,
            max_gen_toks=self._most_generated(None),
            batch_size=request.batch_size,
            num_concurrent=1,
            timeout=request.timeout_seconds,
            max_retries=request.tries,
            custom_prefix_token_id=request.bos,
        )

    def tok_encode(self, string: Any, *args: Any, add_special_tokens: bool = False, **kwargs: Any) -> Any:
        ids = super().tok_encode(string, *args, **kwargs)
        return self._bos + ids if isinstance(string, str) else [self._bos + each for each in ids]

    def loglikelihood_rolling(self, requests: list[Instance], disable_tqdm: bool = False) -> list[float]:
        # It puts BOS in front itself.
        bos, self._bos = self._bos, []
        try:
            return super().loglikelihood_rolling(requests, disable_tqdm)
        finally:
            self._bos = bos

    def generate_until(self, requests: list[Instance], disable_tqdm: bool = False) -> list[str]:
        for request in requests:
            arguments: Any = request.arguments[1]
            wanted = arguments.pop("max_tokens", None) or arguments.get("max_gen_toks")
            arguments["max_gen_toks"] = self._most_generated(wanted)
        return super().generate_until(requests, disable_tqdm)

    def _most_generated(self, wanted: int | None) -> int:
        """Half of the context at most, or nothing of the prompt would be left."""
        return min(wanted or _GENERATED, max(1, self._context // 2))


def _lines(lm: _Completions, task: ConfigurableTask, samples: Iterable[Mapping[str, Any]]) -> Iterable[dict[str, Any]]:
    """What is kept of each sample: what `harness_metrics.py` needs and a person wants to see."""
    kept = [_line(task, sample) for sample in samples]
    if task.OUTPUT_TYPE == "generate_until":
        # The soft metric of a generation: how likely the answer is that the task holds for right.
        asked = [line for line in kept if line["gold"]]
        delimiter = task.config.target_delimiter
        arguments = [(line["arguments"][0][0], f"{delimiter}{line['gold']}") for line in asked]
        instances = [Instance("loglikelihood", {}, pair, index) for index, pair in enumerate(arguments)]
        for line, (logprob, _) in zip(asked, lm.loglikelihood(instances) if instances else [], strict=True):
            line["gold_logprob"] = logprob
    return kept


def _line(task: ConfigurableTask, sample: Mapping[str, Any]) -> dict[str, Any]:
    document = sample["doc"]
    choices = task.doc_to_choice(document) if task.OUTPUT_TYPE == "multiple_choice" else None
    gold = task.doc_to_text(document) if getattr(task, "multiple_input", False) else task.doc_to_target(document)
    if isinstance(gold, list) and choices is None:
        gold = gold[0] if gold else None
    arguments = [tuple(call) for call in sample["arguments"]]
    return {
        "task": task.task_name,
        "kind": task.OUTPUT_TYPE,
        "document": sample["doc_id"],
        "filter": sample["filter"],
        "arguments": arguments,
        "answers": sample["resps"],
        "filtered": sample["filtered_resps"],
        "choices": choices,
        "gold": gold,
        **{name: sample[name] for name in sample["metrics"]},
    }


def _write(output: Path, found: Mapping[str, Any], lines: Iterable[Mapping[str, Any]]) -> None:
    def text(value: Any) -> str:
        return json.dumps(value, default=handle_non_serializable, ensure_ascii=False, sort_keys=True)

    (output / "samples.jsonl").write_text("".join(f"{text(line)}\n" for line in lines))
    (output / "results.json").write_text(text(found))
