"""The `[scale]` section of a profile: checked, and built into a `Scale`."""

import dataclasses
import math
from collections.abc import Mapping
from typing import Any

from marin_core.data.mixing.config import MixtureConfig, WeightStage, check_weights
from marin_core.data.near_duplicates.config import MinHashConfig
from marin_core.data.sources.catalogue import select_sources
from marin_core.data.sources.declaration import Source
from marin_core.data.sources.tables import FieldError, build_record, check_fields, check_names, field_names, reading
from marin_core.evals.config import EvalsConfig, HarnessTask
from marin_core.profile.declaration import PretrainedTokenizer, Scale, TrainedTokenizer
from marin_core.recipes import RECIPES, VERSIONS, CompletedAdamHParams, HeldOutRun, ScalingRecipe, TokenLaw

type Table = Mapping[str, Any]


def build_scale(table: Table) -> Scale:
    """Values that an artifact's identity depends on stay as they are written: `1` does not become `1.0`.

    Raises:
        FieldError: a field is unknown, missing or wrong; the path leads to it.
    """
    check_names(table, field_names(Scale))
    sources = _sources(_table(table, "sources"))
    parts = {
        "recipe": _recipe(_table(table, "recipe")),
        "sources": tuple(sources.values()),
        "tokenizer": _tokenizer(_table(table, "tokenizer")),
        "mixture": _mixture(_table(table, "mixture"), sources),
    }
    if "near_duplicates" in table:
        with reading("near_duplicates"):
            check_fields(MinHashConfig, _table(table, "near_duplicates"))
            parts["near_duplicates"] = MinHashConfig(**table["near_duplicates"])
    if "evals" in table:
        with reading("evals"):
            parts["evals"] = _evals(_table(table, "evals"))
    scale = build_record(Scale, {**table, **parts})
    _check_numbers(scale)
    return scale


def _table(table: Table, key: str) -> Table:
    if key not in table:
        raise FieldError(f"field {key!r} is missing; give a table [scale.{key}]")
    if not isinstance(table[key], Mapping):
        raise FieldError(f"field {key!r} is not a table; give one, [scale.{key}]", key)
    return table[key]


def _check_numbers(scale: Scale) -> None:
    for name in ("fit_budgets", "heldout_budgets"):
        budgets = getattr(scale, name)
        if not budgets:
            raise FieldError(f"{name} is empty; give at least one budget in FLOPs", name)
        for index, budget in enumerate(budgets):
            _check_budget(budget, name, index)
    if not 0 < scale.validation_share < 1:
        message = f"validation_share is {scale.validation_share:g}; give a share between 0 and 1"
        raise FieldError(message, "validation_share")
    if scale.eval_sequences < 1:
        raise FieldError(f"eval_sequences is {scale.eval_sequences}; give at least 1", "eval_sequences")


def _check_budget(budget: float, *path: str | int) -> None:
    if not (math.isfinite(budget) and budget > 0):
        raise FieldError(f"{path[0]} has {budget!r}; give positive numbers of FLOPs, like 3e18", *path)


def _evals(table: Table) -> EvalsConfig:
    tasks = table.get("tasks", {})
    if not isinstance(tasks, Mapping):
        raise FieldError("field 'tasks' is not a table; give one, [scale.evals.tasks.NAME], for each task", "tasks")
    built = []
    for name, task in tasks.items():
        with reading("tasks", name):
            if not isinstance(task, Mapping):
                raise FieldError(f"task {name!r} is not a table; write [scale.evals.tasks.{name}], empty for defaults")
            built.append(_harness_task(build_record(HarnessTask, {"name": name, **task})))
    config = build_record(EvalsConfig, {**{k: v for k, v in table.items() if k != "tasks"}, "tasks": tuple(built)})
    if config.max_bytes < 1:
        raise FieldError(f"max_bytes is {config.max_bytes}; give at least 1", "max_bytes")
    return config


def _harness_task(task: HarnessTask) -> HarnessTask:
    if task.folder is not None and task.questions is not None:
        raise FieldError("a task is read from a folder or made of questions; give one of the two", "questions")
    for name in ("questions", "limit", "timeout_seconds"):
        value = getattr(task, name)
        if value is not None and value < 1:
            raise FieldError(f"{name} is {value}; give at least 1", name)
    if task.few_shot < 0:
        raise FieldError(f"few_shot is {task.few_shot}; give 0 or more", "few_shot")
    return task


def _sources(table: Table) -> dict[str, Source]:
    sources: dict[str, Source] = {}
    for name, entry in table.items():
        with reading("sources", name):
            sources |= select_sources({name: entry})
    return sources


def _mixture(table: Table, sources: Mapping[str, Source]) -> MixtureConfig:
    with reading("mixture"):
        check_names(table, [*field_names(MixtureConfig), "weights"])
        stages = _stages(table)
        checked = {key: value for key, value in table.items() if key not in ("weights", "stages")}
        build_record(MixtureConfig, {**checked, "stages": tuple(stages.values())})
        for path, stage in stages.items():
            for name, weight in stage.weights.items():
                with reading(*path, name):
                    check_weights({name: weight})
                    _check_component(name, sources)
        return MixtureConfig.from_profile(table)


def _stages(table: Table) -> dict[tuple[str | int, ...], WeightStage]:
    """The stages of a mixture, by the path to their weights. A mixture without weights has none."""
    if "stages" not in table:
        stage = {"start": 0, "weights": table.get("weights", {})}
        with reading():
            return {("weights",): build_record(WeightStage, stage)}
    stages = table["stages"]
    if not (isinstance(stages, list) and stages and all(isinstance(stage, Mapping) for stage in stages)):
        raise FieldError("field 'stages' is not a list of tables; give [{ start = 0, weights = {…} }, …]", "stages")
    built = {}
    for index, stage in enumerate(stages):
        with reading("stages", index):
            built["stages", index, "weights"] = build_record(WeightStage, stage)
    return built


def _check_component(name: str, sources: Mapping[str, Source]) -> None:
    if name not in sources:
        raise FieldError(f"the mixture weighs the undeclared source {name!r}; declared are {', '.join(sources)}")
    if sources[name].role == "evaluation":
        raise FieldError(f"the mixture weighs {name!r}, an evaluation source, which must never be trained on")


def _tokenizer(table: Table) -> TrainedTokenizer | PretrainedTokenizer:
    with reading("tokenizer"):
        if "sample_bytes" in table:
            return build_record(TrainedTokenizer, table)
        check_names(table, [*field_names(PretrainedTokenizer), "sample_bytes"])
        tokenizer = build_record(PretrainedTokenizer, table)
        if (tokenizer.repository is None) == (tokenizer.folder is None):
            raise FieldError("a tokenizer needs sample_bytes (to train one), or a repository, or a folder")
        if tokenizer.repository is not None and tokenizer.revision is None:
            raise FieldError(f"tokenizer {tokenizer.name!r} needs the revision of {tokenizer.repository}")
        return tokenizer


def _recipe(table: Table) -> ScalingRecipe:
    """A shipped recipe, or with `name` and `version` of its own a fork of one with other constants."""
    with reading("recipe"):
        check_names(table, ["base", *field_names(ScalingRecipe)])
        if "base" not in table:
            raise FieldError(f"field 'base' is missing; give the recipe to start from: {', '.join(RECIPES)}")
        base = table["base"]
        if not isinstance(base, str) or base not in RECIPES:
            raise FieldError(f"unknown recipe {base!r}; there are {', '.join(RECIPES)}", "base")
        fork = {key: value for key, value in table.items() if key != "base"}
        if not fork:
            return RECIPES[base]
        if "name" not in fork or "version" not in fork:
            raise FieldError(f"a fork of recipe {base!r} needs a name and a version of its own")
        if isinstance(fork["version"], str) and fork["version"] in VERSIONS:
            message = f"version {fork['version']!r} is that of a shipped recipe; give the fork one of its own"
            raise FieldError(message, "version")
        return _fork(RECIPES[base], fork)


def _fork(recipe: ScalingRecipe, constants: dict[str, Any]) -> ScalingRecipe:
    if "hparams" in constants:
        with reading("hparams"):
            constants["hparams"] = _hparams(recipe.hparams, constants["hparams"])
    if isinstance(constants.get("token_law"), Mapping):
        with reading("token_law"):
            constants["token_law"] = build_record(TokenLaw, constants["token_law"])
    if isinstance(constants.get("heldout_runs"), Mapping):
        with reading("heldout_runs"):
            constants["heldout_runs"] = _by_budget(constants["heldout_runs"])
    check_fields(ScalingRecipe, constants)
    return dataclasses.replace(recipe, **constants)


def _hparams(base: CompletedAdamHParams, constants: Any) -> CompletedAdamHParams:
    """`rule = "module:Class"` among the constants names a subclass of CompletedAdamHParams."""
    if not isinstance(constants, Mapping):
        raise FieldError("hparams is not a table; give one, [scale.recipe.hparams]")
    if "rule" not in constants:
        return dataclasses.replace(base, **check_fields(type(base), constants))
    with reading("rule"):
        try:
            return CompletedAdamHParams.from_json({**base.to_json(), **constants})
        except (TypeError, ValueError, AttributeError) as error:
            raise FieldError(f"the rule cannot be made of these constants: {error}") from None


def _by_budget(runs: Table) -> dict[float, HeldOutRun]:
    """TOML's keys are texts: `1e21 = { batch_size = 512 }` has the key "1e21"."""
    by_budget = {}
    for budget, run in runs.items():
        with reading(budget):
            if not isinstance(run, Mapping):
                raise FieldError(f"held-out run {budget} is {run!r}; give a table like {{ batch_size = 512 }}")
            by_budget[_budget(budget)] = build_record(HeldOutRun, run)
    return by_budget


def _budget(text: str) -> float:
    try:
        flops = float(text)
    except ValueError:
        flops = math.nan
    if not (math.isfinite(flops) and flops > 0):
        raise FieldError(f"the budget is {text!r}; give a positive number of FLOPs, like 1e21")
    return flops
