"""Checks of the stages of a source, from its files to the documents that are tokenized."""

from collections.abc import Sequence

from marin_assets.checks.check import Check, Finding
from marin_assets.columns import TABLES, Table
from marin_assets.guards import STAGES_WITH_RETENTION, emptied, retention
from marin_assets.lab import Lab
from marin_assets.tables import parts_of, schema_of
from marin_core.graph.sources import SourceArtifacts
from marin_core.store import Artifact, ArtifactSpec

# Footers of more parts than these are not read, but of some throughout.
_MOST_FOOTERS = 32
_SHOWN = 3


def checks_of(made: SourceArtifacts, stage: str) -> Sequence[Check]:
    """The checks of a stage of a source."""
    if stage == "raw":
        return [FILES_ARE_COMPLETE]
    watched = stage in STAGES_WITH_RETENTION and made.source.role == "train"
    return [COLUMNS_ARE_THE_DECLARED_ONES, *([_retention(made.source.name, stage)] if watched else [])]


def _files_are_complete(lab: Lab, spec: ArtifactSpec) -> Finding:
    artifact = lab.store.artifact(spec)
    folder = f"{spec.name}/{spec.fingerprint}/"
    there = {path.removeprefix(folder): size for path, size in lab.store.objects.list(folder)}
    recorded = {entry.path: entry.size for entry in artifact.record.files}
    wrong = [path for path, size in recorded.items() if there.get(path) != size]
    numbers = {"files": len(recorded), "bytes": sum(recorded.values()), "wrong": len(wrong)}
    problem = f"{len(wrong)} of {len(recorded)} files are missing or of another size: {_some(wrong)}"
    return Finding(not wrong, numbers, problem if wrong else None)


def _columns_are_declared(lab: Lab, spec: ArtifactSpec) -> Finding:
    artifact = lab.store.artifact(spec)
    table = TABLES[spec.task]
    parts = _spread(parts_of(artifact.record, table.path))
    if not parts:
        return Finding(False, {"parts": 0}, f"there is no table under {table.path}")
    problems = [problem for part in parts if (problem := _schema_problem(artifact, table, part))]
    return Finding.of(problems[:_SHOWN], {"parts": len(parts), "columns": list(table.types)})


def _schema_problem(artifact: Artifact, table: Table, part: str) -> str | None:
    found = {field.name: str(field.type).removeprefix("large_") for field in schema_of(artifact, part)}
    expected = dict(table.types)
    if table.open:
        found = {name: found[name] for name in found if name in expected}
    return None if found == expected else f"{part} has the columns {_named(found)}; declared are {_named(expected)}"


def _retention(source: str, stage: str) -> Check:
    def look(lab: Lab, spec: ArtifactSpec) -> Finding:
        made = lab.graph.sources[source]
        kept, least = retention(made, stage, lab.store), made.source.curation.min_retention
        numbers = {"retention": kept, "min_retention": least}
        return Finding(kept >= least, numbers, emptied(made, stage, kept) if kept < least else None)

    return Check(
        "retention_is_above_threshold",
        "The stage kept at least the source's `min_retention` of its documents; else nothing that is made of it is "
        "built.",
        look,
        blocking=True,
    )


def _spread(parts: list[str]) -> list[str]:
    """All of them, or some throughout where there are many."""
    return parts[:: -(-len(parts) // _MOST_FOOTERS)] if parts else parts


def _named(columns: dict[str, str]) -> str:
    return ", ".join(f"{name} {kind}" for name, kind in columns.items()) or "none"


def _some(paths: Sequence[str]) -> str:
    return ", ".join(paths[:_SHOWN]) + (", …" if len(paths) > _SHOWN else "")


FILES_ARE_COMPLETE = Check(
    "files_are_complete", "Every file that was recorded is there, with the size that it had.", _files_are_complete
)
COLUMNS_ARE_THE_DECLARED_ONES = Check(
    "columns_are_the_declared_ones",
    "The table has the columns, of the types, that readers of the stage expect.",
    _columns_are_declared,
    blocking=True,
)
