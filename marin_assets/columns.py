"""Of each task, or record, that writes a table: which file it is, what its columns mean, and of which columns of its
inputs they are made. Data only; `tables.py` reads the files."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field

from marin_core.graph import CHECKPOINTS, EVALS

# An input, by its role or by its name, and a column of its table.
Origin = tuple[str, str]


@dataclass(frozen=True)
class Table:
    """`path` is a Parquet file of the artifact, or a folder of equal ones; `rows` names the number of the artifact's
    summary that counts its rows, where footers would be many. `types` are the columns that it must have, in words of
    Arrow, and no others unless it is `open`. `meanings` are those of this table alone. `origins` leads from a column to
    those that it is made of; every other one is a column of the input `copies`, if there is one."""

    path: str
    rows: str | None = None
    types: Mapping[str, str] = field(default_factory=dict)
    open: bool = False
    meanings: Mapping[str, str] = field(default_factory=dict)
    origins: Mapping[str, Sequence[Origin]] = field(default_factory=dict)
    copies: str | None = None


def _same(origin: str, *columns: str) -> dict[str, Sequence[Origin]]:
    return {column: [(origin, column)] for column in columns}


_RUN = ("cell", "flops", "hidden_dim", "num_layers", "num_heads", "batch_size", "seq_len", "steps", "tokens", "params")
_RATES = ("learning_rate", "adam_lr", "beta2")
_METRIC = ("evaluation", "version", "examples", "metric", "value", "stderr", "unit", "higher_is_better")
_ID = "hash of the text, by which documents are sorted"
_DOCUMENTS = {
    "id": _ID,
    "text": "the document, normalized",
    "source": "the source that it is of",
    "licence": "its licence",
    "path": "where in the source it was",
    "package": "the package that it was installed with",
    "version": "that package's version",
}
_DOCUMENT_TYPES: Mapping[str, str] = dict.fromkeys(("id", "text", "source", "licence"), "string")
_TEXT = ("normalized", "text")

TABLES: Mapping[str, Table] = {
    "normalize": Table("documents/", rows="documents", types=_DOCUMENT_TYPES, open=True, meanings=_DOCUMENTS),
    "judge_quality": Table(
        "verdicts/",
        rows="documents_in",
        types={"id": "string", "keep": "bool", "reason": "string"},
        meanings={
            "id": _ID,
            "keep": "whether the rules of the source keep the document",
            "reason": "the first rule that it breaks, null if it is kept",
        },
        origins={"id": [("normalized", "id")], "keep": [_TEXT], "reason": [_TEXT]},
    ),
    "find_near_duplicates": Table(
        "duplicates/",
        rows="documents_in",
        types={"id": "string", "cluster": "string", "duplicate": "bool", "containment": "double"},
        meanings={
            "id": _ID,
            "cluster": "the first document of those that are near-duplicates of each other, null if it has none",
            "duplicate": "whether another document of the cluster stays in its place",
            "containment": "share of its word n-grams that the document that stays holds, too",
        },
        origins={
            "id": [("normalized", "id"), ("quality", "keep")],
            "cluster": [_TEXT],
            "duplicate": [_TEXT],
            "containment": [_TEXT],
        },
    ),
    "find_contamination": Table(
        "matches/",
        types={"id": "string", "evaluation": "string", "item": "string", "overlap": "double", "matched": "int64"},
        meanings={
            "id": _ID,
            "evaluation": "the evaluation source of which it holds text",
            "item": "the document of that source",
            "overlap": "share of the item's n-grams that it holds",
            "matched": "how many n-grams that is",
        },
        origins={
            "id": [("normalized", "id"), ("quality", "keep"), ("near_duplicates", "duplicate")],
            "overlap": [_TEXT],
            "matched": [_TEXT],
            "item": [_TEXT],
            "evaluation": [_TEXT],
        },
    ),
    "curate": Table(
        "documents/",
        rows="documents",
        types=_DOCUMENT_TYPES,
        open=True,
        meanings=_DOCUMENTS,
        origins={
            "id": [
                ("normalized", "id"),
                ("quality", "keep"),
                ("near_duplicates", "duplicate"),
                ("contamination", "matched"),
            ]
        },
        copies="normalized",
    ),
    "tokenize": Table(
        "index/train/",
        rows="train_documents",
        meanings={
            "id": _ID,
            "part": "the part of the shards that holds its tokens",
            "row": "its row among the documents of the curated part",
            "tokens": "how many tokens it has",
            "start": "where in the part its tokens begin",
        },
        origins={"id": [("curated", "id")], "tokens": [("curated", "text")], "start": [("curated", "text")]},
    ),
    "train": Table(
        "metrics.parquet",
        meanings={
            "step": "training step, from 0",
            "loss": "training loss in nats per token",
            "learning_rate": "learning rate of the step",
            "adam_lr": "learning rate of the parameters that Adam trains",
            "seconds": "seconds that the step took",
        },
    ),
    "collect_runs": Table("runs.parquet", origins={"train_loss": [(CHECKPOINTS, "loss")]}),
    "fit_laws": Table(
        "resampled_laws.parquet",
        meanings={
            "irreducible": "loss that no compute removes, nats per token",
            "scale": "A of L = E + A·C^-α",
            "exponent": "α of L = E + A·C^-α",
            "reference": "compute in FLOPs at which the scale is taken",
            "token_coefficient": "A of D* = A·C^a, training tokens over compute",
            "token_exponent": "a of D* = A·C^a",
            "noise": "what one further run may differ from the law, nats per token",
        },
        origins={"irreducible": [("suite", "eval_loss")], "exponent": [("suite", "eval_loss")]},
    ),
    "collect_evals": Table("evals.parquet", origins={"contaminated_documents": [("contamination", "id")]}),
    "collect_suite_evals": Table(
        "evals.parquet",
        origins=_same(EVALS, "partition", "run", "status", *_METRIC, "contaminated_documents")
        | _same("suite", "cell", "seed", "flops", "hidden_dim", "params", "tokens"),
    ),
    "forecast_downstream": Table(
        "downstream.parquet",
        origins={"soft": [("evals", "value")], "hard": [("evals", "value")], "flops": [("suite", "flops")]},
    ),
    "tabulate": Table(
        "ladder.parquet",
        origins=_same("suite", *_RUN[1:], "seed", *_RATES, "status", "train_loss", "eval_loss", "run")
        | {"name": [("suite", "cell")]},
    ),
    "records/outcomes": Table("outcomes.parquet"),
    "compare_arms": Table("runs.parquet", origins={"train_loss": [(CHECKPOINTS, "loss")]}),
}
