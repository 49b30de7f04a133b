"""The file system of a root, through which bulk data passes."""

import contextlib
from collections.abc import Iterable
from concurrent.futures import ThreadPoolExecutor
from typing import cast

import fsspec
from fsspec.config import conf
from fsspec.core import url_to_fs

_PARALLEL_READS = 32


def open_filesystem(root: str) -> fsspec.AbstractFileSystem:
    """The file system of a root that sees what other processes write.

    A client of an object store remembers listings, and then takes a file for absent that another rank wrote since, or
    for as long as it was before it was rebuilt. That is turned off for the whole process: Levanter and transformers
    open the same URLs with clients of their own.
    """
    scheme, separator, _ = root.partition("://")
    if separator:
        conf.setdefault(scheme, {})["use_listings_cache"] = False
    return url_to_fs(root)[0]


def read_files(fs: fsspec.AbstractFileSystem, urls: Iterable[str]) -> dict[str, bytes]:
    """The bytes of small files by URL, in the order given, many at a time; those that are not there are left out."""
    found: dict[str, bytes] = {}

    def read(url: str) -> bytes | None:
        with contextlib.suppress(FileNotFoundError):
            return cast("bytes", fs.cat_file(url))
        return None

    urls = list(urls)
    with ThreadPoolExecutor(_PARALLEL_READS) as pool:
        for url, data in zip(urls, pool.map(read, urls), strict=True):
            if data is not None:
                found[url] = data
    return found
