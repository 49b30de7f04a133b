"""How what is published is called: models as in the public record (`delphi-3e18-447Mparams-1.2Btokens`), and tables."""

from marin_core.recipes import TrainPlan

_UNITS = ("", "K", "M", "B", "T")


def short_count(number: float) -> str:
    """A count with its decimal unit: one decimal below 100, none above, no trailing zero (`447M`, `1.2B`, `160B`)."""
    for unit in _UNITS:
        digits = 0 if number >= 99.95 or not unit else 1
        rounded = round(number, digits)
        if rounded < 1000 or unit == _UNITS[-1]:
            return f"{rounded:g}{unit}"
        number /= 1000
    raise AssertionError


def model_name(plan: TrainPlan) -> str:
    """The name of a run's model, without its namespace: recipe, budget in FLOPs, size and training tokens.

    The budget has one digit, as in the published names (1.8e19 FLOPs is `2e19` there); the model card has all of them.
    A seed other than 0 is named.
    """
    mantissa, exponent = f"{plan.flops:.0e}".split("e")
    size = f"{short_count(plan.params)}params-{short_count(plan.tokens)}tokens"
    return f"{plan.recipe}-{mantissa}e{int(exponent)}-{size}{f'-seed{plan.seed}' if plan.seed else ''}"


def dataset_name(recipe: str) -> str:
    """The name of the tables of a suite, without its namespace."""
    return f"{recipe}-figures"
