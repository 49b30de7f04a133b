"""A lab with everything that a published model and the published tables are made from: artifacts in a store, of the
published 3e18 run, with a few kilobytes in place of its weights."""

import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl
from safetensors.numpy import save

from marin_core.build import BuildOptions, build
from marin_core.data.mixing.config import MixtureConfig
from marin_core.data.mixing.mixture import build_mixture
from marin_core.data.sources.declaration import FolderOrigin, HubOrigin, Layout, Source
from marin_core.evals.result import EvalResult, Metric, ModelIdentity
from marin_core.graph.runs import export_spec, publication_spec, train_spec
from marin_core.graph.specs import artifact
from marin_core.recipes import RECIPES, TrainPlan
from marin_core.store import Artifact, ArtifactRecord, ArtifactSpec, Store

DELPHI = RECIPES["delphi"]
PLAN = TrainPlan.of(DELPHI, DELPHI.candidate(3e18, 1024), eval_sequences=64)
SOURCES = {
    "code": Source("code", HubOrigin("bigcode/starcoderdata", "main", ("*",)), "see homepage", Layout("parquet")),
    "prose": Source("prose", FolderOrigin("/texts"), "CC-BY-4.0", Layout("text"), homepage="https://example.org/prose"),
}
TOKENS = {"code": 131_818, "prose": 127_390}
SUMMARY = {
    "status": "succeeded",
    "steps": PLAN.steps,
    "tokens": PLAN.tokens,
    "flops": PLAN.flops,
    "hidden_dim": PLAN.hidden_dim,
    "train_loss": 3.612345678,
    "eval_loss": 3.586,
    "evals": {},
    "train_seconds": 71_234.5,
    "tokens_per_second": 17_174.2,
    "wandb_url": "https://wandb.example/lab/runs/abc",
    "hardware": {"device": "TPU v4", "count": 8, "processes": 2},
    "attempts": {"preempted": 3, "peer_lost": 0, "failed": 0, "died": 1},
}
TARGET = {"namespace": "lab", "private": False, "tag": "adamh_v6"}
FIGURES = [
    {
        "config": "ladder",
        "file": "ladder.parquet",
        "description": "One row per training run.",
        "rows": 2,
        "columns": [
            {"name": "kind", "type": "string", "unit": None, "meaning": "isoflop | held-out"},
            {"name": "flops", "type": "float64", "unit": "FLOPs", "meaning": "compute budget"},
            {"name": "wandb_url", "type": "string", "unit": None, "meaning": "the run's page"},
        ],
    }
]
LADDER = {"kind": ["isoflop", "held-out"], "flops": [3e18, 1e21], "wandb_url": ["https://wandb.example/a", None]}


@dataclass(frozen=True)
class PublishingLab:
    store: Store
    scratch: Path

    def commit(self, spec: ArtifactSpec, files: Mapping[str, bytes], summary: Mapping[str, Any]) -> Artifact:
        with self.store.writer(spec) as writer:
            if not writer.committed:
                for path, data in files.items():
                    with writer.open(path) as file:
                        file.write(data)
                writer.commit(summary)
        return self.store.artifact(spec)

    def build(self, spec: ArtifactSpec) -> ArtifactRecord:
        return build(spec, self.store, BuildOptions(self.scratch), log=print)

    def publication(
        self,
        *,
        summary: Mapping[str, Any] = SUMMARY,
        export: Callable[[dict[str, Any]], None] = lambda said: None,
        config: Callable[[dict[str, Any]], None] = lambda config: None,
        target: Mapping[str, object] = TARGET,
        seed: int = 0,
        optimizer: Mapping[str, float] = PLAN.to_json()["optimizer"],
        code: float = 0.4,
    ) -> ArtifactSpec:
        """The spec of a model's publication, its inputs committed, at the hub of HF_ENDPOINT unless `target` names one;
        `export` and `config` change what `export.json` and `config.json` say. `code` is the share of that source."""
        tokenizer = self._tokenizer()
        mixture = self._mixture(tokenizer, code)
        plan = TrainPlan.from_json({**PLAN.to_json(), "seed": seed, "optimizer": optimizer})
        run = train_spec(plan, "3e18-d1024", mixture)
        checkpoint = self.commit(run, {"plan.json": as_json(plan.to_json())}, summary)
        exported = export_spec(run, tokenizer)
        said = export_said(checkpoint)
        export(said)
        settings = hf_config()
        config(settings)
        self.commit(exported, {**export_files(settings), "export.json": as_json(said)}, {})
        evals = artifact("evals/delphi", "collect_evals", {"of": run.fingerprint}, {}, partition="3e18-d1024")
        results = [result.to_json() for result in eval_results(checkpoint)]
        self.commit(evals, {"evals.json": as_json(results)}, {})
        return publication_spec(run, exported, evals, at_hub(target))

    def tables(self, rows: Mapping[str, list[Any]] = LADDER, figures: list[dict[str, Any]] = FIGURES) -> ArtifactSpec:
        """The spec of the tables' publication, its inputs committed."""
        recipe = artifact("delphi/recipe", "list_candidates", {"recipe": DELPHI.to_json()}, {})
        suite = artifact("delphi/suite", "collect_runs", {}, {"recipe": recipe})
        dataset = artifact("delphi/dataset", "tabulate", {}, {"suite": suite})
        self.commit(recipe, {}, {})
        self.commit(suite, {}, {})
        files = {"figures.json": as_json(figures)}
        with (self.scratch / "ladder.parquet").open("wb") as file:
            pl.DataFrame(dict(rows)).write_parquet(file)
        files["ladder.parquet"] = (self.scratch / "ladder.parquet").read_bytes()
        self.commit(dataset, files, {})
        return artifact("publish/dataset", "publish_dataset", at_hub(TARGET), {"dataset": dataset})

    def _tokenizer(self) -> ArtifactSpec:
        config = {"vocab_size": 128_256, "repository": "lab/tokenizer", "revision": "v1", "folder": None}
        spec = artifact("tokenizer/llama3", "fetch_tokenizer", config, {})
        summary = {"vocab_size": 128_256, "bos_token": "<|begin_of_text|>", "eos_token": "<|end_of_text|>"}
        self.commit(spec, {"tokenizer.json": b"{}"}, summary)
        return spec

    def _mixture(self, tokenizer: ArtifactSpec, code: float) -> ArtifactSpec:
        tokenized = {}
        for name, source in SOURCES.items():
            curated = artifact(f"curated/{name}", "curate", {"source": name}, {})
            self.commit(curated, {}, {"licences": ["MIT", "Apache-2.0"] if name == "code" else ["CC-BY-4.0"]})
            context = {"source": source.to_json()}
            inputs = {"curated": curated, "tokenizer": tokenizer}
            spec = artifact(f"tokenized/{name}", "tokenize", {"source": name}, inputs, context=context)
            sizes = {"train_tokens": TOKENS[name], "train_bytes": 4 * TOKENS[name], "train_documents": 7}
            self.commit(spec, {}, sizes)
            tokenized[name] = spec
        weights = {"code": code, "prose": 1 - code}
        config = MixtureConfig.from_profile({"name": "two", "block_size": 64, "weights": weights})
        inputs = {**{spec.name: spec for spec in tokenized.values()}, "tokenizer": tokenizer}
        mixture = artifact("mixture/two", "mix", config.to_json(), inputs)
        shards = {name: self.store.artifact(spec) for name, spec in tokenized.items()}
        with self.store.writer(mixture) as writer:
            if not writer.committed:
                writer.commit(build_mixture(config, shards, writer, print))
        return mixture


def at_hub(target: Mapping[str, object]) -> dict[str, object]:
    return {"endpoint": os.environ.get("HF_ENDPOINT"), **target}


def as_json(value: Any) -> bytes:
    return json.dumps(value).encode()


def hf_config() -> dict[str, Any]:
    """The configuration of the plan's model as transformers writes it."""
    from transformers import Qwen3Config

    config = Qwen3Config(
        architectures=["Qwen3ForCausalLM"],
        hidden_size=PLAN.hidden_dim,
        num_hidden_layers=PLAN.num_layers,
        num_attention_heads=PLAN.num_heads,
        num_key_value_heads=PLAN.num_heads,
        head_dim=PLAN.head_dim,
        intermediate_size=PLAN.mlp_dim,
        vocab_size=PLAN.vocab_size,
        max_position_embeddings=PLAN.seq_len,
        tie_word_embeddings=False,
        dtype="float32",
    )
    return json.loads(config.to_json_string(use_diff=False))


def export_files(config: Mapping[str, Any]) -> dict[str, bytes]:
    weights = np.random.default_rng(0).standard_normal((8, 64), np.float32)
    return {
        "config.json": as_json(config),
        "generation_config.json": as_json({"eos_token_id": 1}),
        "model.safetensors": save({"lm_head.weight": weights}),
        "tokenizer.json": b"{}",
        "tokenizer_config.json": b"{}",
    }


def export_said(checkpoint: Artifact) -> dict[str, Any]:
    check = {"library": "levanter", "sequences": 4, "positions": 512, "max_abs_logit": 11.5}
    return {
        "dtype": "float32",
        "check": {**check, "max_abs_difference": 2.5e-5, "tolerance": 1.15e-3},
        "checkpoint": {"fingerprint": checkpoint.record.fingerprint, "content": checkpoint.record.content},
    }


def eval_results(checkpoint: Artifact) -> list[EvalResult]:
    """A scoring with standard errors, a task whose text was looked for in the training sources, one that failed, and
    one that asked another model."""
    model = ModelIdentity.of(checkpoint, PLAN)
    removed = {"documents_checked": 500, "documents_removed": 5, "items_found": 3, "items_share": 0.025}
    found = {"quizzes": {"items": 120, "training_sources": {"code": {**removed, "highest_overlap": 0.875}}}}
    return [
        EvalResult(
            "succeeded",
            "perplexity",
            "1",
            model,
            examples=87,
            metrics={
                "macro/bits_per_byte": Metric(0.98765432101, 0.0123456, "bits per byte", False),
                "code/nats_per_token": Metric(2.5, None, "nats per token", False),
            },
        ),
        EvalResult(
            "succeeded",
            "quiz",
            "2.0",
            model,
            examples=120,
            metrics={"acc": Metric(0.4166666666666667, 0.045, "share", True)},
            sources=("quizzes",),
            contamination=found,
        ),
        EvalResult("infra_failed", "gsm8k", "3", model, error="the endpoint did not answer within 60 s"),
        EvalResult(
            "succeeded",
            "riddle",
            "1",
            model,
            examples=10,
            metrics={"acc": Metric(0.875, None, "share", True)},
            details={"endpoint": "http://10.0.0.7/v1", "endpoint_model": "large-model"},
        ),
    ]
