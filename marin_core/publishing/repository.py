"""One repository on a Hugging Face hub, written to: its branches, files and tags, and what a refusal means.

The hub is named with the repository; HF_ENDPOINT is not read here: where a publication lies is part of what it is.
HF_TOKEN and HF_HUB_OFFLINE are those of `huggingface_hub`. Every request goes through it; one that met a passing fault
is made again, by the library for the parts of an upload, here for the rest. So whatever is handed to `Repository.ask`
must be harmless when it is done twice.
"""

import contextlib
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Literal
from urllib.parse import quote

from marin_core.data.sources.patience import Interrupted, Log, Patience, persist
from marin_core.data.sources.web import PASSING, connected, retry_after
from marin_core.errors import MarinError

if TYPE_CHECKING:
    from huggingface_hub import HfApi
    from huggingface_hub.errors import HfHubHTTPError
    from huggingface_hub.hf_api import RepoFile

MAIN = "main"
PUBLIC_HUB = "https://huggingface.co"
# Seconds without a sign of life; a hub checks every large file of a commit before it answers.
_SILENCE = 300.0
# A branch that another client has moved: 409, or 412 where the request named the commit that it expected.
_MOVED = (409, 412)


@dataclass(frozen=True)
class Repository:
    """`name` is `namespace/name`, `hub` a URL without a slash at its end. Methods raise MarinError with what the hub
    said, in one line."""

    kind: Literal["model", "dataset"]
    name: str
    log: Log
    hub: str = PUBLIC_HUB
    patience: Patience = field(default_factory=Patience)

    @property
    def url(self) -> str:
        return f"{self.hub}/{'datasets/' if self.kind == 'dataset' else ''}{self.name}"

    def create(self, *, private: bool) -> None:
        """Make it exist. One that exists is left as it is.

        Raises:
            MarinError: there is no token, the token may not write there, or it exists and anybody can read it although
                it is to be private.
        """
        from huggingface_hub import get_token

        if not get_token():
            raise MarinError(
                f"cannot publish {self.name}: there is no token for {self.hub}; set HF_TOKEN to one that may write "
                f"to {self._namespace}, or run `hf auth login`"
            )
        self.ask(lambda api: api.create_repo(self.name, repo_type=self.kind, private=private, exist_ok=True))
        if private and not self.ask(lambda api: api.repo_info(self.name, repo_type=self.kind)).private:
            raise MarinError(f"{self.url} exists and is public, but it is to be private; make it private there first")

    def branches(self) -> list[str]:
        return self.ask(lambda api: [ref.name for ref in api.list_repo_refs(self.name, repo_type=self.kind).branches])

    def create_branch(self, branch: str) -> None:
        """A branch that starts where `main` is; one that exists stays where it is."""
        self.ask(lambda api: api.create_branch(self.name, branch=branch, repo_type=self.kind, exist_ok=True))

    def head(self, revision: str) -> str:
        """The commit that a branch or tag names now."""
        return self.ask(lambda api: self._head(api, revision))

    def files(self, revision: str) -> "dict[str, RepoFile]":
        """Every file at a revision by path, with size and hash."""
        return self.ask(lambda api: self._files(api, revision))

    def read(self, revision: str, path: str) -> bytes:
        """A small file that is there."""
        from huggingface_hub import get_session, hf_hub_url
        from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

        url = hf_hub_url(self.name, path, repo_type=self.kind, revision=revision, endpoint=self.hub)

        def get(_: "HfApi") -> bytes:
            response = get_session().get(url, headers=build_hf_headers())
            hf_raise_for_status(response)
            return response.content

        return self.ask(get)

    def commit(self, branch: str, operations: Callable[[], list[Any]], message: str) -> None:
        """Upload what the operations add, and commit them together. `operations` makes new ones for every try."""
        self.ask(
            lambda api: api.create_commit(
                self.name, operations(), commit_message=message, repo_type=self.kind, revision=branch
            )
        )

    def point_tag(self, tag: str, commit: str) -> None:
        """Make a tag name a commit. A hub cannot move a tag: for a moment a tag that moves is not there."""

        def point(api: "HfApi") -> None:
            tags = {ref.name: ref.target_commit for ref in api.list_repo_refs(self.name, repo_type=self.kind).tags}
            if tags.get(tag) == commit:
                return
            if tag in tags:
                api.delete_tag(self.name, tag=tag, repo_type=self.kind)
            api.create_tag(self.name, tag=tag, revision=commit, repo_type=self.kind)

        self.ask(point)

    def bring_main_to(self, commit: str, message: str) -> None:
        """Give `main` the files of a commit, by one commit of its own that copies them on the hub's side. Whoever
        changes `main` in between makes this look again."""
        from huggingface_hub import CommitOperationCopy, CommitOperationDelete

        def bring(api: "HfApi") -> None:
            head = self._head(api, MAIN)
            wanted, there = self._files(api, commit), self._files(api, MAIN)
            copies = [
                CommitOperationCopy(path, path, src_revision=commit)
                for path, file in wanted.items()
                if path not in there or there[path].blob_id != file.blob_id
            ]
            deletions = [CommitOperationDelete(path) for path in there if path not in wanted]
            if copies or deletions:
                api.create_commit(
                    self.name,
                    [*copies, *deletions],
                    commit_message=message,
                    repo_type=self.kind,
                    revision=MAIN,
                    parent_commit=head,
                )

        self.ask(bring)

    @contextlib.contextmanager
    def uploading(self, branch: str) -> Iterator[None]:
        """Uploads here, without progress bars, go to the hub's Xet storage if it has one, else the Git LFS way."""
        from huggingface_hub import constants
        from huggingface_hub.utils import are_progress_bars_disabled, disable_progress_bars, enable_progress_bars

        without_xet, quiet = constants.HF_HUB_DISABLE_XET, are_progress_bars_disabled()
        constants.HF_HUB_DISABLE_XET = without_xet or not self.ask(lambda api: self._has_xet(branch))
        disable_progress_bars()
        try:
            yield
        finally:
            constants.HF_HUB_DISABLE_XET = without_xet
            if not quiet:
                enable_progress_bars()

    def ask[T](self, request: Callable[["HfApi"], T]) -> T:
        """Make a request, again and again while what it meets may pass.

        Raises:
            MarinError: the hub refuses, or patience is at its end.
        """
        return persist(lambda: self._ask(request), f"{self.kind} {self.name}", self.patience, self.log)

    def _ask[T](self, request: Callable[["HfApi"], T]) -> T:
        from huggingface_hub import HfApi, get_session

        get_session().timeout = _SILENCE
        try:
            return request(HfApi(endpoint=self.hub))
        except Exception as error:
            with connected(self.hub):
                raise self._meaning(_root(error)) from None

    def _head(self, api: "HfApi", revision: str) -> str:
        commit = api.repo_info(self.name, repo_type=self.kind, revision=revision).sha
        if not commit:
            raise MarinError(f"{self.kind} {self.name}: the hub names no commit for {revision}; see {self.url}")
        return commit

    def _files(self, api: "HfApi", revision: str) -> "dict[str, RepoFile]":
        from huggingface_hub.hf_api import RepoFile

        entries = api.list_repo_tree(self.name, recursive=True, revision=revision, repo_type=self.kind)
        return {entry.path: entry for entry in entries if isinstance(entry, RepoFile)}

    def _has_xet(self, branch: str) -> bool:
        """Whether the hub gives out what the library would ask it for first."""
        from huggingface_hub import get_session
        from huggingface_hub.utils import build_hf_headers, hf_raise_for_status

        url = f"{self.hub}/api/{self.kind}s/{self.name}/xet-write-token/{quote(branch, safe='')}"
        response = get_session().get(url, headers=build_hf_headers())
        if response.status_code == 404:
            return False
        hf_raise_for_status(response)
        return True

    def _meaning(self, error: Exception) -> Exception:
        """What an error of the library is for whoever publishes: final, or Interrupted; the error itself if unknown."""
        from huggingface_hub.errors import HfHubHTTPError, HFValidationError, OfflineModeIsEnabled

        if isinstance(error, HfHubHTTPError):
            return self._refusal(error)
        if isinstance(error, OfflineModeIsEnabled):
            return MarinError(f"cannot publish {self.name}: HF_HUB_OFFLINE is set; unset it")
        if isinstance(error, HFValidationError):
            return MarinError(f"{self.name} is no name for a repository on a hub: {_line(error)}")
        if type(error) is ValueError:  # the hub finds a file or a card not fit; the library words it
            return MarinError(f"cannot publish {self.name}: {_line(error)}")
        if type(error) in (RuntimeError, ConnectionError):  # Xet's client, about the network
            return Interrupted(f"the upload broke: {_line(error)}")
        return error

    def _refusal(self, error: "HfHubHTTPError") -> Exception:
        status, said = error.response.status_code, error.server_message or ""
        said = f" ({said})" if said else ""
        if status in PASSING:
            return Interrupted(f"the hub answers {status}{said}", retry_after(error.response.headers))
        if status in _MOVED:
            return Interrupted(f"the hub answers {status}: somebody else changed it meanwhile{said}")
        if status == 401:
            return MarinError(
                f"cannot publish {self.name}: {self.hub} does not accept the token{said}; set HF_TOKEN to a valid "
                f"one, or run `hf auth login`"
            )
        if status == 403:
            return MarinError(
                f"cannot publish {self.name}: the token may not write there{said}; use a token with write access to "
                f"{self._namespace}, or set another namespace in [place.hub] of the profile"
            )
        if status == 404:
            return MarinError(
                f"cannot publish {self.name}: {self.hub} knows no such place{said}; check the namespace in "
                f"[place.hub] of the profile"
            )
        return MarinError(f"cannot publish {self.name}: the hub answers {status}{said} for {error.response.url}")

    @property
    def _namespace(self) -> str:
        return self.name.split("/")[0]


def _root(error: Exception) -> Exception:
    """What went wrong with one of the files that the library uploads in threads."""
    while type(error) is RuntimeError and isinstance(error.__cause__, Exception):
        error = error.__cause__
    return error


def _line(error: Exception) -> str:
    return " ".join(str(error).split())
