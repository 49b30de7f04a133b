"""A TrainPlan in a file of its own, to be looked at, changed, and trained."""

import contextlib
import dataclasses
import json
import math
import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from marin_core.data.sources.tables import FieldError, build_record, reading
from marin_core.errors import MarinError
from marin_core.recipes import TrainPlan
from marin_core.recipes.hparams import optimizer_kind
from marin_core.recipes.shape import params_without_qk_norm, qk_norm_params, training_flops_per_token

_COUNTS = (
    "hidden_dim",
    "num_layers",
    "num_heads",
    "head_dim",
    "mlp_dim",
    "vocab_size",
    "seq_len",
    "batch_size",
    "steps",
    "params",
    "eval_sequences",
    "eval_batch_size",
    "steps_per_eval",
    "steps_per_checkpoint",
)
# What `jmp.get_policy` reads: one type, or types of parameters, computation and output.
_TYPE = r"(half|full|bf16|bfloat16|f16|float16|f32|float32|f64|float64)"
_PART = rf"(p|params|c|compute|o|output)={_TYPE}"
_PRECISION = re.compile(rf"{_TYPE}|{_PART}(,{_PART})*")
# What a plan's tokens cost may differ from its budget by this share, beside what rounding to whole steps changes.
_SAME_FLOPS = 0.01


def read_plan(path: str) -> TrainPlan:
    """The plan of a file that `write_plan` made, checked in case that it was changed since.

    Numbers stay as they are written: a plan that was not changed is the very run that the graph has.

    Raises:
        MarinError: there is no such file, what it holds is no plan, or no run can be as the plan says.
    """
    if not path:
        raise MarinError("no plan is given; write one with `marin recipe BUDGET --optimal --out plan.json` and name it")
    try:
        data = json.loads(Path(path).read_text())
    except OSError as error:
        raise MarinError(f"the plan {path} cannot be read: {error.strerror}") from None
    except (ValueError, RecursionError) as error:
        raise _no_plan(path, str(error)) from None
    if not isinstance(data, dict):
        raise _no_plan(path, "not an object")
    try:
        return _plan(data)
    except FieldError as error:
        where = ".".join(map(str, error.path[:-1]))
        raise _no_plan(path, f"{where}: {error}" if where else str(error)) from None


def write_plan(plan: TrainPlan, path: str, *, force: bool = False) -> None:
    """Write a plan, whole or not at all.

    Raises:
        MarinError: the file holds something else, and `force` is not given; or it cannot be written.
    """
    file = Path(path)
    text = json.dumps(plan.to_json(), indent=2) + "\n"
    partial = file.with_name(f".{file.name}.partial")
    try:
        if file.exists() and not force and file.read_text() != text:
            raise MarinError(f"{path} holds something else; give --force to replace it, or another name")
        partial.write_text(text)
        partial.replace(file)
    except (OSError, UnicodeDecodeError) as error:
        with contextlib.suppress(OSError):
            partial.unlink(missing_ok=True)
        raise MarinError(f"the plan cannot be written to {path}: {error}") from None


def _no_plan(path: str, why: str) -> MarinError:
    remedy = f"correct it, or write one with `marin recipe BUDGET --optimal --out {path}`"
    return MarinError(f"{path} holds no plan that can be trained ({why}); {remedy}")


def _plan(data: dict[str, Any]) -> TrainPlan:
    if not isinstance(data.get("optimizer"), dict):
        raise FieldError("field 'optimizer' is missing or no object", "optimizer")
    try:
        with reading("optimizer"):
            settings = build_record(optimizer_kind(data["optimizer"]), data["optimizer"])
        checked = build_record(TrainPlan, {**data, "optimizer": settings})
    except OverflowError:
        raise FieldError("a number is too large") from None
    for problem in _problems(checked):
        raise FieldError(problem)
    return dataclasses.replace(TrainPlan.from_json(data), flops=checked.flops)


def _problems(plan: TrainPlan) -> Iterator[str]:
    for name in _COUNTS:
        if getattr(plan, name) < 1:
            yield f"{name} is {getattr(plan, name)}; give at least 1"
    if plan.seed < 0:
        yield f"seed is {plan.seed}; give 0 or more"
    for name, value in dataclasses.asdict(plan.optimizer).items():
        if not (math.isfinite(value) and value >= 0):
            yield f"optimizer.{name} is {value:g}; give 0 or more"
    if not _PRECISION.fullmatch(plan.precision):
        yield f"precision is {plan.precision!r}; give a policy such as f32 or p=f32,c=bfloat16"
    if plan.num_heads * plan.head_dim != plan.hidden_dim:
        yield f"{plan.num_heads} heads of {plan.head_dim} are not hidden_dim, {plan.hidden_dim}; make them the same"
    params = params_without_qk_norm(
        hidden_dim=plan.hidden_dim, num_layers=plan.num_layers, mlp_dim=plan.mlp_dim, vocab_size=plan.vocab_size
    ) + qk_norm_params(num_layers=plan.num_layers, head_dim=plan.head_dim)
    if plan.params != params:
        yield f"params is {plan.params}, but a model of this shape has {params}; give that, or another shape"
    yield from _wrong_budget(plan)


def _wrong_budget(plan: TrainPlan) -> Iterator[str]:
    """A run is called by its budget, so that the two have to agree."""
    if not (math.isfinite(plan.flops) and plan.flops > 0):
        yield f"flops is {plan.flops:g}; give a positive number, like 3e18"
        return
    used = plan.tokens * training_flops_per_token(
        hidden_dim=plan.hidden_dim,
        num_layers=plan.num_layers,
        num_heads=plan.num_heads,
        mlp_dim=plan.mlp_dim,
        seq_len=plan.seq_len,
        vocab_size=plan.vocab_size,
    )
    if abs(used / plan.flops - 1) > _SAME_FLOPS + 1 / plan.steps:
        yield f"flops is {plan.flops:g}, but {plan.tokens} tokens take {used:.4g}; give that, or other steps"
