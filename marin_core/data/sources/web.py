"""A file of a web server as a `Remote`: ranges, what the server says of the file, and what its refusals mean."""

import base64
import re
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from email.utils import parsedate_to_datetime
from functools import cache
from typing import TYPE_CHECKING, NoReturn
from urllib.parse import urlsplit

from marin_core.data.sources.patience import Interrupted
from marin_core.data.sources.remote import Body, Unresumable, Version
from marin_core.errors import MarinError

if TYPE_CHECKING:
    import httpx

# Seconds to connect, and between two packets.
TIMEOUT = 60.0
PASSING = (408, 425, 429, 500, 502, 503, 504)
_CONTENT_RANGE = re.compile(r"bytes (\d+)-\d+/(\d+|\*)")


def refuse(response: "httpx.Response") -> NoReturn:
    """Raise what an error status means: Interrupted if it passes, else MarinError."""
    status = f"{response.status_code} {response.reason_phrase}".strip()
    if response.status_code in PASSING:
        raise Interrupted(f"the server answers {status}", retry_after(response.headers))
    advice = "check the credentials" if response.status_code in (401, 403) else "check the URL of the source's entry"
    raise MarinError(f"{response.url} cannot be had: the server answers {status}; {advice}")


@cache
def plain_client() -> "httpx.Client":
    import httpx

    return httpx.Client(follow_redirects=True)


@dataclass(frozen=True)
class WebRemote:
    """The file at `url`. `check` raises for a response with an error status."""

    url: str
    headers: Mapping[str, str] | None = None
    client: Callable[[], "httpx.Client"] = plain_client
    check: Callable[["httpx.Response"], None] = refuse

    @contextmanager
    def open(self, start: int, tag: str | None) -> Iterator[Body]:
        # Compressed on the way, a file has neither its size nor its ranges.
        headers = {**(self.headers or {}), "Accept-Encoding": "identity"}
        if start:
            headers |= {"Range": f"bytes={start}-"} | ({"If-Range": tag} if tag else {})
        with connected(self.url), self.client().stream("GET", self.url, headers=headers, timeout=TIMEOUT) as response:
            if response.status_code == 416:
                raise Unresumable("the server has no bytes where the last try ended")
            if response.is_error:
                response.read()
                self.check(response)
            yield _body(response)


@contextmanager
def connected(url: str) -> Iterator[None]:
    """What a network may do to a request, as Interrupted."""
    import httpx

    try:
        yield
    except (httpx.UnsupportedProtocol, httpx.InvalidURL, httpx.TooManyRedirects) as error:
        raise MarinError(f"{url} cannot be had: {error}; check the URL of the source's entry") from None
    except (httpx.ConnectError, httpx.ConnectTimeout) as error:
        raise Interrupted(f"{urlsplit(url).netloc} cannot be reached: {_words(error)}") from None
    except (httpx.TransportError, httpx.StreamError) as error:
        raise Interrupted(f"the connection to {urlsplit(url).netloc} broke: {_words(error)}") from None


def md5_of(value: str) -> str | None:
    """An MD5 in hex from the Base64 that headers and stores have it in, None from anything else."""
    try:
        digest = base64.b64decode(value, validate=True)
    except ValueError:
        return None
    return digest.hex() if len(digest) == 16 else None


def _words(error: Exception) -> str:
    return str(error) or type(error).__name__


def retry_after(headers: Mapping[str, str]) -> float:
    """Seconds that a response asks to wait, 0 if it does not ask: a number, a date, or a hub's rate limit."""
    value = headers.get("retry-after", "").strip()
    if value.isdigit():
        return float(value)
    if limit := re.search(r"r=0\s*;\s*t=(\d+)", headers.get("ratelimit", "")):
        return float(limit[1])
    try:
        return max((parsedate_to_datetime(value) - datetime.now(UTC)).total_seconds(), 0.0)
    except (ValueError, TypeError):
        return 0.0


def _body(response: "httpx.Response") -> Body:
    headers = response.headers
    # A weak tag does not promise the same bytes.
    etag = headers.get("etag", "")
    tag = etag if etag.startswith('"') else headers.get("last-modified")
    if response.status_code == 206:
        found = _CONTENT_RANGE.match(headers.get("content-range", ""))
        if not found:
            raise Unresumable(f"the server's range is {headers.get('content-range')!r}")
        size = None if found[2] == "*" else int(found[2])
        return Body(int(found[1]), Version(size, tag), response.iter_raw())
    length = headers.get("content-length", "")
    version = Version(int(length) if length.isdigit() else None, tag, _md5(headers))
    return Body(0, version, response.iter_raw())


def _md5(headers: Mapping[str, str]) -> str | None:
    """The MD5 of a whole file, in hex, where the server is known to mean that."""
    if value := headers.get("content-md5"):
        return md5_of(value)
    if headers.get("x-goog-stored-content-encoding", "identity") == "identity":
        for part in headers.get("x-goog-hash", "").split(","):
            if part.strip().startswith("md5="):
                return md5_of(part.strip().removeprefix("md5="))
    etag = headers.get("etag", "").strip('"')
    plain = "AmazonS3" in headers.get("server", "") and "aws:kms" not in headers.get("x-amz-server-side-encryption", "")
    return etag if plain and re.fullmatch(r"[0-9a-f]{32}", etag) else None
