"""Asset checks: what holds when they pass. Each is reported by the asset that it is about."""

from collections.abc import Callable, Sequence
from typing import Any

import dagster as dg

from marin_assets.guards import emptied, retention
from marin_assets.keys import asset_key
from marin_assets.lab import Lab
from marin_core.graph.experiments import ExperimentArtifacts
from marin_core.store import ArtifactSpec


def runs_are_finite(asset: str) -> dg.AssetCheckSpec:
    return dg.AssetCheckSpec("runs_are_finite", asset=asset_key(asset), description="No run of the suite diverged.")


def minima_are_inside_the_grid(asset: str) -> dg.AssetCheckSpec:
    return dg.AssetCheckSpec(
        "minima_are_inside_the_grid",
        asset=asset_key(asset),
        description="Every budget has a convex curve with its minimum among its runs; others stay out of the laws.",
    )


def forecast_came_first(asset: str) -> dg.AssetCheckSpec:
    return dg.AssetCheckSpec(
        "forecast_came_first",
        asset=asset_key(asset),
        description="The forecast was registered before any of the held-out runs began.",
    )


def retention_is_above_threshold(asset: str) -> dg.AssetCheckSpec:
    return dg.AssetCheckSpec(
        "retention_is_above_threshold",
        asset=asset_key(asset),
        description="The stage kept at least the source's `min_retention` of its documents; else nothing that is made "
        "of it is built.",
        blocking=True,
    )


def check_retention(source: str, stage: str) -> Callable[[Lab], Sequence[dg.AssetCheckResult]]:
    """A blocking failure where a stage lost more of a source than its declaration allows."""

    def check(lab: Lab) -> Sequence[dg.AssetCheckResult]:
        made = lab.graph.sources[source]
        kept, least = retention(made, stage, lab.store), made.source.curation.min_retention
        return [
            dg.AssetCheckResult(
                check_name="retention_is_above_threshold",
                passed=kept >= least,
                severity=dg.AssetCheckSeverity.ERROR,
                metadata={"retention": kept, "min_retention": least},
                description=emptied(made, stage, kept) if kept < least else None,
            )
        ]

    return check


def evaluations_succeeded(asset: str) -> dg.AssetCheckSpec:
    return dg.AssetCheckSpec(
        "evaluations_succeeded",
        asset=asset_key(asset),
        description="No evaluation of the model failed, by itself or for want of something that it needs.",
    )


def check_evals(lab: Lab, evaluated: ArtifactSpec) -> Sequence[dg.AssetCheckResult]:
    summary = _summary(lab, evaluated)
    failed = {status: summary[status] for status in ("failed", "infra_failed") if summary[status]}
    return [_warning("evaluations_succeeded", not failed, failed)]


def check_suite(lab: Lab) -> Sequence[dg.AssetCheckResult]:
    diverged = _summary(lab, lab.graph.suite)["diverged"]
    return [_warning("runs_are_finite", not diverged, {"diverged": diverged})]


def check_isoflop(lab: Lab) -> Sequence[dg.AssetCheckResult]:
    flagged = _summary(lab, lab.graph.isoflop)["flagged"]
    return [_warning("minima_are_inside_the_grid", not flagged, {"left_out": flagged})]


def check_verdict(lab: Lab) -> Sequence[dg.AssetCheckResult]:
    verdicts = lab.store.artifact(lab.graph.verdict).read_json("verdict.json")["verdicts"]
    late = [verdict["partition"] for verdict in verdicts if not verdict["registered_before_run"]]
    found = f"The forecast was registered after these runs had begun: {', '.join(late)}." if late else None
    return [_warning("forecast_came_first", not late, {"began_before_forecast": late}, found)]


def check_experiment(lab: Lab, made: ExperimentArtifacts) -> Sequence[dg.AssetCheckResult]:
    assert made.result is not None
    first = bool(_summary(lab, made.result)["registered_before_runs"])
    return [_warning("forecast_came_first", first, {"registered_before_runs": first})]


def _summary(lab: Lab, spec: ArtifactSpec) -> dict[str, Any]:
    return dict(lab.store.artifact(spec).record.summary)


def _warning(name: str, passed: bool, metadata: dict[str, Any], found: str | None = None) -> dg.AssetCheckResult:
    severity = dg.AssetCheckSeverity.WARN
    return dg.AssetCheckResult(check_name=name, passed=passed, severity=severity, metadata=metadata, description=found)
