"""Loading the code location: light, and needing neither network nor credentials nor environment."""

import subprocess
import sys

from tests.conftest import REPOSITORY, LabEnvironment

HEAVY = ("jax", "levanter", "datatrove", "transformers", "torch", "scipy", "polars", "matplotlib")
HEAVY += ("numpy", "pyarrow", "kubernetes", "google.cloud", "huggingface_hub", "wandb")


def test_the_code_location_loads_no_heavy_library(lab_environment: LabEnvironment) -> None:
    script = (
        "import sys, marin_assets.definitions as d; d.defs.resolve_asset_graph(); "
        f"print([m for m in {HEAVY!r} if m in sys.modules])"
    )
    result = lab_environment.run(sys.executable, "-c", script)
    assert result.stdout.strip() == "[]", result.stderr


def test_the_code_location_loads_without_any_environment(lab_environment: LabEnvironment) -> None:
    result = subprocess.run(
        [sys.executable, "-c", "import marin_assets.definitions"],
        cwd=REPOSITORY,
        env={"PATH": "/usr/bin:/bin", "HOME": str(lab_environment.folder)},
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr


def test_the_code_location_costs_less_than_dagster_itself(lab_environment: LabEnvironment) -> None:
    """In CPU time of one process, which other work on the machine changes little."""
    script = """
import time
began = time.process_time()
import dagster
of_dagster = time.process_time() - began
import marin_assets.definitions as d
d.defs.resolve_asset_graph()
print((time.process_time() - began - of_dagster) / of_dagster)
"""
    result = lab_environment.run(sys.executable, "-c", script)
    assert float(result.stdout) < 1.0, result.stderr


def test_definitions_are_valid(lab_environment: LabEnvironment) -> None:
    result = lab_environment.run("dagster", "definitions", "validate")
    assert result.returncode == 0, result.stderr


def test_an_unknown_profile_is_one_line(lab_environment: LabEnvironment) -> None:
    result = lab_environment.bash("MARIN_PROFILE=nowhere dagster asset materialize --select delphi/*")
    assert result.returncode != 0
    assert "unknown profile 'nowhere'" in result.stderr
    assert "laptop" in result.stderr
    assert "Traceback" not in result.stderr
