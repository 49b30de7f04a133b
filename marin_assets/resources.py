"""The lab as a Dagster resource."""

from typing import Any

import dagster as dg

from marin_assets.command_line import typed_command
from marin_assets.lab import Lab
from marin_assets.run_tags import tag_run
from marin_core.errors import MarinError
from marin_core.profile import load_profile


class LabResource(dg.ConfigurableResource):  # type: ignore[type-arg]
    """Opens a profile's lab for one run and ends its workers afterwards. Empty `profile` means MARIN_PROFILE."""

    profile: str = ""

    def setup_for_execution(self, context: dg.InitResourceContext) -> None:
        try:
            profile = load_profile(self.profile or None)
            if context.run and context.instance:
                tag_run(
                    context.instance,
                    context.run,
                    store=profile.place.store,
                    profile=profile.name,
                    command=typed_command(),
                    steps_are_processes=profile.place.concurrent_assets > 1,
                )
            self._lab = Lab(profile, context.run.run_id if context.run else None)
            self._lab.store.check_writable()
        except MarinError as error:
            raise dg.Failure(str(error), allow_retries=False) from None

    def teardown_after_execution(self, context: dg.InitResourceContext) -> None:
        self._lab.close()

    @property
    def lab(self) -> Lab:
        return self._lab

    _lab: Any = None
