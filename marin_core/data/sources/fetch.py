"""Files by URL: what a `UrlOrigin` lists, and the remote for a URL of any scheme."""

import gzip
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO, Any
from urllib.parse import unquote, urlsplit

from marin_core.data.sources.declaration import UrlOrigin
from marin_core.data.sources.listing import ListedFile
from marin_core.data.sources.patience import Interrupted, Log, Patience
from marin_core.data.sources.remote import Body, Remote, Version
from marin_core.data.sources.transfer import transfer
from marin_core.data.sources.web import PASSING, WebRemote, md5_of
from marin_core.errors import MarinError

_BLOCK = 8 << 20


def list_urls(origin: UrlOrigin, patience: Patience, log: Log) -> list[ListedFile]:
    """Every file that the origin names, in no particular order.

    Raises:
        MarinError: a listing or a prefix cannot be read, or no file is named.
    """
    files = [file for url in origin.urls for file in (_below(url) if url.endswith("/") else [_single(url)])]
    for listing in origin.listings:
        files += [_line(origin, line) for line in _read_lines(listing, patience, log)]
    chosen = [file for file in files if origin.containing in file.origin]
    if not chosen:
        raise MarinError(
            f"{', '.join([*origin.urls, *origin.listings])} name {len(files)} files and none contains "
            f"{origin.containing!r}; correct the source's entry"
        )
    return chosen


def open_remote(url: str) -> Remote:
    return WebRemote(url) if _on_the_web(url) else StoreRemote(url)


@dataclass(frozen=True)
class StoreRemote:
    """The file at a URL that fsspec opens: `gs://`, `s3://`, `file://`."""

    url: str

    @contextmanager
    def open(self, start: int, tag: str | None) -> Iterator[Body]:
        with reachable(self.url):
            fs, path = _filesystem(self.url)
            version = _version(fs.info(path))
            file = fs.open(path, "rb")
            start = file.seek(start if tag in (None, version.tag) else 0)
        # What the caller does with the bytes may fail too, and is not the store's fault.
        with file:
            yield Body(start, version, self._blocks(file))

    def _blocks(self, file: IO[bytes]) -> Iterator[bytes]:
        while True:
            with reachable(self.url):
                block = file.read(_BLOCK)
            if not block:
                return
            yield block


@contextmanager
def reachable(url: str) -> Iterator[None]:
    """What an object store says, in one line: final, or Interrupted."""
    try:
        yield
    except (MarinError, Interrupted):
        raise
    except FileNotFoundError:
        raise MarinError(f"{url} is not there; check the URL of the source's entry") from None
    except (PermissionError, IsADirectoryError) as error:
        raise MarinError(f"{url} cannot be read: {_first_line(error)}; check the URL and the credentials") from None
    except ImportError as error:
        raise MarinError(f"{url} needs the package {error.name!r}; install it, or the extra that has it") from None
    except OSError as error:
        raise Interrupted(f"{url} cannot be read: {_first_line(error)}") from None
    except Exception as error:  # every store has its own, mostly of credentials
        if getattr(error, "code", None) in PASSING or type(error).__module__.startswith("aiohttp"):
            raise Interrupted(f"{url} cannot be read: {_first_line(error)}") from None
        raise MarinError(f"{url} cannot be read: {_first_line(error)}; check the credentials") from None


def _single(url: str) -> ListedFile:
    if _on_the_web(url):
        return ListedFile(unquote(urlsplit(url).path).lstrip("/"), url)
    return ListedFile(url.split("://", 1)[1].lstrip("/"), url)


def _on_the_web(url: str) -> bool:
    return url.startswith(("http://", "https://"))


def _below(prefix: str) -> list[ListedFile]:
    if _on_the_web(prefix):
        raise MarinError(f"a web server does not list {prefix}; name its files in 'urls', or a text file in 'listings'")
    with reachable(prefix):
        fs, root = _filesystem(prefix)
        root = root.rstrip("/") + "/"
        found = fs.find(root, detail=True)
        return [
            ListedFile(path.removeprefix(root), str(fs.unstrip_protocol(path)), info.get("size"))
            for path, info in found.items()
            if path.startswith(root) and not path.endswith("/")
        ]


def _line(origin: UrlOrigin, line: str) -> ListedFile:
    if "://" in line:
        return _single(line)
    return ListedFile(unquote(line).lstrip("/"), f"{origin.base.rstrip('/')}/{line.lstrip('/')}")


def _read_lines(url: str, patience: Patience, log: Log) -> list[str]:
    with tempfile.TemporaryDirectory() as folder:
        local = Path(folder) / "listing"
        transfer(open_remote(url), ListedFile("listing", url), local, patience, log, url)
        data = local.read_bytes()
    try:
        text = (gzip.decompress(data) if data[:2] == b"\x1f\x8b" else data).decode()
    except (OSError, EOFError, ValueError) as error:
        raise MarinError(f"listing {url} is no text file of paths, plain or gzipped: {error}") from None
    return [line.strip() for line in text.splitlines() if line.strip()]


def _filesystem(url: str) -> tuple[Any, str]:
    from fsspec.core import url_to_fs

    return url_to_fs(url)


def _version(info: dict[str, Any]) -> Version:
    """A store's own facts of a file; a local one changes with its time."""
    tag = info.get("ETag") or info.get("etag") or info.get("generation") or info.get("mtime")
    return Version(info.get("size"), None if tag is None else str(tag), md5_of(info.get("md5Hash") or ""))


def _first_line(error: Exception) -> str:
    return getattr(error, "strerror", None) or (str(error).splitlines() or [type(error).__name__])[0]
