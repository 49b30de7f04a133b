"""`marin data`: which documents training sees, and when."""

import dataclasses
import json
from collections.abc import Callable
from typing import Any

import click
from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from marin_core.data.mixing.replay import Replay, ReplayedSequence
from marin_core.errors import MarinError
from marin_core.graph import LabGraph
from marin_core.profile import Profile, load_profile
from marin_core.store import Artifact, Store


@click.group()
def data() -> None:
    """The order of training data, read from the artifacts alone."""


def _order_options(command: Callable[..., None]) -> Callable[..., None]:
    """What says which order is meant: a mixture and a seed, or a run of the ladder."""
    for option in reversed(
        (
            click.option("--mixture", help="Name of a mixture, or name@fingerprint. [default: the profile's]"),
            click.option("--seed", type=int, help="Seed of the run. [default: the profile's]"),
            click.option("--seq-len", type=click.IntRange(1), help="Tokens a sequence. [default: the recipe's]"),
            click.option("--run-tokens", type=click.IntRange(1), help="Tokens of the run, where epochs are simulated."),
            click.option("--json", "as_json", is_flag=True, help="Print JSON."),
            click.option("--profile", help="A profile's name or the path of its TOML file."),
        )
    ):
        command = option(command)
    return command


@data.command()
@_order_options
@click.option("--step", type=click.IntRange(0), required=True, help="Training step, from 0.")
@click.option("--batch", type=click.IntRange(1), help="Sequences a batch. [default: the run's, with --run]")
@click.option("--run", "cell", help="A run of the ladder, like 4e11-d0024: gives batch, seed and sequence length.")
def at(step: int, batch: int | None, cell: str | None, as_json: bool, **order: Any) -> None:
    """The documents in the batch of a step."""
    profile = load_profile(order.pop("profile"))
    if cell is not None:
        batch = _take_from_run(profile, cell, step, batch, order)
    if batch is None:
        raise click.UsageError("how many sequences has a batch? give --batch, or --run")
    sequences = _replay(profile, **order).batch(step, batch)
    if as_json:
        click.echo(json.dumps([dataclasses.asdict(sequence) for sequence in sequences], indent=2))
    else:
        _print(sequences)


@data.command("order-hash")
@_order_options
@click.option("--sequences", type=click.IntRange(1), default=1_000_000, show_default=True, help="How many.")
def order_hash(sequences: int, as_json: bool, **order: Any) -> None:
    """One hash of the first sequences of an order; equal hashes, equal data in equal order."""
    profile = load_profile(order.pop("profile"))
    digest = _replay(profile, **order).order_hash(sequences)
    click.echo(json.dumps({"sequences": sequences, "order_hash": digest}) if as_json else digest)


def _take_from_run(profile: Profile, cell: str, step: int, batch: int | None, order: dict[str, Any]) -> int:
    graph = LabGraph.of(profile)
    if cell not in graph.candidates:
        raise MarinError(
            f"no run {cell!r} in the ladder of profile {profile.name}; there are {', '.join(graph.candidates)}"
        )
    plan = graph.plan(graph.candidates[cell])
    if step >= plan.steps:
        raise MarinError(f"run {cell} has {plan.steps} steps, from 0 to {plan.steps - 1}; there is no step {step}")
    for name, value in (("seed", plan.seed), ("seq_len", plan.seq_len), ("run_tokens", plan.tokens)):
        order[name] = value if order[name] is None else order[name]
    return batch or plan.batch_size


def _replay(
    profile: Profile, *, mixture: str | None, seed: int | None, seq_len: int | None, run_tokens: int | None
) -> Replay:
    store = Store(profile.place.store)
    return Replay(
        store,
        _mixture(profile, store, mixture),
        seed=profile.scale.seed if seed is None else seed,
        seq_len=seq_len or profile.scale.recipe.seq_len,
        run_tokens=run_tokens,
    )


def _mixture(profile: Profile, store: Store, wanted: str | None) -> Artifact:
    own = LabGraph.of(profile).mixture
    name, _, fingerprint = (wanted or profile.scale.mixture.name).removeprefix("mixture/").partition("@")
    if fingerprint:
        return store.committed(f"mixture/{name}", fingerprint)
    if own.name == f"mixture/{name}":
        found = store.artifact(own)
        if store.rebuilt_inputs(found.record):
            raise MarinError(f"{own.name} is stale: its inputs were rebuilt with other content; materialize it again")
        return found
    records = store.records(f"mixture/{name}")
    if not records:
        raise MarinError(f"no mixture {name!r} in the store {store.root}; profile {profile.name} has {own.name}")
    return store.committed(records[-1].name, records[-1].fingerprint)


def _print(sequences: list[ReplayedSequence]) -> None:
    table = Table("index", "source", "sequence", "document", "shard", "row", "offset", "tokens", "text", box=SIMPLE)
    for sequence in sequences:
        first = [str(sequence.index), sequence.source, str(sequence.sequence)]
        for span in sequence.documents:
            place = [span.id, span.shard.removeprefix("documents/"), str(span.row), str(span.offset), str(span.tokens)]
            table.add_row(*first, *place, escape(" ".join(span.text.split())[:60]))
            first = ["", "", ""]
    for column in (0, 2, 5, 6, 7):
        table.columns[column].justify = "right"
    Console(width=None if Console().is_terminal else 200, highlight=False).print(table)
