"""The `[scale]` section of a profile: checked, and built into a `Scale`."""

import dataclasses
import math
import re
from collections.abc import Mapping
from typing import Any

from marin_core.data.mixing.config import MixtureConfig, WeightStage, check_weights
from marin_core.data.near_duplicates.config import MinHashConfig
from marin_core.data.sources.catalogue import select_sources
from marin_core.data.sources.declaration import Source
from marin_core.data.sources.tables import FieldError, build_record, check_fields, check_names, field_names, reading
from marin_core.evals.config import PERPLEXITY, EvalsConfig, ExternalScore, HarnessTask
from marin_core.profile.budgets import budget_of_key
from marin_core.profile.declaration import PretrainedTokenizer, Scale, TrainedTokenizer
from marin_core.recipes import (
    RECIPES,
    VERSIONS,
    CompletedAdamHParams,
    HeldOutRun,
    ScalingRecipe,
    TokenLaw,
    format_budget,
)
from marin_core.recipes.hparams import rule_of

type Table = Mapping[str, Any]

# Names of tasks become parts of asset keys, `/` between them, and of paths.
_TASK_NAME = re.compile(r"[A-Za-z0-9_-]+(/[A-Za-z0-9_-]+)*")


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
        texts = [format_budget(budget) for budget in budgets]
        for index, text in enumerate(texts):
            if text in texts[:index]:
                raise FieldError(f"{name} has {text} twice; give every budget once", name, index)
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
            _check_distinct(built)
    rest = {key: value for key, value in table.items() if key not in ("tasks", "external")}
    config = build_record(EvalsConfig, {**rest, "tasks": tuple(built), "external": _external(table)})
    if config.max_bytes < 1:
        raise FieldError(f"max_bytes is {config.max_bytes}; give at least 1", "max_bytes")
    return config


def _external(table: Table) -> tuple[ExternalScore, ...]:
    rows = table.get("external", [])
    if not (isinstance(rows, list) and all(isinstance(row, Mapping) for row in rows)):
        raise FieldError("field 'external' is not a list of tables; write [[scale.evals.external]]", "external")
    scores = []
    for index, row in enumerate(rows):
        with reading("external", index):
            scores.append(build_record(ExternalScore, row))
    return tuple(scores)


def _check_distinct(tasks: list[HarnessTask]) -> None:
    """The last of the tasks against those before."""
    *others, last = (task.name for task in tasks)
    for other in others:
        if _identifier(other) == _identifier(last):
            raise FieldError(f"to Dagster tasks {other!r} and {last!r} have one name; leave one of them out", "name")


def _identifier(task: str) -> str:
    """The name of the asset's op, as Dagster makes it of its key: the parts joined, and what is no letter an `_`."""
    return task.replace("/", "__").replace("-", "_")


def _harness_task(task: HarnessTask) -> HarnessTask:
    if not _TASK_NAME.fullmatch(task.name):
        message = f"the task's name is {task.name!r}; give letters, digits, _ and -, in parts with / between them"
        raise FieldError(message, "name")
    if task.name == PERPLEXITY:
        message = f"the task's name is {PERPLEXITY!r}, which every run is scored by anyway; leave the task out"
        raise FieldError(message, "name")
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
    # What was published is of the shipped constants: of others it says nothing.
    return dataclasses.replace(recipe, **{"token_law": None, "heldout_runs": {}, **constants})


def _hparams(base: CompletedAdamHParams, constants: Any) -> CompletedAdamHParams:
    """`rule = "module:Class"` among the constants names a subclass of CompletedAdamHParams."""
    if not isinstance(constants, Mapping):
        raise FieldError("hparams is not a table; give one, [scale.recipe.hparams]")
    if "rule" not in constants:
        return dataclasses.replace(base, **check_fields(type(base), constants))
    with reading("rule"):
        if not isinstance(constants["rule"], str):
            raise FieldError(f"rule is {constants['rule']!r}; give a class, as module:Class")
        rule = rule_of(constants["rule"])
    own = {key: value for key, value in constants.items() if key != "rule"}
    try:
        return build_record(rule, {**dataclasses.asdict(base), **own})
    except FieldError:
        raise
    except (TypeError, ValueError, NameError, AttributeError) as error:  # the class is a lab's own
        message = f"rule {constants['rule']} cannot be made of these constants: {error}"
        raise FieldError(message, "rule") from None


def _by_budget(runs: Table) -> dict[float, HeldOutRun]:
    by_budget = {}
    for budget, run in runs.items():
        with reading(budget):
            flops = budget_of_key(budget, run)
            if not isinstance(run, Mapping):
                raise FieldError(f"held-out run {budget} is {run!r}; give a table like {{ batch_size = 512 }}")
            by_budget[flops] = build_record(HeldOutRun, run)
    return by_budget
