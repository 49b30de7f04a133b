"""Finding, building and committing artifacts.

Layout: `{root}/{name}/{fingerprint}/…` with `artifact.json` written last; the lease lies beside it as
`{fingerprint}.lease`. A directory without its record is an attempt, never an artifact; what only the attempt needs lies
in it under names with a dot.
"""

import contextlib
import hashlib
import json
import os
import re
from collections.abc import Callable, Collection, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import cached_property
from typing import IO, Any, cast

import fsspec

from marin_core.errors import MarinError, disk_full_message
from marin_core.store.backends import open_objects
from marin_core.store.filesystem import open_filesystem
from marin_core.store.lease import Lease, LeaseLost
from marin_core.store.record import ArtifactRecord, FileEntry, InputEntry, Provenance
from marin_core.store.spec import ArtifactSpec, canonical_json, digest
from marin_core.store.workspace import WORK, Workspace

RECORD = "artifact.json"
ATTEMPT = ".attempt.json"
PLANS = ".plans/"
# A stored file is read back to be hashed: over a network one stream is slow, and so are small requests.
_PARALLEL_READS = 8
_READ_BYTES = 16 << 20


class StoreError(MarinError):
    """The store cannot do what was asked; the message names the place and the remedy."""


class NotInStore(StoreError):
    """An artifact that is wanted is not committed."""


def utc_now() -> str:
    return datetime.now(UTC).isoformat(timespec="milliseconds")


def plan_path(spec: ArtifactSpec) -> str:
    """Where a store keeps the plan to build an artifact; see `Store.save_plan`."""
    return f"{PLANS}{spec.fingerprint}-{digest(json.dumps(spec.to_json()))[:8]}.json"


@dataclass(frozen=True)
class Artifact:
    """A committed artifact: its record and where it is."""

    record: ArtifactRecord
    url: str
    fs: fsspec.AbstractFileSystem

    def path(self, *parts: str) -> str:
        """URL of a file in the artifact, for libraries that read by URL."""
        return "/".join([self.url, *parts])

    @property
    def _remedy(self) -> str:
        return f"delete the folder {self.url} and materialize {self.record.name} again"

    def open(self, path: str) -> IO[bytes]:
        """Open one of the artifact's files.

        Raises:
            StoreError: the file is gone.
        """
        try:
            return cast("IO[bytes]", self.fs.open(self.path(path), "rb"))
        except FileNotFoundError:
            raise self._missing(path) from None

    def read_json(self, path: str) -> Any:
        return json.loads(self.read(path))

    def read(self, path: str) -> bytes:
        """The bytes of a file, checked against the record.

        Raises:
            StoreError: the file is gone, or not what was committed.
        """
        try:
            data = cast("bytes", self.fs.cat_file(self.path(path)))
        except FileNotFoundError:
            raise self._missing(path) from None
        committed = {entry.path: entry.sha256 for entry in self.record.files}
        if hashlib.sha256(data).hexdigest() != committed.get(path):
            raise StoreError(
                f"{self.path(path)} is damaged: its bytes are not those that were committed; {self._remedy}"
            )
        return data

    def _missing(self, path: str) -> StoreError:
        return StoreError(f"{self.path(path)} is missing from a committed artifact; {self._remedy}")


class Store:
    """All artifacts below one root: a local path or an object-store URL."""

    def __init__(self, root: str):
        self.root = root.rstrip("/")
        with self._readable():
            self.objects = open_objects(self.root)

    @cached_property
    def fs(self) -> fsspec.AbstractFileSystem:
        with self._readable():
            return open_filesystem(self.root)

    @contextlib.contextmanager
    def _readable(self) -> Iterator[None]:
        """Whatever a back end says of a place that it cannot reach, in one line."""
        try:
            yield
        except MarinError:
            raise
        except Exception as error:  # every back end has its own
            raise StoreError(
                f"store {self.root} cannot be read: {_cause(error)}; check its path and credentials, or set MARIN_STORE"
            ) from error

    def url(self, spec: ArtifactSpec) -> str:
        return f"{self.root}/{_folder(spec.name, spec.fingerprint)}"

    def record(self, name: str, fingerprint: str) -> ArtifactRecord | None:
        """The record of a committed artifact, None if there is none.

        Raises:
            StoreError: the record is there but cannot be read.
        """
        path = f"{_folder(name, fingerprint)}/{RECORD}"
        with self._readable():
            stored = self.objects.read(path)
        if stored is None:
            return None
        try:
            return ArtifactRecord.from_json(json.loads(stored.data))
        except (ValueError, TypeError, KeyError, AttributeError) as error:
            raise StoreError(
                f"record {self.root}/{path} is damaged ({error}); delete the folder {_folder(name, fingerprint)} "
                f"of the store to build this artifact again"
            ) from None

    def fingerprints(self, name: str) -> list[str]:
        """Those of every committed artifact of a name, sorted."""
        with self._readable():
            paths = [path for path, _ in self.objects.list(f"{name}/") if path.endswith(f"/{RECORD}")]
        return sorted(path.split("/")[-2] for path in paths if path.count("/") == name.count("/") + 2)

    def records(self, name: str) -> list[ArtifactRecord]:
        """Every committed record of a name, oldest first."""
        found = self.find_records([(name, fingerprint) for fingerprint in self.fingerprints(name)])
        return sorted((r for r in found.values() if r is not None), key=lambda r: r.provenance.ended)

    def everything(self, without: Collection[str] = ()) -> list[ArtifactRecord]:
        """Every committed record, in the order of names and fingerprints, but those whose names begin with one of
        `without`. Every object of the store is listed."""
        with self._readable():
            paths = [path.split("/") for path, _ in self.objects.list("") if path.endswith(f"/{RECORD}")]
        # An artifact may have a file of that name; a fingerprint is then in the midst of its path.
        own = [path for path in paths if [n for n, part in enumerate(path) if _is_fingerprint(part)] == [len(path) - 2]]
        keys = [("/".join(path[:-2]), path[-2]) for path in own]
        wanted = sorted(key for key in keys if not key[0].startswith((".", *without)))
        with ThreadPoolExecutor(_PARALLEL_READS) as pool:
            found = pool.map(lambda key: self.record(*key), wanted)
            return [record for record in found if record is not None]

    def opened(self, record: ArtifactRecord) -> Artifact:
        """The artifact of a record that was read before. It may be gone by now."""
        return Artifact(record, f"{self.root}/{_folder(record.name, record.fingerprint)}", self.fs)

    def current(self, spec: ArtifactSpec) -> ArtifactRecord | None:
        """The committed record of a spec, unless an input has since been rebuilt with other content."""
        record = self.record(spec.name, spec.fingerprint)
        return None if record is None or self.rebuilt_inputs(record) else record

    def all_current(self, specs: Sequence[ArtifactSpec]) -> dict[str, ArtifactRecord | None]:
        """What `current` says of each, by fingerprint. Artifacts of a suite have most of their inputs in common: each
        record is read once, several at a time."""
        known = self.find_records({(spec.name, spec.fingerprint) for spec in specs})
        found = {spec.fingerprint: known[spec.name, spec.fingerprint] for spec in specs}
        inputs = {(i.name, i.fingerprint) for record in found.values() if record for i in record.inputs.values()}
        known |= self.find_records(inputs - known.keys())
        return {
            fingerprint: None if record is None or _rebuilt(record, known) else record
            for fingerprint, record in found.items()
        }

    def find_records(self, wanted: Collection[tuple[str, str]]) -> dict[tuple[str, str], ArtifactRecord | None]:
        """Records by name and fingerprint, several read at a time; None for those that are not there."""
        with ThreadPoolExecutor(_PARALLEL_READS) as pool:
            return dict(zip(wanted, pool.map(lambda key: self.record(*key), wanted), strict=True))

    def rebuilt_inputs(self, record: ArtifactRecord) -> list[str]:
        """Roles whose artifact now has other content than when `record` was made. Deleted inputs do not count."""
        inputs = {(read.name, read.fingerprint) for read in record.inputs.values()}
        return _rebuilt(record, self.find_records(inputs))

    def artifact(self, spec: ArtifactSpec) -> Artifact:
        """The committed artifact of a spec.

        Raises:
            StoreError: it is not committed.
        """
        record = self.record(spec.name, spec.fingerprint)
        if record is None:
            partition = f" --partition {spec.partition}" if spec.partition else ""
            raise NotInStore(
                f"{spec.label} ({spec.fingerprint}) is not in the store {self.root}; materialize it first, for "
                f"instance with: dagster asset materialize --select {spec.name}{partition}"
            )
        return self.opened(record)

    def committed(self, name: str, fingerprint: str) -> Artifact:
        """The committed artifact that a record names.

        Raises:
            StoreError: it is gone.
        """
        record = self.record(name, fingerprint)
        if record is None:
            raise NotInStore(f"{name} ({fingerprint}) is not in the store {self.root}; materialize {name} again")
        return self.opened(record)

    def retire(self, spec: ArtifactSpec, record: ArtifactRecord) -> None:
        """Give up a committed artifact, so that it is built again when it is wanted next; unless it has another record
        by now than the one that the caller knows."""
        lease = Lease.acquire(self.objects, f"{_folder(spec.name, spec.fingerprint)}.lease", lambda holder: None)
        try:
            if self.record(spec.name, spec.fingerprint) == record:
                self.set_aside(spec)
        finally:
            lease.release()

    def set_aside(self, spec: ArtifactSpec) -> None:
        """Take away a record, if there is one, for whoever holds its lease; it stays readable as history."""
        folder = _folder(spec.name, spec.fingerprint)
        stored = self.objects.read(f"{folder}/{RECORD}")
        if stored is not None:
            self.objects.create(f"{spec.name}/superseded/{digest(stored.data.decode())}.json", stored.data)
            self.objects.delete(f"{folder}/{RECORD}")

    def save_plan(self, spec: ArtifactSpec) -> str:
        """Write down what is to be built, for a worker; returns the path that `load_plan` takes."""
        path = plan_path(spec)
        self.objects.create(path, json.dumps(spec.to_json()).encode())
        return path

    def load_plan(self, path: str) -> ArtifactSpec:
        """Raises StoreError if there is no such plan."""
        stored = self.objects.read(path)
        if stored is None:
            raise StoreError(f"no plan {path} in the store {self.root}")
        return ArtifactSpec.from_json(json.loads(stored.data))

    def check_writable(self) -> None:
        """Raises MarinError with the cause if the root cannot be written."""
        path = f".probe-{os.getpid()}"
        try:
            self.objects.create(path, b"")
            self.objects.delete(path)
        except MarinError:
            raise
        except Exception as error:  # every back end has its own
            full = disk_full_message(error, self.root) if isinstance(error, OSError) else None
            raise StoreError(
                f"store {self.root} is not writable: {full or _cause(error)}; set MARIN_STORE to a place that is"
            ) from None

    def join(self, spec: ArtifactSpec, token: int) -> Workspace:
        """The workspace of a rank that works for the writer whose lease has `token`."""
        path = f"{_folder(spec.name, spec.fingerprint)}.lease"

        def check() -> None:
            lease = self.objects.read(path)
            if lease is None or json.loads(lease.data)["token"] != token:
                raise LeaseLost(f"lease {path} is no longer the one this rank works for; nothing was committed")

        return Workspace(self.url(spec), self.fs, check)

    @contextlib.contextmanager
    def writer(
        self, spec: ArtifactSpec, *, resumable: bool = False, on_wait: Callable[[str], None] = lambda holder: None
    ) -> Iterator["Writer"]:
        """Hold the lease of a spec while building it. What a killed attempt left is cleared, unless the task is
        `resumable` and the attempt read the same inputs.

        When another writer has committed meanwhile, `Writer.committed` is its record and nothing is to be done.
        """
        lease = Lease.acquire(self.objects, f"{_folder(spec.name, spec.fingerprint)}.lease", on_wait)
        try:
            writer = Writer(self, spec, lease)
            if writer.committed is not None:
                writer.tidy()
            elif not (resumable and writer.same_inputs_as_before()):
                writer.clear()
            yield writer
        finally:
            lease.release()


class Writer(Workspace):
    """The workspace of whoever holds the artifact's lease, and the only one that can commit it."""

    def __init__(self, store: Store, spec: ArtifactSpec, lease: Lease):
        super().__init__(store.url(spec), store.fs, lease.check)
        self._store, self._lease = store, lease
        self.spec = spec
        self.committed = store.current(spec)
        self.started = utc_now()
        if self.committed is None:
            self._inputs = {role: self._input(spec) for role, spec in self.spec.inputs.items()}
            store.set_aside(spec)
            self.fs.makedirs(self.url, exist_ok=True)

    @property
    def _attempt(self) -> str:
        return f"{_folder(self.spec.name, self.spec.fingerprint)}/{ATTEMPT}"

    @property
    def _contents(self) -> dict[str, str]:
        return {role: entry.content for role, entry in self._inputs.items()}

    @property
    def lease_token(self) -> int:
        """What ranks that work for this writer are told, to see when it is no longer theirs."""
        return self._lease.token

    def reads(self, role: str, spec: ArtifactSpec) -> None:
        """Note an input that only the task knows, before it is read: when its content changes, what is made of it must
        be built again.

        Raises:
            StoreError: it is not committed.
        """
        self._inputs[role] = self._input(spec)

    def same_inputs_as_before(self) -> bool:
        """Whether an earlier attempt, if any, read inputs of the same content; then the work began when it did."""
        stored = self._store.objects.read(self._attempt)
        before = json.loads(stored.data) if stored else {}
        if before.get("inputs") != self._contents:
            return False
        self.started = before["started"]
        return True

    def clear(self) -> None:
        """Begin anew. What tells an earlier attempt's progress goes first, and what says that this attempt can be
        resumed is written last: a kill in between leaves nothing to be mistaken for progress."""
        folder = _folder(self.spec.name, self.spec.fingerprint)
        self._store.objects.delete(f"{folder}/{WORK}")
        self._store.objects.delete(folder)
        self.fs.makedirs(self.url, exist_ok=True)
        attempt = {"inputs": self._contents, "started": self.started}
        self._store.objects.create(self._attempt, json.dumps(attempt).encode())

    def tidy(self) -> None:
        """Remove what only an attempt needs."""
        folder = _folder(self.spec.name, self.spec.fingerprint)
        self._store.objects.delete(f"{folder}/{WORK}")
        self._store.objects.delete(self._attempt)

    def commit(
        self,
        summary: Mapping[str, Any],
        *,
        content: str | None = None,
        command: str | None = None,
        dagster_run: str | None = None,
        retries: int = 0,
    ) -> ArtifactRecord:
        """Write the record, and so make the artifact exist.

        `content` overrides the default content digest (the files' hashes) where files hold incidental bytes, for
        instance timings.

        Raises:
            LeaseLost: another writer took over.
            StoreError: another record is already there.
        """
        folder = _folder(self.spec.name, self.spec.fingerprint)
        files = self._files()
        record = ArtifactRecord(
            name=self.spec.name,
            fingerprint=self.spec.fingerprint,
            partition=self.spec.partition,
            payload=self.spec.payload,
            inputs=self._inputs,
            content=content or digest(canonical_json([[f.path, f.sha256] for f in files])),
            files=files,
            summary=dict(summary),
            provenance=Provenance.of(
                started=self.started,
                ended=utc_now(),
                command=command,
                dagster_run=dagster_run,
                retries=retries,
            ),
        )
        data = json.dumps(record.to_json(), indent=2, sort_keys=True, allow_nan=False).encode()
        self._lease.renew()
        if not self._store.objects.create(f"{folder}/{RECORD}", data):
            raise StoreError(f"{self.spec.label} was committed by another writer meanwhile; nothing was written")
        self.tidy()
        return record

    def _input(self, spec: ArtifactSpec) -> InputEntry:
        return InputEntry(spec.name, spec.fingerprint, self._store.artifact(spec).record.content)

    def _files(self) -> tuple[FileEntry, ...]:
        folder = f"{_folder(self.spec.name, self.spec.fingerprint)}/"
        sizes = {path.removeprefix(folder): size for path, size in self._store.objects.list(folder)}
        # A dot: of the attempt, or of a write that a kill cut off.
        paths = [path for path in sizes if not path.startswith(".")]
        with ThreadPoolExecutor(_PARALLEL_READS) as pool:
            hashes = list(pool.map(self._sha256, paths))
        return tuple(FileEntry(path, sizes[path], found) for path, found in zip(paths, hashes, strict=True))

    def _sha256(self, path: str) -> str:
        try:
            with self.fs.open(self.path(path), "rb", block_size=_READ_BYTES) as file:
                return hashlib.file_digest(cast("Any", file), "sha256").hexdigest()
        except FileNotFoundError:
            raise StoreError(
                f"{self.path(path)} vanished while {self.spec.label} was being committed; nothing was, build it again"
            ) from None


def _cause(error: Exception) -> str:
    """The first line of what a back end said, in the system's own words where it has some."""
    return getattr(error, "strerror", None) or (str(error).splitlines() or [type(error).__name__])[0]


def _rebuilt(record: ArtifactRecord, now: Mapping[tuple[str, str], ArtifactRecord | None]) -> list[str]:
    """Roles whose artifact has other content now than `record` read."""
    return [
        role
        for role, read in record.inputs.items()
        if (found := now[read.name, read.fingerprint]) is not None and found.content != read.content
    ]


def _is_fingerprint(part: str) -> bool:
    return re.fullmatch(r"[0-9a-f]{16}", part) is not None


def _folder(name: str, fingerprint: str) -> str:
    return f"{name}/{fingerprint}"
