"""Which metrics of an evaluation are the soft and the hard one."""

from typing import Any

import polars as pl
import pytest

from marin_core.scaling.task_metrics import TaskMetrics, metrics_of

CHOICE = {
    "acc": (0.5, "fraction", True),
    "acc_norm": (0.4, "fraction", True),
    "choice_logprob": (-1.2, "nats", True),
    "bpb": (1.5, "bits per byte", False),
    "chance": (0.25, "fraction", True),
}


def evals(metrics: dict[str, tuple[float, str, bool]], partitions: tuple[str, ...] = ("a", "b")) -> pl.DataFrame:
    return pl.DataFrame(
        [
            {"partition": p, "metric": name, "value": v, "stderr": 0.1, "unit": unit, "higher_is_better": better}
            for p in partitions
            for name, (v, unit, better) in metrics.items()
        ]
    )


def chosen(said: dict[str, Any], metrics: dict[str, tuple[float, str, bool]] = CHOICE) -> TaskMetrics:
    found = metrics_of(evals(metrics), said)
    assert isinstance(found, TaskMetrics)
    return found


def test_the_first_of_each_kind_is_taken_and_chance_is_the_metric_of_that_name() -> None:
    assert chosen({}) == TaskMetrics("choice_logprob", "acc", "nats", -1, 0.25)


def test_what_is_said_wins() -> None:
    found = chosen({"soft": "bpb", "hard": "acc_norm", "chance": 0.2})
    assert found == TaskMetrics("bpb", "acc_norm", "bits per byte", 1, 0.2)


def test_a_generation_has_no_chance() -> None:
    generation = {"exact_match/strict": (0.1, "fraction", True), "bpb": (0.8, "bits per byte", False)}
    assert chosen({"soft": None, "hard": None}, generation).chance == 0.0


@pytest.mark.parametrize(
    ("metrics", "said", "reason"),
    [
        ({"macro/bits_per_byte": (1.0, "bits per byte", False)}, {}, "there is no hard metric, "),
        ({"acc": (0.5, "fraction", True)}, {}, "there is no soft metric, "),
        (CHOICE, {"soft": "nll"}, "no run has metric 'nll'; there are acc, acc_norm, bpb, chance, choice_logprob"),
        (
            {**CHOICE, "bleu": (31.0, "score", True)},
            {"hard": "bleu"},
            "hard metric 'bleu' is no fraction of 1: 31 to 31",
        ),
    ],
)
def test_an_evaluation_without_such_a_pair_says_so(
    metrics: dict[str, tuple[float, str, bool]], said: dict[str, Any], reason: str
) -> None:
    found = metrics_of(evals(metrics), said)
    assert isinstance(found, str)
    assert found.startswith(reason)


def test_only_runs_with_both_metrics_have_scores() -> None:
    both = pl.concat([evals(CHOICE), evals({"acc": CHOICE["acc"]}, ("c",))])
    scores = chosen({}).scores(both)
    assert scores.select("partition", "soft", "hard", "soft_stderr").rows() == [
        ("a", -1.2, 0.5, 0.1),
        ("b", -1.2, 0.5, 0.1),
    ]
