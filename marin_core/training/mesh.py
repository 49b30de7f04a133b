"""The devices of this process, and in a gang of the others, as Levanter's device mesh."""

from typing import TYPE_CHECKING, Any

from marin_core.errors import MarinError
from marin_core.recipes import TrainPlan
from marin_core.recipes.layout import DeviceLayout, evaluation_layout, training_layout

if TYPE_CHECKING:
    from levanter.utils.mesh import MeshConfig


def layout_to_train(plan: TrainPlan) -> DeviceLayout:
    """How the devices at hand train a plan.

    Raises:
        MarinError: they cannot share its batch or its width.
    """
    try:
        return training_layout(plan, *_devices())
    except MarinError as error:
        raise MarinError(f"the run cannot be trained here: {error}; choose a pool whose chips can share it") from None


def layout_to_evaluate(plan: TrainPlan) -> DeviceLayout:
    """How the devices at hand run a plan's model.

    Raises:
        MarinError: they cannot share its width.
    """
    try:
        return evaluation_layout(plan, *_devices())
    except MarinError as error:
        raise MarinError(f"the model cannot run here: {error}; choose a pool of fewer chips") from None


def mesh_config(layout: DeviceLayout) -> "MeshConfig":
    """Fully sharded data parallelism along `data`, copies of it in the other slices, tensor parallelism along `model`.

    Levanter maps the axes `mlp` and `heads` to `model` by itself. Of the attention only the output projection has the
    axis `heads`: queries, keys and values have `kv_head`, of which the published models have as many.
    """
    from levanter.utils.mesh import MeshConfig

    # None unmaps; it is no part of the declared type.
    heads: Any = "model" if layout.shares_heads else None
    return MeshConfig(
        axes={"data": -1, "replica": 1, "model": layout.tensor},
        shared_mapping={"mlp": "model", "heads": heads, "kv_head": heads},
    )


def hardware() -> dict[str, Any]:
    """What a run is on, for its record: the kind of its devices as JAX names it, how many, and of how many processes.
    Before any other use of JAX this starts it."""
    import jax

    devices = jax.devices()
    return {"device": devices[0].device_kind, "count": len(devices), "processes": jax.process_count()}


def _devices() -> tuple[int, int]:
    """Devices, and slices of them that share one interconnect each."""
    import jax

    devices = jax.devices()
    return len(devices), max(getattr(device, "slice_index", 0) for device in devices) + 1
