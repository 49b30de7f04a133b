"""What a publication may replace: what a lab published under the same name before, of the same checkpoint."""

import json

from marin_core.errors import MarinError
from marin_core.publishing.repository import MAIN, Repository

# What the hub itself puts into a new repository: which files are large ones.
OF_THE_HUB = (".gitattributes",)
# Every publication has a branch of its own, which stays.
BRANCHES = "artifact-"
EXPORT = "export.json"


def check_replaceable(repository: Repository, checkpoint: str | None) -> None:
    """`checkpoint` is the fingerprint of the checkpoint that is to be published, None of what is no model.

    Raises:
        MarinError: `main` has files and no lab has published here, or its model is of another checkpoint: the names of
            models say recipe, budget and size, which runs on other data have in common.
    """
    there = [path for path in repository.files(MAIN) if path not in OF_THE_HUB]
    if not there:
        return
    if not any(branch.startswith(BRANCHES) for branch in repository.branches()):
        raise MarinError(
            f"{repository.url} has files that no lab published ({there[0]} and {len(there) - 1} more); they would be "
            f"replaced: give another namespace in [place.hub], or empty {MAIN} there first"
        )
    if checkpoint is None or EXPORT not in there:
        return
    if (found := _checkpoint_of(repository.read(MAIN, EXPORT))) != checkpoint:
        raise MarinError(
            f"{repository.url} has the model of checkpoint {found}, to be published is checkpoint {checkpoint} of the "
            f"same name; it would be replaced: give another namespace in [place.hub], or empty {MAIN} there first"
        )


def _checkpoint_of(export: bytes) -> str:
    try:
        return json.loads(export)["checkpoint"]["fingerprint"]
    except (ValueError, LookupError, TypeError):
        return f"unknown (its {EXPORT} names none)"
