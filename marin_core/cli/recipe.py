"""`marin recipe`: the candidate runs of a budget, and the one to train."""

import json
import shlex
from pathlib import Path
from typing import Any

import click

from marin_core.cli.recipe_choice import Choice
from marin_core.cli.recipe_explanation import explanation
from marin_core.cli.recipe_needs import Hardware, needs
from marin_core.cli.recipe_table import Row, print_rows
from marin_core.cli.token_laws import fitted_law, published_law
from marin_core.graph import TRAINED_PLAN
from marin_core.plan_file import write_plan
from marin_core.profile import Profile, load_profile
from marin_core.profile.load import shipped_with
from marin_core.recipes import RECIPES, VERSIONS, Candidate, ScalingRecipe, TrainPlan, format_budget

DEFAULT_FAMILY = "v4"
# Sequences of each validation set where no profile says how many: those of the shipped profile `delphi`.
DEFAULT_EVAL_SEQUENCES = 4096


class Flops(click.ParamType):
    """A budget like 3e18."""

    name = "budget"

    def convert(self, value: Any, param: click.Parameter | None, ctx: click.Context | None) -> float:
        try:
            return float(value)
        except ValueError:
            self.fail(f"{value!r} is not a number of FLOPs; give one like 3e18", param, ctx)


@click.command()
@click.argument("budget", type=Flops())
@click.option("--recipe", "name", type=click.Choice(sorted(RECIPES)), help="A shipped recipe.  [default: delphi]")
@click.option("--version", type=click.Choice(list(VERSIONS)), help="A version of it, also one that was superseded.")
@click.option("--profile", help="The recipe of a profile instead: its name, or the path of its TOML file.")
@click.option("--optimal", is_flag=True, help="Only the run that the token law recommends.")
@click.option(
    "--law",
    type=click.Choice(["published", "fitted"]),
    help="The recipe's own, or that of the profile's finished suite.  [default: fitted with --profile, else published]",
)
@click.option("--seed", type=click.IntRange(0), help="Seed of the recommended run.  [default: the held-out runs' own]")
@click.option("--out", type=click.Path(dir_okay=False), help="Write the recommended run's plan, to train it.")
@click.option("--force", is_flag=True, help="With --out: replace a file that holds something else.")
@click.option("--family", help=f"Chips of which the smallest pool is named.  [default: {DEFAULT_FAMILY}]")
@click.option("--pool", help="A pool to ask about instead, like v5p-64.")
@click.option("--mfu", type=click.FloatRange(0, 1, min_open=True), default=0.4, show_default=True)
@click.option("--json", "as_json", is_flag=True, help="Print JSON, with everything.")
@click.option("--markdown", is_flag=True, help="Explain the recommended run.")
def recipe(budget: float, **options: Any) -> None:
    """The candidate runs of a BUDGET in FLOPs."""
    _check_together(options)
    profile = load_profile(options["profile"], dry=True) if options["profile"] else None
    chosen = profile.scale.recipe if profile else _shipped(options["name"], options["version"])
    hardware = Hardware.of(options["family"] or DEFAULT_FAMILY, options["pool"], options["mfu"])
    if options["optimal"] or options["markdown"]:
        _recommend(_choice(budget, chosen, profile, options), hardware, profile, options)
    else:
        _list(chosen, chosen.candidates(budget), hardware, profile, as_json=options["as_json"])


def _check_together(options: dict[str, Any]) -> None:
    if options["profile"] and (options["name"] or options["version"]):
        raise click.UsageError("a profile has its own recipe; give --profile, or --recipe and --version")
    if options["as_json"] and options["markdown"]:
        raise click.UsageError("--json and --markdown are two ways to print; give one")
    if not options["profile"] and options["law"] == "fitted":
        raise click.UsageError("a fitted law is that of a suite; name its profile with --profile")
    if options["force"] and not options["out"]:
        raise click.UsageError("--force is about the file that --out names; give both")
    if options["family"] and options["pool"]:
        raise click.UsageError("a pool is of a family; give --family or --pool")
    if not options["mfu"] > 0:  # a range of floats lets nan through
        raise click.UsageError(f"--mfu is {options['mfu']:g}; give a share of the peak, up to 1")
    one_run = options["optimal"] or options["markdown"]
    if not one_run and (options["law"] or options["seed"] is not None or options["out"]):
        raise click.UsageError("--law, --seed and --out are about the recommended run; give --optimal too")


def _shipped(name: str | None, version: str | None) -> ScalingRecipe:
    if version is None:
        return RECIPES[name or "delphi"]
    found = VERSIONS[version]
    if name not in (None, found.name):
        own = ", ".join(v for v, other in VERSIONS.items() if other.name == name)
        raise click.UsageError(f"recipe {name} has no version {version}; it has {own}")
    return found


def _choice(budget: float, chosen: ScalingRecipe, profile: Profile | None, options: dict[str, Any]) -> Choice:
    fitted = options["law"] != "published"
    own = (profile.scale.seed if profile else 0,)
    return Choice(
        recipe=chosen,
        flops=budget,
        law=fitted_law(profile, options["profile"]) if profile and fitted else published_law(chosen),
        seeds=(options["seed"],) if options["seed"] is not None else chosen.seeds(budget) or own,
        eval_sequences=profile.scale.eval_sequences if profile else DEFAULT_EVAL_SEQUENCES,
    )


def _recommend(choice: Choice, hardware: Hardware, profile: Profile | None, options: dict[str, Any]) -> None:
    plans = choice.plans
    needed = needs(plans[0], hardware)
    if options["as_json"]:
        one = _json(choice.recipe, choice.run, plans[0], hardware)
        law = {"token_law": choice.law.to_json(), "optimal_tokens": choice.best_tokens, "seeds": list(choice.seeds)}
        click.echo(json.dumps(one | law, indent=2))
    elif options["markdown"]:
        click.echo(explanation(choice, needed, hardware))
    else:
        print_rows([Row(choice.run, needed, plan.seed) for plan in plans], hardware)
        click.echo(_law_line(choice))
    if options["out"]:
        write_plan(plans[0], options["out"], force=options["force"])
        # Not among what is printed for a program or a page.
        to_programs = bool(options["as_json"] or options["markdown"])
        click.echo(_how_to_train(options["out"], plans[0], options["profile"]), err=to_programs)


def _law_line(choice: Choice) -> str:
    published = choice.recipe.token_law
    line = f"law: {choice.law.text}, {choice.law.source}: {choice.best_tokens:.4g} tokens"
    if published is not None and published != choice.law.law:
        line += f"; the published one says {published.tokens(choice.flops):.4g} (--law published)"
    return line


def _how_to_train(path: str, plan: TrainPlan, profile: str | None) -> str:
    # Whatever runs Dagster may have another working folder.
    config = {"ops": {TRAINED_PLAN.replace("/", "__"): {"config": {"plan": str(Path(path).resolve())}}}}
    command = f"dagster asset materialize --select {TRAINED_PLAN} --config-json {shlex.quote(json.dumps(config))}"
    run = f"{Candidate.key_of(plan.flops, plan.hidden_dim)}, seed {plan.seed}"
    # A plan is trained on a profile's mixture, whose vocabulary is that of its recipe.
    first, *others = [profile] if profile else shipped_with(plan.recipe)
    or_others = f" (or with MARIN_PROFILE={' or '.join(others)})" if others else ""
    return f"{path} is the plan of {run}; this trains it{or_others}:\nMARIN_PROFILE={shlex.quote(first)} {command}"


def _list(
    chosen: ScalingRecipe, found: list[Candidate], hardware: Hardware, profile: Profile | None, *, as_json: bool
) -> None:
    sequences = profile.scale.eval_sequences if profile else DEFAULT_EVAL_SEQUENCES
    seed = profile.scale.seed if profile else 0
    plans = [TrainPlan.of(chosen, c, eval_sequences=sequences, seed=seed) for c in found]
    if as_json:
        rows = [_json(chosen, c, plan, hardware) for c, plan in zip(found, plans, strict=True)]
        named = [row | {"run_name": chosen.run_name(c)} for c, row in zip(found, rows, strict=True)]
        click.echo(json.dumps(named, indent=2))
    else:
        print_rows([Row(c, needs(plan, hardware)) for c, plan in zip(found, plans, strict=True)], hardware)
        current = RECIPES.get(chosen.name)
        if chosen.version in VERSIONS and current is not None and current.version != chosen.version:
            click.echo(f"version {chosen.version} is superseded by {current.version}")


def _json(chosen: ScalingRecipe, candidate: Candidate, plan: TrainPlan, hardware: Hardware) -> dict[str, Any]:
    """Everything that is known of a run: its numbers, its settings, what it needs; the plan without its seed."""
    settings = plan.to_json()
    del settings["seed"]
    settings |= settings.pop("optimizer")
    return {
        "run": candidate.key,
        **candidate.to_json(),
        **settings,
        "budget": format_budget(candidate.flops),
        "needs": needs(plan, hardware).to_json() | {"family": hardware.family, "mfu": hardware.mfu},
    }
