"""`marin lineage`: the tree from an artifact to the raw sources, as it was really made."""

import json

import click

from marin_core.cli.lineage_tree import lineage_tree
from marin_core.cli.naming import Artifacts
from marin_core.cli.printing import wide_console
from marin_core.records.lineage import trace


@click.command()
@click.argument("name")
@click.option("--partition", help="Which partition, like 4e11-d0024, of an asset that has some.")
@click.option("--fingerprint", metavar="PREFIX", help="The build of this fingerprint, or of one that begins so.")
@click.option("--depth", type=click.IntRange(0), help="Follow inputs at most so many steps. [default: to the sources]")
@click.option("--all", "everything", is_flag=True, help="Show each partition, instead of summing them up.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON: root, and artifacts with their inputs.")
@click.option("--profile", help="A profile's name or the path of its TOML file. [default: MARIN_PROFILE, else laptop]")
def lineage(
    name: str,
    partition: str | None,
    fingerprint: str | None,
    depth: int | None,
    everything: bool,
    as_json: bool,
    profile: str | None,
) -> None:
    """From the artifact NAME to what it was made of, with fingerprints, commits and times: the inputs that were really
    read, not those that would be read now.

    Without --fingerprint, NAME is what the profile means by it now, or if that was never built the newest build.

    \b
    --json: {"root": {name, partition, fingerprint},
             "artifacts": [{name, partition, fingerprint, commit, dirty, built, origin, summary, followed,
                            "inputs": [{role, name, partition, fingerprint, changed, gone}]}]},
    inputs before what is made of them.
    """
    artifacts = Artifacts.of(profile)
    found = trace(artifacts.store, artifacts.record(name, partition, fingerprint), depth)
    if as_json:
        click.echo(json.dumps(found.to_json(), indent=2))
        return
    wide_console().print(lineage_tree(found, summed=not everything))
