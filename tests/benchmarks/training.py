"""What a training step costs: through our worker, in the bare Levanter loop, and in a loop written by hand in JAX.

    deploy/run python tests/benchmarks/training.py [--rounds 3] [--cores N] [--size 48 …]

Three sizes of the same model family, in one process, the three loops in turn; the median of the warm steps of each, and
from each round the ratio. Before anything is timed for good, the loops' losses are compared: the hand-written model and
optimizer must be Levanter's, or the comparison means nothing. Then the model FLOPs utilization: the FLOPs that the
recipe counts, per second, as a share of what matrix products alone reach on this machine. A small corpus of installed
text is curated first, into a folder that is gone afterwards. A few minutes on 2 cores.
"""

import dataclasses
import importlib.metadata
import os
import shlex
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import click
from rich.console import Console
from rich.table import Table

from marin_core import environment
from marin_core.jobs.local import usable_cores
from marin_core.recipes import NANO, Candidate, ScalingRecipe, TrainPlan

WORKER, LEVANTER, HAND = "worker", "Levanter", "by hand"
# Relative. The first loss is of the same parameters; after that, rounding is amplified by every step.
SAME_PARAMETERS, SAME_CURVE, CURVE_STEPS = 1e-5, 1e-3, 10
# A model for which the machine's arithmetic counts more than the dispatch of operations.
WIDE = dataclasses.replace(NANO, name="nano-wide", seq_len=256, head_dim=64)


@dataclass(frozen=True)
class Size:
    """A model of a width, in batches of sequences, for some steps a round."""

    recipe: ScalingRecipe
    width: int
    batch_size: int
    steps: int

    @property
    def plan(self) -> TrainPlan:
        """The recipe's run, with the optimizer settings of its reference horizon: those of a few steps alone would be
        beyond anything that is ever trained."""
        recipe, tokens = self.recipe, self.batch_size * self.steps * self.recipe.seq_len
        candidate = Candidate(
            flops=float(tokens * recipe.flops_per_token(self.width)),
            hidden_dim=self.width,
            num_layers=recipe.num_layers(self.width),
            num_heads=self.width // recipe.head_dim,
            batch_size=self.batch_size,
            seq_len=recipe.seq_len,
            steps=self.steps,
            tokens=tokens,
            params=recipe.params(self.width),
            optimizer=recipe.hparams.at_width(self.width, self.batch_size, recipe.hparams.reference_tokens),
        )
        return TrainPlan.of(recipe, candidate, eval_sequences=8)

    @property
    def flops(self) -> int:
        """Of one step, as the recipe counts them."""
        return self.recipe.flops_per_token(self.width) * self.batch_size * self.recipe.seq_len


SIZES = {16: Size(NANO, 16, 4, 150), 48: Size(NANO, 48, 4, 120), 256: Size(WIDE, 256, 4, 15)}


@dataclass
class Measured:
    """A size's step times in seconds, by loop, a value per round, and what matrix products of its shapes reach alone in
    FLOP/s. Differences of losses are relative to Levanter's."""

    size: Size
    seconds: dict[str, list[float]]
    shapes_flops: float
    first_loss: float = 0.0
    curve: float = 0.0

    def ratio(self, other: str) -> list[float]:
        """Our step over the other loop's, of each round."""
        return [ours / its for ours, its in zip(self.seconds[WORKER], self.seconds[other], strict=True)]

    def flops(self, loop: str) -> float:
        """Per second."""
        return self.size.flops / statistics.median(self.seconds[loop])


def measure(size: Size, rounds: int, folder: Path) -> Measured:
    from matmuls import step_ceiling
    from training_loops import Bench, Steps

    bench, plan = Bench.prepared(folder), size.plan
    loops: dict[str, Callable[[Path, int], Steps]] = {
        WORKER: lambda scratch, number: bench.through_worker(plan, scratch, number),
        LEVANTER: lambda scratch, number: bench.through_levanter(plan, scratch),
        HAND: lambda scratch, number: bench.by_hand(plan, scratch),
    }
    measured = Measured(size, {name: [] for name in loops}, step_ceiling(plan))
    for number in range(rounds):
        # Each loop is first, second and third as often as the others.
        order = [*loops][number % 3 :] + [*loops][: number % 3]
        losses: dict[str, list[float]] = {}
        for name in order:
            with tempfile.TemporaryDirectory(dir=folder) as scratch:
                steps = loops[name](Path(scratch), number)
            measured.seconds[name].append(steps.seconds)
            losses[name] = steps.losses
        compare(losses, measured)
    return measured


def compare(losses: dict[str, list[float]], measured: Measured) -> None:
    """Raises click.ClickException: a loop trains something else."""
    for name in (WORKER, HAND):
        if len(losses[name]) != len(losses[LEVANTER]):
            raise click.ClickException(f"{name} took {len(losses[name])} steps, Levanter {len(losses[LEVANTER])}")
        off = [abs(a - b) / b for a, b in zip(losses[name], losses[LEVANTER], strict=True)]
        measured.first_loss = max(measured.first_loss, off[0])
        measured.curve = max(measured.curve, *off[:CURVE_STEPS])
    if measured.first_loss > SAME_PARAMETERS or measured.curve > SAME_CURVE:
        raise click.ClickException(
            f"width {measured.size.width}: the loops do not train the same model, their losses differ by "
            f"{measured.first_loss:.1e} at the first step and by up to {measured.curve:.1e} in {CURVE_STEPS} steps"
        )


def step_times(found: list[Measured]) -> Table:
    columns = ("width", "layers", "parameters", "batch", f"{WORKER} ms", f"{LEVANTER} ms", f"{HAND} ms")
    table = right(*columns, f"{WORKER} / {LEVANTER}", f"{WORKER} / {HAND}", "first loss off", "10 losses off")
    for one in found:
        plan = one.size.plan
        times = [f"{1e3 * statistics.median(one.seconds[name]):.2f}" for name in (WORKER, LEVANTER, HAND)]
        ratios = [spread(one.ratio(other)) for other in (LEVANTER, HAND)]
        shape = (str(plan.hidden_dim), str(plan.num_layers), f"{plan.params:,}", f"{plan.batch_size} × {plan.seq_len}")
        table.add_row(*shape, *times, *ratios, f"{one.first_loss:.0e}", f"{one.curve:.0e}")
    return table


def utilization(found: list[Measured], ceiling: float) -> Table:
    loops = (WORKER, LEVANTER, HAND)
    columns = ("width", "GFLOP a step", f"{WORKER} GFLOP/s", *(f"MFU {name}" for name in loops))
    table = right(*columns, "its products GFLOP/s", f"{WORKER} of that")
    for one in found:
        shares = [f"{one.flops(name) / ceiling:.1%}" for name in loops]
        row = (str(one.size.width), f"{one.size.flops / 1e9:.3f}", f"{one.flops(WORKER) / 1e9:.1f}", *shares)
        table.add_row(*row, f"{one.shapes_flops / 1e9:.1f}", f"{one.flops(WORKER) / one.shapes_flops:.1%}")
    return table


def right(*columns: str) -> Table:
    table = Table(*columns)
    for column in table.columns:
        column.justify = "right"
    return table


def spread(ratios: list[float]) -> str:
    return f"{statistics.median(ratios):.3f} ({min(ratios):.3f} to {max(ratios):.3f})"


def as_worker(cores: int) -> dict[str, str]:
    """The environment of a worker with as many threads as cores: XLA reads it when it starts."""
    from training_loops import PROFILE

    from marin_core.jobs.process import worker_environment
    from marin_core.profile import load_profile

    tracking = load_profile(str(PROFILE)).place.tracking_variables
    return {**tracking, **os.environ, **worker_environment(cores, environment.state_folder(), os.environ)}


@click.command(help=__doc__)
@click.option("--rounds", type=click.IntRange(1), default=3, show_default=True, help="Runs of each loop.")
@click.option("--cores", type=click.IntRange(1), help="Of this process and its threads; by default all.")
@click.option("--size", "widths", type=click.Choice([*map(str, SIZES)]), multiple=True, help="Width; by default all.")
def main(rounds: int, cores: int | None, widths: tuple[str, ...]) -> None:
    cores = cores or usable_cores()
    if "NPROC" not in os.environ:
        os.sched_setaffinity(0, sorted(os.sched_getaffinity(0))[:cores])
        raise SystemExit(subprocess.run([sys.executable, *sys.argv], env=as_worker(cores), check=False).returncode)
    from matmuls import ceiling
    from report import machine

    console, here = Console(width=180), machine()
    before, at = ceiling()
    with tempfile.TemporaryDirectory() as folder:
        found = [
            measure(size, rounds, Path(folder)) for width, size in SIZES.items() if not widths or str(width) in widths
        ]
    best, at = max((before, at), ceiling())
    console.print(f"python {shlex.join(sys.argv)}", highlight=False)
    versions = ", ".join(f"{name} {importlib.metadata.version(name)}" for name in ("jax", "optax", "marin-levanter"))
    console.print(f"{here['cpu']}, {here['cores']} cores; {versions}; W&B {environment.tracking()}", highlight=False)
    console.print(f"float32 ceiling: {best / 1e9:.1f} GFLOP/s, products of {at} × {at} matrices", highlight=False)
    console.print(step_times(found))
    console.print(utilization(found, best))


if __name__ == "__main__":
    try:
        main(standalone_mode=False)
        code = 0
    except click.ClickException as error:
        error.show()
        code = 1
    sys.stdout.flush()
    # Not by way of the interpreter's end, where threads of JAX and TensorStore are known to crash.
    os._exit(code)
