"""Outcomes in the store: one artifact `records/runs` for each run that ended, a Parquet file in each, append-only.

To read a hundred thousand of them file by file would take minutes: `records/outcomes` artifacts hold all there were at
a time in one table, and only what came later is read beside the newest of those.
"""

import io
import json
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor

from marin_core.errors import MarinError
from marin_core.records.committed import commit_record, record_spec
from marin_core.records.outcome import Outcome
from marin_core.store import ArtifactRecord, ArtifactSpec, Store, StoreError
from marin_core.store.spec import canonical_json, digest

RUNS = "records/runs"
TABLE = "records/outcomes"
_FILE = "outcomes.parquet"
_HOLDS = "holds.json"
_PARALLEL_READS = 16


def record_run(store: Store, dagster_run: str, outcomes: Sequence[Outcome]) -> ArtifactRecord:
    """Record what a Dagster run came to. The first to say so counts; to say it again changes nothing."""
    return _commit(store, {"dagster_run": dagster_run}, outcomes)


def record_correction(store: Store, outcome: Outcome, command: str | None = None) -> ArtifactRecord:
    """Record an outcome that stands in the place of an earlier one, which it names in `corrects`.

    Raises:
        MarinError: somebody else corrected that one meanwhile, and said something else.
    """
    record = _commit(store, correction_config(outcome), [outcome], command)
    if _parsed(store.opened(record).read(_FILE)) != [outcome]:
        raise MarinError(
            f"record {outcome.corrects} was corrected meanwhile by {record.provenance.user}, and your correction was "
            f"not written; see `marin records show {outcome.record}`, and correct that one"
        )
    return record


def correction_config(outcome: Outcome) -> dict[str, str | None]:
    """What identifies the artifact of a correction."""
    return {"corrects": outcome.corrects, "record": outcome.record}


def read_outcomes(store: Store) -> list[Outcome]:
    """Every outcome that was ever recorded, in the order of their ends, a corrected one before its corrections."""
    return _in_order(_read(store, store.fingerprints(RUNS)))


def valid_outcomes(outcomes: Sequence[Outcome]) -> list[Outcome]:
    """Those that no later one corrects."""
    corrected = {outcome.corrects for outcome in outcomes if outcome.corrects}
    return [outcome for outcome in outcomes if outcome.record not in corrected]


def table_spec(store: Store) -> ArtifactSpec:
    """The table of everything that is recorded at this moment."""
    return record_spec(TABLE, {"holds": digest(canonical_json(store.fingerprints(RUNS)))})


def commit_table(store: Store) -> ArtifactRecord:
    """Put all outcomes in one table, for whoever reads them next."""
    holds = store.fingerprints(RUNS)
    outcomes = _in_order(_read(store, holds))
    failed = sum(outcome.status != "succeeded" for outcome in valid_outcomes(outcomes))
    return commit_record(
        store,
        TABLE,
        {"holds": digest(canonical_json(holds))},
        {_FILE: _parquet(outcomes), _HOLDS: json.dumps(holds).encode()},
        {"records": len(outcomes), "runs": len(holds), "failed": failed},
    )


def _commit(
    store: Store, config: dict[str, str | None], outcomes: Sequence[Outcome], command: str | None = None
) -> ArtifactRecord:
    failed = sum(outcome.status != "succeeded" for outcome in outcomes)
    summary = {"records": len(outcomes), "failed": failed}
    return commit_record(store, RUNS, config, {_FILE: _parquet(outcomes)}, summary, command)


def _in_order(outcomes: Sequence[Outcome]) -> list[Outcome]:
    # A run that was recorded while a table was put together may stand in it and be read beside it.
    once = {outcome.record: outcome for outcome in outcomes}
    return sorted(once.values(), key=lambda outcome: (outcome.ended, outcome.corrects is not None, outcome.record))


def _read(store: Store, fingerprints: Sequence[str]) -> list[Outcome]:
    """The outcomes of these `records/runs`, and of all in the newest table."""
    tables = store.records(TABLE)
    held: set[str] = set()
    outcomes: list[Outcome] = []
    if tables:
        newest = store.committed(TABLE, tables[-1].fingerprint)
        held = set(newest.read_json(_HOLDS))
        outcomes = _parsed(newest.read(_FILE))
    later = [fingerprint for fingerprint in fingerprints if fingerprint not in held]
    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        for found in pool.map(lambda fingerprint: _of_run(store, fingerprint), later):
            outcomes += found
    return outcomes


def _of_run(store: Store, fingerprint: str) -> list[Outcome]:
    """
    Raises:
        StoreError: the file is gone or damaged.
    """
    artifact = store.committed(RUNS, fingerprint)
    try:
        return _parsed(artifact.read(_FILE))
    except StoreError:
        raise StoreError(
            f"{artifact.path(_FILE)} is gone or damaged; restore it from a copy, or delete the folder {artifact.url} "
            f"and materialize {TABLE}, which records the run anew if Dagster still knows it"
        ) from None


def _parquet(outcomes: Sequence[Outcome]) -> bytes:
    import polars as pl

    text, number = pl.String, pl.Float64
    schema = {
        "record": text,
        "dagster_run": text,
        "asset": text,
        "partition": text,
        "status": text,
        "began": text,
        "ended": text,
        "fingerprint": text,
        "exit_class": text,
        "reason": text,
        "last_step": pl.Int64,
        "steps": pl.Int64,
        "loss": number,
        "log_tail": pl.List(text),
        "commit": text,
        "dirty": pl.Boolean,
        "command": text,
        "user": text,
        "host": text,
        "profile": text,
        "pool": text,
        "wandb_url": text,
        "chip_hours": number,
        "preemptions": pl.Int64,
        "failures": pl.Int64,
        "corrects": text,
        "note": text,
    }
    file = io.BytesIO()
    pl.DataFrame([outcome.to_json() for outcome in outcomes], schema=schema).write_parquet(file)
    return file.getvalue()


def _parsed(data: bytes) -> list[Outcome]:
    import polars as pl

    return [Outcome.from_json(row) for row in pl.read_parquet(io.BytesIO(data)).iter_rows(named=True)]
