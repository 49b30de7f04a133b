"""Tries again what a network may have spoilt, for as long as it is worth while."""

from collections.abc import Callable
from dataclasses import dataclass

import tenacity

from marin_core.errors import MarinError

Log = Callable[[str], None]


class Interrupted(Exception):
    """What may be gone by the next try. `retry_after` is for how many seconds the other end asks to be left alone."""

    def __init__(self, cause: str, retry_after: float = 0.0):
        super().__init__(cause)
        self.retry_after = retry_after


@dataclass(frozen=True)
class Patience:
    """When to give up: after `attempts` in a row that brought nothing. Waits double from `first_wait` seconds on; a
    request to be left alone for longer than `longest_asked` seconds is not followed."""

    attempts: int = 6
    first_wait: float = 1.0
    longest_wait: float = 60.0
    longest_asked: float = 3600.0


@dataclass
class _Course:
    """Attempts in a row that brought nothing, and how far the best one came."""

    patience: Patience
    furthest: int
    fruitless: int = 0

    def note(self, reached: int) -> None:
        self.fruitless = 0 if reached > self.furthest else self.fruitless + 1
        self.furthest = max(reached, self.furthest)

    def wait(self, asked: float) -> float:
        return max(min(self.patience.first_wait * 2.0 ** max(self.fruitless - 1, 0), self.patience.longest_wait), asked)


def persist[T](
    attempt: Callable[[], T], what: str, patience: Patience, log: Log, reached: Callable[[], int] = lambda: 0
) -> T:
    """Call `attempt` until it raises no Interrupted. `reached` tells how many bytes are there by now: an attempt that
    brought some is not a fruitless one.

    Raises:
        MarinError: patience is at its end.
    """
    course = _Course(patience, reached())

    def stop(state: tenacity.RetryCallState) -> bool:
        course.note(reached())
        return course.fruitless >= patience.attempts or _asked(state) > patience.longest_asked

    def tell(state: tenacity.RetryCallState) -> None:
        log(f"{what}: {_error(state)}; next try in {state.upcoming_sleep:.0f} s")

    retrying = tenacity.Retrying(
        retry=tenacity.retry_if_exception_type(Interrupted),
        stop=stop,
        wait=lambda state: course.wait(_asked(state)),
        before_sleep=tell,
        reraise=True,
    )
    try:
        return retrying(attempt)
    except Interrupted as error:
        asked = error.retry_after > patience.longest_asked
        why = f"it asks to wait {error.retry_after:.0f} s" if asked else f"gave up after {course.fruitless} tries"
        raise MarinError(
            f"{what}: {error}; {why}. Files that are complete are kept: run the same command again to go on"
        ) from None


def _error(state: tenacity.RetryCallState) -> BaseException | None:
    return state.outcome.exception() if state.outcome else None


def _asked(state: tenacity.RetryCallState) -> float:
    return getattr(_error(state), "retry_after", 0.0)
