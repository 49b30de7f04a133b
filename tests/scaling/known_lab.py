"""A lab whose runs ended as a law says that the test knows: only the training and the scoring are made up, everything
after them is built by the lab's own tasks."""

import math
import zlib
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import cached_property
from pathlib import Path
from typing import Any

import numpy as np
import polars as pl

from marin_core.build import BuildOptions, build
from marin_core.evals.result import RESULT, EvalResult, Metric, ModelIdentity
from marin_core.graph import LabGraph
from marin_core.profile import load_profile
from marin_core.recipes import TokenLaw, TrainPlan
from marin_core.scaling import LossLaw, Sigmoid
from marin_core.store import ArtifactRecord, ArtifactSpec, Store, canonical_json, digest

PROFILE = """
extends = "{tiny}"
[scale]
fit_budgets = [8e9, 1.6e10, 3.2e10, 6.4e10, 1.28e11]
heldout_budgets = {heldout}
[scale.recipe]
base = "nano"
name = "known"
version = "1"
vocab_size = 512
seq_len = 64
max_width = 48
wide_width_step = 8
target_steps = 128
max_batch_size = 512
max_tokens_per_param = 400
max_params = 1e6
eval_batch_size = 8
heldout_runs = {{ "5.12e11" = {{ seeds = {seeds} }} }}
hparams = {{ reference_tokens = 5e4, reference_beta2 = 0.995 }}
[scale.evals.tasks.continuation]
"""
LAW = LossLaw(irreducible=2.0, scale=2.5, exponent=0.12, reference=1e10)
TOKEN_LAW = TokenLaw(coefficient=6e4 / 8e9**0.55, exponent=0.55)
CURVATURE = 0.2  # nats per squared decade of tokens
NOISE = 0.002  # standard deviation, nats per token
SOFT_LAW = LossLaw(irreducible=0.7, scale=0.6, exponent=0.3, reference=1e10)
SIGMOID = Sigmoid(floor=0.25, midpoint=1.05, width=0.1)
EXAMPLES = 400
DIVERGED = "1.6e10-d0008"
NOT_EVALUATED = "3.2e10-d0008"


@dataclass(frozen=True)
class KnownLab:
    """`diverged` are runs without a loss; the others ended on the laws above, but for the noise that tells runs apart
    and the `excess` of single ones (nats per token)."""

    folder: Path
    heldout_budgets: tuple[float, ...] = (5.12e11, 1.024e12)
    seeds: tuple[int, ...] = (0, 42)
    diverged: tuple[str, ...] = (DIVERGED,)
    excess: dict[str, float] = field(default_factory=dict)
    wandb: Callable[[str], str | None] = lambda key: f"https://wandb.ai/lab/marin/runs/{key}"
    log: list[str] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.folder.mkdir(parents=True, exist_ok=True)
        tiny = Path(__file__).parents[1] / "profiles" / "tiny.toml"
        text = PROFILE.format(tiny=tiny, heldout=list(self.heldout_budgets), seeds=list(self.seeds))
        (self.folder / "known.toml").write_text(text)

    @cached_property
    def store(self) -> Store:
        return Store(str(self.folder / "store"))

    @cached_property
    def graph(self) -> LabGraph:
        return LabGraph.of(load_profile(str(self.folder / "known.toml")))

    def build(self, spec: ArtifactSpec) -> ArtifactRecord:
        """As the lab does; what it says goes to `log`."""
        return build(spec, self.store, BuildOptions(scratch=self.folder / "scratch"), self.log.append)

    def build_laws(self) -> None:
        """The runs of the ladder, and everything up to the forecast."""
        graph = self.graph
        for key, spec in graph.cells.items():
            self.finish_run(key, spec)
        for spec in (graph.recipe, graph.suite, graph.isoflop, graph.scaling_law, graph.forecast):
            self.build(spec)

    def build_rest(self) -> None:
        """The held-out runs, all evaluations, and everything to the report."""
        graph = self.graph
        heldout = graph.heldout_runs(self.store)
        for key, spec in heldout.items():
            self.finish_run(key, spec)
        for key, spec in {**graph.cells, **heldout}.items():
            self.evaluate(key, spec)
        for spec in (graph.heldout, graph.verdict, graph.evals, graph.downstream, graph.figures, graph.dataset):
            self.build(spec)
        self.build(graph.report)

    def json(self, spec: ArtifactSpec, name: str) -> Any:
        return self.store.artifact(spec).read_json(name)

    def table(self, spec: ArtifactSpec, name: str) -> pl.DataFrame:
        return pl.read_parquet(self.store.artifact(spec).read(name))

    def loss(self, key: str, plan: TrainPlan) -> float:
        """What a run ended with."""
        noise = NOISE * np.random.default_rng(zlib.crc32(key.encode())).standard_normal()
        return LAW.loss(plan.flops) + CURVATURE * _decades_off(plan) ** 2 + noise + self.excess.get(key, 0.0)

    def finish_run(self, key: str, spec: ArtifactSpec) -> None:
        """Commit a training run as it would have ended."""
        plan = TrainPlan.from_json(dict(spec.config["plan"]))
        diverged = key in self.diverged
        loss = None if diverged else self.loss(key, plan)
        steps = plan.steps // 2 if diverged else plan.steps
        curve = pl.DataFrame({"step": range(steps), "loss": [5.0 - 0.01 * s for s in range(steps)]})
        metrics = curve.with_columns(learning_rate=pl.lit(0.01), adam_lr=pl.lit(0.1), seconds=pl.lit(0.1))
        url = self.wandb(key)
        summary = {
            "status": "diverged" if diverged else "succeeded",
            "steps": steps,
            "tokens": steps * plan.batch_size * plan.seq_len,
            "flops": plan.flops,
            "hidden_dim": plan.hidden_dim,
            "train_loss": loss,
            "eval_loss": loss,
            "evals": {} if diverged else {"eval/macro_loss": loss, "eval/code/loss": loss, "eval/code/bpb": loss},
            "train_seconds": 1.0,
            "tokens_per_second": 1.0,
            **({"wandb_url": url} if url else {}),
        }
        # What a run's content is: how it went, and not where or when.
        content = digest(canonical_json([curve["loss"].to_list(), summary["evals"], summary["status"]]))
        self._commit(spec, summary, {"metrics.parquet": metrics}, content)

    def evaluate(self, key: str, run: ArtifactSpec) -> None:
        """Commit what the evaluations of a run would have said, and collect it."""
        for name, spec in self.graph.evaluations(run).items():
            result = self._result(key, run, name)
            self._commit(spec, result.summary, {RESULT: result.to_json()})
        for spec in (evaluated := self.graph.evaluated(run)).inputs.values():
            self._commit(spec)
        self.build(evaluated)

    def _result(self, key: str, run: ArtifactSpec, name: str) -> EvalResult:
        plan = TrainPlan.from_json(dict(run.config["plan"]))
        identity = ModelIdentity.of(self.store.artifact(run), plan)
        if key in self.diverged or (key, name) == (NOT_EVALUATED, "continuation"):
            return EvalResult("failed", name, "1", identity, error="there is no model")
        soft = SOFT_LAW.loss(plan.flops) + 0.1 * _decades_off(plan) ** 2
        metrics = {
            "perplexity": {"macro/bits_per_byte": Metric(2 * soft, 0.01, "bits per byte", False)},
            "continuation": {
                "acc": Metric(round(SIGMOID.hard(soft) * EXAMPLES) / EXAMPLES, 0.02, "fraction", True),
                "choice_logprob": Metric(-soft, 0.002, "nats", True),
                "chance": Metric(SIGMOID.floor, None, "fraction", True),
            },
        }
        return EvalResult("succeeded", name, "1", identity, examples=EXAMPLES, metrics=metrics[name])

    def _commit(
        self,
        spec: ArtifactSpec,
        summary: dict[str, Any] | None = None,
        files: dict[str, Any] | None = None,
        content: str | None = None,
    ) -> None:
        """Commit an artifact, and what it is made of with nothing in it."""
        if self.store.record(spec.name, spec.fingerprint) is not None:
            return
        for upstream in spec.inputs.values():
            self._commit(upstream)
        with self.store.writer(spec) as writer:
            for name, held in (files or {}).items():
                if isinstance(held, pl.DataFrame):
                    with writer.open(name) as file:
                        held.write_parquet(file)
                else:
                    writer.write_json(name, held)
            writer.commit(summary or {}, content=content)


def _decades_off(plan: TrainPlan) -> float:
    """How far a run's tokens are from its budget's optimal ones."""
    return math.log10(plan.tokens / TOKEN_LAW.tokens(plan.flops))
