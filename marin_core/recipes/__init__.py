"""Recipes: from a budget in FLOPs to everything a training run needs to know. Pure functions, no I/O."""

from marin_core.recipes.delphi import DELPHI
from marin_core.recipes.hparams import AdamHParams, CompletedAdamHParams
from marin_core.recipes.nano import NANO
from marin_core.recipes.plan import TrainPlan
from marin_core.recipes.recipe import Candidate, RecipeError, ScalingRecipe, TokenLaw, format_budget

RECIPES: dict[str, ScalingRecipe] = {recipe.name: recipe for recipe in (DELPHI, NANO)}

__all__ = [
    "DELPHI",
    "NANO",
    "RECIPES",
    "AdamHParams",
    "Candidate",
    "CompletedAdamHParams",
    "RecipeError",
    "ScalingRecipe",
    "TokenLaw",
    "TrainPlan",
    "format_budget",
]
