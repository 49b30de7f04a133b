"""The command line of a worker in a pod."""

from collections.abc import Sequence

from marin_core.build import BuildOptions
from marin_core.jobs.kubernetes.jobset import coordinator_address
from marin_core.jobs.pools import Pool
from marin_core.jobs.spec import JobSpec


def worker_arguments(
    job: JobSpec, pools: Sequence[Pool], store: str, plan: str, options: BuildOptions
) -> tuple[str, ...]:
    """Options of `marin_core.worker`, the same for every pod of the job: which of them a pod is, its environment says.

    `--scratch` is left to whoever knows what is mounted where.
    """
    pool = pools[0]
    arguments = ["--store", store, "--plan", plan, "--job", job.name]
    if job.ranks > 1:
        arguments += ["--world", str(job.ranks)]
    if pool.processes > 1:
        arguments += ["--processes", str(pool.processes), "--hosts", str(pool.hosts)]
        arguments += ["--coordinator", coordinator_address(job.name)]
    optional = {
        "--checkpoint-every-seconds": options.checkpoint_every_seconds,
        "--checkpoint-every-steps": options.checkpoint_every_steps,
        "--command": options.command,
        "--dagster-run": options.dagster_run,
        "--peak-flops": _peak_flops(pools),
    }
    for name, value in optional.items():
        if value is not None:
            arguments += [name, f"{value:g}" if isinstance(value, float) else str(value)]
    # Kubernetes would replace a `$(NAME)` in what a person typed.
    return tuple(argument.replace("$(", "$$(") for argument in arguments)


def _peak_flops(pools: Sequence[Pool]) -> float | None:
    """Of all chips together, in FLOP/s; None where it depends on which of the pools it will be."""
    peaks = {pool.peak_flops for pool in pools}
    peak = peaks.pop() if len(peaks) == 1 else None
    return None if peak is None else peak * pools[0].chips
