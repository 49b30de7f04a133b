"""`marin eval`: what evaluations say of models, read from the artifacts alone."""

import json

import click
from rich.box import SIMPLE
from rich.console import Console
from rich.markup import escape
from rich.table import Table

from marin_core.errors import MarinError
from marin_core.evals.config import DOCUMENTS_ROLE, PERPLEXITY
from marin_core.evals.documents import text_of
from marin_core.evals.gap import Gap, GapRow, byte_aligned_gap
from marin_core.evals.perplexity import DocumentScores
from marin_core.graph import EVALS, LabGraph
from marin_core.profile import Profile, load_profile
from marin_core.store import Artifact, Store

# Characters of a span and what stands around it.
_SHOWN = 70


@click.group("eval")
def evaluation() -> None:
    """Evaluations of models, read from the artifacts alone."""


@evaluation.command()
@click.argument("first")
@click.argument("second")
@click.option("--top", type=click.IntRange(1), default=5, show_default=True, help="Spans and documents to list.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON.")
@click.option("--profile", help="A profile's name or the path of its TOML file. [default: MARIN_PROFILE, else laptop]")
def gap(first: str, second: str, top: int, as_json: bool, profile: str | None) -> None:
    """Where the run FIRST predicts validation text better or worse than the run SECOND: bits per byte, aligned by
    byte."""
    loaded = load_profile(profile)
    store = Store(loaded.place.store)
    artifacts = [_evaluation(loaded, store, key) for key in (first, second)]
    scores = [DocumentScores.read(artifact) for artifact in artifacts]
    found = byte_aligned_gap(scores[0], scores[1], _texts(store, artifacts[0], scores[0]), top)
    if as_json:
        click.echo(json.dumps({"first": first, "second": second, **found.to_json()}, indent=2, ensure_ascii=False))
    else:
        _print(found, first, second)


def _evaluation(profile: Profile, store: Store, key: str) -> Artifact:
    graph = LabGraph.of(profile)
    known = [*graph.cells, *graph.heldout_partitions]
    if key not in known:
        raise MarinError(f"no run {key!r} in profile {profile.name}; there are {', '.join(known)}")
    spec = graph.evaluations(graph.run(key, store))[PERPLEXITY]
    if store.current(spec) is None:
        raise MarinError(
            f"run {key} is not evaluated; materialize it with: dagster asset materialize --select {EVALS} "
            f"--partition {key}"
        )
    artifact = store.artifact(spec)
    if error := artifact.record.summary.get("error"):
        raise MarinError(f"{artifact.record.name} [{key}] {artifact.record.summary['status']}: {error}")
    return artifact


def _texts(store: Store, evaluation: Artifact, scores: DocumentScores) -> dict[tuple[str, str], str]:
    texts = {}
    for name, rows in scores.sets().items():
        entry = evaluation.record.inputs[f"{DOCUMENTS_ROLE}{name}"]
        documents = store.committed(entry.name, entry.fingerprint)
        texts |= {(name, id_): text for id_, text in text_of(documents, rows["id"]).items()}
    return texts


def _print(found: Gap, first: str, second: str) -> None:
    console = Console(highlight=False)
    if not console.is_terminal:
        console.width = 160
    console.print(f"bits per byte; the gap is {first} minus {second}, negative where {first} is better")
    console.print(_table("validation set", first, second, (*found.sets, *found.overall), errors=True))
    console.print(_table("kind of text", first, second, found.kinds, errors=False))
    for title, worse in ((first, True), (second, False)):
        table = Table(f"spans that {title} predicts worse", "set", "document", "bytes", "bits", box=SIMPLE)
        for span in found.spans:
            if (span["bits"] > 0) == worse:
                place = f"{span['begin']}-{span['end']}"
                text = " ".join(span["context"].split())[:_SHOWN]
                table.add_row(escape(text), span["set"], span["id"], place, f"{abs(span['bits']):.1f}")
        _right(table, 3)
        console.print(table)
    if found.left_out:
        console.print(f"{found.left_out} documents are left out: only one of the two was scored on them")


def _table(title: str, first: str, second: str, rows: tuple[GapRow, ...], *, errors: bool) -> Table:
    columns = ["gap", "± stderr"] if errors else ["gap"]
    table = Table(
        title, "documents", "bytes", first, second, *columns, box=SIMPLE, padding=(0, 0, 0, 1), pad_edge=False
    )
    for row in rows:
        error = [] if not errors else ["" if row.stderr is None else f"{row.stderr:.4f}"]
        cells = [f"{row.first:.4f}", f"{row.second:.4f}", f"{row.gap:+.4f}", *error]
        table.add_row(row.name, str(row.documents), f"{row.bytes:,}", *cells)
    _right(table, 1)
    return table


def _right(table: Table, begin: int) -> None:
    for column in table.columns[begin:]:
        column.justify = "right"
