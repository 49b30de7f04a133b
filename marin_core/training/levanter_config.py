"""A TrainPlan in Levanter's own configuration. With `model.py`, `mesh.py` and `optimizer.py` the only place
that spells its settings.

Imports Levanter, and with it JAX, inside the function: workers call it, nothing else does.
"""

import dataclasses
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import timedelta
from pathlib import Path
from typing import TYPE_CHECKING

from marin_core.data.mixing.order import MixtureOrder
from marin_core.recipes import TrainPlan
from marin_core.recipes.layout import evaluation_batch
from marin_core.training.examples import ordered_data
from marin_core.training.mesh import layout_to_train, mesh_config
from marin_core.training.model import model_config
from marin_core.training.optimizer import optimizer_config
from marin_core.training.preemption import idle_checkpointer, preemptible_checkpointer

if TYPE_CHECKING:
    from levanter.main.train_lm import TrainLmConfig
    from levanter.tracker.tracker import TrackerConfig


@dataclass(frozen=True)
class TrainData:
    """What a run reads: URLs of the tokenizer and of each component's cache, and in which order. `conversations` names
    components with a loss mask."""

    tokenizer: str
    components: Mapping[str, str]
    order: MixtureOrder
    conversations: tuple[str, ...] = ()


@dataclass(frozen=True)
class Checkpointing:
    """Where, and how often the checkpoints are saved that only a resume needs; those that are kept are the plan's.
    Changes no result, so it is no part of a plan. None turns a policy off.

    `stops_at` and `before_save`: see `preemptible_checkpointer`.
    """

    folder: str
    every_seconds: float | None
    every_steps: int | None
    # The checkpoint to resume from; None starts at step 0.
    resume_from: str | None
    stops_at: Callable[[int], bool]
    before_save: Callable[[], None]


def levanter_config(
    plan: TrainPlan, data: TrainData, checkpointing: Checkpointing, tracker: "TrackerConfig", run_id: str, log_dir: Path
) -> "TrainLmConfig":
    """The complete configuration of `levanter.main.train_lm` for a plan, on the devices of this process and, in a gang,
    of the others.

    Raises:
        MarinError: the devices cannot share the plan's batch or width.
    """
    import jmp
    from levanter.callbacks.watch import WatchConfig
    from levanter.data.text.datasets import DatasetComponent
    from levanter.data.text.formats import ChatLmDatasetFormat, TextLmDatasetFormat
    from levanter.distributed import DistributedConfig
    from levanter.main.train_lm import TrainLmConfig
    from levanter.trainer import TrainerConfig

    layout = layout_to_train(plan)
    return TrainLmConfig(
        data=ordered_data(
            data.order,
            data.conversations,
            plan.eval_sequences,
            tokenizer=data.tokenizer,
            components={
                name: DatasetComponent(
                    cache_dir=url,
                    tags=[name],
                    format=ChatLmDatasetFormat() if name in data.conversations else TextLmDatasetFormat(),
                )
                for name, url in sorted(data.components.items())
            },
            cache_dir=None,
            block_cross_document_attention=True,
            # A cache that is missing is an error of the pipeline, never something to build on the side.
            auto_build_caches=False,
        ),
        model=model_config(plan, data.tokenizer),
        optimizer=optimizer_config(plan.optimizer),
        z_loss_weight=plan.optimizer.z_loss_weight,
        train_seq_len=plan.seq_len,
        trainer=TrainerConfig(
            id=run_id,
            seed=plan.seed,
            mp=jmp.get_policy(plan.precision),
            tracker=tracker,
            train_batch_size=plan.batch_size,
            num_train_steps=plan.steps,
            steps_per_eval=plan.steps_per_eval,
            per_device_eval_parallelism=evaluation_batch(plan, layout) // layout.batch_shards,
            mesh=mesh_config(layout),
            checkpointer=preemptible_checkpointer(
                checkpointing.stops_at,
                checkpointing.before_save,
                checkpointing.every_steps,
                base_path=checkpointing.folder,
                append_run_id_to_base_path=False,
                save_interval=None
                if checkpointing.every_seconds is None
                else timedelta(seconds=checkpointing.every_seconds),
                keep=[{"every": plan.steps_per_checkpoint}],
                # Two, so that one that turns out to be unreadable does not cost the whole run.
                keep_last_temporary_checkpoints=2,
            ),
            load_checkpoint=checkpointing.resume_from is not None,
            load_checkpoint_path=checkpointing.resume_from,
            # A loss that is no number ends the run as diverged, in our tracker.
            crash_on_nan=False,
            crash_on_inf=False,
            require_accelerator=False,
            # A gang has joined before. In a pod by itself, detection would take it for one of a gang.
            distributed=DistributedConfig(initialize_jax_distributed=False),
            log_dir=log_dir,
            log_jaxprs=False,
            log_xla_hlo=False,
            # The default watches norms every 10 steps, which costs a second compilation of the step.
            watch=WatchConfig(watch_targets=[]),
        ),
    )


def only_evaluating(config: "TrainLmConfig", after_step: int) -> "TrainLmConfig":
    """The same run as if `after_step` had been its last step. Levanter then loads that checkpoint, takes no step, and
    evaluates as it does after the last one. Saves nothing."""
    trainer = dataclasses.replace(
        config.trainer, num_train_steps=after_step + 1, checkpointer=idle_checkpointer(config.trainer.checkpointer)
    )
    return dataclasses.replace(config, trainer=trainer)
