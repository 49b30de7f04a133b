"""The `[place]` section of a profile: checked, and built into a `Place`."""

import os
import re
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

from marin_core import environment
from marin_core.data.sources.tables import FieldError, build_record, check_names, field_names, reading
from marin_core.jobs.kubernetes.place import KubernetesPlace
from marin_core.jobs.pools import Pool, all_pools, check_equal, parse_pool
from marin_core.profile.budgets import budget_of_key
from marin_core.profile.declaration import HubTarget, Place
from marin_core.publishing.ownership import BRANCHES
from marin_core.publishing.repository import MAIN, PUBLIC_HUB
from marin_core.store.regions import same_region

type Table = Mapping[str, Any]

# A profile names pools in the singular: it is one, but for those who have several equal ones.
_POOLS = {f"{kind}_pool": f"{kind}_pools" for kind in ("data", "suite", "heldout", "eval")}
_AT_LEAST = {
    "data_ranks": 1,
    "concurrent_assets": 1,
    "max_failures": 0,
    "max_preemptions": 0,
    "checkpoint_every_steps": 1,
    "termination_grace_seconds": 1,
}
_POSITIVE = ("checkpoint_every_seconds", "max_flops", "assumed_mfu", "max_queue_hours", "max_run_hours")
# What the API server accepts as the name of an object (RFC 1123 label).
_OBJECT_NAME = re.compile(r"[a-z0-9]([-a-z0-9]{0,61}[a-z0-9])?")
# What W&B accepts as the name of a project.
_WANDB_PROJECT = re.compile(r"[^/\\#?%:]{1,128}")
_VARIABLE = re.compile(r"[A-Za-z_][A-Za-z0-9_]*")
# A tag, as git and a hub accept it.
_TAG = re.compile(r"[A-Za-z0-9][A-Za-z0-9_.-]*(?<!\.)(?<!\.lock)")
_ENDPOINT = re.compile(r"https?://[^\s/?#]+(/[^\s?#]*)?")
_ZONE = re.compile(r"([a-z]+-[a-z]+\d+)-[a-z]\w*")


def build_place(table: Table) -> Place:
    """Reads MARIN_STORE, MARIN_IMAGE, WANDB_MODE, WANDB_PROJECT and HF_ENDPOINT, which win over the profile's `store`,
    `image`, `tracking`, `wandb_project` and the hub's `endpoint`.

    Raises:
        FieldError: a field is unknown, missing or wrong; the path leads to it.
    """
    names = {plural: singular for singular, plural in _POOLS.items()}
    check_names(table, [names.get(name, name) for name in field_names(Place)])
    kubernetes = _kubernetes(table["kubernetes"]) if "kubernetes" in table else None
    on_cluster = kubernetes is not None
    pools = {
        "data_pools": _pools(table, "data_pool", on_cluster=on_cluster),
        "suite_pools": _pools(table, "suite_pool", on_cluster=on_cluster),
        "heldout_pools": _heldout_pools(table, on_cluster=on_cluster),
        "eval_pools": _eval_pools(table, on_cluster=on_cluster),
    }
    rest = {key: value for key, value in table.items() if key not in _POOLS}
    store = _store(table.get("store"), on_cluster=on_cluster)
    if "hub" in rest:
        with reading("hub"):
            rest["hub"] = _hub(_subtable(rest, "hub"))
    place = build_record(Place, {**rest, "store": store, "kubernetes": kubernetes} | pools)
    place = _tracked(_with_hub(place))
    _check_numbers(place)
    if place.assumed_mfu > 1:
        raise FieldError(f"assumed_mfu is {place.assumed_mfu:g}; give a share of the peak, up to 1", "assumed_mfu")
    _check_prices(place.prices)
    _check_regions(place)
    return place


def _tracked(place: Place) -> Place:
    """With what the environment says of tracking, which pods are told, too."""
    tracking, project = environment.tracking() or place.tracking, environment.wandb_project() or place.wandb_project
    if not _WANDB_PROJECT.fullmatch(project):
        path = () if environment.wandb_project() else ("wandb_project",)
        raise FieldError(f"wandb_project is {project!r}; give 1 to 128 characters without any of / \\ # ? % :", *path)
    place = replace(place, tracking=tracking, wandb_project=project)
    if place.kubernetes is None:
        return place
    env = {**place.tracking_variables, **place.kubernetes.env}
    return replace(place, kubernetes=replace(place.kubernetes, env=env))


def _kubernetes(table: Any) -> KubernetesPlace:
    with reading("kubernetes"):
        if not isinstance(table, Mapping):
            raise FieldError("kubernetes is not a table; give one, [place.kubernetes]")
        check_names(table, field_names(KubernetesPlace))
        image = environment.image() or table.get("image")
        if image is None:
            raise FieldError("jobs on a cluster need an image; set MARIN_IMAGE, or image in [place.kubernetes]")
        place = build_record(KubernetesPlace, {**table, "image": image})
        _check_numbers(place)
        for key in ("namespace", "service_account", "queue", "priority_class", "env_from_secret"):
            name = getattr(place, key)
            if name is not None and not _OBJECT_NAME.fullmatch(name):
                message = f"{key} is {name!r}; give a name of up to 63 lower case letters, digits and -"
                raise FieldError(message, key)
        if zone := _ZONE.fullmatch(place.region):
            raise FieldError(f"region is the zone {place.region!r}; give its region, {zone[1]!r}", "region")
        if not place.scratch.startswith("/"):
            raise FieldError(f"scratch is {place.scratch!r}; give an absolute path, such as /scratch", "scratch")
        if not place.worker_command:
            raise FieldError("worker_command is empty; give the program and its arguments", "worker_command")
        for name in place.env:
            if not _VARIABLE.fullmatch(name):
                raise FieldError(f"{name!r} is not the name of an environment variable", "env", name)
        return place


def _pools(table: Table, key: str, *, on_cluster: bool) -> tuple[str, ...]:
    if key not in table:
        raise FieldError(f"field {key!r} is missing; give a pool such as cpu-4 (`marin pools` prints all of them)")
    names = [table[key]] if isinstance(table[key], str) else table[key]
    if not (isinstance(names, list) and all(isinstance(name, str) for name in names)):
        raise FieldError(f"{key} is {table[key]!r}; give a pool such as 'cpu-4', or a list of equal ones", key)
    with reading(key):
        pools = check_equal(names)
    for pool in pools:
        _check_pool(pool, key, on_cluster=on_cluster)
    return tuple(pool.name for pool in pools)


def _heldout_pools(table: Table, *, on_cluster: bool) -> dict[float | None, tuple[str, ...]]:
    """By budget where the profile has a table, else under None."""
    if not isinstance(table.get("heldout_pool"), Mapping):
        return {None: _pools(table, "heldout_pool", on_cluster=on_cluster)}
    pools: dict[float | None, tuple[str, ...]] = {}
    with reading("heldout_pool"):
        for budget, value in table["heldout_pool"].items():
            with reading(budget):
                flops = budget_of_key(budget, value)
            pools[flops] = _pools(table["heldout_pool"], budget, on_cluster=on_cluster)
    return pools


def _eval_pools(table: Table, *, on_cluster: bool) -> tuple[str, ...]:
    """Those of one process: an evaluation is not shared by several."""
    key = "eval_pool" if "eval_pool" in table else "suite_pool"
    names = _pools(table, key, on_cluster=on_cluster)
    for name in names:
        if (processes := parse_pool(name).processes) > 1:
            raise FieldError(
                f"evaluations run in one process, and {name} has {processes}; give a pool of one host in eval_pool", key
            )
    return names


def _hub(table: Table) -> HubTarget:
    hub = build_record(HubTarget, table)
    if not _TAG.fullmatch(hub.tag) or ".." in hub.tag:
        raise FieldError(f"tag is {hub.tag!r}; give letters, digits, _, . and -, such as released", "tag")
    if hub.tag == MAIN or hub.tag.startswith(BRANCHES):
        raise FieldError(f"tag is {hub.tag!r}; give a name that no branch has, such as released", "tag")
    if hub.endpoint is not None and not _ENDPOINT.fullmatch(hub.endpoint):
        raise FieldError(f"endpoint is {hub.endpoint!r}; give the URL of a hub, such as {PUBLIC_HUB}", "endpoint")
    return hub


def _with_hub(place: Place) -> Place:
    """With the hub that the environment names, that of this process or else of pods: a publication says which it is
    for."""
    chosen = os.environ.get("HF_ENDPOINT") or place.hub.endpoint
    if not chosen and place.kubernetes:
        chosen = place.kubernetes.env.get("HF_ENDPOINT")
    if chosen and not _ENDPOINT.fullmatch(chosen):
        raise FieldError(f"HF_ENDPOINT is {chosen!r}; set it to the URL of a hub, such as {PUBLIC_HUB}")
    endpoint = chosen.rstrip("/") if chosen else None
    return replace(place, hub=replace(place.hub, endpoint=None if endpoint == PUBLIC_HUB else endpoint))


def _subtable(table: Table, key: str) -> Table:
    if not isinstance(table[key], Mapping):
        raise FieldError(f"{key} is not a table; give one, [place.{key}]")
    return table[key]


def _check_pool(pool: Pool, key: str, *, on_cluster: bool) -> None:
    if pool.kind == "cpu" and pool.processes == 1:
        return
    if not on_cluster:
        remedy = "give cpu-N, or say which cluster in [place.kubernetes]"
        raise FieldError(f"{key} is {pool.name}, but jobs are processes on this machine; {remedy}", key)
    if key == "data_pool":
        remedy = "give cpu-N, and in data_ranks how many of them share a stage"
        raise FieldError(f"data_pool is {pool.name}, but a data stage runs on the cores of single hosts; {remedy}", key)


def _store(store: Any, *, on_cluster: bool) -> str:
    chosen = environment.store_root() or store
    if chosen is None and on_cluster:
        message = "jobs on a cluster need a store that its pods reach; set MARIN_STORE, or store in [place], to a URL"
        raise FieldError(f"{message} such as gs://bucket/lab")
    if chosen is None:
        chosen = str(environment.state_folder() / "store")
    if not isinstance(chosen, str):
        raise FieldError(f"store is {chosen!r}; give a folder, or a URL such as gs://bucket/lab", "store")
    if "://" in chosen:
        return chosen.rstrip("/")
    if on_cluster:
        path = () if environment.store_root() else ("store",)
        message = f"the store is the folder {chosen}, which pods of a cluster cannot reach; give a URL in MARIN_STORE"
        raise FieldError(f"{message} or store, such as gs://bucket/lab", *path)
    return str(Path(chosen).expanduser().resolve())


def _check_numbers(record: Place | KubernetesPlace) -> None:
    for name, least in _AT_LEAST.items():
        value = getattr(record, name, None)
        if value is not None and value < least:
            raise FieldError(f"{name} is {value}; give at least {least}", name)
    for name in _POSITIVE:
        value = getattr(record, name, None)
        if value is not None and not value > 0:
            raise FieldError(f"{name} is {value:g}; give a positive number", name)


def _check_prices(prices: Mapping[str, float]) -> None:
    if not prices:
        return  # the table of pools is not read at every start for nothing
    families = sorted({"cpu", *(pool.family for pool in all_pools())})
    with reading("prices"):
        check_names(prices, families)
        for family, price in prices.items():
            if not price >= 0:
                raise FieldError(f"the price of {family} is {price:g}; give US dollars per chip-hour", family)


def _check_regions(place: Place) -> None:
    if place.kubernetes is None or place.bucket_region is None:
        return
    if not same_region(place.bucket_region, place.kubernetes.region):
        raise FieldError(
            f"bucket_region is {place.bucket_region}, but the pools are in {place.kubernetes.region}: every byte would "
            "cross regions; use a bucket there, or node pools where the bucket is",
            "bucket_region",
        )
