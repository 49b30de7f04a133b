"""A store that may not answer."""

import threading

from marin_core.errors import MarinError
from marin_core.profile.load import UNSET_STORE
from marin_core.store import ArtifactSpec, Store

# A client library of a cloud store tries for minutes before it says that nothing answers.
_PATIENCE_SECONDS = 10.0


def reached(root: str, spec: ArtifactSpec) -> Store | str:
    """The store, or why it does not answer when it is asked for an artifact."""
    if root == UNSET_STORE:
        return "no store is set; set MARIN_STORE, or store in [place]"
    answers: list[Store | str] = []

    def ask() -> None:
        try:
            store = Store(root)
            store.record(spec.name, spec.fingerprint)
            answers.append(store)
        except MarinError as error:
            answers.append(str(error))

    # A daemon, because the client library may go on trying and must not keep the command from ending.
    thread = threading.Thread(target=ask, daemon=True)
    thread.start()
    thread.join(_PATIENCE_SECONDS)
    return answers[0] if answers else f"store {root} did not answer within {_PATIENCE_SECONDS:g} s"
