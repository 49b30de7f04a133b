"""Recipes: from a budget in FLOPs to everything a training run needs to know. Pure functions, no I/O."""

from marin_core.recipes.candidate import Candidate, TokenLaw, format_budget
from marin_core.recipes.delphi import DELPHI, DELPHI_FIRST, DELPHI_V5
from marin_core.recipes.errors import RecipeError
from marin_core.recipes.heldout import HeldOutRun
from marin_core.recipes.hparams import AdamHParams, AdamWParams, CompletedAdamHParams, WidthScaledAdamHParams
from marin_core.recipes.nano import NANO
from marin_core.recipes.plan import TrainPlan
from marin_core.recipes.recipe import ScalingRecipe
from marin_core.recipes.versions import KnownVersion

# Those in use, by name; and every known version, with the superseded ones.
RECIPES: dict[str, ScalingRecipe] = {recipe.name: recipe for recipe in (DELPHI, NANO)}
VERSIONS: dict[str, ScalingRecipe] = {recipe.version: recipe for recipe in (DELPHI, DELPHI_V5, DELPHI_FIRST, NANO)}

__all__ = [
    "DELPHI",
    "NANO",
    "RECIPES",
    "VERSIONS",
    "AdamHParams",
    "AdamWParams",
    "Candidate",
    "CompletedAdamHParams",
    "HeldOutRun",
    "KnownVersion",
    "RecipeError",
    "ScalingRecipe",
    "TokenLaw",
    "TrainPlan",
    "WidthScaledAdamHParams",
    "format_budget",
]
