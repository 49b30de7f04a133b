"""The card of the published tables: a configuration for each figure, and what every column means."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any, Self

from marin_core.errors import MarinError
from marin_core.publishing.template import NOT_RECORDED, render
from marin_core.store import Artifact

FIGURES = "figures.json"
# Every row says where its run can be looked at.
_PAGE = "wandb_url"
_TEMPLATE = "dataset_card.md.jinja"


@dataclass(frozen=True)
class FigureTable:
    """The table of a figure as `figures.json` describes it: its `columns` have name, type, unit and meaning."""

    config: str
    file: str
    description: str
    rows: int
    columns: Sequence[Mapping[str, Any]]

    @classmethod
    def all_of(cls, dataset: Artifact) -> list[Self]:
        """The tables of a `delphi/dataset`.

        Raises:
            MarinError: there is none, or one has other columns or rows than are described, or none for `wandb_url`.
        """
        tables = [cls(**said) for said in dataset.read_json(FIGURES)]
        problem = next((found for table in tables if (found := table._problem(dataset))), None)
        if not tables or problem:
            name = dataset.record.name
            raise MarinError(f"{name}: {problem or f'{FIGURES} describes no table'}; materialize {name} again")
        return tables

    def _problem(self, dataset: Artifact) -> str | None:
        import pyarrow.parquet as parquet

        with dataset.open(self.file) as file:
            table = parquet.ParquetFile(file)
            there, rows = set(table.schema_arrow.names), table.metadata.num_rows
        if differing := sorted(there ^ {column["name"] for column in self.columns}):
            return f"{self.file} and {FIGURES} do not have the same columns ({', '.join(differing)})"
        if rows != self.rows:
            return f"{self.file} has {rows} rows, {FIGURES} says {self.rows}"
        return None if _PAGE in there else f"{self.file} has no column {_PAGE}, which published rows have"


def dataset_card(
    dataset: Artifact, repository: str, recipe: str, tag: str, fingerprint: str, licence: str | None
) -> str:
    """The text of the card. `recipe` is the suite's, by name, `fingerprint` that of the publication, `licence` the
    tables' own where one was given.

    Raises:
        MarinError: the tables are not as described.
    """
    from huggingface_hub import DatasetCardData

    figures = FigureTable.all_of(dataset)
    configs = [
        {"config_name": figure.config, "data_files": [{"split": "train", "path": figure.file}]} for figure in figures
    ]
    metadata = DatasetCardData(
        license=licence, pretty_name=repository.split("/")[-1], tags=[recipe, "scaling-laws"], configs=configs
    )
    made = dataset.record.provenance
    changed = ", with changes that are not in it" if made.dirty else ""
    values = {
        "name": repository.split("/")[-1],
        "repository": repository,
        "tag": tag,
        "recipe": recipe,
        "figures": figures,
        "provenance": {
            "Fingerprint of this publication": fingerprint,
            f"Artifact {dataset.record.name}": f"{dataset.record.fingerprint} (content {dataset.record.content})",
            "Code that made it": f"commit {made.commit}{changed}" if made.commit else NOT_RECORDED,
        },
    }
    return render(_TEMPLATE, metadata, values)
