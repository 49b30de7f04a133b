"""The report of a suite: one Markdown document beside its figures."""

import polars as pl

from marin_core.build import Build, Outcome
from marin_core.scaling import law_sentence, verdict_sentence
from marin_core.scaling.report import Image, render_report
from marin_core.tasks.suite_tables import read_constants

REPORT = "report.md"


def write_report(build: Build) -> Outcome:
    """`report.md`, made from the artifacts that are its inputs, with copies of the figures."""
    constants = read_constants(build)
    verdict = build.input("verdict").read_json("verdict.json")
    evals = pl.read_parquet(build.input("evals").read("evals.parquet"))
    text = render_report(
        constants=constants,
        forecast=build.input("forecast").read_json("forecast.json"),
        heldout=build.input("heldout").read_json("heldout.json"),
        verdict=verdict,
        downstream=build.input("downstream").read_json("downstream.json"),
        evals=evals.filter(pl.col("kind") == "held-out").to_dicts(),
        images=_copy_figures(build),
    )
    with build.writer.open(REPORT) as file:
        file.write(text.encode())
    verdicts = {each["partition"]: verdict_sentence(each) for each in verdict["verdicts"]}
    return Outcome({"law": law_sentence(constants), "verdicts": verdicts, "lines": text.count("\n")})


def _copy_figures(build: Build) -> list[Image]:
    figures = build.input("figures")
    images = []
    for name in figures.record.summary["figures"]:
        with build.writer.open(f"{name}.png") as file:
            file.write(figures.read(f"{name}.png"))
        images.append(Image(name.replace("_", " "), f"{name}.png"))
    return images
