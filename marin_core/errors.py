"""The one base class of errors that a person is meant to read."""

import errno


class MarinError(Exception):
    """A condition with a known cause. The message is one line: what was found, what was expected, what to do next."""


def disk_full_message(error: OSError, place: str) -> str | None:
    """The one-line text for an out-of-space error while writing to `place`, None for any other `OSError`."""
    if error.errno in (errno.ENOSPC, errno.EDQUOT):
        return f"disk full while writing {error.filename or place}; free some space or set MARIN_STORE to another disk"
    return None


def in_one_line(error: BaseException) -> str:
    """What a person reads of any error: the message of one that is meant for people, else its kind as well."""
    said = str(error) if isinstance(error, MarinError) else f"{type(error).__name__}: {error}"
    return " ".join(said.split())
