"""What a person sees and does in the web UI, in a real browser on a real `dagster dev`."""

import os
import re
import shutil
import signal
import socket
import subprocess
import time
import urllib.request
from collections.abc import Iterator

import dagster as dg
import pytest
from playwright.sync_api import Browser, Page, expect, sync_playwright

from marin_core.graph import LabGraph
from marin_core.profile import load_profile
from marin_core.store import Store
from tests.conftest import REPOSITORY, TINY_PROFILE, LabEnvironment
from tests.records.failures import DIVERGED, run_that_diverges
from tests.screenshots import screenshot

CHROMIUM = shutil.which("chromium") or shutil.which("chromium-browser") or shutil.which("google-chrome")
pytestmark = [
    pytest.mark.slow,
    pytest.mark.skipif(CHROMIUM is None, reason="no Chromium on this machine (Debian: apt-get install chromium)"),
]
FLAGS = ["--no-sandbox", "--disable-gpu", "--disable-background-networking", "--disable-component-update"]
PATIENCE = 60_000  # milliseconds; a loaded machine takes its time


def free_port() -> int:
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", 0))
        return listener.getsockname()[1]


@pytest.fixture(scope="module")
def lab(finished_lab: LabEnvironment, tmp_path_factory: pytest.TempPathFactory) -> LabEnvironment:
    folder = tmp_path_factory.mktemp("web") / "lab"
    shutil.copytree(finished_lab.folder, folder, ignore=shutil.ignore_patterns("logs", "scratch"))
    return LabEnvironment(folder)


@pytest.fixture(scope="module")
def address(lab: LabEnvironment) -> Iterator[str]:
    """`dagster dev` on the lab's instance."""
    port = free_port()
    with (lab.folder / "dev.log").open("w") as log:
        server = subprocess.Popen(
            ["dagster", "dev", "-p", str(port)],
            cwd=REPOSITORY,
            env=lab.variables,
            stdout=log,
            stderr=log,
            start_new_session=True,
        )
    url = f"http://127.0.0.1:{port}"
    deadline = time.monotonic() + 120
    while True:
        try:
            urllib.request.urlopen(f"{url}/server_info", timeout=5).read()
            break
        except OSError:
            assert server.poll() is None, (lab.folder / "dev.log").read_text()
            assert time.monotonic() < deadline
            time.sleep(0.5)
    yield url
    os.killpg(server.pid, signal.SIGKILL)
    server.wait()


@pytest.fixture(scope="module")
def browser() -> Iterator[Browser]:
    with sync_playwright() as playwright:
        opened = playwright.chromium.launch(executable_path=CHROMIUM, args=FLAGS)
        yield opened
        opened.close()


@pytest.fixture
def page(browser: Browser) -> Iterator[Page]:
    opened = browser.new_page(viewport={"width": 1500, "height": 1100})
    opened.set_default_timeout(PATIENCE)
    yield opened
    opened.close()


def test_the_suite_is_drawn_as_a_graph(page: Page, address: str) -> None:
    page.goto(f"{address}/locations/marin_assets.definitions/asset-groups/delphi/lineage")
    for name in ("recipe", "suite", "isoflop", "heldout", "verdict"):
        expect(page.get_by_text(name, exact=True).first).to_be_visible(timeout=PATIENCE)
    screenshot(page, "dagster-lineage-of-the-suite")


def test_the_figures_are_shown_as_images(page: Page, address: str) -> None:
    page.goto(f"{address}/assets/delphi/figures")
    page.get_by_text("[Show Markdown]").first.click()
    image = page.locator("img[alt=isoflop]")
    expect(image).to_be_visible(timeout=PATIENCE)
    assert image.evaluate("element => element.complete && element.naturalWidth > 300")
    screenshot(page, "dagster-figure")


def test_a_table_has_columns_rows_tags_and_a_way_to_its_code(page: Page, address: str) -> None:
    page.goto(f"{address}/assets/curated/code?view=overview")
    for text in ("Columns", "the document, normalized", "Row count", "source: code"):
        expect(page.get_by_text(text, exact=True).first).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_role("link", name="curate in editor")).to_be_visible(timeout=PATIENCE)
    screenshot(page, "dagster-table")
    page.goto(f"{address}/assets/curated/code?view=lineage&column=text")
    expect(page.get_by_text("normalized", exact=False).first).to_be_visible(timeout=PATIENCE)


def test_a_verdict_s_numbers_and_its_check_are_on_its_page(page: Page, address: str) -> None:
    page.goto(f"{address}/assets/delphi/verdict")
    for text in ("predicted_loss", "actual_loss", "inside_interval", "registered_before_runs", "fingerprint"):
        expect(page.get_by_text(text, exact=True).first).to_be_visible(timeout=PATIENCE)
    page.goto(f"{address}/assets/delphi/verdict?view=checks")
    expect(page.get_by_text("forecast_came_first").first).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_text("Passed").first).to_be_visible(timeout=PATIENCE)
    screenshot(page, "dagster-check-of-the-verdict")


def test_the_lineage_leads_from_the_verdict_to_the_raw_sources(page: Page, address: str) -> None:
    page.goto(f"{address}/assets/delphi/verdict?view=lineage&lineageScope=upstream&lineageDepth=20")
    for name in ("heldout", "forecast", "scaling_law"):
        expect(page.get_by_text(name, exact=False).first).to_be_visible(timeout=PATIENCE)


def test_one_cell_is_trained_from_the_ui(page: Page, address: str, lab: LabEnvironment) -> None:
    key, spec = list(LabGraph.of(load_profile(str(TINY_PROFILE))).cells.items())[-1]
    shutil.rmtree(lab.store / spec.name / spec.fingerprint)
    page.goto(f"{address}/assets/checkpoints/delphi?view=partitions")
    page.get_by_role("button", name="Materialize").first.click()
    page.get_by_text("Select a partition or create one").click()
    # Once in the list of partitions behind the dialog, once in the dialog's own.
    page.get_by_text(key, exact=True).locator("visible=true").nth(1).click()
    page.keyboard.press("Escape")
    page.get_by_role("button", name="Launch 1 run").click()
    deadline = time.monotonic() + 240
    while Store(str(lab.store)).record(spec.name, spec.fingerprint) is None:
        assert time.monotonic() < deadline
        time.sleep(1)
    instance = dg.DagsterInstance.from_config(str(lab.folder / "dagster"))
    event = instance.get_latest_materialization_event(dg.AssetKey(["checkpoints", "delphi"]))
    assert event and event.asset_materialization
    assert event.asset_materialization.partition == key
    page.goto(f"{address}/assets/checkpoints/delphi?view=partitions&partition={key}")
    for text in ("eval_loss", "chip_hours", spec.fingerprint):
        expect(page.get_by_text(text, exact=True).first).to_be_visible(timeout=PATIENCE)
    expect(page.get_by_text(f"{lab.store}/checkpoints/delphi/{spec.fingerprint}", exact=True).first).to_be_visible()
    screenshot(page, "dagster-partition")
    page.goto(f"{address}/assets/checkpoints/delphi?view=checks")
    for check in ("loss_is_finite", "final_step_is_reached", "Passed"):
        expect(page.get_by_text(check).first).to_be_visible(timeout=PATIENCE)
    screenshot(page, "dagster-checks-of-a-run")


def test_a_failed_run_says_why(page: Page, address: str, lab: LabEnvironment) -> None:
    run_that_diverges(lab, DIVERGED)
    with dg.DagsterInstance.from_config(str(lab.folder / "dagster")) as instance:
        (run, *_) = instance.get_runs(dg.RunsFilter(statuses=[dg.DagsterRunStatus.FAILURE]), limit=1)
    page.goto(f"{address}/runs")
    page.get_by_text(run.run_id[:8]).first.click()
    page.wait_for_url(f"**/runs/{run.run_id}*")
    reason = re.compile(rf"{DIVERGED}.* diverged at step \d+: the loss is no number")
    expect(page.get_by_text(reason).first).to_be_visible(timeout=PATIENCE)
    screenshot(page, "dagster-failed-run")
    page.goto(f"{address}/assets/checkpoints/delphi?view=checks&checkDetail=loss_is_finite")
    expect(page.get_by_text("Failed").first).to_be_visible(timeout=PATIENCE)
