"""What the experiments say of a ladder: whether it is for a laptop, and which of its cells a comparison takes."""

from collections.abc import Sequence

from marin_core.recipes import ScalingRecipe, TrainPlan

LAPTOP = "any profile whose models train on a laptop"


def is_laptop_sized(recipe: ScalingRecipe) -> bool:
    """Whether every model of the recipe trains on a laptop."""
    return recipe.max_params < 1e8


def middle_cells(ladder: Sequence[TrainPlan], budgets: int) -> list[TrainPlan]:
    """Of each of the smallest `budgets` of a ladder, the plan in the middle of its widths."""
    smallest = sorted({plan.flops for plan in ladder})[:budgets]
    found = []
    for flops in smallest:
        plans = sorted((plan for plan in ladder if plan.flops == flops), key=lambda plan: plan.hidden_dim)
        found.append(plans[len(plans) // 2])
    return found
