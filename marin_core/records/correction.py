"""Corrections of outcomes: a new record that stands in the place of one, which stays."""

import dataclasses
from collections.abc import Sequence

from marin_core.errors import MarinError
from marin_core.records.committed import record_spec
from marin_core.records.outcome import ExitClass, Outcome
from marin_core.records.outcomes import RUNS, correction_config
from marin_core.store import Provenance, Store

STATUSES = SUCCEEDED, FAILED, CANCELLED = ("succeeded", "failed", "cancelled")


def correction(
    wrong: Outcome, *, exit_class: ExitClass | None, status: str | None, reason: str | None, note: str
) -> Outcome:
    """The outcome to record in the place of `wrong`. What is None stays, but a class implies a status and a status
    that succeeded has none. The times stay those of the run; when and by whom it was corrected is in the provenance of
    the correction's own artifact.

    Raises:
        MarinError: class and status contradict each other, or nothing would change.
    """
    new_status = status or _implied(exit_class, wrong)
    new_class = exit_class or _class_kept(new_status, wrong)
    _check(new_status, new_class)
    corrected = dataclasses.replace(
        wrong,
        status=new_status,
        exit_class=new_class,
        reason=wrong.reason if reason is None else reason,
        corrects=wrong.record,
        note=note,
    )
    if (corrected.status, corrected.exit_class, corrected.reason) == (wrong.status, wrong.exit_class, wrong.reason):
        raise MarinError(f"record {wrong.record} says that already; give another --class, --status or --reason")
    return corrected


def history(outcomes: Sequence[Outcome], outcome: Outcome) -> list[Outcome]:
    """An outcome with all that it corrects and all that corrects it, in order of correction."""
    by_record = {one.record: one for one in outcomes}
    corrected_by = {one.corrects: one for one in outcomes if one.corrects}
    first = outcome
    while first.corrects in by_record:
        first = by_record[first.corrects]
    chain = [first]
    while chain[-1].record in corrected_by:
        chain.append(corrected_by[chain[-1].record])
    return chain


def said(store: Store, outcome: Outcome) -> Provenance | None:
    """When, by whom and with which command a correction was made; None of what is none."""
    if outcome.corrects is None:
        return None
    spec = record_spec(RUNS, correction_config(outcome))
    record = store.record(spec.name, spec.fingerprint)
    return record.provenance if record else None


def _implied(exit_class: ExitClass | None, wrong: Outcome) -> str:
    if exit_class is None:
        return wrong.status
    return CANCELLED if exit_class is ExitClass.CANCELLED else FAILED


def _class_kept(status: str, wrong: Outcome) -> ExitClass | None:
    """The class where none is given: only what failed can have one of several."""
    if status == FAILED:
        return wrong.exit_class
    return ExitClass.CANCELLED if status == CANCELLED else None


def _check(status: str, exit_class: ExitClass | None) -> None:
    if status == SUCCEEDED and exit_class is not None:
        raise MarinError(f"what succeeded has no class, but {exit_class.value!r} was given; leave out --class")
    if status == FAILED and exit_class in (None, ExitClass.CANCELLED):
        raise MarinError("what failed has a class other than 'cancelled'; give one with --class")
    if status == CANCELLED and exit_class is not ExitClass.CANCELLED:
        raise MarinError("what was cancelled has the class 'cancelled'; leave out --class, or say --status failed")
