"""What a profile declares, as frozen values: `Scale` says *what* is built, `Place` *where*; they never mix."""

from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Literal

from marin_core.data.mixing.config import MixtureConfig
from marin_core.data.near_duplicates.config import MinHashConfig
from marin_core.data.sources.declaration import Source
from marin_core.errors import MarinError
from marin_core.evals.config import EvalsConfig
from marin_core.jobs.kubernetes.place import KubernetesPlace
from marin_core.recipes import ScalingRecipe, format_budget


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
    heldout_budgets: tuple[float, ...]
    sources: tuple[Source, ...]
    tokenizer: TrainedTokenizer | PretrainedTokenizer
    mixture: MixtureConfig
    validation_share: float
    eval_sequences: int
    near_duplicates: MinHashConfig = field(default_factory=MinHashConfig)
    # What every checkpoint is evaluated on, beside the validation sets during its training.
    evals: EvalsConfig = field(default_factory=EvalsConfig)
    # BOS and EOS around a document: `document`, or `levanter` for caches equal to those that Levanter builds.
    framing: Literal["document", "levanter"] = "document"
    seed: int = 0
    # Cells of the ladder that stay out of the fits, each with the reason.
    excluded: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True)
class HubTarget:
    """Where models and tables are published: a namespace (user or organization) of the hub at the URL `endpoint`, None
    for the public one. HF_ENDPOINT replaces the profile's, for workers too.

    Without a namespace nothing can be published. Readers find what is complete at `tag`. `licence` is that of models
    and tables, by the hub's name for it (`apache-2.0`); None states none.
    """

    namespace: str | None = None
    private: bool = False
    tag: str = "released"
    licence: str | None = None
    endpoint: str | None = None


@dataclass(frozen=True)
class Place:
    """Where it is built. Changes no result: no fingerprint depends on it, but for `hub`, on which that of a publication
    does.

    Without `kubernetes` jobs are processes on this machine, and all pools are `cpu-N`. In a profile a pool
    (`data_pool`, `suite_pool`, `heldout_pool`, `eval_pool`) is one name, or a list of equal ones of which a job gets
    any; `heldout_pool` may be a table of those by budget.
    """

    # Root of the store: a folder, or a URL (`gs://bucket/lab`), which a cluster needs. MARIN_STORE replaces it. The
    # default, for jobs on this machine, is a folder beside DAGSTER_HOME.
    store: str
    # Pools of the data stages (always `cpu-N`), of the scaling suite's runs, of the held-out runs (by budget, or under
    # None for all), of evaluations and exports, which run in one process (default: the suite's).
    data_pools: tuple[str, ...]
    suite_pools: tuple[str, ...]
    heldout_pools: Mapping[float | None, tuple[str, ...]]
    eval_pools: tuple[str, ...]
    # How often training saves what a restart resumes from: a time, a number of steps, or whichever comes first.
    checkpoint_every_seconds: float | None
    checkpoint_every_steps: int | None = None
    # Processes that share the items of a data stage.
    data_ranks: int = 1
    # Assets that a Dagster run works on at once. Each of several costs a process, which waits for its jobs.
    concurrent_assets: int = 1
    # How often a job's worker may die by itself, and how often the place may take its machines away.
    max_failures: int = 1
    max_preemptions: int = 100
    # A suite of more training FLOPs than this is refused; None sets no limit. MARIN_MAX_FLOPS replaces it.
    max_flops: float | None = None
    # Location of the store's bucket (`us-east5`, or a multi-region: `us`). A cluster in another region is refused.
    bucket_region: str | None = None
    kubernetes: KubernetesPlace | None = None
    # Model FLOPs utilization that estimates of wall time assume.
    assumed_mfu: float = 0.4
    # US dollars per chip-hour, by family of pools (`v5p`, `h100`); per core-hour for `cpu`.
    prices: Mapping[str, float] = field(default_factory=dict)
    hub: HubTarget = field(default_factory=HubTarget)
    # Pages of training runs at Weights & Biases: written to disk and kept with the run for `wandb sync`, sent while it
    # trains, or none; and the project that they are in. WANDB_MODE and WANDB_PROJECT replace these.
    tracking: Literal["offline", "online", "off"] = "offline"
    wandb_project: str = "marin"

    @property
    def tracking_variables(self) -> dict[str, str]:
        """What tells a worker of it: wandb's own variables."""
        return {
            "WANDB_MODE": "disabled" if self.tracking == "off" else self.tracking,
            "WANDB_PROJECT": self.wandb_project,
        }

    def heldout_pools_of(self, flops: float) -> tuple[str, ...]:
        """The pools of held-out runs of a budget.

        Raises:
            MarinError: the profile names none for it.
        """
        pools = self.heldout_pools.get(flops) or self.heldout_pools.get(None)
        if pools is None:
            known = ", ".join(format_budget(budget) for budget in self.heldout_pools if budget is not None)
            raise MarinError(
                f"heldout_pool has pools for {known} FLOPs, none for {format_budget(flops)}; add one in [place]"
            )
        return pools


@dataclass(frozen=True)
class Profile:
    """`name` is that of the file, without its ending."""

    name: str
    scale: Scale
    place: Place
