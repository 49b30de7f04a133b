"""Which token law a command goes by: the published one of a recipe, or the one that a profile's suite was fitted to."""

import shlex
from dataclasses import dataclass
from typing import Any

from marin_core.cli.reach import reached
from marin_core.errors import MarinError
from marin_core.graph import LabGraph
from marin_core.profile import Profile
from marin_core.recipes import RECIPES, VERSIONS, RecipeError, ScalingRecipe, TokenLaw


@dataclass(frozen=True)
class KnownLaw:
    """A token law and where it is from, as a phrase: `published with recipe delphi`."""

    law: TokenLaw
    source: str

    @property
    def text(self) -> str:
        return f"D* = {self.law.coefficient:.4g} · C^{self.law.exponent:.4f}"

    def to_json(self) -> dict[str, Any]:
        return {"coefficient": self.law.coefficient, "exponent": self.law.exponent, "source": self.source}


def published_law(recipe: ScalingRecipe) -> KnownLaw:
    """The law that stands in a recipe.

    Raises:
        RecipeError: it has none.
    """
    if recipe.token_law is None:
        if recipe.version in VERSIONS and recipe not in RECIPES.values():
            raise RecipeError(
                f"recipe {recipe.name!r} has no published token law of version {recipe.version}, which is superseded; "
                "leave --optimal out to see its candidates"
            )
        raise RecipeError(
            f"recipe {recipe.name!r} has no published token law, version {recipe.version}; materialize delphi/* to fit "
            "one, and name the profile with --profile"
        )
    return KnownLaw(recipe.token_law, f"published with recipe {recipe.name}, version {recipe.version}")


def fitted_law(profile: Profile, asked: str) -> KnownLaw:
    """The law of the profile's finished suite. `asked` is what a person calls the profile: its name or its path.

    Raises:
        MarinError: it is not in the store yet, or out of date, or the store does not answer.
    """
    spec = LabGraph.of(profile).scaling_law
    store = reached(profile.place.store, spec)
    if isinstance(store, str):
        raise MarinError(f"the token law of profile {profile.name} cannot be read: {store}")
    if store.current(spec) is None:
        raise MarinError(
            f"the store {store.root} has no current {spec.name} of profile {profile.name}; fit it with "
            f"MARIN_PROFILE={shlex.quote(asked)} dagster asset materialize --select 'delphi/*'"
            + (", or give --law published" if profile.scale.recipe.token_law else "")
        )
    fitted = store.artifact(spec).read_json("scaling_law.json")["token_law"]
    law = TokenLaw(fitted["coefficient"], fitted["exponent"])
    return KnownLaw(law, f"fitted to the suite of profile {profile.name} ({spec.name}, {spec.fingerprint})")


def best_known_law(profile: Profile, asked: str) -> tuple[KnownLaw | None, str | None]:
    """The fitted law where there is one, else the published; and why there is no fitted one."""
    try:
        return fitted_law(profile, asked), None
    except MarinError as error:
        recipe = profile.scale.recipe
        return (published_law(recipe) if recipe.token_law else None), str(error)
