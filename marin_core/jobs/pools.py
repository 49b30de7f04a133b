"""Pools: the hardware that a job may ask for, by the name that a profile gives it. The table is `pools.toml`."""

import difflib
import re
import tomllib
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from functools import cache
from pathlib import Path
from typing import Any, Literal

from marin_core.errors import MarinError

# A machine's memory for each core that a `cpu-N` pool asks for.
_GIB_PER_CORE = 4
_COUNTED = re.compile(r"(?:(?P<count>[1-9]\d{0,3})\s*[x×]\s*)?(?P<name>[a-z][a-z0-9-]*)")
_CPU = re.compile(r"cpu-(?P<cores>[1-9]\d{0,3})")


@dataclass(frozen=True)
class Pool:
    """Hardware of one kind: `slices` slices of `hosts` hosts of `chips_per_host` chips (of cores, for `cpu`).

    A TPU slice shares one interconnect; several GPU or CPU machines are hosts of one slice. `topology` is in chips.
    `hbm_gib` and `peak_flops` (dense bfloat16 FLOP/s) are per chip, None for `cpu`. `host_cpus` and
    `host_memory_gib` are those of one whole host. `resource` is what a pod requests `chips_per_host` of.
    `devices_per_chip` is how many devices JAX sees in a chip. `sources` are URLs of the vendor's pages.
    """

    name: str
    family: str
    kind: Literal["tpu", "gpu", "cpu"]
    slices: int
    hosts: int
    chips_per_host: int
    topology: str | None
    hbm_gib: float | None
    peak_flops: float | None
    machine_type: str | None
    node_selector: Mapping[str, str]
    resource: str | None
    host_cpus: int
    host_memory_gib: int
    devices_per_chip: int = 1
    sources: tuple[str, ...] = field(default=(), repr=False)

    @property
    def chips(self) -> int:
        """Of all slices and hosts together; cores, for `cpu`."""
        return self.slices * self.hosts * self.chips_per_host

    @property
    def processes(self) -> int:
        """One process a host."""
        return self.slices * self.hosts

    @property
    def devices(self) -> int:
        """JAX devices of all processes together; a CPU process has one, whatever its cores."""
        return self.processes if self.kind == "cpu" else self.chips * self.devices_per_chip


def parse_pool(name: str) -> Pool:
    """The pool of a name: `cpu-4`, `h100-8`, `v5p-64`, `v5e-16` (that is `v5litepod-16`), `4xv6e-256`, `2xh100-8`.

    Raises:
        MarinError: no such pool; the message has the nearest names.
    """
    match = _COUNTED.fullmatch(" ".join(name.lower().split()))
    single = _single(match["name"]) if match else None
    if match is None or single is None:
        near = _near(match["name"] if match else name)
        meant = f"did you mean {', '.join(near)}? " if near else ""
        raise MarinError(f"unknown pool {name!r}; {meant}`marin pools` prints all of them")
    return _several(single, int(match["count"] or 1))


def check_equal(pools: Sequence[str]) -> tuple[Pool, ...]:
    """The pools of names that one job may use interchangeably.

    Raises:
        MarinError: there are none, a name is unknown, or they differ in kind, slices, hosts or chips per host.
    """
    if not pools:
        raise MarinError("a job needs at least one pool; `marin pools` prints all of them")
    parsed = tuple(parse_pool(name) for name in pools)
    first = parsed[0]
    for other in parsed[1:]:
        if _shape(other) != _shape(first):
            raise MarinError(
                f"pools {first.name} ({_shape_text(first)}) and {other.name} ({_shape_text(other)}) differ; a job may "
                "accept any of several equal pools: give pools of one kind with as many slices, hosts and chips"
            )
    return parsed


def all_pools() -> tuple[Pool, ...]:
    """Every pool that has a name of its own; `cpu-N` and multiples (`4xv6e-256`) follow from these."""
    return tuple(_table().values())


def _shape(pool: Pool) -> tuple[str, int, int, int]:
    return pool.kind, pool.slices, pool.hosts, pool.chips_per_host


def _shape_text(pool: Pool) -> str:
    unit = "cores" if pool.kind == "cpu" else f"{pool.kind.upper()} chips"
    return f"{pool.slices} × {pool.hosts} × {pool.chips_per_host} {unit}"


def _single(name: str) -> Pool | None:
    if match := _CPU.fullmatch(name):
        return _cpu(int(match["cores"]))
    return _table().get(re.sub(r"^v5e-", "v5litepod-", name))


def _near(name: str) -> list[str]:
    """Names that may have been meant: of the same family the nearest sizes, else names that look alike."""
    family, _, size = name.replace("v5e-", "v5litepod-").rpartition("-")
    sizes = sorted(int(known.rpartition("-")[2]) for known in _table() if known.rpartition("-")[0] == family)
    if sizes and size.isdecimal():
        nearest = sorted(sizes, key=lambda other: abs(other - int(size)))[:2]
        return [f"{family}-{other}" for other in sorted(nearest)]
    return difflib.get_close_matches(name, [*_table(), "cpu-1"], n=3, cutoff=0.5)


def _several(pool: Pool, count: int) -> Pool:
    if count == 1:
        return pool
    name = f"{count}x{pool.name}"
    return replace(pool, name=name, slices=count) if pool.kind == "tpu" else replace(pool, name=name, hosts=count)


def _cpu(cores: int) -> Pool:
    return Pool(
        name=f"cpu-{cores}",
        family="cpu",
        kind="cpu",
        slices=1,
        hosts=1,
        chips_per_host=cores,
        topology=None,
        hbm_gib=None,
        peak_flops=None,
        machine_type=None,
        node_selector={},
        resource=None,
        host_cpus=cores,
        host_memory_gib=_GIB_PER_CORE * cores,
    )


@cache
def _table() -> Mapping[str, Pool]:
    data = tomllib.loads(Path(__file__).with_suffix(".toml").read_text())
    machines = data["machines"]
    pools = [pool for family, row in data["tpu"].items() for pool in _tpus(family, row, machines)]
    pools += [pool for family, row in data["gpu"].items() for pool in _gpus(family, row, machines)]
    return {pool.name: pool for pool in pools}


def _tpus(family: str, data: Mapping[str, Any], machines: Mapping[str, list[int]]) -> Iterator[Pool]:
    for name, topology, hosts, *machine in data["pools"]:
        machine_type = machine[0] if machine else data["machine"]
        chips, cpus, memory = machines[machine_type]
        yield Pool(
            name=name,
            family=family,
            kind="tpu",
            slices=1,
            hosts=hosts,
            chips_per_host=chips,
            topology=topology,
            hbm_gib=data["hbm_gib"],
            peak_flops=data["peak_flops"],
            machine_type=machine_type,
            node_selector={
                "cloud.google.com/gke-tpu-accelerator": data["accelerator"],
                "cloud.google.com/gke-tpu-topology": topology,
            },
            resource="google.com/tpu",
            host_cpus=cpus,
            host_memory_gib=memory,
            devices_per_chip=data.get("devices_per_chip", 1),
            sources=tuple(data["sources"]),
        )


def _gpus(family: str, data: Mapping[str, Any], machines: Mapping[str, list[int]]) -> Iterator[Pool]:
    for machine_type in data["machines"]:
        chips, cpus, memory = machines[machine_type]
        yield Pool(
            name=f"{family}-{chips}",
            family=family,
            kind="gpu",
            slices=1,
            hosts=1,
            chips_per_host=chips,
            topology=None,
            hbm_gib=data["hbm_gib"],
            peak_flops=data["peak_flops"],
            machine_type=machine_type,
            node_selector={"cloud.google.com/gke-accelerator": data["accelerator"]},
            resource="nvidia.com/gpu",
            host_cpus=cpus,
            host_memory_gib=memory,
            sources=tuple(data["sources"]),
        )
