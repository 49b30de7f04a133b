"""Publishes files so that a reader never meets half of them.

A hub makes one commit visible at a time, but a model may be too large to be uploaded for one commit without anything
to show for it when the upload is cut off. So:

0. A repository that holds what no lab published, or the model of another checkpoint, is left alone.
1. The files go to a branch of their own, named after the artifact that is published, a few gigabytes a commit. What the
   branch has already, by hash, is not sent again: a publication that was killed goes on where it was.
2. Everything on the branch is listed back from the hub and held against the sizes and hashes that were committed here.
3. Only then the tag is made to name the branch's last commit,
4. and `main` gets the same files by one commit that copies them on the hub's side, and is listed back as well.

At `main` and at the tag there are, at any time, either all files of one publication or all of another. Only the tag is
absent for a moment when it moves, since a hub has no request that moves one.
"""

import contextlib
import hashlib
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from functools import cached_property
from io import BytesIO
from pathlib import Path
from typing import IO, TYPE_CHECKING, Any

from fsspec.implementations.local import LocalFileSystem

from marin_core.data.sources.patience import Log
from marin_core.data.sources.transfer import human
from marin_core.errors import MarinError
from marin_core.publishing.ownership import OF_THE_HUB, check_replaceable
from marin_core.publishing.repository import MAIN, Repository
from marin_core.store import Artifact

if TYPE_CHECKING:
    from huggingface_hub.hf_api import RepoFile

BATCH_BYTES = 2 << 30
_CHUNK = 16 << 20


@dataclass(frozen=True)
class OutgoingFile:
    """A file to publish as `path`: `size` in bytes, SHA-256 in hex, and how to read it. `local` is where it lies on
    this machine, if it does."""

    path: str
    size: int
    sha256: str
    open: Callable[[], IO[bytes]]
    local: Path | None = None

    @classmethod
    def of_bytes(cls, path: str, data: bytes) -> "OutgoingFile":
        return cls(path, len(data), hashlib.sha256(data).hexdigest(), lambda: BytesIO(data))

    @classmethod
    def of_artifact(cls, artifact: Artifact) -> "list[OutgoingFile]":
        """Every file of an artifact, as its record has it."""
        is_local = isinstance(artifact.fs, LocalFileSystem)

        def one(path: str, size: int, sha256: str) -> OutgoingFile:
            local = Path(LocalFileSystem._strip_protocol(artifact.path(path))) if is_local else None
            return cls(path, size, sha256, lambda: artifact.open(path), local)

        return [one(file.path, file.size, file.sha256) for file in artifact.record.files]

    @cached_property
    def git_sha1(self) -> str:
        """How a hub knows a file that is not a large one."""
        digest = hashlib.sha1(b"blob %d\0" % self.size, usedforsecurity=False)
        with self.open() as source:
            while chunk := source.read(_CHUNK):
                digest.update(chunk)
        return digest.hexdigest()

    def is_same_as(self, there: "RepoFile | None") -> bool:
        if there is None or there.size != self.size:
            return False
        return there.lfs.sha256 == self.sha256 if there.lfs else there.blob_id == self.git_sha1

    def at_hand(self, folder: Path) -> Path:
        """Where its bytes lie on this machine, after they were read and found to be the committed ones: `local`, or a
        copy in `folder`. The library sends files from a path in parallel, and only those the Xet way.

        Raises:
            MarinError: they are not.
        """
        target = folder / self.path
        digest = hashlib.sha256()
        with contextlib.ExitStack() as stack:
            source, copy = stack.enter_context(self.open()), None
            if self.local is None:
                target.parent.mkdir(parents=True, exist_ok=True)
                copy = stack.enter_context(target.open("wb"))
            while chunk := source.read(_CHUNK):
                digest.update(chunk)
                if copy:
                    copy.write(chunk)
        if digest.hexdigest() != self.sha256:
            raise MarinError(
                f"{self.local or self.path} is damaged: its bytes are not those that were committed; delete the "
                f"artifact and materialize it again"
            )
        return self.local or target


@dataclass(frozen=True)
class Published:
    """What was done. `revision` is the commit that `tag` names. `bytes_uploaded` are of the files that this run had to
    send, `bytes_reused` of those that the hub had on the branch already."""

    repository: str
    url: str
    revision: str
    tag: str
    files: int
    bytes_uploaded: int
    bytes_reused: int


def publish(
    repository: Repository,
    files: Iterable[OutgoingFile],
    *,
    branch: str,
    tag: str,
    private: bool,
    message: str,
    scratch: Path,
    log: Log,
    checkpoint: str | None = None,
    batch_bytes: int = BATCH_BYTES,
) -> Published:
    """Make `main` and `tag` of a repository hold exactly these files, in the order that the module describes.

    `checkpoint` is the fingerprint of a model's checkpoint. `scratch` needs room for one batch, `batch_bytes` or the
    largest file, where the files lie in an object store.

    Raises:
        MarinError: the repository holds what may not be replaced (`check_replaceable`), the hub refuses or cannot be
            reached, a file here is damaged, or what the hub lists is not what was sent. `main` and the tag are then as
            they were, or complete.
    """
    outgoing = {file.path: file for file in files}
    repository.create(private=private)
    check_replaceable(repository, checkpoint)
    repository.create_branch(branch)
    there = repository.files(branch)
    missing = [file for file in outgoing.values() if not file.is_same_as(there.get(file.path))]
    scratch.mkdir(parents=True, exist_ok=True)
    if missing:
        with repository.uploading(branch):
            for batch in _batches(missing, batch_bytes):
                log(f"{repository.name}: sending {', '.join(f'{file.path} ({human(file.size)})' for file in batch)}")
                _send(repository, branch, batch, message, scratch)
    if stale := [path for path in there if path not in outgoing and path not in OF_THE_HUB]:
        _delete(repository, branch, stale, message)
    commit = repository.head(branch)
    _check(repository, commit, outgoing)
    repository.point_tag(tag, commit)
    repository.bring_main_to(commit, message)
    _check(repository, MAIN, outgoing)
    sent = sum(file.size for file in missing)
    total = sum(file.size for file in outgoing.values())
    log(f"{repository.url} has {len(outgoing)} files at {tag} ({commit[:7]}); sent {human(sent)} of {human(total)}")
    return Published(repository.name, repository.url, commit, tag, len(outgoing), sent, total - sent)


def _batches(files: Iterable[OutgoingFile], limit: int) -> Iterator[list[OutgoingFile]]:
    """Files in their order, as many at a time as are together within the limit, and at least one."""
    batch: list[OutgoingFile] = []
    for file in files:
        if batch and sum(f.size for f in batch) + file.size > limit:
            yield batch
            batch = []
        batch.append(file)
    if batch:
        yield batch


def _send(repository: Repository, branch: str, batch: list[OutgoingFile], message: str, scratch: Path) -> None:
    from huggingface_hub import CommitOperationAdd

    with tempfile.TemporaryDirectory(dir=scratch) as folder:
        paths = {file.path: file.at_hand(Path(folder)) for file in batch}

        def additions() -> list[Any]:
            operations = [CommitOperationAdd(file.path, paths[file.path]) for file in batch]
            for operation, file in zip(operations, batch, strict=True):
                operation.upload_info.sha256 = bytes.fromhex(file.sha256)  # known: it need not be read for it again
            return operations

        repository.commit(branch, additions, message)


def _delete(repository: Repository, branch: str, paths: list[str], message: str) -> None:
    from huggingface_hub import CommitOperationDelete

    def deletions() -> list[Any]:
        return [CommitOperationDelete(path) for path in paths if path in repository.files(branch)]

    repository.commit(branch, deletions, message)


def _check(repository: Repository, revision: str, outgoing: dict[str, OutgoingFile]) -> None:
    there = repository.files(revision)
    wrong = [path for path, file in outgoing.items() if not file.is_same_as(there.get(path))]
    wrong += [path for path in there if path not in outgoing and path not in OF_THE_HUB]
    if wrong:
        path, found, sent = wrong[0], there.get(wrong[0]), outgoing.get(wrong[0])
        has = f"{found.size} bytes with hash {found.lfs.sha256 if found.lfs else found.blob_id}" if found else "nothing"
        expected = f"{sent.size} bytes with SHA-256 {sent.sha256}" if sent else "nothing"
        raise MarinError(
            f"{repository.url} at {revision} has {has} as {path}, expected was {expected}; {len(wrong)} of "
            f"{len(outgoing)} files are wrong there; run the same command again to send them again"
        )
