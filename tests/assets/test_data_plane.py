"""The data plane through the command that a person types: a source of one's own, an emptied one, and ranks."""

import json
import random
from pathlib import Path
from typing import Any

import pytest

from marin_core.graph import LabGraph
from marin_core.profile import load_profile
from marin_core.store import Store
from tests.conftest import TINY_PROFILE, LabEnvironment

STAGES = ("raw", "normalized", "quality", "near_duplicates", "contamination", "curated")


PROFILE = """
[scale.sources.lectures]
path = "{folder}"
files = ["*.jsonl"]
licence = "CC0-1.0"
layout = {{ format = "jsonl", text_field = "body", id_field = "id" }}
curation = {{ rules = "prose" }}

[scale.sources.notes]
path = "{folder}"
files = ["0.jsonl"]
licence = "CC0-1.0"
layout = {{ format = "jsonl", text_field = "body" }}

[scale.mixture]
name = "folder"
block_size = 64
weights = {{ lectures = 1.0 }}

[place]
"""


@pytest.fixture
def lab(tmp_path: Path) -> LabEnvironment:
    """A lab of two sources in a folder. `lectures` has 60 texts, of which every third is too short for prose."""
    folder = tmp_path / "texts"
    folder.mkdir()
    for number in range(4):
        records = [{"body": lecture(15 * number + n), "id": f"{number}-{n}"} for n in range(15)]
        (folder / f"{number}.jsonl").write_text("".join(json.dumps(record) + "\n" for record in records))
    tiny = TINY_PROFILE.read_text()
    before, _, rest = tiny.partition("[scale.sources]")
    tokenizer = rest[rest.index("[scale.tokenizer]") : rest.index("[scale.mixture]")]
    place = rest.partition("[place]")[2]
    profile = tmp_path / "folder.toml"
    profile.write_text(before + tokenizer + PROFILE.format(folder=folder).rstrip() + place)
    return LabEnvironment(tmp_path, profile)


def lecture(number: int) -> str:
    """Words of the language's shape, and the stop words that prose has."""
    chance = random.Random(number)
    syllables = [first + second for first in "bdfglmnprst" for second in ("a", "en", "i", "or", "u")]
    words = ["".join(chance.choices(syllables, k=chance.randint(1, 3))) for _ in range(20 if number % 3 == 0 else 120)]
    return "The end of it and what we have: " + " ".join(words) + "."


def edit(lab: LabEnvironment, old: str, new: str) -> None:
    text = lab.profile.read_text()
    assert old in text
    lab.profile.write_text(text.replace(old, new))


def summary(lab: LabEnvironment, stage: str) -> dict[str, Any]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("MARIN_STORE", str(lab.store))
        profile = load_profile(str(lab.profile))
    spec = LabGraph.of(profile).sources["lectures"].stages[stage]
    return dict(Store(str(lab.store)).artifact(spec).record.summary)


def test_a_new_source_is_one_entry(lab: LabEnvironment) -> None:
    result = lab.materialize("curated/*")
    assert result.returncode == 0, result.stdout + result.stderr
    assert summary(lab, "raw")["files"] == 4
    assert summary(lab, "normalized")["documents"] == 60
    quality = summary(lab, "quality")
    assert (quality["documents_in"], quality["removed"]["too_few_words"]) == (60, 20)
    curated = summary(lab, "curated")
    assert curated["documents"] == summary(lab, "contamination")["documents"]
    assert curated["removed"]["quality/too_few_words"] == 20
    shown = lab.run("marin", "plan").stdout
    assert all(f"committed {stage}/lectures" in shown for stage in STAGES)


def test_a_stage_that_empties_a_source_stops_what_is_made_of_it_in_every_later_run_too(lab: LabEnvironment) -> None:
    edit(lab, 'curation = { rules = "prose" }', 'curation = { rules = "prose", min_retention = 0.9 }')
    first = lab.materialize("curated/*")
    assert first.returncode != 0
    assert "quality/lectures kept 66.7% of its documents, at least 90.0% must stay" in first.stdout + first.stderr
    second = lab.materialize("near_duplicates/*")
    assert second.returncode != 0
    assert "quality/lectures kept 66.7% of its documents" in second.stdout + second.stderr
    assert "Traceback" not in second.stderr
    assert not (lab.store / "near_duplicates" / "lectures").exists()
    # The other source was not held up by it.
    assert list((lab.store / "near_duplicates" / "notes").glob("*/artifact.json"))
    edit(lab, "min_retention = 0.9", "min_retention = 0.5")
    third = lab.materialize("curated/*")
    assert third.returncode == 0, third.stdout + third.stderr


def test_the_number_of_ranks_changes_no_byte(lab: LabEnvironment) -> None:
    stages = "raw/lectures,normalized/lectures,quality/lectures"
    assert lab.materialize(stages).returncode == 0
    alone = files(lab)
    shared = LabEnvironment(lab.folder / "shared", lab.profile)
    edit(lab, "[place]", "[place]\ndata_ranks = 2")
    result = shared.materialize(stages)
    assert result.returncode == 0, result.stdout + result.stderr
    assert files(shared) == alone
    assert alone


def files(lab: LabEnvironment) -> dict[str, Any]:
    found = {}
    for path in sorted(lab.store.rglob("artifact.json")):
        record = json.loads(path.read_text())
        # What is told of a run has its times in it.
        if not record["name"].startswith("records/"):
            found[record["name"]] = (record["fingerprint"], record["files"])
    return found
