"""Three loops that take the same training steps: our worker's, Levanter's with nothing of ours around it, and one
written by hand in JAX. Each returns what every step cost and what its loss was.

All read the same sequences of the same shards in the same order, from the same initial parameters.
"""

import asyncio
import dataclasses
import itertools
import os
import statistics
import time
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

import bare_jax
import numpy as np

from marin_core.build import Build, BuildOptions, build
from marin_core.graph import LabGraph
from marin_core.graph.specs import artifact
from marin_core.jobs.events import StreamEvents
from marin_core.jobs.parts import Alone
from marin_core.jobs.spec import FailureClass
from marin_core.profile import load_profile
from marin_core.recipes import TrainPlan
from marin_core.store import ArtifactSpec, Store
from marin_core.training.metrics import Progress
from marin_core.worker import Worker

if TYPE_CHECKING:
    from levanter.main.train_lm import TrainLmConfig
    from levanter.tracker.tracker import TrackerConfig

PROFILE = Path(__file__).with_name("training.toml")


@dataclass
class Steps:
    """The loss of each step, and when it ended in seconds."""

    losses: list[float] = field(default_factory=list)
    ended: list[float] = field(default_factory=list)

    def took(self, loss: float) -> None:
        self.losses.append(loss)
        self.ended.append(time.perf_counter())

    @property
    def seconds(self) -> float:
        """Median time from the end of one step to the end of the next. The first fifth is left out: it compiles and
        warms up."""
        gaps = [later - earlier for earlier, later in itertools.pairwise(self.ended)]
        return statistics.median(gaps[len(gaps) // 5 :])


@dataclass(frozen=True)
class Bench:
    """A store that holds a small mixture, and nothing else."""

    store: Store
    mixture: ArtifactSpec

    @classmethod
    def prepared(cls, folder: Path) -> "Bench":
        """The mixture is built here and now, as a job would build it."""
        store, mixture = Store(str(folder / "store")), LabGraph.of(load_profile(str(PROFILE))).mixture
        for spec in upstream(mixture):
            build(spec, store, BuildOptions(folder / "scratch"), lambda message: None)
        return cls(store, mixture)

    def through_worker(self, plan: TrainPlan, folder: Path, number: int) -> Steps:
        """The run as a worker does it that was sent its plan. `number` makes it another artifact than the one before,
        which would be reused."""
        config = {"plan": plan.to_json(), "round": number}
        spec = artifact("benchmark/training", "train", config, {"mixture": self.mixture})
        with open(os.devnull, "w") as stream:
            events = TimedEvents(stream)
            code = Worker(self.store, events).run(self.store.save_plan(spec), BuildOptions(folder), Alone())
        if code:
            raise RuntimeError(f"the worker ended with exit code {code}: {events.error}")
        return events.steps

    def through_levanter(self, plan: TrainPlan, folder: Path) -> Steps:
        """`train_lm` with a tracker that takes the time, and Levanter's own checkpointer."""
        from levanter.main import train_lm

        steps = Steps()
        train_lm.main(self._levanter_config(plan, folder, clock(steps)))
        return steps

    def by_hand(self, plan: TrainPlan, folder: Path) -> Steps:
        """The hand-written loop, on batches out of a memory-mapped file."""
        from levanter.tracker import NoopConfig

        config = self._levanter_config(plan, folder, NoopConfig())
        file = folder / "tokens.npy"
        np.save(file, sequences(config, plan))
        batches = np.load(file, mmap_mode="r").reshape(plan.steps, plan.batch_size, plan.seq_len)
        eos = config.data.the_tokenizer.eos_token_id
        assert eos is not None, "the tokenizer of the benchmark's profile has one"
        return Steps(*bare_jax.train(plan, eos, initial(config, plan), batches))

    def _levanter_config(self, plan: TrainPlan, folder: Path, tracker: "TrackerConfig") -> "TrainLmConfig":
        from levanter.checkpoint import CheckpointerConfig

        from marin_core.tasks.training import train_data
        from marin_core.training.levanter_config import Checkpointing, levanter_config

        spec = ArtifactSpec("benchmark", "train", "1")
        unused: Any = None
        data = train_data(Build(spec, self.store, unused, BuildOptions(folder), print), self.mixture, plan)
        nowhere = Checkpointing(str(folder), None, None, None, stops_at=lambda step: False, before_save=lambda: None)
        config = levanter_config(plan, data, nowhere, tracker, "bare", folder)
        own = CheckpointerConfig(base_path=str(folder), save_interval=None, keep=None)
        return dataclasses.replace(config, trainer=dataclasses.replace(config.trainer, checkpointer=own))


class TimedEvents(StreamEvents):
    """A worker's events, written as always, and when each step was told."""

    def __init__(self, stream: Any):
        super().__init__(stream)
        self.steps, self.error = Steps(), ""

    def report(self, progress: Progress) -> None:
        super().report(progress)
        self.steps.took(progress.loss)

    def failed(self, error: str, failure: FailureClass = FailureClass.REFUSED) -> None:
        super().failed(error, failure)
        self.error = error


def upstream(spec: ArtifactSpec) -> Iterator[ArtifactSpec]:
    """Everything that an artifact is made of, and last itself."""
    seen: dict[str, ArtifactSpec] = {}
    for role in spec.inputs.values():
        seen |= {one.fingerprint: one for one in upstream(role)}
    yield from seen.values()
    yield spec


def clock(steps: Steps) -> "TrackerConfig":
    from levanter.tracker.tracker import NoopTracker, TrackerConfig

    class Clock(NoopTracker):
        def log(self, metrics: Any, *, step: int | None, commit: bool | None = None) -> None:
            # The hooks after the last step tell it once more.
            if "train/loss" in metrics and step == len(steps.losses):
                steps.took(float(metrics["train/loss"]))

    class ClockConfig(TrackerConfig):
        def init(self, run_id: str | None) -> Clock:
            return Clock()

    return dataclasses.dataclass(ClockConfig)()


def sequences(config: "TrainLmConfig", plan: TrainPlan) -> np.ndarray:
    """Token ids [sequence, position] of all that a run reads, in its order."""
    import jax
    from haliax import Axis

    unused = jax.random.PRNGKey(0)  # the order is the plan's
    dataset = config.data.train_set(Axis("position", plan.seq_len), config.trainer.batch_schedule, key=unused)
    examples = asyncio.run(dataset.get_batch(range(plan.batch_size * plan.steps)))
    return np.stack([np.asarray(example.tokens.array, np.int32) for example in examples])


def initial(config: "TrainLmConfig", plan: TrainPlan) -> bare_jax.Params:
    """The parameters that Levanter begins with."""
    import equinox
    import jax
    from haliax import Axis

    for name, value in config.trainer.jax_config.items():
        jax.config.update(name, value)
    _, _, key, _ = jax.random.split(jax.random.PRNGKey(plan.seed), 4)
    model = equinox.filter_jit(lambda key: config.model.build(Axis("vocab", plan.vocab_size), key=key))(key)
    return bare_jax.parameters(model)
