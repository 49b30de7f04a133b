"""The site of a small store: what stands on its pages, that all of it is text, and that everything can be reached."""

import csv
import io
import itertools
import re
from collections.abc import Mapping
from pathlib import Path

import pytest

from marin_core.build import BuildOptions, build
from marin_core.records.outcome import ExitClass, Outcome
from marin_core.records.outcomes import record_run
from marin_core.records.site.content import gather
from marin_core.records.site.lists import PAGE_ROWS
from marin_core.store import ArtifactSpec, Store
from marin_core.tasks.site import StoreChanged, site_spec
from tests.records.site_lab import FAILED, HOSTILE, MIXTURE, RUNS, TITLE, built, commit, curve, failure, small_lab
from tests.records.site_pages import Page, read_pages


@pytest.fixture(scope="module")
def lab(tmp_path_factory: pytest.TempPathFactory) -> Store:
    return small_lab(tmp_path_factory.mktemp("site-lab") / "store")


@pytest.fixture(scope="module")
def folder(lab: Store, tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("site")
    built(lab, folder)
    return folder


@pytest.fixture(scope="module")
def pages(folder: Path) -> Mapping[str, Page]:
    return read_pages(folder)


def test_what_a_record_says_is_text_on_every_page(pages: Mapping[str, Page]) -> None:
    for page in pages.values():
        scripts = [script.attributes.get("src", "") for script in page.all("script")]
        assert all(re.fullmatch(r"(\.\./)*(site|search)\.js", src) for src in scripts)
        assert not [name for element in page.all() for name in element.attributes if name.startswith("on")]
        assert not [link for link in page.links if link.lower().startswith(("javascript:", "data:"))]
        assert all(not image.attributes["src"].startswith("http") for image in page.all("img"))


@pytest.mark.parametrize(
    "path",
    [
        "index.html",
        "experiments/optimizers/index.html",
        f"runs/{failure().record}.html",
        "datasets/web.html",
        f"artifacts/raw/web/{MIXTURE.inputs['curated'].inputs['normalized'].inputs['raw'].fingerprint}.html",
    ],
)
def test_what_could_be_markup_is_shown_as_it_is(pages: Mapping[str, Page], path: str) -> None:
    assert HOSTILE in pages[path].text


def test_every_link_leads_to_a_file_and_none_away(folder: Path, pages: Mapping[str, Page]) -> None:
    told = {"https://example.org/issues", "http://x/y.png"}
    for page in pages.values():
        for link in set(page.links) - told:
            assert not re.match(r"[a-z]+:|/", link), f"{page.path} has {link}"
            assert (folder / page.target(link)).is_file() or link.startswith("#"), f"{page.path} has {link}"
            fragment = link.partition("#")[2]
            assert not fragment or fragment in page.ids


def test_every_file_can_be_reached_from_the_index(folder: Path, pages: Mapping[str, Page]) -> None:
    reached, ahead = set(), ["index.html"]
    while ahead:
        path = ahead.pop()
        if path not in reached:
            reached.add(path)
            links = pages[path].links if path in pages else ()
            ahead += [pages[path].target(link) for link in links if ":" not in link]
    assert {file.relative_to(folder).as_posix() for file in folder.rglob("*") if file.is_file()} <= reached


def test_every_page_is_built_for_who_cannot_see_it(pages: Mapping[str, Page]) -> None:
    for page in pages.values():
        html = next(page.all("html"))
        assert html.attributes["lang"] == "en"
        assert len(list(page.all("main"))) == len(list(page.all("h1"))) == 1
        assert len(list(next(page.all("head")).all("title"))) == 1
        levels = [int(heading.tag[1]) for heading in page.all("h1", "h2", "h3", "h4", "h5", "h6")]
        assert levels[0] == 1
        assert all(after <= before + 1 for before, after in itertools.pairwise(levels)), page.path
        assert len(page.ids) == len(set(page.ids))
        named = {name for e in page.all() for name in e.attributes.get("aria-labelledby", "").split()}
        assert named <= set(page.ids)
        for table in page.all("table"):
            assert next(table.all("caption")).text
            assert all(cell.attributes.get("scope") in ("row", "col") for cell in table.all("th"))
        labelled = {label.attributes.get("for") for label in page.all("label")}
        wrapped = [field for label in page.all("label") for field in label.all("input")]
        for field in page.all("input"):
            assert field.attributes.get("id") in labelled or field in wrapped
        assert all(image.attributes["alt"] for image in page.all("img"))


def test_without_scripts_the_index_lists_every_experiment_and_the_latest_failures(pages: Mapping[str, Page]) -> None:
    index = pages["index.html"]
    assert "AdamH against AdamW" in index.text
    assert "Neither is better." in index.text
    filters = next(form for form in index.all("form") if form.attributes.get("id") == "filters")
    assert "hidden" in filters.attributes
    assert f"runs/{failure().record}.html" in index.links


def test_an_experiment_s_page_tells_it_from_hypothesis_to_verdict(pages: Mapping[str, Page]) -> None:
    page = pages["experiments/optimizers/index.html"]
    for told in (
        "One of them is better.",
        "adamh minus adamw, mean over the pairs of runs, lies in -0.1 to 0.",
        "It came before the runs that it is about.",
        "before its runs",
        "did not hold",
        "-0.25",
        "Neither is better.",
        "Too early to say.",
        "b@example.org",
    ):
        assert told in page.text
    runs = next(table for table in page.all("table") if next(table.all("caption")).text == "Runs of this experiment")
    rows = [row.text for row in runs.all("tr")][1:]
    assert len(rows) == 4
    assert sum("diverged" in row for row in rows) == 2
    assert f"Diverged: checkpoints/delphi [{RUNS['adamw'][0].partition}] after 1 000 steps" in _plain(page.text)
    assert page.target(_link_to(page, "runs/")) == f"runs/{failure().record}.html"


def test_a_result_is_told_in_words_and_not_by_the_keys_of_its_summary(pages: Mapping[str, Page]) -> None:
    page = pages["experiments/optimizers/index.html"]
    rows = next(found for found in page.all("dl") if found.attributes.get("aria-label") == "Result")
    told = {next(div.all("dt")).text: next(div.all("dd")).text for div in rows.all("div")}
    assert told == {
        "Compared": "adamh minus adamw",
        "Difference, nats per token": "-0.25",
        "Forecast of the difference": "-0.1 to 0",
        "Mean loss of adamw_high, nats per token": "2.5",
    }


def test_a_wide_table_of_the_prose_is_scrolled_and_not_the_page(pages: Mapping[str, Page]) -> None:
    page = pages["experiments/optimizers/index.html"]
    (prose,) = [element for element in page.all("div") if element.attributes.get("class") == "prose"]
    (scrolled,) = [element for element in prose.all("div") if element.attributes.get("class") == "scroll"]
    assert len(list(prose.all("table"))) == len(list(scrolled.all("table"))) == 1
    assert HOSTILE in scrolled.text


def test_a_registration_after_the_runs_is_told_though_the_suite_s_own_forecast_came_first(tmp_path: Path) -> None:
    store = small_lab(tmp_path / "store")
    run = RUNS["adamh"][0]
    known = {"title": "A suite", "hypothesis": "It holds.", "metric": "loss", "owner": "team:lab", "where": "any lab"}
    declared = {**known, "forecast": {"kind": "suite"}, "runs": {}}
    registration = ArtifactSpec("experiments/suite/registration", "register_experiment", "1", declared)
    commit(store, registration, {"experiment.json": b"{}"}, {})
    result = ArtifactSpec(
        "experiments/suite/result", "report_suite", "1", {}, {"run": run, "registration": registration}
    )
    commit(store, result, {"result.json": b"{}"}, {"forecast_held": True, "registered_before_runs": True})
    built(store, tmp_path / "site")
    page = read_pages(tmp_path / "site")["experiments/suite/index.html"]
    assert "It came before the runs that it is about." in page.text
    assert "when some of its runs had begun" in page.text
    assert "before its runs" not in page.text


def test_prose_keeps_the_order_of_headings(pages: Mapping[str, Page]) -> None:
    page = pages["experiments/optimizers/index.html"]
    headings = {heading.text: heading.tag for heading in page.all("h3", "h4")}
    assert headings["A heading"] == "h3"
    assert headings["A deeper one"] == "h4"


def test_a_loss_curve_has_its_data_beside_it(folder: Path) -> None:
    spec = RUNS["adamh"][1]
    rows = list(csv.reader(io.StringIO((folder / _page_of(spec)).with_suffix(".csv").read_text())))
    told = curve(1000, 3.0)
    assert 200 < len(rows) <= 301
    assert [float(n) for n in rows[1][1:]] == [told["step"][0], told["loss"][0]]
    assert [float(n) for n in rows[-1][1:]] == [told["step"][-1], told["loss"][-1]]


def test_the_lines_of_an_experiment_are_running_means_beside_the_single_steps(
    folder: Path, pages: Mapping[str, Page]
) -> None:
    rows = list(csv.reader(io.StringIO((folder / "experiments/optimizers/loss_curves.csv").read_text())))[1:]
    losses = curve(1000, 2.0)["loss"]
    of_first = [[float(n) for n in row[1:]] for row in rows if row[0] == RUNS["adamh"][0].partition]
    for step, loss, mean in of_first:
        assert loss == losses[int(step)]
        last = losses[max(0, int(step) - 49) : int(step) + 1]
        assert mean == pytest.approx(sum(last) / len(last))
    assert "running mean over the last 5 % of a run's steps" in pages["experiments/optimizers/index.html"].text


def test_the_curves_of_all_runs_lie_in_one_chart(pages: Mapping[str, Page]) -> None:
    page = pages["experiments/optimizers/index.html"]
    lines = [path for path in page.all("path") if "line" in path.attributes.get("class", "")]
    colours = {path.attributes["class"] for path in lines}
    assert len(lines) == 3
    assert len(colours) == 2


def test_an_artifact_s_page_leads_to_what_it_is_made_of_and_to_its_readers(pages: Mapping[str, Page]) -> None:
    page = pages[_page_of(MIXTURE)]
    targets = {page.target(link) for link in page.links}
    assert _page_of(MIXTURE.inputs["curated"]) in targets
    assert {_page_of(RUNS["adamh"][0]), _page_of(RUNS["adamw"][0])} <= targets
    assert "mixture.json" in page.text
    assert "rebuilt since" not in page.text


def test_a_corrected_failure_leads_to_its_correction_and_back(pages: Mapping[str, Page]) -> None:
    wrong = pages[f"runs/{failure('run-2', MIXTURE).record}.html"]
    assert "I looked." in wrong.text
    right = wrong.target(
        next(
            link
            for link in wrong.links
            if re.fullmatch(r"[0-9a-f]{16}\.html", link.split("/")[-1]) and "runs/" in wrong.target(link)
        )
    )
    assert "the kernel killed it" in pages[right].text
    assert wrong.path in {pages[right].target(link) for link in pages[right].links}
    listed = {pages["records/failed/index.html"].target(link) for link in pages["records/failed/index.html"].links}
    assert right in listed
    assert wrong.path not in listed


def test_a_source_s_page_counts_documents_and_shows_some(pages: Mapping[str, Page]) -> None:
    page = pages["datasets/web.html"]
    for told in ("CC-BY-4.0", "too few words", "a document", "another"):
        assert told in page.text
    assert "x" * 1000 not in page.text


def test_the_same_store_gives_the_same_bytes(lab: Store, folder: Path, tmp_path: Path) -> None:
    built(Store(lab.root), tmp_path)
    assert _bytes(tmp_path) == _bytes(folder)


def test_long_lists_are_cut_into_pages_that_miss_nothing(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store"))
    count = 2 * PAGE_ROWS + 50
    runs = [_outcome(n, failed=n % 3 == 0) for n in range(count)]
    record_run(store, "many", runs)
    built(store, tmp_path / "site")
    pages = read_pages(tmp_path / "site")
    newest_first = [outcome.partition for outcome in reversed(runs)]
    assert _listed(pages, ["records/index.html", "records/page-2.html", "records/page-3.html"]) == newest_first
    failed = [outcome.partition for outcome in reversed(runs) if outcome.exit_class]
    assert _listed(pages, ["records/failed/index.html"]) == failed
    assert _listed(pages, ["records/failed/infrastructure/index.html"]) == failed
    assert "records/failed/bug/index.html" not in pages
    assert len([path for path in pages if path.startswith("runs/")]) == len(failed)
    table = list(csv.DictReader(io.StringIO((tmp_path / "site" / "records" / "records.csv").read_text())))
    assert [row["partition"] for row in table] == newest_first
    assert {page.target(link) for page in pages.values() for link in page.links} >= {"records/page-3.html"}


def test_a_site_of_an_empty_store_has_all_its_lists(tmp_path: Path) -> None:
    assert built(Store(str(tmp_path / "store")), tmp_path / "site")["experiments"] == 0
    assert "No experiment is registered yet." in read_pages(tmp_path / "site")["index.html"].text


def test_a_file_that_is_gone_costs_its_picture_and_not_the_site(tmp_path: Path) -> None:
    store = small_lab(tmp_path / "store")
    spec = RUNS["adamh"][0]
    (tmp_path / "store" / spec.name / spec.fingerprint / "metrics.parquet").unlink()
    (tmp_path / "store" / RUNS["adamw"][0].name / RUNS["adamw"][0].fingerprint / "metrics.parquet").write_bytes(b"no")
    built(store, tmp_path / "site")
    page = read_pages(tmp_path / "site")[_page_of(spec)]
    assert not [figure for figure in page.all("figure") if "chart" in figure.attributes.get("class", "")]


def test_a_site_is_another_when_something_new_is_in_the_store(tmp_path: Path) -> None:
    store = small_lab(tmp_path)
    seen = {site_spec(store).fingerprint}
    for change in (
        lambda: commit(store, ArtifactSpec("raw/new", "acquire", "1"), {"a": b"a"}, {}),
        lambda: record_run(store, "run-9", [failure("run-9")]),
    ):
        change()
        assert site_spec(store).fingerprint not in seen
        seen.add(site_spec(store).fingerprint)


def test_a_built_site_is_reused_and_does_not_show_itself(tmp_path: Path) -> None:
    store = small_lab(tmp_path / "store")
    spec, options, told = site_spec(store), BuildOptions(scratch=tmp_path), []
    record = build(spec, store, options, told.append)
    assert record.summary["pages"] == len([file for file in record.files if file.path.endswith(".html")])
    done = failure("run-8", spec, status="succeeded", exit_class=None, ended="2026-05-02T00:00:00.000+00:00")
    record_run(store, "run-8", [done])
    assert site_spec(store).fingerprint == spec.fingerprint
    assert told


def test_a_site_is_what_was_planned_though_the_store_goes_on(tmp_path: Path) -> None:
    store = small_lab(tmp_path / "store")
    spec, planned = site_spec(store, TITLE), gather(store, TITLE)
    commit(store, ArtifactSpec("raw/new", "acquire", "1"), {"a": b"a"}, {})
    assert gather(store, TITLE, planned.until).identity == spec.config
    store.objects.delete(f"{FAILED.name}/{RUNS['adamh'][0].fingerprint}")
    with pytest.raises(StoreChanged, match="materialize records/site again"):
        build(spec, store, BuildOptions(scratch=tmp_path), lambda line: None)


def _plain(text: str) -> str:
    return text.replace("\N{NARROW NO-BREAK SPACE}", " ")


def _link_to(page: Page, folder: str) -> str:
    return next(link for link in page.links if page.target(link).startswith(folder))


def _page_of(spec: ArtifactSpec) -> str:
    return f"artifacts/{spec.name}/{spec.fingerprint}.html"


def _bytes(folder: Path) -> dict[str, bytes]:
    return {file.relative_to(folder).as_posix(): file.read_bytes() for file in folder.rglob("*") if file.is_file()}


def _listed(pages: Mapping[str, Page], paths: list[str]) -> list[str]:
    """The partitions in the rows of lists of runs, page by page."""
    headings = [row.text for path in paths for table in pages[path].all("tbody") for row in table.all("th")]
    return [heading.partition("[")[2].removesuffix("]") for heading in headings]


def _outcome(n: int, *, failed: bool) -> Outcome:
    spec = ArtifactSpec("checkpoints/delphi", "train", "1", partition=f"cell-{n:04d}")
    ended = f"2026-05-01T{n // 60:02d}:{n % 60:02d}:00.000+00:00"
    status, exit_class = ("failed", ExitClass.INFRASTRUCTURE) if failed else ("succeeded", None)
    return failure("many", spec, ended=ended, status=status, exit_class=exit_class)
