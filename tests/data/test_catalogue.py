"""Source entries: what is shipped, what a profile's entry makes of it, and what a wrong entry is told."""

import re
import tomllib
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from marin_core.data.sources.acquire import acquire_stage
from marin_core.data.sources.catalogue import load_catalogue, parse_source, select_sources
from marin_core.data.sources.declaration import (
    INSTALLED_LAYOUT,
    Curation,
    FolderOrigin,
    HubOrigin,
    InstalledOrigin,
    Layout,
    Source,
    UrlOrigin,
)
from marin_core.data.stages import run_stage
from marin_core.errors import MarinError
from marin_core.store import ArtifactSpec, Store

NEMOTRON = ("hq_actual", "hq_synth", "medium_high", "medium", "medium_low", "low_actual", "low_synth")
NEW = {"path": "texts", "licence": "CC0-1.0", "layout": {"format": "jsonl"}}


def test_the_training_mixture_and_the_evaluations_of_the_suite_are_shipped() -> None:
    sources = load_catalogue()
    training = {*(f"nemotron_cc/{split}" for split in NEMOTRON), "starcoderdata", "proofpile_2"}
    assert training <= sources.keys()
    assert {sources[name].role for name in training} == {"train"}
    evaluations = [name for name in sources if name.startswith(("paloma/", "uncheatable/"))]
    assert len([name for name in evaluations if name.startswith("paloma/")]) == 16
    assert len([name for name in evaluations if name.startswith("uncheatable/")]) == 7
    assert {sources[name].role for name in evaluations} == {"evaluation"}


@pytest.mark.parametrize("source", load_catalogue().values(), ids=lambda source: source.name)
def test_a_shipped_source_says_what_it_is(source: Source) -> None:
    assert source.licence
    assert source.homepage or isinstance(source.origin, InstalledOrigin)
    assert source.rough_tokens or source.role == "evaluation"
    assert "{" not in repr(source)  # no member's place was left open
    assert Source.from_json(source.to_json()) == source


def test_the_members_of_a_family_differ_in_their_own_fields_alone() -> None:
    subset = load_catalogue()["paloma/falcon_refinedweb"]
    assert subset.origin == HubOrigin("allenai/paloma", "65cd6fc", ("falcon-refinedweb/val/*.jsonl.gz",))
    assert subset.layout == Layout("jsonl", id_field="id")
    splits = [load_catalogue()[f"nemotron_cc/{split}"].origin for split in NEMOTRON]
    assert len({split.containing for split in splits if isinstance(split, UrlOrigin)}) == 7


def test_no_file_is_in_two_splits_of_nemotron_cc() -> None:
    """The folders that the corpus is published in."""
    kinds = {
        "high": ("actual", "synthetic"),
        "low": ("actual", "synthetic"),
        **dict.fromkeys(("medium", "medium-high", "medium-low"), ("actual",)),
    }
    splits = [load_catalogue()[f"nemotron_cc/{split}"].origin for split in NEMOTRON]
    for quality in kinds:
        for kind in kinds[quality]:
            path = f"https://host/data-jsonl/quality={quality}/kind={kind}/kind2=actual/part-00000.jsonl.zstd"
            assert len([s for s in splits if isinstance(s, UrlOrigin) and s.containing in path]) == 1


def test_an_empty_entry_is_the_shipped_source() -> None:
    assert select_sources({"code": {}, "tinystories": {}}) == {
        name: load_catalogue()[name] for name in ("code", "tinystories")
    }


def test_an_entry_named_like_a_family_is_all_its_members() -> None:
    chosen = select_sources({"nemotron_cc": {"curation": {"rules": "none"}}})
    assert sorted(chosen) == sorted(f"nemotron_cc/{split}" for split in NEMOTRON)
    assert {source.curation.rules for source in chosen.values()} == {"none"}


def test_a_field_of_an_entry_replaces_the_shipped_one() -> None:
    shipped = load_catalogue()["code"]
    assert isinstance(shipped.origin, InstalledOrigin)
    source = parse_source("code", {"packages": ["fsspec"], "max_bytes": 300_000})
    assert source.origin == InstalledOrigin(shipped.origin.content, ("fsspec",), 300_000)
    assert (source.licence, source.layout) == (shipped.licence, INSTALLED_LAYOUT)


def test_a_table_of_an_entry_replaces_field_by_field() -> None:
    shipped = load_catalogue()["fineweb_edu"]
    source = parse_source("fineweb_edu", {"layout": {"keep_fields": ["language"]}, "curation": {"min_retention": 0.5}})
    assert source.layout == Layout("parquet", id_field="id", url_field="url", keep_fields=("language",))
    assert source.curation == Curation(shipped.curation.rules, min_retention=0.5)


def test_a_mirror_replaces_the_origin_and_nothing_else() -> None:
    shipped = load_catalogue()["starcoderdata"]
    source = parse_source("starcoderdata", {"urls": ["gs://bucket/starcoderdata/"]})
    assert source.origin == UrlOrigin(("gs://bucket/starcoderdata/",))
    assert (source.layout, source.licence, source.curation) == (shipped.layout, shipped.licence, shipped.curation)


def test_a_new_source_is_one_entry(tmp_path: Path) -> None:
    (tmp_path / "texts").mkdir()
    (tmp_path / "texts" / "a.jsonl").write_text('{"body": "a text"}\n')
    profile = tomllib.loads(f"""
        [sources.letters]
        path = "{tmp_path}/texts"
        files = ["*.jsonl"]
        licence = "CC0-1.0"
        layout = {{ format = "jsonl", text_field = "body" }}
    """)
    source = select_sources(profile["sources"])["letters"]
    assert source == Source(
        "letters",
        FolderOrigin(f"{tmp_path}/texts", ("*.jsonl",)),
        licence="CC0-1.0",
        layout=Layout("jsonl", text_field="body"),
    )
    store, spec = Store(str(tmp_path / "store")), ArtifactSpec("raw/letters", "acquire", "1", source.origin.identity())
    with store.writer(spec, resumable=True) as writer:
        writer.commit(run_stage(acquire_stage(source, writer, print), writer))
    assert store.artifact(spec).read("files/a.jsonl") == b'{"body": "a text"}\n'


def test_the_entries_of_the_documentation_are_right() -> None:
    page = (Path(__file__).parents[2] / "marin_core" / "data" / "README.md").read_text()
    (block,) = re.findall(r"```toml\n(.*?)```", page.split("## Adding a source")[1].split("\n## ")[0], re.DOTALL)
    sources = select_sources(tomllib.loads(block)["scale"]["sources"])
    assert {"code", "tinystories", "paloma/c4_en", "starcoderdata", "lectures"} <= sources.keys()


def test_a_new_family_is_one_entry() -> None:
    entry = {
        "dataset": "lab/{member}",
        "revision": "main",
        "files": ["*.jsonl"],
        "licence": "CC0-1.0",
        "layout": {"format": "jsonl"},
        "members": {"one": "first-part", "two": {"licence": "MIT", "files": ["{member}.jsonl"]}},
    }
    chosen = select_sources({"mine": entry})
    assert chosen["mine/one"].origin == HubOrigin("lab/first-part", "main", ("*.jsonl",))
    assert (chosen["mine/two"].licence, chosen["mine/one"].licence) == ("MIT", "CC0-1.0")


@pytest.mark.parametrize(
    ("name", "entry", "message"),
    [
        (
            "stories",
            {},
            r"^unknown source 'stories'; pick one of code, .*, or say where its text comes from: packages,",
        ),
        ("new-one", NEW, r"^source name 'new-one' is not valid; use letters, digits and _"),
        ("new", {**NEW, "lisence": "MIT"}, r"^source 'new': unknown field 'lisence'; there are path, files, licence"),
        (
            "new",
            {"licence": "MIT"},
            r"^source 'new': the entry does not say where its text comes from; .*packages, dat",
        ),
        ("new", {**NEW, "dataset": "a/b"}, r"^source 'new': the entry has fields of 2 origins; give the fields of one"),
        ("new", {"path": "a", "layout": {"format": "jsonl"}}, r"^source 'new': field 'licence' is missing; give a str"),
        ("new", {**NEW, "layout": {}}, r"^source 'new': layout: field 'format' is missing; give one of jsonl, json, "),
        ("new", {**NEW, "layout": {"format": "csv"}}, r"layout: field 'format' is 'csv'; give one of jsonl, json, par"),
        ("new", {**NEW, "layout": "jsonl"}, r"^source 'new': field 'layout' is 'jsonl'; give a table of format, text_"),
        ("new", {**NEW, "files": "*.jsonl"}, r"^source 'new': field 'files' is '\*.jsonl'; give a list of strings$"),
        ("new", {**NEW, "files": []}, r"^source 'new': field 'files' is empty; give at least one$"),
        ("new", {**NEW, "role": "test"}, r"^source 'new': field 'role' is 'test'; give one of train, evaluation$"),
        (
            "new",
            {**NEW, "curation": {"rules": "web"}},
            r"curation: field 'rules' is 'web'; give one of prose, prose_punctuation, code, n",
        ),
        (
            "new",
            {**NEW, "curation": {"min_retention": 2}},
            r"curation: field 'min_retention' is 2.0; give a share from",
        ),
        ("new", {**NEW, "rough_tokens": True}, r"^source 'new': field 'rough_tokens' is True; give a number$"),
        ("code", {"max_bytes": 0}, r"^source 'code': field 'max_bytes' is 0; give a positive number$"),
        ("code", {"max_bytes": 1.5}, r"^source 'code': field 'max_bytes' is 1.5; give an integer$"),
        ("code", {"layout": {"format": "text"}}, r"^source 'code': field 'layout' is given; installed text has one of"),
        ("tinystories", {"urls": ["ftp://x/y"]}, r"^source 'tinystories': 'ftp://x/y' is not a URL to read from; give"),
        ("tinystories", {"urls": []}, r"^source 'tinystories': fields 'urls' and 'listings' are both empty; give at "),
        ("tinystories", "main", r"^source 'tinystories' is 'main'; give a table of fields, or \{\} for a shipped sou"),
        ("mine", {**NEW, "members": 3}, r"^source 'mine': field 'members' is 3; give a table$"),
    ],
)
def test_a_wrong_entry_is_told_the_field_the_value_and_what_is_allowed(name: str, entry: Any, message: str) -> None:
    with pytest.raises(MarinError, match=message) as refused:
        select_sources({name: entry})
    assert "\n" not in str(refused.value)


@given(
    name=st.text(max_size=8),
    entry=st.recursive(
        st.none() | st.integers() | st.text(),
        lambda e: (
            st.lists(e)
            | (
                st.dictionaries(
                    st.sampled_from(["path", "files", "licence", "layout", "format", "members", "urls", "role"]), e
                )
            )
        ),
    ),
)
def test_no_entry_gets_anything_but_a_source_or_a_one_line_error(name: str, entry: Any) -> None:
    try:
        select_sources({name: entry})
    except MarinError as error:
        assert "\n" not in str(error).replace(repr(entry), "")
