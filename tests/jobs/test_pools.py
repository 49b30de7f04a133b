"""The table of pools against its own arithmetic and the vendors' pages, and the names that a person may give."""

import math
from urllib.parse import urlparse

import pytest

from marin_core.errors import MarinError
from marin_core.jobs.pools import Pool, all_pools, check_equal, parse_pool

TPUS = [pool for pool in all_pools() if pool.kind == "tpu"]
GPUS = [pool for pool in all_pools() if pool.kind == "gpu"]
# What the number in a slice's name counts for each chip (cloud.google.com/tpu/docs, a page per generation).
COUNTED_PER_CHIP = {"v4": 2, "v5e": 1, "v5p": 2, "v6e": 1, "tpu7x": 2}


def names(pools: list[Pool]) -> list[str]:
    return [pool.name for pool in pools]


def test_hosts_times_chips_per_host_are_the_chips_of_the_topology_and_of_the_name() -> None:
    assert len(TPUS) > 100
    for pool in TPUS:
        assert pool.topology is not None
        chips = math.prod(int(side) for side in pool.topology.split("x"))
        assert pool.hosts * pool.chips_per_host == pool.chips == chips, pool
        assert int(pool.name.rpartition("-")[2]) == chips * COUNTED_PER_CHIP[pool.family], pool


def test_a_slice_s_machine_is_named_by_its_chips_and_selected_by_its_topology() -> None:
    for pool in TPUS:
        assert pool.machine_type is not None and pool.machine_type.endswith(f"-{pool.chips_per_host}t"), pool
        assert pool.node_selector["cloud.google.com/gke-tpu-topology"] == pool.topology, pool
        assert pool.resource == "google.com/tpu", pool


def test_a_gpu_machine_is_one_host_of_the_chips_in_its_name() -> None:
    assert {pool.family for pool in GPUS} >= {"a100-40gb", "a100-80gb", "h100", "h200", "b200"}
    for pool in GPUS:
        assert (pool.slices, pool.hosts, pool.topology) == (1, 1, None), pool
        assert pool.name == f"{pool.family}-{pool.chips}", pool
        # The l4 machines are named by their vCPUs.
        counted = pool.host_cpus if pool.family == "l4" else pool.chips
        assert (pool.machine_type or "").rpartition("-")[2].removesuffix("g") == str(counted), pool
        assert pool.resource == "nvidia.com/gpu", pool


def test_no_two_pools_have_one_name_or_one_place_on_a_cluster() -> None:
    assert len(set(names(list(all_pools())))) == len(all_pools())
    places = {(p.machine_type, *sorted(p.node_selector.items())) for p in all_pools()}
    assert len(places) == len(all_pools())


def test_every_pool_has_its_sources_at_a_vendor() -> None:
    for pool in all_pools():
        hosts = {urlparse(source).hostname for source in pool.sources}
        assert "cloud.google.com" in hosts, pool
        assert hosts <= {"cloud.google.com", "www.nvidia.com"}, pool


@pytest.mark.parametrize(
    ("family", "largest", "hbm_gib", "peak_flops", "accelerator"),
    [
        ("v4", "v4-4096", 32, 275e12, "tpu-v4-podslice"),
        ("v5e", "v5litepod-256", 16, 197e12, "tpu-v5-lite-podslice"),
        ("v5p", "v5p-12288", 95, 459e12, "tpu-v5p-slice"),
        ("v6e", "v6e-256", 32, 918e12, "tpu-v6e-slice"),
        ("tpu7x", "tpu7x-4096", 192, 2307e12, "tpu7x"),
    ],
)
def test_the_generations_of_cloud_tpu(
    family: str, largest: str, hbm_gib: int, peak_flops: float, accelerator: str
) -> None:
    pools = [pool for pool in TPUS if pool.family == family]
    assert max(pools, key=lambda pool: pool.chips).name == largest
    assert {pool.hbm_gib for pool in pools} == {hbm_gib}
    assert {pool.peak_flops for pool in pools} == {peak_flops}
    assert {pool.node_selector["cloud.google.com/gke-tpu-accelerator"] for pool in pools} == {accelerator}


@pytest.mark.parametrize(
    ("name", "topology", "chips", "hosts", "machine"),
    [
        ("v4-8", "2x2x1", 4, 1, "ct4p-hightpu-4t"),
        ("v4-1024", "8x8x8", 512, 128, "ct4p-hightpu-4t"),
        ("v5litepod-1", "1x1", 1, 1, "ct5lp-hightpu-1t"),
        ("v5litepod-16", "4x4", 16, 4, "ct5lp-hightpu-4t"),
        ("v5p-64", "2x4x4", 32, 8, "ct5p-hightpu-4t"),
        ("v5p-512", "4x8x8", 256, 64, "ct5p-hightpu-4t"),
        ("v5p-12288", "16x16x24", 6144, 1536, "ct5p-hightpu-4t"),
        ("v6e-8", "2x4", 8, 1, "ct6e-standard-8t"),
        ("v6e-256", "16x16", 256, 64, "ct6e-standard-4t"),
        ("h100-8", None, 8, 1, "a3-highgpu-8g"),
        ("b200-8", None, 8, 1, "a4-highgpu-8g"),
    ],
)
def test_rows_of_the_vendors_own_tables(name: str, topology: str, chips: int, hosts: int, machine: str) -> None:
    pool = parse_pool(name)
    assert (pool.topology, pool.chips, pool.hosts, pool.machine_type) == (topology, chips, hosts, machine)


@pytest.mark.parametrize(
    ("given", "name"),
    [
        ("v5e-16", "v5litepod-16"),
        ("V5P-64", "v5p-64"),
        ("4xv6e-256", "4xv6e-256"),
        ("4 × v6e-256", "4xv6e-256"),
        (" 2 x v5e-8 ", "2xv5litepod-8"),
        ("1xh100-8", "h100-8"),
        ("cpu-12", "cpu-12"),
    ],
)
def test_a_pool_has_one_name_however_it_is_written(given: str, name: str) -> None:
    pool = parse_pool(given)
    assert pool.name == name
    assert parse_pool(pool.name) == pool


def test_several_tpus_are_slices_and_several_machines_are_hosts() -> None:
    slices, machines, cpus = parse_pool("4xv6e-256"), parse_pool("2xh100-8"), parse_pool("3xcpu-2")
    assert (slices.slices, slices.hosts, slices.chips, slices.processes) == (4, 64, 1024, 256)
    assert (machines.slices, machines.hosts, machines.chips, machines.processes) == (1, 2, 16, 2)
    assert (cpus.slices, cpus.hosts, cpus.chips, cpus.processes) == (1, 3, 6, 3)


def test_jax_sees_a_chip_as_one_device_but_two_in_tpu7x_and_a_cpu_host_as_one() -> None:
    assert [parse_pool(name).devices for name in ("v5p-16", "v6e-8", "tpu7x-16", "2xh100-8", "2xcpu-4")] == [
        8,
        8,
        16,
        16,
        2,
    ]


def test_a_cpu_pool_asks_for_cores_and_their_memory_and_for_nothing_else() -> None:
    pool = parse_pool("cpu-4")
    assert (pool.chips, pool.host_cpus, pool.host_memory_gib) == (4, 4, 16)
    assert (pool.resource, pool.hbm_gib, pool.peak_flops, dict(pool.node_selector)) == (None, None, None, {})


@pytest.mark.parametrize(
    ("given", "meant"),
    [
        ("v5p-63", "did you mean v5p-32, v5p-64? "),
        ("v5e-17", "did you mean v5litepod-8, v5litepod-16? "),
        ("h100", "did you mean h100-"),
        ("cpu-0", "did you mean cpu-1"),
        ("v6p-8", "did you mean v"),
        ("gpu", ""),
        ("0xv6e-8", ""),
        ("", ""),
        ("v6e-8x4", ""),
    ],
)
def test_an_unknown_pool_is_refused_with_what_may_have_been_meant(given: str, meant: str) -> None:
    with pytest.raises(MarinError) as refusal:
        parse_pool(given)
    assert str(refusal.value).startswith(f"unknown pool {given!r}; {meant}")
    assert "`marin pools` prints all of them" in str(refusal.value)


def test_equal_pools_are_of_one_kind_with_as_many_slices_hosts_and_chips() -> None:
    assert names(list(check_equal(["v4-64", "v5p-64", "v5p-64"]))) == ["v4-64", "v5p-64", "v5p-64"]
    assert names(list(check_equal(["a100-80gb-8", "h100-8"]))) == ["a100-80gb-8", "h100-8"]


@pytest.mark.parametrize(
    "given",
    [["v5p-64", "v5p-128"], ["v6e-8", "h100-8"], ["v6e-16", "2xv6e-8"], ["cpu-4", "cpu-8"], ["v5litepod-8", "v6e-4"]],
    ids=" or ".join,
)
def test_unequal_pools_are_refused_with_both_shapes(given: list[str]) -> None:
    with pytest.raises(MarinError) as refusal:
        check_equal(given)
    assert all(parse_pool(name).name in str(refusal.value) for name in given)
    assert "a job may accept any of several equal pools" in str(refusal.value)


def test_no_pool_at_all_is_refused() -> None:
    with pytest.raises(MarinError, match="needs at least one pool"):
        check_equal([])
