"""Every way to make an artifact: name, code version, and the function that does it.

Importing this loads none of the functions. `code_version` is part of an artifact's identity: raise it when a
change of the task's code changes what it writes.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

if TYPE_CHECKING:
    from marin_core.build import Build


@dataclass(frozen=True)
class Task:
    """`function` is `module:name`; light tasks run where they are asked for, the others as jobs in workers.

    A task's function returns the outcome or, if it is a `stage`, a stage whose items several ranks may share.
    A `gang` of processes may run it together. If it is `tracked`, it has a page at an experiment tracker. `pool` is the
    kind of pool of a profile that its jobs run in.
    """

    function: str
    code_version: str
    light: bool = False
    resumable: bool = False
    stage: bool = False
    gang: bool = False
    tracked: bool = False
    pool: Literal["data", "suite", "eval"] = "data"

    def load(self) -> "Callable[[Build], Any]":
        module, _, name = self.function.partition(":")
        return getattr(importlib.import_module(f"marin_core.tasks.{module}"), name)


def _stage(name: str, code_version: str) -> Task:
    return Task(f"data:{name}", code_version, resumable=True, stage=True)


TASKS: dict[str, Task] = {
    "acquire": _stage("acquire", code_version="1"),
    "normalize": _stage("normalize", code_version="1"),
    "judge_quality": _stage("judge_quality", code_version="1"),
    "find_near_duplicates": _stage("find_near_duplicates", code_version="1"),
    "find_contamination": _stage("find_contamination", code_version="1"),
    "curate": _stage("curate", code_version="2"),
    "train_tokenizer": Task("data:train_bpe", code_version="2"),
    "fetch_tokenizer": Task("data:fetch_pretrained", code_version="1"),
    "tokenize": _stage("tokenize", code_version="2"),
    "mix": Task("data:mix", code_version="2", light=True),
    "train": Task("training:train_plan", code_version="3", resumable=True, gang=True, tracked=True, pool="suite"),
    "score_perplexity": Task("evals:score_perplexity", code_version="1", pool="eval"),
    "write_harness_task": Task("harness:write_harness_task", code_version="1", light=True),
    "run_harness_task": Task("harness:run_harness_task", code_version="1", pool="eval"),
    "collect_evals": Task("evals:collect_evals", code_version="1", light=True),
    "export_checkpoint": Task("exports:export_checkpoint", code_version="1", pool="eval"),
    "publish_model": Task("publishing:publish_model", code_version="1", resumable=True),
    "publish_dataset": Task("publishing:publish_dataset", code_version="1", resumable=True),
    "list_candidates": Task("scaling:list_candidates", code_version="1", light=True),
    "collect_runs": Task("scaling:collect_runs", code_version="2", light=True),
    "fit_isoflop": Task("scaling:fit_isoflops", code_version="2", light=True),
    "fit_laws": Task("scaling:fit_laws", code_version="2", light=True),
    "forecast": Task("heldout:forecast", code_version="2", light=True),
    "collect_heldout": Task("heldout:collect_heldout", code_version="3", light=True),
    "judge": Task("heldout:judge", code_version="3", light=True),
    "collect_suite_evals": Task("downstream:collect_suite_evals", code_version="2", light=True),
    "forecast_downstream": Task("downstream:forecast_downstream", code_version="1", light=True),
    "draw_figures": Task("figures:draw_figures", code_version="2", light=True),
    "tabulate": Task("dataset:tabulate", code_version="3", light=True),
    "register_experiment": Task("experiments:register_experiment", code_version="1", light=True),
    "compare_arms": Task("experiments:compare_arms", code_version="1", light=True),
    "report_suite": Task("experiments:report_suite", code_version="1", light=True),
    "write_retrospective": Task("experiments:write_retrospective", code_version="1", light=True),
    "build_site": Task("site:write_site", code_version="1", light=True),
    "write_report": Task("report:write_report", code_version="2", light=True),
}
