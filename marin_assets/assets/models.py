"""What is made of each training run, partitioned as those are: groups `harness_tasks`, `evals`,
`exports`, `publish`."""

import dagster as dg

from marin_assets.assets.factory import artifact_asset, run_asset
from marin_assets.checks import models as checks
from marin_assets.guards import refuse_unrequested_work
from marin_assets.lab import Lab
from marin_core.graph import EVALS, EXPORTS, PUBLISHED_MODELS, LabGraph
from marin_core.store import ArtifactRecord, ArtifactSpec


def assets(graph: LabGraph) -> list[dg.AssetsDefinition]:
    return [
        *(_task_asset(name, files) for name, files in graph.harness_tasks.items()),
        run_asset(
            EVALS,
            lambda g, run: g.evaluated(run),
            "Every evaluation of a model: perplexity by domain in nats per token and bits per byte, and the tasks of "
            "the profile, with standard errors and what training data had of each. A failed one is a result, too.",
            graph,
            kinds={"eval"},
            prepare=evaluate,
            checks=[checks.EVALUATIONS_SUCCEEDED, checks.SCORES_ARE_SANE],
        ),
        run_asset(
            EXPORTS,
            lambda g, run: g.export(run),
            "A model as a Hugging Face folder that reloads to the logits of its checkpoint.",
            graph,
            kinds={"jax"},
            prepare=lambda context, lab, export: refuse_unrequested_work(context, "exports models"),
            checks=[checks.EXPORT_READS_BACK],
        ),
        run_asset(
            PUBLISHED_MODELS,
            lambda g, run: g.publication(run),
            "A model repository on the hub: weights, configuration, tokenizer, and a card made of the records.",
            graph,
            kinds={"huggingface"},
            prepare=lambda context, lab, publication: refuse_unrequested_work(context, "publishes models"),
        ),
        artifact_asset(
            graph.published_dataset,
            lambda g: g.published_dataset,
            "The suite's tables as a dataset repository on the hub, one configuration per figure.",
            kinds={"huggingface"},
            prepare=lambda context, lab: refuse_unrequested_work(context, "publishes tables"),
        ),
    ]


def _task_asset(name: str, files: ArtifactSpec) -> dg.AssetsDefinition:
    return artifact_asset(
        files,
        lambda g: g.harness_tasks[name],
        f"Questions and settings of the task `{name}`, as lm-evaluation-harness reads them.",
        kinds={"eval"},
    )


def evaluate(context: dg.AssetExecutionContext, lab: Lab, evaluated: ArtifactSpec) -> None:
    """Run the evaluations of a checkpoint that are not in the store yet."""
    obtain_evaluations(context, lab, [evaluated])


def obtain_evaluations(context: dg.AssetExecutionContext, lab: Lab, evaluated: list[ArtifactSpec]) -> None:
    """Run what the store lacks of all evaluations of several checkpoints, and again what failed for want of something
    that it needs."""
    wanted = [spec for each in evaluated for spec in each.inputs.values() if "checkpoint" in spec.inputs]
    found = lab.store.all_current(wanted)
    missing = [spec for spec in wanted if is_wanting(found[spec.fingerprint])]
    if not missing:
        return
    refuse_unrequested_work(context, "evaluates models")
    for spec in missing:
        if record := found[spec.fingerprint]:
            lab.store.retire(spec, record)
    context.log.info(f"{len(missing)} of {len(wanted)} evaluations are not in the store yet; running them")
    lab.obtain(context, missing)


def is_wanting(record: ArtifactRecord | None) -> bool:
    """Whether an evaluation has to be run: there is none, or one that another try may end differently."""
    return record is None or bool(record.summary.get("retryable"))
