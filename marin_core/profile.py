"""A profile says *what* is built (`[scale]`) and *where* (`[place]`): two sections that never mix."""

import dataclasses
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from marin_core import environment
from marin_core.data.mixing.config import MixtureConfig
from marin_core.data.near_duplicates.config import MinHashConfig
from marin_core.data.sources.catalogue import select_sources
from marin_core.data.sources.declaration import Source
from marin_core.errors import MarinError
from marin_core.jobs.kubernetes.place import KubernetesPlace
from marin_core.recipes import RECIPES, CompletedAdamHParams, ScalingRecipe

_PROFILES = Path(__file__).parent / "profiles"


@dataclass(frozen=True)
class TrainedTokenizer:
    """A byte-level BPE of `vocab_size` entries, trained on `sample_bytes` of each source."""

    name: str
    vocab_size: int
    sample_bytes: int


@dataclass(frozen=True)
class PretrainedTokenizer:
    """A tokenizer of a Hugging Face repository at a revision, or of a local folder."""

    name: str
    vocab_size: int
    repository: str | None = None
    revision: str | None = None
    folder: str | None = None
    bos_token: str | None = None
    eos_token: str | None = None


@dataclass(frozen=True)
class Scale:
    """What is built: recipe, budgets in FLOPs, sources, tokenizer, mixture, how much is held out and evaluated."""

    recipe: ScalingRecipe
    fit_budgets: tuple[float, ...]
    heldout_budget: float
    sources: tuple[Source, ...]
    tokenizer: TrainedTokenizer | PretrainedTokenizer
    mixture: MixtureConfig
    validation_share: float
    eval_sequences: int
    near_duplicates: MinHashConfig = field(default_factory=MinHashConfig)
    # BOS and EOS around a document: `document`, or `levanter` for caches equal to those that Levanter builds.
    framing: Literal["document", "levanter"] = "document"
    seed: int = 0


@dataclass(frozen=True)
class Place:
    """Where it is built: the store's root, pools of the jobs, how often training saves. Changes no result.

    Without `kubernetes` jobs are processes on this machine. A pool may be given as a list of equal ones.
    """

    store: str
    data_pools: tuple[str, ...]
    suite_pools: tuple[str, ...]
    heldout_pools: tuple[str, ...]
    checkpoint_every_seconds: float | None
    checkpoint_every_steps: int | None = None
    # Processes that share the items of a data stage.
    data_ranks: int = 1
    max_failures: int = 1
    max_preemptions: int = 100
    # A suite of more training FLOPs than this is refused; None sets no limit.
    max_flops: float | None = None
    # Region of the store's bucket, where it is one.
    bucket_region: str | None = None
    kubernetes: KubernetesPlace | None = None
    # Model FLOPs utilization that estimates of wall time assume.
    assumed_mfu: float = 0.4
    # US dollars per chip-hour, by family of pools (`v5p`, `h100`); per core-hour for `cpu`.
    prices: Mapping[str, float] = field(default_factory=dict)


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
    except MarinError as error:
        raise MarinError(f"profile {path}: {error}") from None
    except (tomllib.TOMLDecodeError, KeyError, TypeError, ValueError, AttributeError) as error:
        cause = f"missing {error}" if isinstance(error, KeyError) else str(error)
        raise MarinError(f"profile {path}: {cause}") from None


def _scale(data: dict[str, Any]) -> Scale:
    if not data["fit_budgets"]:
        raise ValueError("fit_budgets is empty; give at least one budget in FLOPs")
    sources = select_sources(data["sources"])
    mixture = MixtureConfig.from_profile(data["mixture"])
    for name in mixture.components:
        if name not in sources:
            raise ValueError(f"the mixture weighs the undeclared source {name!r}; declared are {', '.join(sources)}")
        if sources[name].role == "evaluation":
            raise ValueError(f"the mixture weighs {name!r}, an evaluation source, which must never be trained on")
    if data.get("framing", "document") not in ("document", "levanter"):
        raise ValueError(f"framing is {data['framing']!r}; there are document, levanter")
    return Scale(
        **{
            **data,
            "recipe": _recipe(data["recipe"]),
            "fit_budgets": tuple(float(c) for c in data["fit_budgets"]),
            "heldout_budget": float(data["heldout_budget"]),
            "sources": tuple(sources.values()),
            "tokenizer": _tokenizer(data["tokenizer"]),
            "mixture": mixture,
            "near_duplicates": MinHashConfig(**data.get("near_duplicates", {})),
        }
    )


def _tokenizer(data: dict[str, Any]) -> TrainedTokenizer | PretrainedTokenizer:
    if "sample_bytes" in data:
        return TrainedTokenizer(**data)
    tokenizer = PretrainedTokenizer(**data)
    if (tokenizer.repository is None) == (tokenizer.folder is None):
        raise ValueError("a tokenizer needs sample_bytes (to train one), or a repository, or a folder")
    if tokenizer.repository is not None and tokenizer.revision is None:
        raise ValueError(f"tokenizer {tokenizer.name!r} needs the revision of {tokenizer.repository}")
    return tokenizer


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


def _place(data: dict[str, Any]) -> Place:
    store = environment.store_root() or data.pop("store", None) or str(environment.state_folder() / "store")
    if "://" not in store:
        store = str(Path(store).expanduser().resolve())
    pools = {f"{kind}_pools": _pools(data.pop(f"{kind}_pool")) for kind in ("data", "suite", "heldout")}
    kubernetes = data.pop("kubernetes", None)
    return Place(
        **{**data, **pools, "store": store, "kubernetes": None if kubernetes is None else KubernetesPlace(**kubernetes)}
    )


def _pools(value: str | list[str]) -> tuple[str, ...]:
    return (value,) if isinstance(value, str) else tuple(value)
