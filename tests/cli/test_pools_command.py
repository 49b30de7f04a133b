"""`marin pools` as a person or a script runs it."""

import json
from pathlib import Path

from marin_core.jobs.pools import all_pools, parse_pool
from tests.cli.test_recipe_command import marin


def answer(folder: Path, *arguments: str) -> str:
    """What a successful command printed."""
    result = marin(folder, *arguments)
    assert (result.returncode, result.stderr) == (0, "")
    return result.stdout


def test_the_table_has_a_line_for_every_pool_and_says_how_the_others_are_written(tmp_path: Path) -> None:
    printed = answer(tmp_path, "pools")
    lines = printed.splitlines()
    found = [line.split()[0] for line in lines if line.split() and line.split()[0] in {p.name for p in all_pools()}]
    assert found == [pool.name for pool in all_pools()]
    assert "cpu-N" in printed
    assert "4xv6e-256" in printed


def test_a_family_s_lines_have_the_figures_of_its_pools(tmp_path: Path) -> None:
    rows = [line.split() for line in answer(tmp_path, "pools", "--family", "v6e").splitlines() if " v6e " in line]
    assert rows[0] == ["v6e-1", "v6e", "1x1", "1", "1", "1", "32", "918", "ct6e-standard-1t"]
    assert rows[-1] == ["v6e-256", "v6e", "16x16", "256", "64", "4", "32", "918", "ct6e-standard-4t"]


def test_json_has_the_selectors_and_the_sources(tmp_path: Path) -> None:
    found = json.loads(answer(tmp_path, "pools", "--family", "h100", "--json"))
    assert [pool["name"] for pool in found] == ["h100-1", "h100-2", "h100-4", "h100-8"]
    assert {parse_pool(pool["name"]).machine_type for pool in found} == {pool["machine_type"] for pool in found}
    assert {pool["node_selector"]["cloud.google.com/gke-accelerator"] for pool in found} == {"nvidia-h100-80gb"}
    assert all(pool["sources"] for pool in found)


def test_an_unknown_family_is_refused_with_the_known_ones(tmp_path: Path) -> None:
    result = marin(tmp_path, "pools", "--family", "v9")
    assert (result.returncode, result.stdout) == (1, "")
    assert result.stderr.startswith("Error: no pools of family 'v9'; there are v4, v5e, v5p, v6e, tpu7x, a100-40gb")
    assert result.stderr.count("\n") == 1
