"""The shipped profiles load without network or credentials, and are what their names say."""

import pytest

from marin_core.errors import MarinError
from marin_core.graph import LabGraph
from marin_core.jobs.pools import parse_pool
from marin_core.profile import Place, Profile, load_profile
from marin_core.profile.layers import shipped_profiles
from marin_core.recipes import TrainPlan
from marin_core.recipes.footprint import least_hbm_bytes

ON_CLUSTERS = ("gke", "gke-smoke")


@pytest.fixture(autouse=True)
def a_labs_own(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MARIN_STORE", "gs://bucket/lab")
    monkeypatch.setenv("MARIN_IMAGE", "registry/lab:1")


def plans(profile: Profile) -> list[TrainPlan]:
    return [TrainPlan.from_json(cell.config["plan"]) for cell in LabGraph.of(profile).cells.values()]


def pools(place: Place) -> tuple[str, ...]:
    heldout = [pool for pools in place.heldout_pools.values() for pool in pools]
    return (*place.data_pools, *place.suite_pools, *place.eval_pools, *heldout)


@pytest.mark.parametrize("name", shipped_profiles())
def test_it_loads_under_its_name(name: str) -> None:
    profile = load_profile(name)
    assert profile.name == name
    assert (profile.place.kubernetes is not None) == (name in ON_CLUSTERS)


@pytest.mark.parametrize(("cluster", "local"), [("gke", "delphi"), ("gke-smoke", "laptop")])
def test_a_cluster_changes_the_place_and_nothing_else(cluster: str, local: str) -> None:
    assert load_profile(cluster).scale == load_profile(local).scale
    assert load_profile(cluster).place != load_profile(local).place


def test_no_artifact_of_the_smoke_test_is_another_than_the_laptops() -> None:
    smoke, laptop = (LabGraph.of(load_profile(name)) for name in ("gke-smoke", "laptop"))
    assert [spec.fingerprint for spec in smoke.unpartitioned()] == [spec.fingerprint for spec in laptop.unpartitioned()]
    assert {key: spec.fingerprint for key, spec in smoke.cells.items()} == {
        key: spec.fingerprint for key, spec in laptop.cells.items()
    }


def test_the_smoke_test_needs_no_accelerator() -> None:
    assert {parse_pool(pool).kind for pool in pools(load_profile("gke-smoke").place)} == {"cpu"}


def test_every_run_of_the_suite_fits_the_suites_pools() -> None:
    profile = load_profile("gke")
    for pool in map(parse_pool, profile.place.suite_pools):
        assert pool.hbm_gib is not None
        for plan in plans(profile):
            assert plan.batch_size % pool.chips == 0
            assert least_hbm_bytes(plan) <= pool.chips * pool.hbm_gib * 2**30


def test_every_held_out_run_fits_the_pools_of_its_budget() -> None:
    profile = load_profile("gke")
    recipe = profile.scale.recipe
    for flops in profile.scale.heldout_budgets:
        plan = TrainPlan.of(recipe, recipe.optimal(flops), eval_sequences=4096)
        for pool in map(parse_pool, profile.place.heldout_pools_of(flops)):
            assert plan.batch_size % pool.chips == 0
            assert least_hbm_bytes(plan) <= pool.chips * (pool.hbm_gib or 0) * 2**30


def test_the_suite_and_the_held_out_runs_are_allowed_once_but_not_twice() -> None:
    profile = load_profile("gke")
    suite = sum(plan.flops for plan in plans(profile))
    heldout = sum(run.flops for run in LabGraph.of(profile).heldout_partitions.values())
    assert profile.place.max_flops is not None
    assert suite < heldout <= profile.place.max_flops < 2 * heldout


def test_a_budget_without_a_pool_of_its_own_is_told_where_to_get_one() -> None:
    place = load_profile("gke").place
    assert place.heldout_pools_of(1e23) == ("v5p-1024",)
    with pytest.raises(MarinError, match="heldout_pool has pools for 1e21, 1e22, 1e23 FLOPs, none for 1e24; add one"):
        place.heldout_pools_of(1e24)


def test_every_pool_of_the_full_scale_has_a_price() -> None:
    place = load_profile("gke").place
    assert {parse_pool(pool).family for pool in pools(place)} <= set(place.prices)


@pytest.mark.parametrize("name", ON_CLUSTERS)
def test_only_a_dry_run_needs_neither_store_nor_image(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    whole = load_profile(name)
    monkeypatch.delenv("MARIN_STORE")
    monkeypatch.delenv("MARIN_IMAGE")
    with pytest.raises(MarinError, match=rf"/{name}\.toml, line \d+: jobs on a cluster need an image; set MARIN_IMAGE"):
        load_profile(name)
    dry = load_profile(name, dry=True)
    assert dry.scale == whole.scale
    assert dry.place.suite_pools == whole.place.suite_pools
