"""Every way to make an artifact: name, code version, and the function that does it.

Importing this loads none of the functions. `code_version` is part of an artifact's identity: raise it when a
change of the task's code changes what it writes.
"""

import importlib
from collections.abc import Callable
from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from marin_core.build import Build, Outcome


@dataclass(frozen=True)
class Task:
    """`function` is `module:name`; light tasks run where they are asked for, the others as jobs in workers."""

    function: str
    code_version: str
    light: bool = False
    resumable: bool = False

    def load(self) -> "Callable[[Build], Outcome]":
        module, _, name = self.function.partition(":")
        return getattr(importlib.import_module(f"marin_core.tasks.{module}"), name)


TASKS: dict[str, Task] = {
    "read_source": Task("data:read_source", code_version="1"),
    "curate": Task("data:curate_source", code_version="1"),
    "train_tokenizer": Task("data:train_bpe", code_version="1"),
    "tokenize": Task("data:tokenize_source", code_version="1"),
    "mix": Task("data:mix", code_version="1", light=True),
    "train": Task("training:train_plan", code_version="1", resumable=True),
    "list_candidates": Task("scaling:list_candidates", code_version="1", light=True),
    "collect_runs": Task("scaling:collect_runs", code_version="1", light=True),
    "fit_isoflop": Task("scaling:fit_isoflops", code_version="1", light=True),
    "fit_laws": Task("scaling:fit_laws", code_version="1", light=True),
    "forecast": Task("scaling:forecast", code_version="1", light=True),
    "collect_heldout": Task("scaling:collect_heldout", code_version="1", light=True),
    "judge": Task("scaling:judge", code_version="1", light=True),
    "draw_figures": Task("scaling:draw_figures", code_version="1", light=True),
    "tabulate": Task("scaling:tabulate", code_version="1", light=True),
}
