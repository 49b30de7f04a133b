"""`defs`: everything Dagster sees, assembled by one function. Importable without network, store or credentials."""

import click
import dagster as dg

from marin_assets import console, recording, selection
from marin_assets.assets import all_assets
from marin_assets.recording import Recorder
from marin_assets.resources import LabResource
from marin_assets.sensors import recording_sensors
from marin_core.errors import MarinError
from marin_core.graph import LabGraph
from marin_core.profile import Profile, load_profile


def build_definitions(profile: Profile | None = None, *, lab: LabResource | None = None) -> dg.Definitions:
    """The definitions of a profile (default: MARIN_PROFILE). Tests pass their own profile or resource."""
    profile = profile or load_profile()
    assets = all_assets(LabGraph.of(profile))
    return dg.Definitions(
        assets=assets,
        sensors=recording_sensors(Recorder.of(profile, assets)),
        resources={"lab": lab or LabResource()},
        executor=_executor(profile.place.concurrent_assets),
    )


def _executor(concurrent_assets: int) -> dg.ExecutorDefinition:
    """Steps only ask for artifacts and wait: a process per step costs 60 times as much, and is worth it where stages of
    hours can run at the same time."""
    if concurrent_assets == 1:
        return dg.in_process_executor
    return dg.multiprocess_executor.configured({"max_concurrent": concurrent_assets}, name="multiprocess")


selection.install()
console.install()
try:
    defs = build_definitions()
except MarinError as error:
    raise click.ClickException(str(error)) from None
recording.install(lambda: Recorder.of(load_profile(), list(defs.assets or [])))
