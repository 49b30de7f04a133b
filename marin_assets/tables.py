"""The table of an artifact as Dagster metadata: columns with their meanings, of which columns they are made, rows. Read
from Parquet footers alone."""

from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING

import dagster as dg

from marin_assets.columns import TABLES, Table
from marin_assets.keys import asset_key
from marin_core.columns import column_of
from marin_core.errors import in_one_line
from marin_core.store import Artifact, ArtifactRecord, StoreError

if TYPE_CHECKING:
    import pyarrow as pa
    import pyarrow.parquet as pq

SUFFIX = ".parquet"
# More footers than these are not read to count rows.
_MOST_FOOTERS = 16


def table_metadata(artifact: Artifact) -> dict[str, dg.MetadataValue]:
    """What there is to say of the main table of an artifact; nothing if it has none."""
    record = artifact.record
    table = TABLES.get(str(record.payload["task"])) or TABLES.get(record.name)
    files = parts_of(record, table.path) if table else []
    if table is None or not files:
        return {}
    try:
        schema = schema_of(artifact, files[0])
        rows = _rows(artifact, table, files)
    except StoreError:
        # The asset's check says what is wrong with it.
        return {}
    columns = dg.MetadataValue.table_schema(_columns(table, schema))
    told: dict[str, dg.MetadataValue] = {"dagster/column_schema": columns}
    if origins := _lineage(table, record, schema.names):
        told["dagster/column_lineage"] = dg.MetadataValue.column_lineage(dg.TableColumnLineage(origins))
    if rows is not None:
        name = "dagster/partition_row_count" if record.partition else "dagster/row_count"
        told[name] = dg.MetadataValue.int(rows)
    return told


def parts_of(record: ArtifactRecord, path: str) -> list[str]:
    """The Parquet files at a path of an artifact: one file, or those of a folder, which ends with a slash."""
    files = [entry.path for entry in record.files if entry.path.endswith(SUFFIX)]
    return sorted(file for file in files if file == path or (path.endswith("/") and file.startswith(path)))


def schema_of(artifact: Artifact, path: str) -> "pa.Schema":
    """The schema of a Parquet file of an artifact.

    Raises:
        StoreError: it is not there, or has no footer.
    """
    return _footer(artifact, path).schema.to_arrow_schema()


def rows_of(artifact: Artifact, paths: list[str]) -> int:
    """The rows of Parquet files of an artifact.

    Raises:
        StoreError: one is not there, or has no footer.
    """
    return sum(_footer(artifact, path).num_rows for path in paths)


def _footer(artifact: Artifact, path: str) -> "pq.FileMetaData":
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        with artifact.open(path) as file:
            return pq.read_metadata(file)
    except pa.ArrowInvalid as error:
        reason = in_one_line(error)
        raise StoreError(
            f"{artifact.path(path)} is no Parquet file ({reason}); delete the folder {artifact.url} and materialize "
            f"{artifact.record.name} again"
        ) from None


def _rows(artifact: Artifact, table: Table, files: list[str]) -> int | None:
    if table.rows is not None:
        return int(artifact.record.summary[table.rows])
    return rows_of(artifact, files) if len(files) <= _MOST_FOOTERS else None


def _columns(table: Table, schema: "pa.Schema") -> dg.TableSchema:
    return dg.TableSchema([dg.TableColumn(f.name, str(f.type), _meaning(table, f.name)) for f in schema])


def _meaning(table: Table, column: str) -> str | None:
    if column in table.meanings:
        return table.meanings[column]
    described = column_of(column)
    if described is None:
        return None
    return f"{described.meaning} ({described.unit})" if described.unit else described.meaning


def _lineage(table: Table, record: ArtifactRecord, columns: Sequence[str]) -> Mapping[str, list[dg.TableColumnDep]]:
    found = {}
    for column in columns:
        copied = [(table.copies, column)] if table.copies else []
        origins = table.origins.get(column, copied)
        if deps := [dg.TableColumnDep(asset_key(n), c) for role, c in origins for n in _input_names(record, role)]:
            found[column] = deps
    return found


def _input_names(record: ArtifactRecord, origin: str) -> list[str]:
    """The inputs that have a role, one that begins with it and a slash, or a name."""
    found = [e.name for role, e in record.inputs.items() if origin in (role, e.name) or role.startswith(f"{origin}/")]
    return list(dict.fromkeys(found))
