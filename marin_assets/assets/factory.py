"""An asset whose body is to obtain one artifact: most of the graph."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import replace
from types import MappingProxyType

import dagster as dg

from marin_assets.checks.check import Check
from marin_assets.code_references import definition_metadata
from marin_assets.code_versions import run_for_all_partitions
from marin_assets.job_outcomes import error_metadata
from marin_assets.keys import asset_key, group
from marin_assets.lab import Lab
from marin_assets.metadata import job_metadata, shortened
from marin_assets.partitions import run_partitions
from marin_assets.provenance import read_again
from marin_assets.resources import LabResource
from marin_assets.vocabulary import suite_tags
from marin_core.errors import MarinError
from marin_core.graph import EVALS, LabGraph
from marin_core.jobs import JobFailed
from marin_core.store import ArtifactSpec

OWNERS = ["team:lab"]


@contextmanager
def plain_errors() -> Iterator[None]:
    """An error that is meant for people ends the step with its one line; a job's with the end of its log as well."""
    try:
        yield
    except JobFailed as error:
        label, status = next(iter(error.failed.items()))
        log = [f"the last lines of {label}:", *shortened(status.log_tail)] if status.log_tail else []
        told = job_metadata(replace(status, log_tail=()))
        raise dg.Failure("\n".join([str(error), *log]), metadata=told, allow_retries=False) from None
    except MarinError as error:
        raise dg.Failure(str(error), metadata=error_metadata(error), allow_retries=False) from None


def artifact_asset(
    spec: ArtifactSpec,
    find: Callable[[LabGraph], ArtifactSpec],
    description: str,
    *,
    kinds: set[str],
    deps: Sequence[str] | None = None,
    fills: Mapping[str, Sequence[str]] = MappingProxyType({}),
    prepare: Callable[[dg.AssetExecutionContext, Lab], None] | None = None,
    checks: Sequence[Check] = (),
    tags: Mapping[str, str] | None = None,
    freshness: dg.FreshnessPolicy | None = None,
) -> dg.AssetsDefinition:
    """The asset of an unpartitioned artifact.

    `find` gets the spec from the graph of the run, `deps` names its upstream assets where they are not the spec's
    inputs, `prepare` runs first, `checks` looks at the result. `fills` names partitions of other assets that it makes
    itself and is then made of.
    """
    filled = {asset_key(name): dg.SpecificPartitionsPartitionMapping(list(keys)) for name, keys in fills.items()}

    @dg.asset(
        key=asset_key(spec.name),
        deps=[
            *(asset_key(name) for name in (deps if deps is not None else inputs_of(spec)) if name not in fills),
            *(dg.AssetDep(key, partition_mapping=partitions) for key, partitions in filled.items()),
        ],
        description=description,
        group_name=group(spec.name),
        kinds=kinds,
        owners=OWNERS,
        tags=tags,
        metadata=definition_metadata(spec.task),
        code_version=spec.fingerprint,
        freshness_policy=freshness,
        check_specs=[check.spec(spec.name) for check in checks],
    )
    def body(context: dg.AssetExecutionContext, lab: LabResource) -> dg.MaterializeResult:
        with plain_errors():
            wanted = find(lab.lab.graph)
            if prepare:
                prepare(context, lab.lab)
            result = lab.lab.materialize(context, wanted)
            found = [check.result(lab.lab, wanted) for check in checks]
            read_again(context, filled)
        return result._replace(check_results=found)

    return body


def run_asset(
    name: str,
    find: Callable[[LabGraph, ArtifactSpec], ArtifactSpec],
    description: str,
    graph: LabGraph,
    *,
    kinds: set[str],
    prepare: Callable[[dg.AssetExecutionContext, Lab, ArtifactSpec], object] | None = None,
    checks: Sequence[Check] = (),
) -> dg.AssetsDefinition:
    """The asset of what is made of each training run, partitioned as those are.

    `find` gets the artifact from the graph and the partition's training run; `prepare` runs first, `checks` looks at
    the result.
    """
    common = find(graph, run_for_all_partitions(graph))

    @dg.asset(
        key=asset_key(name),
        deps=[asset_key(upstream) for upstream in inputs_of(common)],
        partitions_def=run_partitions(graph),
        description=description,
        group_name=group(name),
        kinds=kinds,
        owners=OWNERS,
        tags=suite_tags(graph),
        metadata=definition_metadata(common.task),
        code_version=common.fingerprint,
        check_specs=[check.spec(name) for check in checks],
    )
    def body(context: dg.AssetExecutionContext, lab: LabResource) -> dg.MaterializeResult:
        with plain_errors():
            wanted = find(lab.lab.graph, lab.lab.run(context.partition_key))
            reused = lab.lab.store.current(wanted) is not None
            if prepare:
                prepare(context, lab.lab, wanted)
            result = lab.lab.result(lab.lab.made(context, wanted), reused)
            found = [check.result(lab.lab, wanted) for check in checks]
        return result._replace(check_results=found)

    return body


def inputs_of(spec: ArtifactSpec) -> list[str]:
    """The assets that an artifact is made of. An evaluation is no asset of its own: those of what it is made of."""
    found: dict[str, None] = {}
    for upstream in spec.inputs.values():
        names = inputs_of(upstream) if upstream.name.startswith(f"{EVALS}/") else [upstream.name]
        found |= dict.fromkeys(names)
    return list(found)
