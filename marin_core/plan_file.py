"""A TrainPlan in a file of its own, to be looked at, changed, and trained."""

import json
from pathlib import Path

from marin_core.errors import MarinError
from marin_core.recipes import TrainPlan


def read_plan(path: str) -> TrainPlan:
    """The plan of a file that `write_plan` made.

    Raises:
        MarinError: there is no such file, or what it holds is no plan.
    """
    if not path:
        raise MarinError("no plan is given; write one with `marin recipe BUDGET --optimal --out plan.json` and name it")
    try:
        return TrainPlan.from_json(json.loads(Path(path).read_text()))
    except OSError as error:
        raise MarinError(f"the plan {path} cannot be read: {error.strerror}") from None
    except (ValueError, TypeError, KeyError, AttributeError) as error:
        raise MarinError(
            f"{path} holds no complete plan ({error}); write one with `marin recipe BUDGET --optimal --out {path}`"
        ) from None


def write_plan(plan: TrainPlan, path: str, *, force: bool = False) -> None:
    """Write a plan, whole or not at all.

    Raises:
        MarinError: the file holds something else, and `force` is not given; or it cannot be written.
    """
    file = Path(path)
    text = json.dumps(plan.to_json(), indent=2) + "\n"
    partial = file.with_name(f".{file.name}.partial")
    try:
        if file.exists() and not force and file.read_text() != text:
            raise MarinError(f"{path} holds something else; give --force to replace it, or another name")
        partial.write_text(text)
        partial.replace(file)
    except (OSError, UnicodeDecodeError) as error:
        partial.unlink(missing_ok=True)
        raise MarinError(f"the plan cannot be written to {path}: {error}") from None
