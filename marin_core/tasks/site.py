"""The task of the site: the public record of a store, as it is at one moment."""

from marin_core.build import Build, Outcome
from marin_core.errors import MarinError
from marin_core.graph.specs import artifact
from marin_core.records.site.content import SITE, gather
from marin_core.store import ArtifactSpec, Store

TITLE = "Records of the lab"


class StoreChanged(MarinError):
    """The store does not hold any more what the site was to show."""


def site_spec(store: Store, title: str = TITLE) -> ArtifactSpec:
    """The site of what a store holds now. The same content is the same site."""
    return artifact(SITE, "build_site", gather(store, title).identity, {})


def write_site(build: Build) -> Outcome:
    """`index.html` and all pages that it leads to.

    Raises:
        StoreChanged: what is to be shown was deleted or built again meanwhile.
    """
    from marin_core.records.site.build import build_site

    planned = dict(build.spec.config)
    content = gather(build.store, planned["title"], planned["until"])
    if content.identity != planned:
        raise StoreChanged(f"the store changed while {SITE} was planned; materialize {SITE} again")
    build.log(
        f"building the pages of {len(content.artifacts):,} artifacts and {len(content.outcomes):,} records of runs"
    )

    def write(path: str, data: bytes) -> None:
        with build.writer.open(path) as file:
            file.write(data)

    return Outcome(build_site(content, build.store, write, build.log))
