"""An asset whose body is to obtain one artifact: most of the graph."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager

import dagster as dg

from marin_assets.keys import asset_key, group
from marin_assets.lab import Lab
from marin_assets.metadata import job_metadata
from marin_assets.partitions import run_partitions
from marin_assets.resources import LabResource
from marin_core.errors import MarinError
from marin_core.graph import LabGraph
from marin_core.jobs import JobFailed
from marin_core.store import ArtifactSpec
from marin_core.tasks import TASKS

OWNERS = ["team:lab"]


@contextmanager
def plain_errors() -> Iterator[None]:
    """An error that is meant for people ends the step with its one line; a job's with the end of its log as well."""
    try:
        yield
    except JobFailed as error:
        label, status = next(iter(error.failed.items()))
        log = [f"the last lines of {label}:", *status.log_tail] if status.log_tail else []
        raise dg.Failure("\n".join([str(error), *log]), metadata=job_metadata(status), allow_retries=False) from None
    except MarinError as error:
        raise dg.Failure(str(error), allow_retries=False) from None


def artifact_asset(
    spec: ArtifactSpec,
    find: Callable[[LabGraph], ArtifactSpec],
    description: str,
    *,
    kinds: set[str],
    deps: Sequence[str] | None = None,
    check_specs: Sequence[dg.AssetCheckSpec] = (),
    prepare: Callable[[dg.AssetExecutionContext, Lab], None] | None = None,
    checks: Callable[[Lab], Sequence[dg.AssetCheckResult]] | None = None,
    tags: Mapping[str, str] | None = None,
) -> dg.AssetsDefinition:
    """The asset of an unpartitioned artifact.

    `find` gets the spec from the graph of the run, `deps` names its upstream assets where they are not the spec's
    inputs, `prepare` runs first, `checks` looks at the result.
    """

    @dg.asset(
        key=asset_key(spec.name),
        deps=[asset_key(name) for name in (deps if deps is not None else _input_names(spec))],
        description=description,
        group_name=group(spec.name),
        kinds=kinds,
        owners=OWNERS,
        tags=tags,
        code_version=TASKS[spec.task].code_version,
        check_specs=check_specs,
    )
    def body(context: dg.AssetExecutionContext, lab: LabResource) -> dg.MaterializeResult:
        with plain_errors():
            wanted = find(lab.lab.graph)
            if prepare:
                prepare(context, lab.lab)
            result = lab.lab.materialize(context, wanted)
            found = checks(lab.lab) if checks else ()
        return result._replace(check_results=list(found))

    return body


def run_asset(
    name: str,
    find: Callable[[LabGraph, ArtifactSpec], ArtifactSpec],
    description: str,
    graph: LabGraph,
    *,
    kinds: set[str],
    deps: Sequence[str],
    code_version: str,
    prepare: Callable[[dg.AssetExecutionContext, Lab, ArtifactSpec], object] | None = None,
    check_specs: Sequence[dg.AssetCheckSpec] = (),
    checks: Callable[[Lab, ArtifactSpec], Sequence[dg.AssetCheckResult]] | None = None,
) -> dg.AssetsDefinition:
    """The asset of what is made of each training run, partitioned as those are.

    `find` gets the artifact from the graph and the partition's training run; `prepare` runs first, `checks` looks at
    the result.
    """

    @dg.asset(
        key=asset_key(name),
        deps=[asset_key(upstream) for upstream in deps],
        partitions_def=run_partitions(graph),
        description=description,
        group_name=group(name),
        kinds=kinds,
        owners=OWNERS,
        code_version=code_version,
        check_specs=check_specs,
    )
    def body(context: dg.AssetExecutionContext, lab: LabResource) -> dg.MaterializeResult:
        with plain_errors():
            wanted = find(lab.lab.graph, lab.lab.run(context.partition_key))
            reused = lab.lab.store.current(wanted) is not None
            if prepare:
                prepare(context, lab.lab, wanted)
            result = lab.lab.result(lab.lab.made(context, wanted), reused)
            found = checks(lab.lab, wanted) if checks else ()
        return result._replace(check_results=list(found))

    return body


def _input_names(spec: ArtifactSpec) -> list[str]:
    return list(dict.fromkeys(upstream.name for upstream in spec.inputs.values()))
