"""How the devices of a run share its batch and its parameters. Arithmetic only, so that what cannot work is refused
before it is submitted; `marin_core.training.mesh` makes the device mesh of it."""

import math
from dataclasses import dataclass

from marin_core.errors import MarinError
from marin_core.recipes.footprint import tensor_parallel_degree
from marin_core.recipes.plan import TrainPlan

# What the held-out launches of the published suite allowed; its sweep stayed below 4.
MAX_TENSOR_PARALLEL = 8


@dataclass(frozen=True)
class DeviceLayout:
    """`slices · data · tensor` devices. A batch is divided among `slices · data` groups of `tensor` devices; in each
    slice, parameters are divided among `data` along the embedding, and among `tensor` along the MLP and, if
    `shares_heads`, the attention heads."""

    slices: int
    data: int
    tensor: int
    shares_heads: bool

    @property
    def batch_shards(self) -> int:
        return self.slices * self.data


def training_layout(plan: TrainPlan, devices: int, slices: int = 1) -> DeviceLayout:
    """How all `devices` together train a plan, with the least tensor parallelism that the published rule allows.

    Raises:
        MarinError: they cannot share its batch or its width. The message is a reason, "its batch of … ", to be put
            behind the name of a run.
    """
    too_many = (
        f"its batch of {plan.batch_size} sequences of width {plan.hidden_dim} cannot be shared by {devices} devices "
        f"with at most {MAX_TENSOR_PARALLEL} to a sequence"
    )
    layout = _layout(plan, plan.batch_size, devices, slices, too_many)
    if plan.batch_size % layout.batch_shards:
        groups = f"groups of {layout.tensor} devices" if layout.tensor > 1 else "devices"
        raise MarinError(
            f"its batch of {plan.batch_size} sequences does not divide among {layout.batch_shards} {groups}"
        )
    return layout


def evaluation_layout(plan: TrainPlan, devices: int, slices: int = 1) -> DeviceLayout:
    """The same where only its model runs, whose batches can be padded.

    Raises:
        MarinError: the devices cannot share the plan's width. The message is a reason, as that of `training_layout`.
    """
    return _layout(
        plan, devices, devices, slices, f"its width of {plan.hidden_dim} does not divide among {devices} devices"
    )


def evaluation_batch(plan: TrainPlan, layout: DeviceLayout) -> int:
    """Sequences of an evaluation batch: the plan's, rounded up to what the devices can share."""
    return layout.batch_shards * math.ceil(plan.eval_batch_size / layout.batch_shards)


def _layout(plan: TrainPlan, batch_size: int, devices: int, slices: int, too_many: str) -> DeviceLayout:
    """`too_many` is what is said where no degree of tensor parallelism suits the devices."""
    per_slice = devices // slices
    try:
        tensor = tensor_parallel_degree(
            max(1, batch_size // slices), plan.hidden_dim, per_slice, maximum=MAX_TENSOR_PARALLEL
        )
    except MarinError:
        raise MarinError(too_many) from None
    if plan.mlp_dim % tensor:
        raise MarinError(f"its MLP of {plan.mlp_dim} does not divide among {tensor} devices")
    return DeviceLayout(slices, per_slice // tensor, tensor, shares_heads=plan.num_heads % tensor == 0)
