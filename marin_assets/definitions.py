"""`defs`: everything Dagster sees, assembled by one function. Importable without network, store or credentials."""

import click
import dagster as dg

from marin_assets import console, selection
from marin_assets.assets import all_assets
from marin_assets.resources import LabResource
from marin_core.errors import MarinError
from marin_core.graph import LabGraph
from marin_core.profile import Profile, load_profile


def build_definitions(profile: Profile | None = None, *, lab: LabResource | None = None) -> dg.Definitions:
    """The definitions of a profile (default: MARIN_PROFILE). Tests pass their own profile or resource."""
    graph = LabGraph.of(profile or load_profile())
    return dg.Definitions(
        assets=all_assets(graph),
        resources={"lab": lab or LabResource()},
        # Steps only ask for artifacts and wait; a process per step would cost 60 times as much and bring nothing.
        executor=dg.in_process_executor,
    )


selection.install()
console.install()
try:
    defs = build_definitions()
except MarinError as error:
    raise click.ClickException(str(error)) from None
