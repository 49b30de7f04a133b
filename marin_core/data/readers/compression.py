"""Streams of decompressed bytes that deliver all that can be read before they say what is wrong with the rest."""

import bz2
import lzma
import zlib
from collections.abc import Callable, Iterator
from typing import IO, Any

from marin_core.data.readers.rejects import DAMAGED, TRAILING_GARBAGE, TRUNCATED

# A zstd block of a few bytes can stand for 128 KiB: 8 KiB of input make at most 256 MiB.
_INPUT, _OUTPUT = 8 << 10, 4 << 20


class Unreadable(Exception):
    """The rest of a file cannot be read. `unread_bytes` of the file, as it is stored, are lost with it; whoever knows
    says at which `position` the rest begins, and how."""

    def __init__(self, kind: str, reason: str, unread_bytes: int):
        super().__init__(reason)
        self.kind, self.reason, self.unread_bytes = kind, reason, unread_bytes
        self.position, self.sample = 0, b""


class _Bounded:
    """A decompressor of the standard library with bounded output."""

    def __init__(self, inner: Any):
        self._inner = inner

    def decompress(self, data: bytes) -> bytes:
        tail = getattr(self._inner, "unconsumed_tail", b"")
        return self._inner.decompress(tail + data, _OUTPUT)

    @property
    def eof(self) -> bool:
        return self._inner.eof

    @property
    def unused_data(self) -> bytes:
        return self._inner.unused_data


def _zstd() -> Any:
    import zstandard

    return zstandard.ZstdDecompressor().decompressobj()


_DECOMPRESSORS: dict[str, Callable[[], Any]] = {
    ".gz": lambda: _Bounded(zlib.decompressobj(wbits=31)),
    ".bz2": lambda: _Bounded(bz2.BZ2Decompressor()),
    ".xz": lambda: _Bounded(lzma.LZMADecompressor()),
    ".zst": _zstd,
    ".zstd": _zstd,
}
COMPRESSIONS = tuple(_DECOMPRESSORS)


def compression_of(name: str) -> str | None:
    """The suffix that says how a file is compressed, None if it is not."""
    return next((suffix for suffix in COMPRESSIONS if name.endswith(suffix)), None)


def read_chunks(file: IO[bytes], name: str, size: int) -> Iterator[bytes]:
    """Non-empty chunks of a file of `size` stored bytes, decompressed as its name says; several members in a row too.

    Raises:
        Unreadable: after all that could be read: the file ends too early, is damaged, or has garbage after its end.
    """
    suffix = compression_of(name)
    if suffix is None:
        while chunk := file.read(1 << 20):
            yield chunk
        return
    make = _DECOMPRESSORS[suffix]
    members, at, data = 0, 0, file.read(_INPUT)
    while data or not members:
        member, start, produced = make(), at, 0
        try:
            while not member.eof:
                if not data:
                    raise Unreadable(TRUNCATED, f"{suffix[1:]} stream ends too early", size - at)
                for output in _outputs(member, data):
                    produced += len(output)
                    yield output
                at += len(data)
                data = member.unused_data if member.eof else file.read(_INPUT)
        except _Damage as damage:
            kind = TRAILING_GARBAGE if members and not produced else DAMAGED
            # A wrong checksum puts in doubt all that it covers.
            lost = size - (start if "check" in str(damage) else at)
            raise Unreadable(kind, f"{suffix[1:]} stream: {damage}", lost) from None
        members += 1
        at -= len(data)
        data = _next_member(file, data, padded=suffix in (".gz", ".xz"))


class _Damage(Exception):
    """What a decompressor said."""


def _outputs(member: Any, data: bytes) -> Iterator[bytes]:
    try:
        output = member.decompress(data)
        while output:
            yield output
            output = b"" if member.eof else member.decompress(b"")
    except Exception as error:  # each library has its own
        raise _Damage(str(error)) from None


def _next_member(file: IO[bytes], data: bytes, *, padded: bool) -> bytes:
    """Input from the beginning of the next member on, past the zeros that tapes and archivers leave."""
    data = data or file.read(_INPUT)
    while padded and data and not data.strip(b"\0"):
        data = file.read(_INPUT)
    return data.lstrip(b"\0") if padded else data
