"""Which process does what."""

import pytest

from marin_core.build import Rank
from marin_core.errors import MarinError
from marin_core.jobs.parts import Alone, Member, Sharer, gang_member, index_of, stage_share


def test_processes_of_a_gang_are_numbered_slice_by_slice() -> None:
    members = [gang_member(slice_, index, 8, 4, "host:8476") for slice_ in range(2) for index in range(4)]
    assert [member.index for member in members] == list(range(8))
    assert gang_member(0, 3, 4, None, "host:8476") == Member(3, 4, "host:8476")


@pytest.mark.parametrize(
    ("slice_", "index", "hosts", "coordinator", "message"),
    [
        (0, 0, None, None, "needs --coordinator HOST:PORT, found None"),
        (0, 0, None, "host", "needs --coordinator HOST:PORT, found 'host'"),
        (0, 4, 4, "host:1", "pod 4 of slice 0 has no place among 8 processes, 4 in each slice"),
        (2, 0, 4, "host:1", "pod 0 of slice 2 has no place among 8 processes, 4 in each slice"),
    ],
)
def test_a_pod_without_a_place_is_refused(
    slice_: int, index: int, hosts: int | None, coordinator: str | None, message: str
) -> None:
    with pytest.raises(MarinError, match=message):
        gang_member(slice_, index, 8, hosts, coordinator)


def test_a_rank_is_of_a_stage_or_of_one_phase() -> None:
    assert stage_share(2, 3, None, None) == Sharer(2, 3)
    assert stage_share(2, 3, "fetch", 7) == Rank("fetch", 2, 3, 7)
    with pytest.raises(MarinError, match="--rank 3 is not below --world 3"):
        stage_share(3, 3, None, None)
    with pytest.raises(MarinError, match="go together"):
        stage_share(0, 3, "fetch", None)


def test_one_process_leads() -> None:
    assert [index_of(part) for part in (Alone(), Sharer(2, 3), Member(4, 8, "host:1"), Rank("fetch", 1, 3, 7))] == [
        0,
        2,
        4,
        1,
    ]
