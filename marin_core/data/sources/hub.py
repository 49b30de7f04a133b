"""Files of datasets on a Hugging Face hub: what there is at a revision, and the remote for one of them.

The hub is the one that `huggingface_hub` is set up for: HF_ENDPOINT, HF_TOKEN and HF_HUB_OFFLINE are its variables.
"""

import os
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import TYPE_CHECKING

from marin_core.data.sources.declaration import HubOrigin
from marin_core.data.sources.listing import ListedFile, Listing, matching
from marin_core.data.sources.patience import Interrupted, Log, Patience, persist
from marin_core.data.sources.web import PASSING, TIMEOUT, WebRemote, connected, retry_after
from marin_core.errors import MarinError

if TYPE_CHECKING:
    import httpx
    from huggingface_hub.hf_api import RepoFile


def list_hub(source: str, origin: HubOrigin, patience: Patience, log: Log) -> Listing:
    """The dataset's files that match, at the commit that the revision names now.

    Raises:
        MarinError: the hub cannot be reached or refuses, or no file matches.
    """
    what = f"dataset {origin.dataset}"
    commit = persist(lambda: _resolve(origin), what, patience, log)
    files = persist(lambda: _tree(origin, commit), what, patience, log)
    chosen = set(matching((file.path for file in files), origin.files))
    if not chosen:
        example = f", for instance {files[0].path}" if files else ""
        raise MarinError(
            f"dataset {origin.dataset} has {len(files)} files at revision {origin.revision}{example}; none matches "
            f"{', '.join(origin.files)}; correct 'files' of source {source!r}"
        )
    return Listing.of(source, (file for file in files if file.path in chosen), commit)


def hub_remote(origin: HubOrigin, commit: str, path: str) -> WebRemote:
    """The remote for one file at a commit."""
    from huggingface_hub import get_session, hf_hub_url, is_offline_mode
    from huggingface_hub.errors import OfflineModeIsEnabled
    from huggingface_hub.utils import build_hf_headers

    with _asking(origin):
        if is_offline_mode():
            raise OfflineModeIsEnabled
    url = hf_hub_url(origin.dataset, path, repo_type="dataset", revision=commit, endpoint=endpoint())
    return WebRemote(url, build_hf_headers(), get_session, _checker(origin))


def endpoint() -> str:
    """Read when asked for: the library itself reads it once, when it is imported."""
    return os.environ.get("HF_ENDPOINT", "https://huggingface.co").rstrip("/")


def _resolve(origin: HubOrigin) -> str:
    from huggingface_hub import HfApi

    with _asking(origin):
        found = HfApi(endpoint=endpoint()).dataset_info(origin.dataset, revision=origin.revision, timeout=TIMEOUT)
    if not found.sha:
        raise MarinError(f"dataset {origin.dataset}: the hub names no commit for revision {origin.revision}")
    return found.sha


def _tree(origin: HubOrigin, commit: str) -> list[ListedFile]:
    from huggingface_hub.hf_api import RepoFile
    from huggingface_hub.utils import build_hf_headers, paginate

    # HfApi.list_repo_tree sends the same requests, and would wait for ever for a server that has gone silent.
    url = f"{endpoint()}/api/datasets/{origin.dataset}/tree/{commit}"
    with _asking(origin):
        entries = list(paginate(url, {"recursive": True, "expand": False}, build_hf_headers(), timeout=TIMEOUT))
    return [_listed(origin, commit, RepoFile(**entry)) for entry in entries if entry["type"] == "file"]


def _listed(origin: HubOrigin, commit: str, file: "RepoFile") -> ListedFile:
    address = f"hf://datasets/{origin.dataset}@{commit}/{file.path}"
    sha256 = file.lfs.sha256 if file.lfs else None
    return ListedFile(file.path, address, file.size, sha256, None if sha256 else file.blob_id)


def _checker(origin: HubOrigin) -> Callable[["httpx.Response"], None]:
    def check(response: "httpx.Response") -> None:
        from huggingface_hub.utils import hf_raise_for_status

        with _asking(origin):
            hf_raise_for_status(response)

    return check


@contextmanager
def _asking(origin: HubOrigin) -> Iterator[None]:
    """What the hub answers, in one line: final, or Interrupted."""
    from huggingface_hub.errors import (
        GatedRepoError,
        HfHubHTTPError,
        HFValidationError,
        OfflineModeIsEnabled,
        RemoteEntryNotFoundError,
        RepositoryNotFoundError,
        RevisionNotFoundError,
    )

    name, page = f"dataset {origin.dataset}", f"{endpoint()}/datasets/{origin.dataset}"
    try:
        with connected(endpoint()):
            yield
    except OfflineModeIsEnabled:
        raise MarinError(f"{name} cannot be had: HF_HUB_OFFLINE is set; unset it") from None
    except HFValidationError as error:
        raise MarinError(f"{name} is not a name that the hub knows ({error}); write owner/name") from None
    except GatedRepoError:
        raise MarinError(f"{name} is gated and {_who()}; ask for access at {page}, then set HF_TOKEN") from None
    except RevisionNotFoundError:
        raise MarinError(f"{name} has no revision {origin.revision!r}; see {page}/commits/main") from None
    except RemoteEntryNotFoundError:
        raise MarinError(f"{name}: a listed file is gone at revision {origin.revision!r}; see {page}") from None
    except RepositoryNotFoundError:
        raise MarinError(
            f"{name} at revision {origin.revision!r} is not there, or private and {_who()}; see {page}, and set "
            f"HF_TOKEN if it is private"
        ) from None
    except HfHubHTTPError as error:
        status = error.response.status_code
        if status in PASSING:
            raise Interrupted(f"the hub answers {status}", retry_after(error.response.headers)) from None
        if status in (401, 403):
            raise MarinError(f"{name} is refused and {_who()}; see {page}, then set HF_TOKEN") from None
        raise MarinError(f"{name} cannot be had: the hub answers {status} for {error.response.url}") from None


def _who() -> str:
    from huggingface_hub import get_token

    return "the token in use has no access" if get_token() else "there is no token"
