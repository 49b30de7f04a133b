"""Which experiments there are: those that installed packages declare in the entry-point group `marin.experiments`."""

import functools
from importlib.metadata import entry_points

from marin_core.errors import MarinError
from marin_core.records.experiment import Experiment

GROUP = "marin.experiments"


@functools.cache
def declared_experiments() -> tuple[Experiment, ...]:
    """Every declared experiment, in the order of its package. An entry point is a sequence of `Experiment`.

    Raises:
        MarinError: an entry point cannot be imported, or two experiments have the same id.
    """
    found: dict[str, Experiment] = {}
    for point in entry_points(group=GROUP):
        try:
            experiments = point.load()
        except (ImportError, AttributeError, SyntaxError) as error:
            raise MarinError(f"experiments {point.value} cannot be imported: {error}; mend or uninstall it") from None
        for experiment in experiments:
            if experiment.id in found:
                raise MarinError(f"two experiments are called {experiment.id!r}; rename one of them")
            found[experiment.id] = experiment
    return tuple(found.values())
