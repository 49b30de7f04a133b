"""The tables behind the figures on a hub: which files, what the card declares, and what is refused."""

from io import BytesIO

import polars as pl
import pytest
from huggingface_hub import DatasetCard

from marin_core.errors import MarinError
from tests.publishing.lab import FIGURES, LADDER, PublishingLab
from tests.publishing.writable_hub import WritableHub

NAME = "lab/delphi-figures"


def test_the_repository_has_the_tables_and_a_configuration_for_each(hub: WritableHub, lab: PublishingLab) -> None:
    record = lab.build(lab.tables())
    files = hub.dataset(NAME).content("adamh_v6")
    assert files == hub.dataset(NAME).content("main")
    assert files.keys() == {"ladder.parquet", "figures.json", "README.md", ".gitattributes"}
    card = DatasetCard(files["README.md"].decode())
    configs = card.data.to_dict()["configs"]
    assert [config["config_name"] for config in configs] == ["ladder"]
    # As a reader's library finds it: by the path that the card names.
    path = configs[0]["data_files"][0]["path"]
    assert pl.read_parquet(BytesIO(files[path])).to_dict(as_series=False) == LADDER
    assert record.summary["url"] == f"{hub.url}/datasets/{NAME}"


def test_the_card_describes_every_column(hub: WritableHub, lab: PublishingLab) -> None:
    spec = lab.tables()
    lab.build(spec)
    card = hub.dataset(NAME).content("main")["README.md"].decode()
    assert "One row per training run. 2 rows." in card
    assert "| `kind` | string |  | isoflop \\| held-out |" in card
    assert "| `flops` | float64 | FLOPs | compute budget |" in card
    assert f"| Fingerprint of this publication | {spec.fingerprint} |" in card
    assert f'load_dataset("{NAME}", "ladder", revision="adamh_v6", split="train")' in card


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({**LADDER, "more": [1, 2]}, r"do not have the same columns \(more\)"),
        ({key: value[:1] for key, value in LADDER.items()}, r"ladder\.parquet has 1 rows, figures\.json says 2"),
    ],
)
def test_tables_that_are_not_as_described_are_not_published(
    hub: WritableHub, lab: PublishingLab, rows: dict[str, list[object]], message: str
) -> None:
    with pytest.raises(MarinError, match=rf"^delphi/dataset: .*{message}.*; materialize delphi/dataset again$"):
        lab.build(lab.tables(rows))
    assert not hub.seen


def test_a_table_without_the_runs_pages_is_not_published(hub: WritableHub, lab: PublishingLab) -> None:
    rows = {key: value for key, value in LADDER.items() if key != "wandb_url"}
    figures = [{**FIGURES[0], "columns": FIGURES[0]["columns"][:-1]}]
    with pytest.raises(MarinError, match=r"ladder\.parquet has no column wandb_url"):
        lab.build(lab.tables(rows, figures))
    assert not hub.seen
