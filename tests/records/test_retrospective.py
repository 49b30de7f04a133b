"""The report of an experiment: what it says, and that what people wrote stays as they wrote it."""

import dataclasses
import re
from pathlib import Path
from typing import Any

import pytest

from marin_assets import experiments
from marin_assets.experiments.prose import prose_beside
from marin_core.graph.experiments import ExperimentArtifacts
from marin_core.records.experiment import Verdict
from marin_core.records.outcome import ExitClass, Outcome
from marin_core.records.verdicts import record_ruling, ruling_of
from tests.records.test_experiments import finish_arms, with_experiment
from tests.scaling.known_lab import KnownLab

PROSE = "We tried *this*.  \n\n### Why\n\n| a | b |\n|---|---|\n| {{ 1 }} | <b>é</b> |\n\n- it\t{% was %} so\n\n"
OOM = Outcome(
    "run-1",
    "checkpoints/delphi",
    "8e9-d0024-adamw",
    "failed",
    None,
    "2026-01-01T00:00:00+00:00",
    exit_class=ExitClass.OUT_OF_MEMORY,
    reason="the kernel killed it | at 2 GiB",
)


def report(lab: KnownLab, made: ExperimentArtifacts, *failed: Outcome) -> str:
    """As the asset makes it, with the verdict of now."""
    for spec in (made.registration, *([made.result] if made.result else [])):
        lab.build(spec)
    spec = made.retrospective(ruling_of(lab.store, made.experiment), failed)
    lab.build(spec)
    return lab.store.artifact(spec).read("retrospective.md").decode()


def tables(text: str) -> list[list[str]]:
    """The lines of each Markdown table."""
    return [block.splitlines() for block in text.split("\n\n") if block.startswith("|")]


@pytest.fixture
def lab(tmp_path: Path) -> KnownLab:
    return KnownLab(tmp_path)


@pytest.fixture(scope="module")
def reported(tmp_path_factory: pytest.TempPathFactory) -> tuple[KnownLab, ExperimentArtifacts, str]:
    """A comparison that went well, and its report. Tests must leave it as they find it."""
    lab = KnownLab(tmp_path_factory.mktemp("reported"))
    made = with_experiment(lab, prose="")
    lab.build(made.registration)
    finish_arms(lab, made)
    return lab, made, report(lab, made)


def test_what_is_registered_and_what_happened_stand_beside_each_other(
    reported: tuple[KnownLab, ExperimentArtifacts, str],
) -> None:
    lab, made, text = reported
    registered = lab.store.artifact(made.registration).record.provenance.ended
    experiment = made.experiment
    assert made.result
    result = lab.json(made.result, "result.json")
    folder = Path(lab.store.url(made.retrospective(ruling_of(lab.store, experiment))))
    for table in ("runs.parquet", "curves.parquet"):
        (link,) = re.findall(rf"\[{table}\]\((\S+)\)", text)
        assert (folder / link).is_file()
    assert text.startswith(f"# {experiment.title}\n")
    assert experiment.hypothesis in text
    assert (
        f"{experiment.forecast.sentence()} It came before the runs that it is about.\n\nRegistered {registered}."
        in text
    )
    assert f"adamh minus {result['second']}: **{result['difference']:+.4f}** in the mean of 3 of 3 pairs" in text
    for pair in result["pairs"]:
        losses = " | ".join(f"{pair['losses'][arm]:.4f}" for arm in made.runs)
        assert f"| {pair['cell']} | {losses} | {pair['difference']:.4f} |" in text
    for run in (run for runs in made.runs.values() for run in runs):
        (link,) = re.findall(rf"\[`{run.fingerprint}`\]\((\S+)\)", text)
        assert (folder / link).resolve() == Path(lab.store.url(run)) / "artifact.json"
    assert "dagster asset materialize --select 'experiments/adamh_against_adamw/*'" in text
    assert "No run of it diverged, and no attempt that failed is recorded." in text


def test_every_table_is_one(reported: tuple[KnownLab, ExperimentArtifacts, str]) -> None:
    """As many cells in each line as in its head, or it is shown as text."""
    found = tables(reported[2])
    assert len(found) == 3
    for lines in found:
        assert re.fullmatch(r"\|(:?-+:?\|)+", lines[1])
        assert {line.replace("\\|", "").count("|") for line in lines} == {lines[0].count("|")}


def test_figures_lie_beside_the_report(reported: tuple[KnownLab, ExperimentArtifacts, str]) -> None:
    lab, made, text = reported
    shown = re.findall(r"!\[[^]]+\]\(([^)]+)\)", text)
    assert shown == ["final_losses.png", "loss_curves.png"]
    spec = made.retrospective(ruling_of(lab.store, made.experiment))
    assert made.result
    for name in shown:
        assert lab.store.artifact(spec).read(name) == lab.store.artifact(made.result).read(name)


def test_failures_are_told(tmp_path: Path) -> None:
    id_ = "float16_throughout"
    keys = [str(run.partition) for run in with_experiment(KnownLab(tmp_path), id_).runs["float16"]]
    lab = KnownLab(tmp_path, diverged=tuple(keys))
    made = with_experiment(lab, id_)
    finish_arms(lab, made)
    text = report(lab, made, OOM)
    failed = text.split("## What failed\n")[1].split("\n## ")[0]
    assert all(f"[{key}] of float16" in failed for key in keys)
    assert f"checkpoints/delphi [{OOM.partition}]" in failed
    assert "out of memory. the kernel killed it \\| at 2 GiB" in failed
    assert f"record `{OOM.record}`" in failed
    recorded = dataclasses.replace(OOM, partition=keys[0], exit_class=ExitClass.DIVERGED, reason="loss is nan")
    again = report(lab, made, recorded).split("## What failed\n")[1].split("\n## ")[0]
    assert [again.count(f"[{key}]") for key in keys] == [1, 1]
    assert f"loss is nan (record `{recorded.record}`)" in again
    assert "In no pair did both float16 and float32 come to an end" in text
    assert "None" not in text


def test_a_forecast_after_the_runs_is_called_what_it_is(lab: KnownLab) -> None:
    made = with_experiment(lab)
    finish_arms(lab, made)
    assert "**It came after runs that it is about had begun**" in report(lab, made)


def test_a_forecast_between_the_runs_of_two_arms_says_of_which_it_came_first(lab: KnownLab) -> None:
    made = with_experiment(lab)
    first, *others = made.runs
    for run in made.runs[first]:
        lab.finish_run(str(run.partition), run)
    lab.build(made.registration)
    for run in (run for arm in others for run in made.runs[arm]):
        lab.finish_run(str(run.partition), run)
    said = f"It came before every run of {', '.join(others)}; runs of {first} were there already.\n\nRegistered"
    assert said in report(lab, made)


def test_prose_is_never_overwritten(lab: KnownLab, tmp_path: Path) -> None:
    """Not by a new verdict, a new run, or a failure: it is in each report byte for byte, its file untouched."""
    declaration, file = tmp_path / "some_experiment.py", tmp_path / "some_experiment.md"
    file.write_bytes(PROSE.encode())
    before = file.stat()
    made = with_experiment(lab, prose=prose_beside(str(declaration)))
    finish_arms(lab, made)
    reports = [report(lab, made)]
    record_ruling(lab.store, made.experiment.id, Verdict.PROMISING, "It looks good.", "somebody")
    reports.append(report(lab, made))
    reports.append(report(lab, made, OOM))
    # Other runs: the forecast is about other plans now.
    arms = made.experiment.arms
    assert arms

    def longer(ladder: Any) -> Any:
        return {arm: [dataclasses.replace(plan, seed=7) for plan in plans] for arm, plans in arms(ladder).items()}

    again = with_experiment(lab, prose=prose_beside(str(declaration)), arms=longer)
    finish_arms(lab, again)
    reports.append(report(lab, again))
    assert len(set(reports)) == 4
    assert all(text.count(PROSE) == 1 for text in reports)
    assert (file.read_bytes(), file.stat().st_mtime_ns) == (PROSE.encode(), before.st_mtime_ns)


def test_a_later_verdict_is_in_a_later_report_and_the_earlier_stays(lab: KnownLab) -> None:
    made = with_experiment(lab)
    finish_arms(lab, made)
    earlier = made.retrospective(ruling_of(lab.store, made.experiment))
    first = report(lab, made)
    record_ruling(lab.store, made.experiment.id, Verdict.DID_NOT_WORK, "Worse | in all.", "ada")
    second = report(lab, made)
    assert "**Did not work.** Worse | in all." in second
    assert "(Verdict of ada, " in second
    assert lab.store.artifact(earlier).read("retrospective.md").decode() == first


def test_where_the_runs_belong_to_another_lab_there_is_still_a_report(lab: KnownLab) -> None:
    made = with_experiment(lab, "delphi")
    assert made.result is None
    text = report(lab, made)
    assert "Nothing here: its runs belong to the profile delphi." in text
    assert "<https://github.com/marin-community/marin/issues/1337>" in text
    assert "dagster asset materialize --select 'delphi/*'" in text


@pytest.mark.slow
def test_a_suite_s_report_has_its_verdicts_its_runs_and_its_figures(tmp_path: Path) -> None:
    lab = KnownLab(tmp_path)
    made = with_experiment(lab, "laptop_ladder")
    lab.build(made.registration)
    lab.build_laws()
    lab.build_rest()
    text = report(lab, made)
    assert made.result
    verdicts = lab.json(made.result, "result.json")["verdicts"]
    inside = sum(bool(verdict["inside_interval"]) for verdict in verdicts)
    assert f"{inside} of {len(verdicts)} held-out runs ended inside the interval" in text
    for verdict in verdicts:
        assert f"| {verdict['partition']} | {verdict['predicted_loss']:.4f} |" in text
    assert all(f"| {key} | [`{cell.fingerprint}`]" in text for key, cell in lab.graph.cells.items())
    assert "![isoflop](isoflop.png)" in text
    # The made-up ladder has one run without a loss.
    assert "diverged after" in text.split("## What failed")[1]


def test_prose_of_every_experiment_stands_beside_it() -> None:
    folder = Path(experiments.__file__).parent
    assert {file.stem for file in folder.glob("*.md")} <= {experiment.id for experiment in experiments.EXPERIMENTS}
    for experiment in experiments.EXPERIMENTS:
        assert experiment.prose == prose_beside(str(folder / f"{experiment.id}.py"))
