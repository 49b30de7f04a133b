"""What was found, in sentences. Logs, reports and pages say it in these words, so that a number has one origin and can
be compared with it."""

from collections.abc import Mapping, Sequence
from typing import Any

from marin_core.recipes import format_budget

type Json = Mapping[str, Any]


def law_sentence(constants: Json) -> str:
    """The loss law of a `scaling_law.json`."""
    law = constants["loss_law"]
    offset, exponent = constants["irreducible_interval"], constants["exponent_interval"]
    return (
        f"L(C) = {law['irreducible']:.4g} + {law['coefficient']:.4g} · C^-{law['exponent']:.4f} nats per token through "
        f"{len(constants['budgets'])} budgets (95 % intervals: offset {offset['low']:.4g} to {offset['high']:.4g}, "
        f"exponent {exponent['low']:.4f} to {exponent['high']:.4f})"
    )


def token_law_sentence(constants: Json) -> str:
    """The token law of a `scaling_law.json`."""
    law, interval = constants["token_law"], constants["token_exponent_interval"]
    return (
        f"D*(C) = {law['coefficient']:.4g} · C^{law['exponent']:.4f} tokens "
        f"(95 % interval of the exponent {interval['low']:.4f} to {interval['high']:.4f})"
    )


def forecast_sentence(forecast: Json) -> str:
    """One entry of a `forecast.json`."""
    interval = forecast["interval"]
    return (
        f"forecast for {format_budget(forecast['flops'])} FLOPs ({forecast['run']['cell']}): "
        f"{forecast['predicted_loss']:.4f} nats per token (95 % interval {interval['low']:.4f} to "
        f"{interval['high']:.4f})"
    )


def verdict_sentence(verdict: Json) -> str:
    """One entry of a `verdict.json`."""
    if verdict["actual_loss"] is None:
        return f"verdict: the held-out run {verdict['partition']} {verdict['run_status']}; there is no loss to compare"
    place = "inside" if verdict["inside_interval"] else "outside"
    return (
        f"verdict: predicted {verdict['predicted_loss']:.4f} for {verdict['partition']}, "
        f"happened {verdict['actual_loss']:.4f} "
        f"({verdict['error_percent']:+.2f} %), {place} the 95 % interval"
    )


def registration_sentence(registered: str, verdicts: Sequence[Json]) -> str:
    """When forecasts were registered, and the runs of a `verdict.json` that had begun by then."""
    late = [verdict["partition"] for verdict in verdicts if not verdict["registered_before_run"]]
    if not late:
        return f"The forecasts were registered at {registered}, before any of these runs began"
    others = "" if len(late) == len(verdicts) else "; the other runs began later"
    return (
        f"The forecasts were registered at {registered}, after some runs had begun, for which they are no forecasts: "
        f"{', '.join(late)}{others}"
    )


def task_sentence(evaluation: str, forecast: Json) -> str:
    """One entry of `forecasts` of a task in a `downstream.json`."""
    soft, hard = forecast["soft_interval"], forecast["hard_interval"]
    text = (
        f"{evaluation} at {format_budget(forecast['flops'])} FLOPs: soft metric {forecast['soft']:.4f} "
        f"(95 % interval {soft['low']:.4f} to {soft['high']:.4f})"
    )
    if hard is None:
        return text
    return f"{text}, score {forecast['hard']:.3f} ({hard['low']:.3f} to {hard['high']:.3f})"


def seed_spread_percent(verdicts: Sequence[Json]) -> dict[float, float]:
    """By budget with several seeds: largest minus smallest loss of its finished runs, in percent of their mean."""
    losses: dict[float, list[float]] = {}
    for verdict in verdicts:
        if verdict["actual_loss"] is not None:
            losses.setdefault(verdict["flops"], []).append(verdict["actual_loss"])
    return {c: 100 * (max(v) - min(v)) / (sum(v) / len(v)) for c, v in losses.items() if len(v) > 1}
