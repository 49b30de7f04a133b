"""Gets one file from a remote to a local path: goes on where it was cut off, tries again, and checks what arrived.

What is at the other end is a `Remote`; see `remote.py`.
"""

import fcntl
import hashlib
import json
import time
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import asdict, dataclass, field
from pathlib import Path

from marin_core.data.sources.listing import ListedFile
from marin_core.data.sources.patience import Interrupted, Log, Patience, persist
from marin_core.data.sources.remote import Body, Remote, Unresumable, Version
from marin_core.errors import MarinError

_TELL_SECONDS = 30.0
# A file that arrives whole but wrong is asked for once more; a third time would bring the same.
_MOST_DAMAGED = 2


@dataclass(frozen=True)
class Fetched:
    """A file that arrived whole: size in bytes, SHA-256 in hex."""

    bytes: int
    sha256: str


def transfer(remote: Remote, file: ListedFile, partial: Path, patience: Patience, log: Log, what: str) -> Fetched:
    """Fetch a file to `partial`, where bytes of an earlier try may lie already. `what` names it in messages.

    Raises:
        MarinError: it cannot be had, or is not what its listing says.
    """
    partial.parent.mkdir(parents=True, exist_ok=True)
    attempts = _Transfer(remote, file, partial, log, what)
    return persist(attempts.attempt, what, patience, log, attempts.reached)


def human(size: int) -> str:
    """A size for people, in decimal units."""
    amount, units = float(size), ["bytes", "kB", "MB", "GB", "TB"]
    while amount >= 1000 and len(units) > 1:
        amount, units = amount / 1000, units[1:]
    return f"{size} bytes" if units[0] == "bytes" else f"{amount:.1f} {units[0]}"


@dataclass
class _Transfer:
    """The attempts at one file. What the other end said of it lies beside the bytes, for a process that comes later."""

    remote: Remote
    file: ListedFile
    partial: Path
    log: Log
    what: str
    damaged: int = 0
    told: float = field(default_factory=time.monotonic)

    def reached(self) -> int:
        return self.partial.stat().st_size if self.partial.exists() else 0

    def attempt(self) -> Fetched:
        with self._alone():
            return self._attempt()

    def _attempt(self) -> Fetched:
        version = self._version()
        known = self.file.sha256 or self.file.git_sha1
        if not known and version.tag is None:
            self._discard()  # nothing would tell if the rest were of another content
        size = self._size(version)
        if size is None or self.reached() != size or not self.partial.exists():
            self._receive(None if known else version.tag)
        return self._checked(self._version())

    def _receive(self, tag: str | None) -> None:
        have = self.reached()
        try:
            with self.remote.open(have, tag) as body:
                if body.start not in (0, have):
                    raise Unresumable(f"bytes from {body.start} on came, from {have} on were asked for")
                if None not in (self.file.size, body.version.size) and self.file.size != body.version.size:
                    raise Unresumable(f"it has {body.version.size} bytes there, {self.file.size} were listed")
                if body.start == 0:
                    self._notes.write_text(json.dumps(asdict(body.version)))
                self._write(body)
        except Unresumable:
            self._discard()
            raise
        size = self._size(self._version())
        if size is not None and self.reached() < size:
            raise Interrupted(f"the connection ended after {self.reached()} of {size} bytes")

    def _write(self, body: Body) -> None:
        with self.partial.open("ab" if body.start else "wb") as target:
            for chunk in body.chunks:
                target.write(chunk)
                target.flush()  # what a kill must not take
                self._tell(body)

    @contextmanager
    def _alone(self) -> Iterator[None]:
        """A process of an attempt that was given up may be alive still, and write to the same file."""
        with self.partial.with_name(f"{self.partial.name}.lock").open("w") as lock:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
            except BlockingIOError:
                raise Interrupted(f"another process is writing {self.partial}") from None
            yield

    def _tell(self, body: Body) -> None:
        if time.monotonic() - self.told >= _TELL_SECONDS:
            self.told = time.monotonic()
            size = self.file.size or body.version.size
            self.log(f"{self.what}: {human(self.reached())}" + (f" of {human(size)}" if size else ""))

    def _checked(self, version: Version) -> Fetched:
        size = self.reached()
        sha256, sha1, md5 = (
            hashlib.sha256(),
            hashlib.sha1(b"blob %d\0" % size, usedforsecurity=False),
            hashlib.md5(usedforsecurity=False),
        )
        digests = [sha256] + ([sha1] if self.file.git_sha1 else []) + ([md5] if version.md5 else [])
        with self.partial.open("rb") as source:
            while block := source.read(1 << 20):
                for digest in digests:
                    digest.update(block)
        for name, found, expected in (
            ("size", size, self._size(version)),
            ("SHA-256", sha256.hexdigest(), self.file.sha256),
            ("git SHA-1", sha1.hexdigest(), self.file.git_sha1),
            ("MD5", md5.hexdigest(), version.md5),
        ):
            if expected is not None and found != expected:
                self._reject(f"what arrived has the {name} {found}, expected was {expected}")
        return Fetched(size, sha256.hexdigest())

    def _reject(self, cause: str) -> None:
        self.damaged += 1
        self._discard()
        if self.damaged >= _MOST_DAMAGED:
            raise MarinError(f"{self.what}: {cause}, {self.damaged} times; ask whoever publishes the file")
        raise Unresumable(cause)

    @property
    def _notes(self) -> Path:
        return self.partial.with_name(f"{self.partial.name}.json")

    def _version(self) -> Version:
        try:
            return Version(**json.loads(self._notes.read_text()))
        except (OSError, ValueError, TypeError):
            return Version()

    def _size(self, version: Version) -> int | None:
        return self.file.size if self.file.size is not None else version.size

    def _discard(self) -> None:
        self.partial.unlink(missing_ok=True)
        self._notes.unlink(missing_ok=True)
