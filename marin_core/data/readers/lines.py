"""Lines out of chunks: blocks of whole lines, of bounded size whatever the lines are."""

from collections.abc import Iterable, Iterator

from marin_core.data.readers.compression import Unreadable
from marin_core.data.readers.fields import MAX_RECORD_BYTES
from marin_core.data.readers.rejects import OVERSIZED, FileRejects

BLOCK_BYTES = 8 << 20
_PIECE_BYTES = 1 << 20
_BOM = b"\xef\xbb\xbf"
_SAMPLE_BYTES = 1_000


def blocks_of_lines(chunks: Iterable[bytes], rejects: FileRejects) -> Iterator[tuple[int, bytes]]:
    """Whole lines, some megabytes at once, with the number of the first, from 1. The last line needs no line end; one
    of more than `MAX_RECORD_BYTES` (and up to a megabyte) is rejected without being kept.

    Raises:
        Unreadable: what `chunks` raised, after all whole lines, with the position of the line that is cut.
    """
    pending = _Pending(rejects)
    try:
        for piece in _pieces(chunks):
            pending.add(piece)
            if pending.size >= BLOCK_BYTES and pending.whole:
                yield pending.take_whole()
            elif pending.size > MAX_RECORD_BYTES:
                pending.skip_line()
    except Unreadable as error:
        if pending.whole:
            yield pending.take_whole()
        error.position, error.sample = pending.number, b"".join(pending.pieces)[:_SAMPLE_BYTES]
        raise
    if pending.size:
        yield pending.number, b"".join(pending.pieces)


class _Pending:
    """Bytes that no block has yet: `whole` of the `size` bytes are whole lines, the first is line `number`."""

    def __init__(self, rejects: FileRejects):
        self._rejects = rejects
        self.number, self.pieces, self.size, self.whole = 1, [], 0, 0
        self._skipping = False

    def add(self, piece: bytes) -> None:
        if self._skipping:
            _, end, piece = piece.partition(b"\n")
            if not end:
                return
            self._skipping = False
            self.number += 1
        end = piece.rfind(b"\n") + 1
        if end:
            self.whole = self.size + end
        self.pieces.append(piece)
        self.size += len(piece)

    def take_whole(self) -> tuple[int, bytes]:
        data = b"".join(self.pieces)
        block = data[: self.whole]
        number = self.number
        self._restart(data[self.whole :], number + block.count(b"\n"))
        return number, block

    def skip_line(self) -> None:
        sample = b"".join(self.pieces)[:_SAMPLE_BYTES]
        self._rejects.record(self.number, OVERSIZED, f"a line of more than {MAX_RECORD_BYTES:,} bytes", sample)
        self._restart(b"", self.number)
        self._skipping = True

    def _restart(self, rest: bytes, number: int) -> None:
        self.number, self.pieces, self.size, self.whole = number, [rest], len(rest), 0


def _pieces(chunks: Iterable[bytes]) -> Iterator[bytes]:
    first = True
    for chunk in chunks:
        start = len(_BOM) if first and chunk.startswith(_BOM) else 0
        first = False
        for at in range(start, len(chunk), _PIECE_BYTES):
            yield chunk[at : at + _PIECE_BYTES]
