"""A profile says *what* is built (`[scale]`) and *where* (`[place]`): two sections that never mix."""

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from marin_core import environment
from marin_core.data.sources import SOURCES, InstalledSource
from marin_core.errors import MarinError
from marin_core.recipes import RECIPES, CompletedAdamHParams, ScalingRecipe

_PROFILES = Path(__file__).parent / "profiles"


@dataclass(frozen=True)
class TokenizerConfig:
    """A byte-level BPE of `vocab_size` entries, trained on `sample_bytes` of each source."""

    name: str
    vocab_size: int
    sample_bytes: int


@dataclass(frozen=True)
class MixtureConfig:
    """Shares by weight, per block of `block_size` sequences."""

    name: str
    block_size: int
    weights: Mapping[str, float]


@dataclass(frozen=True)
class Scale:
    """What is built: recipe, budgets in FLOPs, sources, tokenizer, mixture, how much is held out and evaluated."""

    recipe: ScalingRecipe
    fit_budgets: tuple[float, ...]
    heldout_budget: float
    sources: tuple[InstalledSource, ...]
    tokenizer: TokenizerConfig
    mixture: MixtureConfig
    validation_share: float
    eval_sequences: int
    seed: int = 0


@dataclass(frozen=True)
class Place:
    """Where it is built: the store's root, pools of the jobs, how often training saves. Changes no result."""

    store: str
    data_pool: str
    suite_pool: str
    heldout_pool: str
    checkpoint_every_seconds: float | None
    checkpoint_every_steps: int | None = None


@dataclass(frozen=True)
class Profile:
    name: str
    scale: Scale
    place: Place


def load_profile(name: str | None = None) -> Profile:
    """The profile that MARIN_PROFILE (or `name`) asks for.

    Raises:
        MarinError: unknown name, unreadable file, unknown or missing field, unknown recipe or source.
    """
    name = name or environment.profile_name()
    path = Path(name) if name.endswith(".toml") else _PROFILES / f"{name}.toml"
    if not path.is_file():
        known = ", ".join(sorted(p.stem for p in _PROFILES.glob("*.toml")))
        raise MarinError(
            f"unknown profile {name!r}; set MARIN_PROFILE to one of {known}, or to the path of a .toml file"
        )
    try:
        data = tomllib.loads(path.read_text())
        profile = Profile(path.stem, _scale(data.pop("scale")), _place(data.pop("place")))
        if data:
            raise ValueError(f"unknown section {min(data)!r}; there are scale and place")
        return profile
    except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        cause = f"missing {error}" if isinstance(error, KeyError) else str(error)
        raise MarinError(f"profile {path}: {cause}") from None


def _scale(data: dict[str, Any]) -> Scale:
    if not data["fit_budgets"]:
        raise ValueError("fit_budgets is empty; give at least one budget in FLOPs")
    sources = tuple(_source(name, overrides) for name, overrides in data["sources"].items())
    if undeclared := sorted(data["mixture"]["weights"].keys() - data["sources"].keys()):
        raise ValueError(
            f"the mixture weighs the undeclared source {undeclared[0]!r}; declared are {', '.join(data['sources'])}"
        )
    return Scale(
        **{
            **data,
            "recipe": _recipe(data["recipe"]),
            "fit_budgets": tuple(float(c) for c in data["fit_budgets"]),
            "heldout_budget": float(data["heldout_budget"]),
            "sources": sources,
            "tokenizer": TokenizerConfig(**data["tokenizer"]),
            "mixture": MixtureConfig(**data["mixture"]),
        }
    )


def _recipe(data: dict[str, Any]) -> ScalingRecipe:
    """A shipped recipe, or with `name` and `version` of its own a fork of one with other constants."""
    base = data["base"]
    if base not in RECIPES:
        raise ValueError(f"unknown recipe {base!r}; there are {', '.join(RECIPES)}")
    fork = {key: value for key, value in data.items() if key != "base"}
    if not fork:
        return RECIPES[base]
    if "name" not in fork or "version" not in fork:
        raise ValueError(f"a fork of recipe {base!r} needs a name and a version of its own")
    # `rule = "module:Class"` among them names a subclass of CompletedAdamHParams.
    hparams = CompletedAdamHParams.from_json({**RECIPES[base].hparams.to_json(), **fork.pop("hparams", {})})
    return dataclasses.replace(RECIPES[base], hparams=hparams, **fork)


def _source(name: str, overrides: dict[str, Any]) -> InstalledSource:
    if name not in SOURCES:
        raise ValueError(f"unknown source {name!r}; there are {', '.join(SOURCES)}")
    fields = {key: tuple(value) if isinstance(value, list) else value for key, value in overrides.items()}
    return dataclasses.replace(SOURCES[name], **fields)


def _place(data: dict[str, Any]) -> Place:
    store = environment.store_root() or data.pop("store", None) or str(environment.state_folder() / "store")
    if "://" not in store:
        store = str(Path(store).expanduser().resolve())
    return Place(**{**data, "store": store})
