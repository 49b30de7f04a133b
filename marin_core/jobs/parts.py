"""Which part of a job one process does: all of it, or its share among processes that are started apart."""

from dataclasses import dataclass

from marin_core.build import Rank
from marin_core.errors import MarinError


@dataclass(frozen=True)
class Alone:
    """The whole job."""


@dataclass(frozen=True)
class Sharer:
    """One of `world` pods that share the items of a stage; rank 0 leads."""

    rank: int
    world: int


@dataclass(frozen=True)
class Member:
    """One of `processes` that train one model together; process 0 leads, and listens at `coordinator`, HOST:PORT."""

    index: int
    processes: int
    coordinator: str


Part = Alone | Sharer | Member | Rank


def index_of(part: Part) -> int:
    """Its number among the processes of the job; 0 leads."""
    match part:
        case Alone():
            return 0
        case Member():
            return part.index
        case _:
            return part.rank


def gang_member(slice_: int, index: int, processes: int, hosts: int | None, coordinator: str | None) -> Member:
    """The pod with this index in that slice, in a gang of `processes`, `hosts` of them in each slice (None: all).

    Raises:
        MarinError: there is no such place in the gang, or nobody said where its coordinator is.
    """
    per_slice = hosts or processes
    place = slice_ * per_slice + index
    if coordinator is None or ":" not in coordinator:
        raise MarinError(f"--processes {processes} needs --coordinator HOST:PORT, found {coordinator!r}")
    if index >= per_slice or place >= processes:
        raise MarinError(
            f"pod {index} of slice {slice_} has no place among {processes} processes, {per_slice} in each slice; check "
            f"--processes and --hosts"
        )
    return Member(place, processes, coordinator)


def stage_share(rank: int, world: int, phase: str | None, lease_token: int | None) -> Sharer | Rank:
    """A rank of a stage: of one phase for a writer elsewhere, or of the whole stage among pods.

    Raises:
        MarinError: the numbers do not fit together.
    """
    if rank >= world:
        raise MarinError(f"--rank {rank} is not below --world {world}")
    if phase is None and lease_token is None:
        return Sharer(rank, world)
    if phase is None or lease_token is None:
        raise MarinError("--phase and --lease-token go together")
    return Rank(phase, rank, world, lease_token)
