"""Token caches: what Levanter reads of what was written, and damage that the reader sees."""

import asyncio
import tempfile
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import fsspec
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from marin_core.data.tokens.cache import CacheReader, CacheWriter, Part, write_ledger
from marin_core.errors import MarinError
from marin_core.store import Workspace

FIELDS = ("input_ids", "assistant_masks")
Row = list[int]


@given(
    parts=st.lists(st.lists(st.lists(st.integers(0, 200_000), max_size=30), max_size=20), min_size=1, max_size=4),
    file_values=st.sampled_from([1, 8, 64, 1 << 25]),
    at_once=st.integers(1, 7),
)
@settings(deadline=None, max_examples=25)
def test_levanter_reads_every_row_back(parts: list[list[Row]], file_values: int, at_once: int) -> None:
    from levanter.store.cache import TreeCache

    with tempfile.TemporaryDirectory() as folder:
        workspace = workspace_in(folder)
        written = {
            f"part-{number}": write(workspace, f"train/part-{number}", rows, file_values, at_once)
            for number, rows in enumerate(parts)
        }
        write_ledger(workspace, "train", written, {"vocab_size": 200_001})
        cache: Any = TreeCache.load(workspace.path("train"), exemplar())
        rows = [row for part in parts for row in part]
        assert len(cache) == len(rows)
        for field in FIELDS:
            assert cache.flat_field_length(field) == sum(map(len, rows))
        if rows:
            read = cache.get_batch_sync(range(len(rows)))
            assert [each["input_ids"].tolist() for each in read] == rows
            assert [each["assistant_masks"].tolist() for each in read] == [[id_ % 2 for id_ in row] for row in rows]
        for name, each in zip(written, parts, strict=True):
            alone: Any = TreeCache.load(workspace.path("train", name), exemplar())
            assert [alone[number]["input_ids"].tolist() for number in range(len(alone))] == each


def test_sequences_run_on_across_documents_and_parts(tmp_path: Path) -> None:
    from levanter.data.text.datasets import TokenSeqDataset
    from levanter.store.cache import TreeCache

    workspace = workspace_in(str(tmp_path))
    parts = [[[1, 2, 3], [4, 5, 6, 7, 8]], [], [[9], [10, 11, 12, 13]]]
    written = {f"part-{n}": write(workspace, f"train/part-{n}", rows, 4) for n, rows in enumerate(parts)}
    write_ledger(workspace, "train", written, {})
    dataset = TokenSeqDataset(TreeCache.load(workspace.path("train"), exemplar()), 4)
    assert asyncio.run(dataset.async_len()) == 3
    sequences = asyncio.run(dataset.get_batch([2, 0, 1]))
    assert [each["input_ids"].tolist() for each in sequences] == [[9, 10, 11, 12], [1, 2, 3, 4], [5, 6, 7, 8]]


def test_zeros_are_data(tmp_path: Path) -> None:
    workspace = workspace_in(str(tmp_path))
    part = write(workspace, "part", [[0] * 10, [0] * 6], file_values=4)
    reader = CacheReader(workspace.fs, workspace.path("part"), FIELDS)
    assert reader.part == part
    assert reader.row("input_ids", 1).tolist() == [0] * 6


@pytest.mark.parametrize(
    "lost",
    [
        "input_ids/data/zarr.json",
        "input_ids/data/c/1",
        "input_ids/data/c/2",
        "input_ids/offsets/zarr.json",
        "input_ids/offsets/c/0",
        "assistant_masks/data/zarr.json",
    ],
)
def test_a_lost_file_is_a_one_line_error(tmp_path: Path, lost: str) -> None:
    workspace = workspace_in(str(tmp_path))
    write(workspace, "part", [[1, 2, 3], [4, 5, 6, 7, 8]], file_values=3)
    (tmp_path / "part" / lost).unlink()
    with pytest.raises(MarinError, match="check the disk and build the shards again") as refused:
        CacheReader(workspace.fs, workspace.path("part"), FIELDS)
    assert "\n" not in str(refused.value)


@pytest.mark.parametrize("damaged", ["input_ids/data/c/0", "input_ids/data/zarr.json", "input_ids/offsets/c/0"])
def test_a_file_that_was_cut_off_is_a_one_line_error(tmp_path: Path, damaged: str) -> None:
    workspace = workspace_in(str(tmp_path))
    write(workspace, "part", [[1, 2, 3], [4, 5, 6, 7, 8]])
    path = tmp_path / "part" / damaged
    path.write_bytes(path.read_bytes()[:-20])
    with pytest.raises(MarinError, match="check the disk and build the shards again") as refused:
        CacheReader(workspace.fs, workspace.path("part"), FIELDS).row("input_ids", 1)
    assert "\n" not in str(refused.value)


def test_writing_needs_neither_levanter_nor_jax(tmp_path: Path) -> None:
    import subprocess
    import sys

    script = (
        "import sys, fsspec, numpy as np\n"
        "import marin_core.data.tokens.shards\n"
        "from marin_core.data.tokens.cache import CacheWriter\n"
        "from marin_core.store import Workspace\n"
        "workspace = Workspace(sys.argv[1], fsspec.filesystem('file'), lambda: None)\n"
        "writer = CacheWriter(workspace, 'part', ['input_ids'])\n"
        "writer.append(np.array([2]), {'input_ids': np.array([1, 2], np.int32)})\n"
        "writer.close({})\n"
        "print(sorted({'jax', 'levanter', 'transformers', 'torch'} & set(sys.modules)))"
    )
    ran = subprocess.run([sys.executable, "-c", script, str(tmp_path)], capture_output=True, text=True, check=True)
    assert ran.stdout.strip() == "[]"


def write(workspace: Workspace, folder: str, rows: Sequence[Row], file_values: int = 1 << 25, at_once: int = 3) -> Part:
    """Write rows a few at a time; the mask of a token is whether it is odd."""
    writer = CacheWriter(workspace, folder, FIELDS, file_values)
    position = 0
    for start in range(0, len(rows), at_once):
        batch = rows[start : start + at_once]
        flat = np.array([id_ for row in batch for id_ in row], np.int32)
        lengths = np.array([len(row) for row in batch], np.int64)
        begins = writer.append(lengths, {"input_ids": flat, "assistant_masks": flat % 2})
        assert begins.tolist() == [position + int(lengths[:number].sum()) for number in range(len(batch))]
        position += len(flat)
    return writer.close({"vocab_size": 200_001})


def workspace_in(folder: str) -> Workspace:
    return Workspace(folder, fsspec.filesystem("file"), lambda: None)


def exemplar() -> dict[str, np.ndarray]:
    return {field: np.zeros((0,), np.int32) for field in FIELDS}
