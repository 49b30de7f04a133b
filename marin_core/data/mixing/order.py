"""The order in which training sees sequences: a pure function of (mixture, seed, index), the same on every machine.

Only integer arithmetic that is written down here, so that no library's next release changes what a run saw. Which
sequences exist and how often each component is read is decided in `mixture.py`; what is in a sequence, in `replay.py`.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cached_property

import numpy as np
import numpy.typing as npt
import xxhash

from marin_core.data.mixing.config import Shuffle
from marin_core.errors import MarinError

Indices = npt.NDArray[np.int64]

_ROUNDS = 6
# Reading whole runs of neighbouring sequences, as Levanter's block shuffle does by default.
_IO_BLOCK, _WINDOW_BLOCKS = 256, 512


@dataclass(frozen=True)
class MixtureStage:
    """From sequence `start` on, every block holds `counts[name]` sequences of each component."""

    start: int
    counts: Mapping[str, int]


@dataclass(frozen=True)
class MixtureOrder:
    """Index of a training sequence -> (component, sequence of that component).

    Time is divided into blocks of `block_size` sequences in which each component has a fixed count, in an order drawn
    per block. A component's own order is drawn from the seed and its *name*: components that come, go or change places
    do not reshuffle the others. It is read again, in another order, when it is used up. `lengths` are in sequences;
    `usable` caps what a run may read of a component (simulated epoching).
    """

    block_size: int
    stages: Sequence[MixtureStage]
    lengths: Mapping[str, int]
    usable: Mapping[str, int]
    seed: int
    shuffle: Shuffle = "full"

    def __post_init__(self) -> None:
        if empty := sorted(name for name, usable in self.usable.items() if usable < 1):
            raise MarinError(
                f"mixture: {', '.join(empty)} has no whole sequence to read; give it more tokens, a shorter sequence "
                f"length, or leave it out"
            )

    @cached_property
    def names(self) -> list[str]:
        """Components by name; positions in it are the component numbers of `locate`."""
        return sorted(self.lengths)

    def locate(self, indices: Sequence[int] | Indices) -> tuple[Indices, Indices]:
        """(component number, sequence number in it) of each index."""
        wanted = np.asarray(indices, dtype=np.int64)
        components, ordinals = np.empty_like(wanted), np.empty_like(wanted)
        for block in np.unique(wanted // self.block_size):
            here = wanted // self.block_size == block
            slots = self._slots(int(block))
            components[here], ordinals[here] = slots[:, wanted[here] % self.block_size]
        sequences = np.empty_like(wanted)
        for number in np.unique(components):
            chosen = components == number
            sequences[chosen] = self._sequences(self.names[number], ordinals[chosen])
        return components, sequences

    def _slots(self, block: int) -> Indices:
        """(component number, how many sequences of it came before) for every slot of a block."""
        starts = np.array([stage.start // self.block_size for stage in self.stages])
        stage = int(np.searchsorted(starts, block, side="right")) - 1
        counts = np.array([self.stages[stage].counts.get(name, 0) for name in self.names], dtype=np.int64)
        before = counts * (block - starts[stage])
        for earlier in range(stage):
            passed = starts[earlier + 1] - starts[earlier]
            before += passed * np.array([self.stages[earlier].counts.get(n, 0) for n in self.names], dtype=np.int64)
        components = np.repeat(np.arange(len(self.names), dtype=np.int64), counts)
        within = np.arange(self.block_size) - np.repeat(np.cumsum(counts) - counts, counts)
        drawn = np.argsort(
            mix(np.arange(self.block_size, dtype=np.uint64), key(self.seed, "block", block)), kind="stable"
        )
        return np.stack([components, before[components] + within])[:, drawn]

    def _sequences(self, name: str, ordinals: Indices) -> Indices:
        usable = self.usable[name]
        epochs = ordinals // usable
        places = ordinals % usable
        for epoch in np.unique(epochs[epochs > 0]):
            again = epochs == epoch
            places[again] = permute(places[again], usable, key(self.seed, "epoch", name, int(epoch)))
        if self.shuffle == "block":
            return block_permute(places, self.lengths[name], key(self.seed, "component", name))
        return permute(places, self.lengths[name], key(self.seed, "component", name))


def key(seed: int, *parts: str | int) -> int:
    """64 bits drawn from a seed and what it is for."""
    return xxhash.xxh3_64_intdigest("/".join([str(seed), *map(str, parts)]).encode())


def permute(indices: Indices, length: int, key: int) -> Indices:
    """A pseudo-random permutation of [0, length), evaluated at `indices`: a Feistel network over the next power of
    four, walked until it is back inside."""
    half = np.uint64(max(1, (max(length - 1, 1).bit_length() + 1) // 2))
    mask = np.uint64((1 << int(half)) - 1)
    value = np.asarray(indices).astype(np.uint64)
    outside = np.ones(len(value), dtype=bool)
    while outside.any():
        left, right = value[outside] >> half, value[outside] & mask
        for number in range(_ROUNDS):
            left, right = right, left ^ (mix(right, key + number) & mask)
        value[outside] = (left << half) | right
        outside = value >= np.uint64(length)
    return value.astype(np.int64)


def block_permute(indices: Indices, length: int, key: int) -> Indices:
    """A permutation of [0, length) that keeps runs of 256 neighbours within one window of 512 such runs: whole runs are
    permuted, then the sequences of each window. The last, partial run stays last."""
    runs = length // _IO_BLOCK
    result = np.array(indices, dtype=np.int64)
    whole = result < runs * _IO_BLOCK
    window_size = _WINDOW_BLOCKS * _IO_BLOCK
    windows = result // window_size
    for window in np.unique(windows[whole]):
        here = whole & (windows == window)
        start = int(window) * window_size
        size = min(window_size, runs * _IO_BLOCK - start)
        within = start + permute(result[here] - start, size, key + 1 + int(window))
        result[here] = permute(within // _IO_BLOCK, runs, key) * _IO_BLOCK + within % _IO_BLOCK
    return result


def mix(values: npt.NDArray[np.uint64], key: int) -> npt.NDArray[np.uint64]:
    """SplitMix64's output function of each value under a key."""
    with np.errstate(over="ignore"):
        z = values * np.uint64(0x9E3779B97F4A7C15) + np.uint64(key & 0xFFFFFFFFFFFFFFFF)
        z = (z ^ (z >> np.uint64(30))) * np.uint64(0xBF58476D1CE4E5B9)
        z = (z ^ (z >> np.uint64(27))) * np.uint64(0x94D049BB133111EB)
        return z ^ (z >> np.uint64(31))
