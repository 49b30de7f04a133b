"""The site in a real browser, opened from a folder: what a reader does and sees on the record of a real lab."""

import re
import shutil
from collections.abc import Iterator
from pathlib import Path

import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from marin_core.records.experiment import Verdict
from marin_core.records.outcome import ExitClass, Outcome
from marin_core.records.outcomes import record_run
from marin_core.records.verdicts import record_ruling
from marin_core.store import Store
from tests.conftest import LabEnvironment
from tests.records.site_lab import failure
from tests.records.site_pages import read_pages
from tests.screenshots import screenshot

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine (Debian: apt-get install chromium)"),
]
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
CAUSE = "the worker was killed for memory: the kernel's oom_kill counter rose from 3 to 4"


@pytest.fixture(scope="module")
def store(finished_lab: LabEnvironment, tmp_path_factory: pytest.TempPathFactory) -> Iterator[Store]:
    """What the main job left, with a run that failed, a verdict, and the site of it all."""
    lab = LabEnvironment(tmp_path_factory.mktemp("site-in-browser") / "lab")
    shutil.copytree(finished_lab.folder, lab.folder, ignore=shutil.ignore_patterns("logs", "scratch"))
    store = Store(str(lab.store))
    ended = next(record for record in store.records("checkpoints/delphi") if record.partition)
    record_run(store, "killed", [_killed(ended.partition, ended.fingerprint)])
    record_ruling(store, "laptop_ladder", Verdict.MIXED, "Convex curves, and one budget to spare.", "a@example.org")
    for selection in ("experiments/laptop_ladder/*", "records/*"):
        result = lab.materialize(selection)
        assert result.returncode == 0, result.stdout + result.stderr
    yield store


def _killed(partition: str | None, fingerprint: str) -> Outcome:
    return failure(
        "killed",
        partition=partition,
        fingerprint=fingerprint,
        exit_class=ExitClass.OUT_OF_MEMORY,
        reason=CAUSE,
        log_tail=(*(f"step {n}" for n in range(60)), "Killed"),
        wandb_url=None,
    )


@pytest.fixture(scope="module")
def index(store: Store) -> str:
    site = store.records("records/site")[-1]
    return Path(store.root, site.name, site.fingerprint, "index.html").as_uri()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    """A page that may not write an error to the console, nor ask for anything that is not there."""
    context = browser.new_context(viewport={"width": 1280, "height": 900})
    opened = context.new_page()
    wrong: list[str] = []
    opened.on("console", lambda message: wrong.append(message.text) if message.type in ("error", "warning") else None)
    opened.on("pageerror", lambda error: wrong.append(str(error)))
    # Leaving a page ends what it still loads.
    opened.on(
        "requestfailed", lambda r: None if r.failure == "net::ERR_ABORTED" else wrong.append(f"{r.failure} {r.url}")
    )
    opened.on("request", lambda request: None if request.url.startswith("file:") else wrong.append(request.url))
    yield opened
    context.close()
    assert not wrong


def test_from_the_index_to_a_failed_run_s_cause_in_one_click(page: Page, index: str) -> None:
    page.goto(index)
    screenshot(page, "site-index")
    page.get_by_role("region", name="Latest failures").get_by_role("link").first.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text("checkpoints/delphi [")
    expect(page.get_by_role("region", name="Cause")).to_contain_text(CAUSE)
    # The log is long; its end, where the cause is, is what one sees.
    assert page.locator(".tail").evaluate(
        "tail => tail.querySelector('pre').getBoundingClientRect().bottom <= tail.getBoundingClientRect().bottom + 1"
    )
    screenshot(page, "site-failed-run")


def test_from_an_experiment_to_a_failed_run_s_cause_in_three_clicks(page: Page, index: str) -> None:
    page.goto(index)
    page.get_by_role("link", name="Scaling laws hold for models that train on a laptop").click()
    screenshot(page, "site-experiment")
    page.get_by_role("region", name="Failures", exact=True).get_by_role("link").first.click()
    expect(page.get_by_role("region", name="Cause")).to_contain_text(CAUSE)


def test_experiments_are_filtered_by_verdict_and_tag(page: Page, index: str) -> None:
    page.goto(index)
    cards = page.locator("#experiments > li")
    everything = cards.count()
    wanted = page.locator("#experiments > li[data-verdict=mixed]").count()
    page.get_by_role("checkbox", name="mixed").check()
    expect(page.locator("#experiments > li:visible")).to_have_count(wanted)
    expect(page.get_by_role("status")).to_have_text(f"{wanted} of {everything} experiments")
    page.get_by_role("checkbox", name="mixed").uncheck()
    expect(page.locator("#experiments > li:visible")).to_have_count(everything)
    tag = page.locator("#filters input[name=tag]").first
    tag.check()
    shown = page.locator("#experiments > li:visible")
    tags = [shown.nth(n).get_attribute("data-tags") or "" for n in range(shown.count())]
    assert tags
    assert all((tag.get_attribute("value") or "") in own.split() for own in tags)


@pytest.mark.parametrize(
    ("words", "kind", "found"),
    [
        ("laptop scaling", "Experiments", "Scaling laws hold for models that train on a laptop"),
        ("one budget to spare", "Experiments", "Scaling laws hold for models that train on a laptop"),
        ("oom_kill", "Failures", "checkpoints/delphi"),
        ("curated prose", "Artifacts", "curated/prose"),
    ],
)
def test_what_is_searched_for_is_found(page: Page, index: str, words: str, kind: str, found: str) -> None:
    page.goto(index)
    page.get_by_role("searchbox").fill(words)
    page.keyboard.press("Enter")
    expect(page.get_by_role("heading", name=re.compile(kind))).to_be_visible()
    link = page.locator("#results").get_by_role("link", name=found).first
    link.click()
    expect(page.get_by_role("heading", level=1)).to_contain_text(found)


def test_nothing_is_found_without_an_answer_that_says_so(page: Page, index: str) -> None:
    page.goto(index.replace("index.html", "search.html?q=nothingislikethis"))
    expect(page.get_by_role("status")).to_have_text("0 found")


def kinds_of_pages(folder: Path) -> list[Path]:
    """A page of every kind, the longest of each."""
    patterns = ["*.html", "experiments/*/*.html", "datasets/*.html", "runs/*.html", "records/index.html"]
    patterns += ["artifacts/experiments/*/registration/*.html", "artifacts/raw/*/*.html"]
    patterns += ["artifacts/checkpoints/delphi/*.html", "artifacts/delphi/suite/*.html", "records/failed/index.html"]
    named = [sorted(folder.glob(pattern), key=lambda path: path.stat().st_size) for pattern in patterns]
    return [*named[0], *(found[-1] for found in named[1:])]


def test_pages_fit_a_phone_without_scrolling_sideways(page: Page, index: str) -> None:
    page.set_viewport_size({"width": 360, "height": 740})
    for path in kinds_of_pages(Path(index.removeprefix("file://")).parent):
        page.goto(path.as_uri())
        width = page.evaluate("document.documentElement.scrollWidth")
        assert width <= 360, f"{path} is {width} wide"
    page.goto(index)
    screenshot(page, "site-index-phone")


CONTRASTS = """() => {
  // The lowest ratio of the colours of text and of what lies behind it, as WCAG 2 has it, and which text has it.
  const parse = (color) => color.match(/[\\d.]+/g).map(Number);
  const luminance = ([r, g, b]) => {
    const [x, y, z] = [r, g, b].map((c) => (c /= 255) <= 0.04045 ? c / 12.92 : ((c + 0.055) / 1.055) ** 2.4);
    return 0.2126 * x + 0.7152 * y + 0.0722 * z;
  };
  const behind = (element) => {
    for (; element; element = element.parentElement) {
      const color = parse(getComputedStyle(element).backgroundColor);
      if (color.length < 4 || color[3] === 1) return color;
    }
    throw new Error("nothing lies behind");
  };
  let worst = [99, ""];
  const walker = document.createTreeWalker(document.body, NodeFilter.SHOW_TEXT);
  while (walker.nextNode()) {
    const element = walker.currentNode.parentElement;
    if (!walker.currentNode.data.trim() || !element.checkVisibility()) continue;
    if (element.closest("title, desc, noscript")) continue;
    const drawn = element.closest("svg text");
    const style = getComputedStyle(drawn || element);
    const box = drawn && drawn.parentElement.querySelector(":scope > rect");
    const back = box && drawn.closest(".node") ? parse(getComputedStyle(box).fill) : behind(element);
    const [a, b] = [luminance(parse(drawn ? style.fill : style.color)), luminance(back)];
    const ratio = (Math.max(a, b) + 0.05) / (Math.min(a, b) + 0.05);
    if (ratio < worst[0]) worst = [ratio, walker.currentNode.data.trim()];
  }
  return worst;
}"""


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_text_stands_out_from_what_is_behind_it(browser: Browser, index: str, scheme: str) -> None:
    context = browser.new_context(color_scheme=scheme, viewport={"width": 1280, "height": 900})  # type: ignore[arg-type]
    page = context.new_page()
    backgrounds = set()
    for path in kinds_of_pages(Path(index.removeprefix("file://")).parent):
        page.goto(path.as_uri())
        ratio, text = page.evaluate(CONTRASTS)
        assert ratio >= 4.5, f"{text!r} on {path} has a contrast of {ratio:.2f}"
        backgrounds.add(page.evaluate("getComputedStyle(document.body).backgroundColor"))
    assert len(backgrounds) == 1
    assert (backgrounds == {"rgb(252, 251, 248)"}) == (scheme == "light")
    page.goto(kinds_of_pages(Path(index.removeprefix("file://")).parent)[-3].as_uri())
    screenshot(page, f"site-artifact-{scheme}")
    context.close()


def test_no_link_of_the_site_is_dead(index: str) -> None:
    folder = Path(index.removeprefix("file://")).parent
    pages = read_pages(folder)
    assert len(pages) > 100
    for parsed in pages.values():
        inside = {link for link in parsed.links if not link.startswith(("#", "http"))}
        assert all((folder / parsed.target(link)).is_file() for link in inside), parsed.path


def test_a_click_on_each_way_from_the_index_opens_a_page(page: Page, index: str) -> None:
    """What a browser makes of a link, as against what a parser does."""
    page.goto(index)
    for n in range(page.locator("main a, header nav a").count()):
        link = page.locator("main a, header nav a").nth(n)
        name = link.inner_text()
        link.click()
        expect(page.get_by_role("heading", level=1)).to_be_visible()
        assert page.url != index or name in ("Experiments", "")
        page.goto(index)


def test_the_keyboard_reaches_the_content_first_and_shows_where_it_is(page: Page, index: str) -> None:
    page.goto(index)
    page.keyboard.press("Tab")
    skip = page.get_by_role("link", name="Skip to the content")
    expect(skip).to_be_focused()
    assert skip.evaluate("link => getComputedStyle(link).outlineStyle") == "solid"
    page.keyboard.press("Enter")
    expect(page.locator("main")).to_be_focused()


def test_pointing_at_an_asset_marks_its_edges(page: Page, index: str) -> None:
    page.goto(index.replace("index.html", "lineage.html"))
    page.locator(".node[data-name='tokenizer/tiny']").focus()
    marked = page.locator(".edges path.near")
    ends = {(path.get_attribute("data-from"), path.get_attribute("data-to")) for path in marked.all()}
    assert ("curated/code", "tokenizer/tiny") in ends
    assert ("tokenizer/tiny", "mixture/tiny") in ends
    screenshot(page, "site-lineage")


def test_without_scripts_everything_is_listed(browser: Browser, index: str) -> None:
    context = browser.new_context(java_script_enabled=False)
    page = context.new_page()
    page.goto(index)
    expect(page.get_by_role("link", name="Scaling laws hold for models that train on a laptop")).to_be_visible()
    expect(page.locator("#filters")).to_be_hidden()
    context.close()
