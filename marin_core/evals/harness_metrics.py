"""From what the harness wrote to the metrics of a result: its own, and soft ones from its samples.

Accuracy and exact match are hard: a model gains nothing until its answer flips. The soft metrics change with every bit
of likelihood that a right answer gains, so they follow a power law of compute where hard ones are still at chance. They
are those of the Marin project's harness, under its names:

- `choice_logprob`: log of the right choice's share of the likelihood of all choices, nats
- `logprob`: log-likelihood of the right choice, nats
- `bpb`: the same in bits per byte of its text; for generations, of the reference answer
- `choice_prob_norm`: the right choice's share where each choice counts with its likelihood per byte

each a mean over the examples. `chance` is what guessing scores.
"""

import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import numpy as np

from marin_core.evals.result import Metric

# Units of what the harness reports; of others it is not known more than that they are scores.
_UNITS = {
    **dict.fromkeys(("acc", "acc_norm", "acc_bytes", "exact_match", "f1"), "fraction"),
    "word_perplexity": "perplexity",
    "byte_perplexity": "perplexity",
    "perplexity": "perplexity",
    "bits_per_byte": "bits per byte",
}
_SOFT = {
    "choice_logprob": ("nats", True),
    "bpb": ("bits per byte", False),
    "logprob": ("nats", True),
    "choice_prob_norm": ("fraction", True),
    "chance": ("fraction", True),
}
_SEPARATOR = "/"


class NotFinite(Exception):
    """A metric is no number."""


def task_version(results: Mapping[str, Any], name: str) -> str:
    """The version that the task's YAML states in its metadata."""
    return str(results["versions"].get(name, "not stated"))


def example_count(results: Mapping[str, Any], name: str) -> int:
    """Examples that were scored, of all tasks if it is a group."""
    counts = results["n-samples"]
    return sum(counts[task]["effective"] for task in ([name] if name in counts else counts))


def harness_metrics(results: Mapping[str, Any], name: str) -> dict[str, Metric]:
    """The metrics that the harness reports: those of the task or group `name` as `acc`, with another filter than `none`
    as `exact_match/strict-match`; those of a group's tasks as `<task>/acc`.

    Raises:
        NotFinite: one is not finite.
    """
    found: dict[str, Metric] = {}
    for task in sorted(results["results"], key=lambda task: (task != name, task)):
        values = results["results"][task]
        better = results["higher_is_better"].get(task) or {}
        for key, value in values.items():
            metric, _, filter_ = key.partition(",")
            if not filter_ or metric.endswith("_stderr"):
                continue
            stderr = values.get(f"{metric}_stderr,{filter_}")
            label = _SEPARATOR.join(
                [*([] if task == name else [task]), metric, *([] if filter_ == "none" else [filter_])]
            )
            found[label] = _metric(label, value, stderr, _UNITS.get(metric, "score"), better.get(metric) is not False)
    return found


def soft_metrics(samples: Sequence[Mapping[str, Any]]) -> dict[str, Metric]:
    """The soft metrics of a task, or of a group's tasks together, from its samples (`harness_lm.py` writes them).
    Examples whose right choice is none of the choices do not count; see `without_right_choice`.

    Raises:
        NotFinite: one is not finite.
    """
    scores = [_scores(sample) for sample in _once(samples)]
    found = {}
    for name, (unit, higher_is_better) in _SOFT.items():
        values = np.array([each[name] for each in scores if name in each], float)
        if not len(values):
            continue
        stderr = float(values.std(ddof=1) / math.sqrt(len(values))) if len(values) > 1 and name != "chance" else None
        found[name] = _metric(name, float(values.mean()), stderr, unit, higher_is_better)
    return found


def without_right_choice(samples: Sequence[Mapping[str, Any]]) -> int:
    """Examples whose right choice is none of their choices. The harness counts them as answered wrong."""
    asked = (sample for sample in _once(samples) if sample["kind"] == "multiple_choice")
    return sum(_right(sample["gold"], sample["choices"]) is None for sample in asked)


def _once(samples: Iterable[Mapping[str, Any]]) -> list[Mapping[str, Any]]:
    """Each example once: a task with several filters has a sample of it for every one."""
    return list({(sample["task"], sample["document"]): sample for sample in samples}.values())


def _scores(sample: Mapping[str, Any]) -> dict[str, float]:
    if sample["kind"] == "multiple_choice":
        return _choice_scores(sample)
    if sample["kind"] == "loglikelihood":
        (_, text), logprob = sample["arguments"][0], float(sample["filtered"][0][0])
        return {"logprob": logprob, "bpb": _bits_per_byte(logprob, text)}
    if "gold_logprob" in sample:
        logprob = float(sample["gold_logprob"])
        return {"bpb": _bits_per_byte(logprob, sample["gold"]), "logprob": logprob}
    return {}


def _choice_scores(sample: Mapping[str, Any]) -> dict[str, float]:
    choices: Sequence[str] = sample["choices"]
    logprobs = np.array([each[0] for each in sample["filtered"][: len(choices)]], float)
    right = _right(sample["gold"], choices)
    if right is None:
        return {}
    sizes = np.array([max(1, len(choice.encode())) for choice in choices], float)
    shares, per_byte = logprobs - np.logaddexp.reduce(logprobs), logprobs / sizes
    return {
        "choice_logprob": float(shares[right]),
        "logprob": float(logprobs[right]),
        "bpb": _bits_per_byte(float(logprobs[right]), choices[right]),
        "choice_prob_norm": float(np.exp(per_byte[right] - np.logaddexp.reduce(per_byte))),
        "chance": 1 / len(choices),
    }


def _right(gold: Any, choices: Sequence[str]) -> int | None:
    """Number of the right choice, the first of several; None if the task names one that is not there."""
    for each in gold if isinstance(gold, list) else [gold]:
        if isinstance(each, str) and each in choices:
            return choices.index(each)
        if isinstance(each, int) and 0 <= each < len(choices):
            return each
    return None


def _bits_per_byte(logprob: float, text: str) -> float:
    return -logprob / (math.log(2) * max(1, len(text.encode())))


def _metric(name: str, value: Any, stderr: Any, unit: str, higher_is_better: bool) -> Metric:
    # The harness writes "N/A" where it has no standard error.
    error = float(stderr) if isinstance(stderr, int | float) and math.isfinite(stderr) else None
    if not (isinstance(value, int | float) and math.isfinite(value)):
        raise NotFinite(f"{name} is {value!r}")
    return Metric(float(value), error, unit, higher_is_better)
