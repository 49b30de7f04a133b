"""A plan in a file: read as it was written, and refused where it was changed into what no run can be."""

import dataclasses
import json
from pathlib import Path
from typing import Any

import pytest

from marin_core.errors import MarinError
from marin_core.plan_file import read_plan, write_plan
from marin_core.recipes import DELPHI, NANO, AdamWParams, ScalingRecipe, TrainPlan
from marin_core.recipes.delphi import FIT_BUDGETS, HELDOUT_BUDGETS

PLAN = TrainPlan.of(DELPHI, DELPHI.candidate(3e20, 2560), eval_sequences=4096)


def changed(folder: Path, **changes: Any) -> str:
    """A plan in a file, with changes; `optimizer` changes some of its settings."""
    data = PLAN.to_json()
    changes["optimizer"] = data["optimizer"] | changes.get("optimizer", {})
    file = folder / "plan.json"
    file.write_text(json.dumps(data | changes))
    return str(file)


def refusal(path: str) -> str:
    with pytest.raises(MarinError) as refused:
        read_plan(path)
    assert "\n" not in str(refused.value)
    return str(refused.value)


@pytest.mark.parametrize(
    ("recipe", "budgets"), [(DELPHI, (*FIT_BUDGETS, *HELDOUT_BUDGETS)), (NANO, (1e11, 8e11, 3.2e12))]
)
def test_every_plan_of_a_recipe_is_read_as_it_was_written(
    tmp_path: Path, recipe: ScalingRecipe, budgets: tuple[float, ...]
) -> None:
    file = str(tmp_path / "plan.json")
    for candidate in (c for flops in budgets for c in recipe.candidates(flops)):
        plan = TrainPlan.of(recipe, recipe.as_published(candidate), eval_sequences=16, seed=3)
        write_plan(plan, file, force=True)
        # The texts, since an artifact's identity tells 1 from 1.0.
        assert json.dumps(read_plan(file).to_json()) == json.dumps(plan.to_json())


def test_a_plan_that_is_changed_as_a_whole_is_another_run(tmp_path: Path) -> None:
    file = changed(
        tmp_path, seed=5, precision="f32", steps=PLAN.steps // 2, flops=PLAN.flops / 2, optimizer={"beta1": 0.95}
    )
    plan = read_plan(file)
    assert (plan.seed, plan.steps, plan.flops, plan.optimizer.beta1) == (5, PLAN.steps // 2, 1.5e20, 0.95)


def test_a_plan_may_have_adamw(tmp_path: Path) -> None:
    shared = {name: value for name, value in PLAN.to_json()["optimizer"].items() if name != "adam_lr"}
    optimizer = AdamWParams(**shared, weight_decay=0.1)
    file = str(tmp_path / "plan.json")
    write_plan(dataclasses.replace(PLAN, optimizer=optimizer), file)
    assert read_plan(file).optimizer == optimizer
    write_plan(dataclasses.replace(PLAN, optimizer=dataclasses.replace(optimizer, weight_decay=-1)), file, force=True)
    assert "optimizer.weight_decay is -1; give 0 or more" in refusal(file)


@pytest.mark.parametrize(
    ("changes", "complaint"),
    [
        ({"flops": "1e21"}, "field 'flops' is '1e21'; give a number"),
        ({"flops": float("inf")}, "flops is inf; give a positive number, like 3e18"),
        ({"flops": float("nan")}, "flops is nan; give a positive number"),
        ({"flops": 10**400}, "a number is too large"),
        ({"flops": 1e21}, f"flops is 1e+21, but {PLAN.tokens} tokens take 3e+20; give that, or other steps"),
        (
            {"steps": PLAN.steps // 2},
            f"flops is 3e+20, but {PLAN.steps // 2 * 64 * 4096} tokens take 1.5e+20; give that, or other steps",
        ),
        ({"steps": "10"}, "field 'steps' is '10'; give an integer"),
        ({"batch_size": 0}, "batch_size is 0; give at least 1"),
        ({"hidden_dim": 2561}, "20 heads of 128 are not hidden_dim, 2561; make them the same"),
        ({"num_layers": 5}, f"params is {PLAN.params}, but a model of this shape has "),
        ({"vocab_size": 1000}, f"params is {PLAN.params}, but a model of this shape has "),
        ({"seed": -1}, "seed is -1; give 0 or more"),
        ({"precision": "what"}, "precision is 'what'; give a policy such as f32 or p=f32,c=bfloat16"),
        ({"precision": "p=f32;c=bf16"}, "precision is 'p=f32;c=bf16'"),
        ({"gradient_checkpointing": 1}, "field 'gradient_checkpointing' is 1; give true or false"),
        ({"optimizer": {"beta2": "0.9"}}, "optimizer: field 'beta2' is '0.9'; give a number"),
        ({"optimizer": {"learning_rate": float("nan")}}, "optimizer.learning_rate is nan; give 0 or more"),
        ({"optimizer": {"weight_decay": 0.1}}, "optimizer: unknown field 'weight_decay'; there are learning_rate, "),
        ({"step": 3}, "unknown field 'step'; there are recipe, "),
    ],
    ids=lambda value: "-".join(value) if isinstance(value, dict) else "",
)
def test_what_no_run_can_be_is_refused(tmp_path: Path, changes: dict[str, Any], complaint: str) -> None:
    file = changed(tmp_path, **changes)
    assert refusal(file).startswith(f"{file} holds no plan that can be trained ({complaint}")


@pytest.mark.parametrize(
    "precision",
    ["full", "bf16", "c=f16", "p=f32,c=bfloat16", "params=f32,compute=bf16,output=f32", "x=f32", "f31", "p=f32,"],
)
def test_precisions_are_those_that_jmp_reads(tmp_path: Path, precision: str) -> None:
    import jmp

    file = changed(tmp_path, precision=precision)
    try:
        jmp.get_policy(precision)
    except ValueError:
        assert "precision is" in refusal(file)
    else:
        assert read_plan(file).precision == precision


@pytest.mark.parametrize("text", ["", "[]", "3", "{", "{}", '{"optimizer": {}}', '{"optimizer": 3}', "[" * 100_000])
def test_what_is_no_plan_at_all_is_one_line(tmp_path: Path, text: str) -> None:
    (tmp_path / "plan.json").write_text(text)
    assert "holds no plan that can be trained (" in refusal(str(tmp_path / "plan.json"))


def test_a_missing_field_is_named(tmp_path: Path) -> None:
    data = PLAN.to_json()
    del data["steps_per_checkpoint"]
    (tmp_path / "plan.json").write_text(json.dumps(data))
    assert "(field 'steps_per_checkpoint' is missing; give an integer)" in refusal(str(tmp_path / "plan.json"))


def test_there_may_be_no_such_file(tmp_path: Path) -> None:
    assert refusal("").startswith("no plan is given; write one with")
    assert refusal(str(tmp_path)).endswith("cannot be read: Is a directory")
    (tmp_path / "file").touch()
    with pytest.raises(MarinError, match=r"the plan cannot be written to .*/file/plan.json: "):
        write_plan(PLAN, str(tmp_path / "file" / "plan.json"))
