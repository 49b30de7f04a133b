"""Levanter's checkpointer, which saves also at the end of the step in which SIGTERM arrived, and ends there."""

import dataclasses
import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from marin_core.termination import Terminated

if TYPE_CHECKING:
    from levanter.checkpoint import CheckpointerConfig


def preemptible_checkpointer(
    stops_at: Callable[[int], bool], before_save: Callable[[], None], every_steps: int | None, **settings: Any
) -> "CheckpointerConfig":
    """Levanter's checkpointer with these `settings`, which also saves a temporary checkpoint `every_steps`, as its own
    policy knows only time for those.

    After every step it asks whether the run `stops_at` it: then it saves, waits until the checkpoint is complete, and
    raises `Terminated`. In a gang all processes must be told the same. `before_save` makes durable what a resume
    expects beside a checkpoint.
    """
    preemptible, _ = _config_classes()
    config = preemptible(**settings)
    # No fields: Levanter writes those down.
    config.stops_at, config.before_save, config.every_steps = stops_at, before_save, every_steps
    return config


def idle_checkpointer(like: "CheckpointerConfig") -> "CheckpointerConfig":
    """A checkpointer of the same folder that never saves, not even where Levanter would insist."""
    from levanter.checkpoint import CheckpointerConfig

    _, idle = _config_classes()
    return idle(**{field.name: getattr(like, field.name) for field in dataclasses.fields(CheckpointerConfig)})


@functools.cache
def _config_classes() -> tuple[Any, Any]:
    from levanter.checkpoint import Checkpointer, CheckpointerConfig, CheckpointInterval, CheckpointRetention

    class PreemptibleCheckpointer(Checkpointer):
        stops_at: Callable[[int], bool]
        before_save: Callable[[], None]
        every_steps: int | None

        def on_step(self, *, tree: Any, step: int, force: bool = False) -> None:
            # Levanter forces the last step's checkpoint after the step itself, which has been asked about.
            stops = not force and self.stops_at(int(step))
            if stops or (self.every_steps and step and step % self.every_steps == 0):
                self.request_checkpoint(CheckpointRetention.TEMPORARY)
            super().on_step(tree=tree, step=step, force=force)
            if stops:
                self.wait_until_finished()
                raise Terminated

        def save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
            self.before_save()
            super().save_checkpoint(*args, **kwargs)

    class IdleCheckpointer(Checkpointer):
        def on_step(self, *, tree: Any, step: int, force: bool = False) -> None:
            pass

    def create(kind: type[Checkpointer], config: CheckpointerConfig, run_id: str, **settings: Any) -> Any:
        return kind(
            base_path=config.expanded_path(run_id),
            save_interval=config.save_interval,
            step_policies=[CheckpointInterval(**interval) for interval in config.keep or []],
            keep_last_temporary_checkpoints=config.keep_last_temporary_checkpoints,
            **settings,
        )

    class PreemptibleCheckpointerConfig(CheckpointerConfig):
        stops_at: Callable[[int], bool]
        before_save: Callable[[], None]
        every_steps: int | None

        def create(self, run_id: str) -> Checkpointer:
            removes = self.delete_old_temp_checkpoints
            checkpointer = create(PreemptibleCheckpointer, self, run_id, delete_old_temp_checkpoints=removes)
            checkpointer.stops_at, checkpointer.before_save = self.stops_at, self.before_save
            checkpointer.every_steps = self.every_steps
            return checkpointer

    class IdleCheckpointerConfig(CheckpointerConfig):
        def create(self, run_id: str) -> Checkpointer:
            return create(IdleCheckpointer, self, run_id, delete_old_temp_checkpoints=False)

    return PreemptibleCheckpointerConfig, IdleCheckpointerConfig
