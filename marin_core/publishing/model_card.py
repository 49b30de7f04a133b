"""The card of a published model: what its artifacts say, and nothing else."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any

from marin_core.data.sources.declaration import HubOrigin
from marin_core.evals.result import EvalResult
from marin_core.publishing.model_artifacts import DataSource, ModelArtifacts
from marin_core.publishing.template import NOT_RECORDED, render
from marin_core.recipes import AdamWParams, TrainPlan, format_budget
from marin_core.recipes.hparams import OptimizerParams
from marin_core.store import Artifact

if TYPE_CHECKING:
    from huggingface_hub import ModelCardData

CARD = "README.md"
_TEMPLATE = "model_card.md.jinja"


def model_card(artifacts: ModelArtifacts, repository: str, tag: str, fingerprint: str, licence: str | None) -> str:
    """The text of the card. `fingerprint` is that of the publication, `licence` the model's own where one was given."""
    plan, results = artifacts.plan, artifacts.results()
    elsewhere = [result for result in results if result.details.get("endpoint")]
    results = [result for result in results if result not in elsewhere]
    mixture = artifacts.mixture.read_json("mixture.json")
    values = {
        "name": repository.split("/")[-1],
        "repository": repository,
        "tag": tag,
        "params": plan.params,
        "tokens": plan.tokens,
        "budget": format_budget(plan.flops),
        "recipe": plan.recipe,
        "recipe_version": plan.recipe_version,
        "check": artifacts.export.read_json("export.json")["check"],
        "model": _model(plan, artifacts.export.read_json("config.json")),
        "training": _training(plan, artifacts.checkpoint),
        "mixture": mixture["name"],
        "block_size": mixture["block_size"],
        "stages": [_stage(stage, mixture, artifacts.sources) for stage in mixture["stages"]],
        "tokenizer": _tokenizer(artifacts.tokenizer),
        **_evaluations(results),
        "elsewhere": elsewhere,
        "provenance": _provenance(artifacts, fingerprint),
    }
    return render(_TEMPLATE, _metadata(artifacts, repository, results, licence), values)


def _metadata(
    artifacts: ModelArtifacts, repository: str, results: Sequence[EvalResult], licence: str | None
) -> "ModelCardData":
    from huggingface_hub import EvalResult as HubResult
    from huggingface_hub import ModelCardData

    found = [
        HubResult(
            task_type="text-generation",
            dataset_type=result.evaluation,
            dataset_name=result.evaluation,
            dataset_args={"version": result.version, "examples": result.examples},
            metric_type=name,
            metric_name=name,
            metric_value=metric.value,
            metric_args={"unit": metric.unit} | ({} if metric.stderr is None else {"standard_error": metric.stderr}),
        )
        for result in results
        for name, metric in result.metrics.items()
    ]
    origins = [source.declared.origin for source in artifacts.sources.values()]
    return ModelCardData(
        license=licence,
        library_name="transformers",
        pipeline_tag="text-generation",
        tags=[artifacts.plan.recipe, "scaling-laws", "pretrained"],
        datasets=sorted({origin.dataset for origin in origins if isinstance(origin, HubOrigin)}) or None,
        model_name=repository.split("/")[-1],
        eval_results=found or None,
    )


def _model(plan: TrainPlan, config: Mapping[str, Any]) -> dict[str, Any]:
    rope = config.get("rope_parameters") or config.get("rope_scaling")
    return {
        "Architecture": ", ".join(config["architectures"]),
        "Parameters": f"{plan.params:,}",
        "Hidden size": f"{plan.hidden_dim:,}",
        "Layers": plan.num_layers,
        "Attention heads": plan.num_heads,
        "KV heads": config["num_key_value_heads"],
        "Head dimension": plan.head_dim,
        "MLP width": f"{plan.mlp_dim:,}",
        "Vocabulary": f"{plan.vocab_size:,}",
        "Sequence length": f"{plan.seq_len:,}",
        "Positions": ", ".join(f"{key} {value}" for key, value in sorted(rope.items())) if rope else None,
        "Tied embeddings": "yes" if config["tie_word_embeddings"] else "no",
        "Weights in": config.get("dtype") or config.get("torch_dtype"),
    }


def _training(plan: TrainPlan, checkpoint: Artifact) -> dict[str, Any]:
    summary, optimizer, made = checkpoint.record.summary, plan.optimizer, checkpoint.record.provenance
    return {
        "Budget": f"{format_budget(plan.flops)} FLOPs",
        "Tokens": f"{summary['tokens']:,}",
        "Steps": f"{summary['steps']:,}",
        "Batch": f"{plan.batch_size:,} sequences of {plan.seq_len:,} tokens",
        "Seed": plan.seed,
        "Recipe": f"{plan.recipe}, version {plan.recipe_version}",
        "Optimizer": f"{_rates(optimizer)}, beta1 {optimizer.beta1:g}, beta2 {optimizer.beta2:.6g}, epsilon "
        f"{optimizer.epsilon:.6g}, gradients clipped at {optimizer.max_grad_norm:g}, z-loss "
        f"{optimizer.z_loss_weight:g}",
        "Schedule": f"{optimizer.warmup:.0%} warm-up, constant, {optimizer.decay:.0%} linear decay to "
        f"{optimizer.min_lr_ratio:g} of the peak",
        "Precision": plan.precision,
        "Hardware": _hardware(summary.get("hardware")),
        "Time in steps": _seconds(summary.get("train_seconds")),
        "From start to end": f"{made.started} to {made.ended}",
        "Attempts before the last": _attempts(summary.get("attempts")),
        "Training loss at the end": f"{summary['train_loss']:.6g} nats per token",
        "Validation loss at the end": f"{summary['eval_loss']:.6g} nats per token",
    }


def _rates(optimizer: OptimizerParams) -> str:
    if isinstance(optimizer, AdamWParams):
        return f"AdamW, rate {optimizer.learning_rate:.6g}, weight decay {optimizer.weight_decay:g}"
    return f"AdamH, rate {optimizer.learning_rate:.6g}, Adam's rate {optimizer.adam_lr:.6g}"


def _hardware(hardware: Mapping[str, Any] | None) -> str | None:
    if hardware is None:
        return None
    return f"{hardware['count']} × {hardware['device']}, processes: {hardware['processes']}"


def _attempts(attempts: Mapping[str, int] | None) -> str | None:
    """How many attempts ended before the last, by how they ended."""
    if attempts is None:
        return None
    return ", ".join(f"{count} {how.replace('_', ' ')}" for how, count in sorted(attempts.items()) if count) or "none"


def _seconds(seconds: float | None) -> str | None:
    return None if seconds is None else f"{seconds:,.2f} s ({seconds / 3600:,.2f} h)"


def _stage(stage: Mapping[str, Any], mixture: Mapping[str, Any], sources: Mapping[str, DataSource]) -> dict[str, Any]:
    rows = [
        {
            "name": name,
            "nominal": nominal,
            "effective": stage["effective_shares"][name],
            "tokens": mixture["components"][name]["train_tokens"],
            "licence": sources[name].licence,
        }
        for name, nominal in sorted(stage["nominal_shares"].items())
    ]
    return {"start": stage["start"], "sources": rows}


def _tokenizer(tokenizer: Artifact) -> dict[str, Any]:
    summary, config = tokenizer.record.summary, tokenizer.record.payload["config"]
    if config.get("repository"):
        origin = f"{config['repository']} at {config['revision']}"
    elif "folder" in config:
        origin = "a folder of the lab"
    else:
        origin = f"trained on a sample of {', '.join(sorted(tokenizer.record.inputs))}"
    return {
        "Tokenizer": tokenizer.record.name,
        "From": origin,
        "Vocabulary": f"{summary['vocab_size']:,}",
        "BOS": summary["bos_token"] or "none",
        "EOS": summary["eos_token"],
    }


def _evaluations(results: Sequence[EvalResult]) -> dict[str, Any]:
    return {
        "metrics": [
            {
                "evaluation": result.evaluation,
                "version": result.version,
                "metric": name,
                "value": metric.value,
                "stderr": metric.stderr,
                "unit": metric.unit,
                "examples": result.examples,
            }
            for result in results
            for name, metric in result.metrics.items()
        ],
        "unfinished": [result for result in results if result.status != "succeeded"],
        "contamination": [
            {
                "evaluation": result.evaluation,
                "source": source,
                "item_count": found["items"],
                "training_source": name,
                **{key: said[key] for key in ("documents_checked", "documents_removed", "items_found")},
                "highest_overlap": float(said["highest_overlap"]),
            }
            for result in results
            for source, found in (result.contamination or {}).items()
            for name, said in found["training_sources"].items()
        ],
        "not_looked_for": [result.evaluation for result in results if result.contamination is None],
    }


def _provenance(artifacts: ModelArtifacts, fingerprint: str) -> dict[str, Any]:
    made_from = (artifacts.checkpoint, artifacts.export, artifacts.mixture, artifacts.tokenizer, artifacts.evals)
    records = {f"Artifact {a.record.name}": f"{a.record.fingerprint} (content {a.record.content})" for a in made_from}
    return {
        "Fingerprint of this publication": fingerprint,
        **records,
        "Run": artifacts.checkpoint.record.partition,
        "Code that trained it": _commit(artifacts.checkpoint),
        "Code that exported it": _commit(artifacts.export),
        "W&B": _page(artifacts.checkpoint.record.summary),
    }


def _commit(artifact: Artifact) -> str:
    made = artifact.record.provenance
    if made.commit is None:
        return NOT_RECORDED
    return f"commit {made.commit}{', with changes that are not in it' if made.dirty else ''}"


def _page(summary: Mapping[str, Any]) -> str | None:
    """Where the run's page is; one that nobody has sent lies with the checkpoint."""
    return summary.get("wandb_url") or ("offline, with the checkpoint" if summary.get("wandb_offline") else None)
