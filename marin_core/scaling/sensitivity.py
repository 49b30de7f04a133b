"""How much of the loss law rests on single budgets and on how it was fitted. Each fit again, with what it forecasts."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from marin_core.scaling.errors import ScalingError
from marin_core.scaling.laws import LEAST_SQUARES_LOG, OBJECTIVES, LossLaw, Objective, fit_loss_law

# Both least-squares fits, since the law without its smallest budgets depends on which of them it is.
_DROPPED_UNDER = OBJECTIVES[:2]
_DROPPED = {1: "without the smallest budget", 2: "without the two smallest budgets"}


@dataclass(frozen=True)
class Refit:
    """The loss law fitted in another way. `law` is None where the rest does not determine one, and `problem` says
    why."""

    what: str
    left_out: tuple[float, ...]
    law: LossLaw | None
    problem: str | None = None

    def to_json(self) -> dict[str, Any]:
        law = self.law.to_json() if self.law else None
        return {"what": self.what, "left_out": list(self.left_out), "law": law, "problem": self.problem}

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "Refit":
        law = LossLaw.from_json(data["law"]) if data["law"] else None
        return cls(data["what"], tuple(data["left_out"]), law, data["problem"])


@dataclass(frozen=True)
class LeftOut:
    """One budget forecast by the others: its loss at the minimum (nats per token) and the law fitted without it."""

    flops: float
    loss: float
    refit: Refit

    @property
    def predicted(self) -> float | None:
        return self.refit.law.loss(self.flops) if self.refit.law else None

    @property
    def error_percent(self) -> float | None:
        """(actual - predicted) / predicted."""
        return None if self.predicted is None else 100 * (self.loss - self.predicted) / self.predicted

    def to_json(self) -> dict[str, Any]:
        return {
            "flops": self.flops,
            "loss": self.loss,
            "predicted_loss": self.predicted,
            "error_percent": self.error_percent,
            "refit": self.refit.to_json(),
        }

    @classmethod
    def from_json(cls, data: Mapping[str, Any]) -> "LeftOut":
        return cls(data["flops"], data["loss"], Refit.from_json(data["refit"]))


def leave_one_out(optima: Mapping[float, float]) -> list[LeftOut]:
    """The law without each budget of `optima` (budget -> optimal loss), budgets ascending."""
    return [LeftOut(c, optima[c], _refit(optima, "without one budget", (c,))) for c in sorted(optima)]


def sensitivity(optima: Mapping[float, float]) -> list[Refit]:
    """The law under every objective, without its smallest budgets, and without an offset; the law itself is first."""
    budgets = sorted(optima)
    fits = [_refit(optima, objective.name, (), objective) for objective in OBJECTIVES]
    for count, what in _DROPPED.items():
        fits += [_refit(optima, f"{what}, {o.name}", budgets[:count], o) for o in _DROPPED_UNDER]
    return [*fits, _refit(optima, "no offset (E = 0)", (), with_offset=False)]


def _refit(
    optima: Mapping[float, float],
    what: str,
    left_out: Sequence[float],
    objective: Objective = LEAST_SQUARES_LOG,
    *,
    with_offset: bool = True,
) -> Refit:
    rest = [c for c in sorted(optima) if c not in left_out]
    try:
        law = fit_loss_law(rest, [optima[c] for c in rest], with_offset=with_offset, objective=objective)
    except ScalingError as error:
        return Refit(what, tuple(left_out), None, str(error))
    return Refit(what, tuple(left_out), law)
