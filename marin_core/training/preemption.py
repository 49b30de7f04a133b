"""Saving at the end of the step in which SIGTERM arrived, and ending there."""

import functools
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from marin_core.termination import Terminated

if TYPE_CHECKING:
    from levanter.checkpoint import CheckpointerConfig


def preemptible_checkpointer(
    stops_at: Callable[[int], bool], before_save: Callable[[], None], **settings: Any
) -> "CheckpointerConfig":
    """Levanter's checkpointer with these `settings`, asking after every step whether the run `stops_at` it: then it
    saves, waits until the checkpoint is complete, and raises `Terminated`. In a gang all processes must be told the
    same. `before_save` makes durable what a resume expects beside a checkpoint."""
    config = _config_class()(**settings)
    config.stops_at, config.before_save = stops_at, before_save  # no fields: Levanter writes those down
    return config


@functools.cache
def _config_class() -> Any:
    from levanter.checkpoint import Checkpointer, CheckpointerConfig, CheckpointInterval, CheckpointRetention

    class PreemptibleCheckpointer(Checkpointer):
        stops_at: Callable[[int], bool]
        before_save: Callable[[], None]

        def on_step(self, *, tree: Any, step: int, force: bool = False) -> None:
            # Levanter forces the last step's checkpoint after the step itself, which has been asked about.
            stops = not force and self.stops_at(int(step))
            if stops:
                self.request_checkpoint(CheckpointRetention.TEMPORARY)
            super().on_step(tree=tree, step=step, force=force)
            if stops:
                self.wait_until_finished()
                raise Terminated

        def save_checkpoint(self, *args: Any, **kwargs: Any) -> None:
            self.before_save()
            super().save_checkpoint(*args, **kwargs)

    class PreemptibleCheckpointerConfig(CheckpointerConfig):
        stops_at: Callable[[int], bool]
        before_save: Callable[[], None]

        def create(self, run_id: str) -> Checkpointer:
            checkpointer = PreemptibleCheckpointer(
                base_path=self.expanded_path(run_id),
                save_interval=self.save_interval,
                step_policies=[CheckpointInterval(**interval) for interval in self.keep or []],
                delete_old_temp_checkpoints=self.delete_old_temp_checkpoints,
                keep_last_temporary_checkpoints=self.keep_last_temporary_checkpoints,
            )
            checkpointer.stops_at, checkpointer.before_save = self.stops_at, self.before_save
            return checkpointer

    return PreemptibleCheckpointerConfig
