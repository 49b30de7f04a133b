"""Which pools of a place the jobs of a graph run in."""

from marin_core.graph import LabGraph
from marin_core.jobs.spec import JobSpec
from marin_core.profile import Place
from marin_core.store import ArtifactSpec
from marin_core.tasks import TASKS


def job_of(spec: ArtifactSpec, graph: LabGraph, place: Place) -> JobSpec:
    """The job that builds `spec`.

    Raises:
        MarinError: the place has no pool for it.
    """
    return JobSpec(
        spec,
        _pools(spec, graph, place),
        max_failures=place.max_failures,
        max_preemptions=place.max_preemptions,
        ranks=place.data_ranks if TASKS[spec.task].stage else 1,
    )


def _pools(spec: ArtifactSpec, graph: LabGraph, place: Place) -> tuple[str, ...]:
    match TASKS[spec.task].pool:
        case "data":
            return place.data_pools
        case "eval":
            return place.eval_pools
        case "suite" if spec.partition in graph.cells:
            return place.suite_pools
        case "suite":
            return place.heldout_pools_of(float(spec.config["plan"]["flops"]))
