"""The raw artifact of a source: its files as they are, and a manifest of where each came from.

First one item lists the files, then all ranks share fetching them, a file an item. What is written:
`files/<path>`, and `manifest.json` = `{"revision", "files": [{"path", "origin", "bytes", "sha256"}]}`.
"""

import contextlib
import hashlib
import io
import json
import tempfile
import time
from collections.abc import Iterator, Sequence
from functools import cached_property
from pathlib import Path

from marin_core.data.sources.declaration import FolderOrigin, HubOrigin, InstalledOrigin, Source, UrlOrigin
from marin_core.data.sources.fetch import list_urls, open_remote
from marin_core.data.sources.folder import list_folder
from marin_core.data.sources.hub import hub_remote, list_hub
from marin_core.data.sources.installed import read_installed
from marin_core.data.sources.listing import ListedFile, Listing
from marin_core.data.sources.patience import Log, Patience
from marin_core.data.sources.remote import Remote
from marin_core.data.sources.transfer import human, transfer
from marin_core.data.stages import Counts, Phase, Stage
from marin_core.errors import MarinError
from marin_core.store import Workspace

MANIFEST = "manifest.json"
_LISTING = "listing.json"
_INSTALLED = "documents.parquet"


def acquire_stage(source: Source, workspace: Workspace, log: Log, patience: Patience | None = None) -> Stage:
    """List the files of a source, fetch them, write the manifest.

    Items raise MarinError: the origin cannot be reached, refuses, has no such file, or sends another than it said.
    """
    acquisition = _Acquisition(source, workspace, log, patience or Patience())
    return Stage(
        (
            Phase("list", 1, acquisition.list_files),
            Phase("fetch", lambda: len(acquisition.listing.files), acquisition.fetch_file),
        ),
        acquisition.finish,
    )


class _Acquisition:
    def __init__(self, source: Source, workspace: Workspace, log: Log, patience: Patience):
        self.source, self.workspace, self.patience = source, workspace, patience
        self.log: Log = lambda text: log(f"raw/{source.name}: {text}")

    def list_files(self, item: int) -> Counts:
        listing = self._list()
        with self.workspace.open_work(_LISTING) as file:
            file.write(json.dumps(listing.to_json()).encode())
        size = "" if listing.total_bytes is None else f", {human(listing.total_bytes)}"
        self.log(f"{len(listing.files):,} files{size}" + (f" at {listing.revision}" if listing.revision else ""))
        return {"files": len(listing.files)}

    @cached_property
    def listing(self) -> Listing:
        """What the first phase wrote, so that every rank has the same."""
        with self.workspace.open_work(_LISTING, "rb") as file:
            return Listing.from_json(json.load(file))

    def fetch_file(self, item: int) -> Counts:
        """Counts: bytes, and what the manifest and the summary say of the file."""
        file = self.listing.files[item]
        if isinstance(self.source.origin, InstalledOrigin):
            return self._write_installed(self.source.origin)
        started = time.monotonic()
        with self._partial(f"{item:05d}") as partial:
            fetched = transfer(self._remote(file), file, partial, self.patience, self.log, file.path)
            self._deliver(partial, f"files/{file.path}")
        seconds = time.monotonic() - started
        self.log(
            f"{file.path}, {human(fetched.bytes)} in {seconds:.0f} s; file {item + 1} of {len(self.listing.files)}"
        )
        return {"bytes": fetched.bytes, "sha256": fetched.sha256}

    def finish(self, counts: Sequence[Sequence[Counts]]) -> Counts:
        fetched = counts[1]
        files = [
            {"path": f"files/{file.path}", "origin": self._public(file), "bytes": got["bytes"], "sha256": got["sha256"]}
            for file, got in zip(self.listing.files, fetched, strict=True)
        ]
        self.workspace.write_json(MANIFEST, {"revision": self.listing.revision, "files": files})
        summary: Counts = {"files": len(files), "bytes": sum(got["bytes"] for got in fetched)}
        if self.listing.revision:
            summary["revision"] = self.listing.revision
        return summary | (fetched[0]["installed"] if isinstance(self.source.origin, InstalledOrigin) else {})

    def _list(self) -> Listing:
        match self.source.origin:
            case HubOrigin() as origin:
                return list_hub(self.source.name, origin, self.patience, self.log)
            case UrlOrigin() as origin:
                return Listing.of(self.source.name, list_urls(origin, self.patience, self.log))
            case FolderOrigin() as origin:
                return Listing.of(self.source.name, list_folder(origin))
            case InstalledOrigin():
                return Listing((ListedFile(_INSTALLED, ""),))

    def _remote(self, file: ListedFile) -> Remote:
        origin = self.source.origin
        if isinstance(origin, HubOrigin):
            return hub_remote(origin, str(self.listing.revision), file.path)
        return open_remote(file.origin)

    def _public(self, file: ListedFile) -> str | None:
        """Where a file came from, unless that is a place on one machine."""
        return file.origin if isinstance(self.source.origin, HubOrigin | UrlOrigin) else None

    @property
    def _is_local(self) -> bool:
        from fsspec.implementations.local import LocalFileSystem

        return isinstance(self.workspace.fs, LocalFileSystem)

    @contextlib.contextmanager
    def _partial(self, name: str) -> Iterator[Path]:
        """Where a file lies until it is whole: with a local store beside the artifact, so that a kill takes nothing."""
        if self._is_local:
            yield Path(self.workspace.work_path("partial", name))
        else:
            with tempfile.TemporaryDirectory(prefix="marin-") as folder:
                yield Path(folder) / name

    def _deliver(self, partial: Path, path: str) -> None:
        self.workspace.check()
        target = self.workspace.path(path)
        self.workspace.fs.makedirs(target.rsplit("/", 1)[0], exist_ok=True)
        if self._is_local:
            partial.replace(target)
        else:
            self.workspace.fs.put_file(str(partial), target)

    def _write_installed(self, origin: InstalledOrigin) -> Counts:
        import polars as pl

        documents = [vars(document) for document in read_installed(origin)]
        if not documents:
            raise MarinError(
                f"source {self.source.name!r} has no documents: none of {', '.join(origin.packages)} has text of kind "
                f"{origin.content!r} within {origin.max_bytes:,} bytes; change the source's packages or max_bytes"
            )
        frame = pl.DataFrame(documents)
        buffer = io.BytesIO()
        frame.write_parquet(buffer, compression="zstd", compression_level=3)
        data = buffer.getvalue()
        with self.workspace.open(f"files/{_INSTALLED}") as file:
            file.write(data)
        self.log(f"{len(frame):,} documents")
        facts = {"documents": len(frame), "licences": sorted(set(frame["licence"]))}
        return {"bytes": len(data), "sha256": hashlib.sha256(data).hexdigest(), "installed": facts}
