"""What is compared with what, and what is aimed at. Each function measures its methods in turn and sets the goals."""

import tempfile
from collections.abc import Callable
from typing import Any

from comparison import Comparison, Goal
from documents import KINDS
from measuring import Measurement, measure
from similarity import quality

from marin_core.store import ArtifactSpec, Store

CORES = (1, 2)
WORD_SHINGLES = {"bands": 14, "rows": 8, "unit": "words", "digits": "zero"}
PROSE = {"curation": {"rules": "prose"}}
HELD_OUT = {"validation_share": 0.05}
PEAK_GB = 2.0
# Of a mean over the pairs that are compared.
SAMPLING_ERROR = 0.01


def tokenize(comparison: Comparison) -> None:
    """Text in Parquet to a training cache, reading and writing included; and the ids against the reference's."""
    folder = str(comparison.prepared.tokenizer)
    peers = {"datatrove DocumentTokenizer": "datatrove", "Levanter build_lm_dataset_cache": "levanter_build"}
    raw, serial = "gigatoken, ids only", "Levanter BatchTokenizer and cache writer"
    for cores in CORES:
        arguments = {"options": HELD_OUT, "warm_up": False, "keep": True}
        made = comparison.ours("ours", "tokenize", "documents", cores, **arguments).facts["spec"]
        if cores == 1:
            check_ids(comparison, made)
        remove(comparison, {"tokenized": made})
        comparison.peer(raw, "peer_tokenizers:gigatoken", "documents", cores, tokenizer=folder)
        for label, method in peers.items():
            comparison.peer(label, f"peer_tokenizers:{method}", "slice", cores, tokenizer=folder)
    loaded = "ours, vocabulary loaded"
    comparison.ours(loaded, "tokenize", "documents", options=HELD_OUT)
    comparison.peer(serial, "peer_tokenizers:levanter_batches", "slice", tokenizer=folder)
    comparison.notes["loading"] = "weighs more on the methods with the shorter slice; like for like is without"
    for label, wanted in [*((peer, 40) for peer in (*peers, serial)), (raw, 0.5)]:
        comparison.ratio(f"over {label}, vocabulary loaded", wanted, loaded, label, loaded_rate)
        comparison.ratio(f"over {label}, loading included", wanted, "ours", label)


def check_ids(comparison: Comparison, spec: dict[str, Any]) -> None:
    prepared = comparison.prepared
    size, folder = prepared.set("documents").size("normalized"), str(prepared.tokenizer)
    arguments = {"store": prepared.store, "name": "documents", "spec": spec, "tokenizer": folder}
    facts = measure("outputs:check_ids", prepared.ours, size, **arguments).facts
    comparison.notes["ids"] = f"{facts['checked']:,} documents of the cache compared with the reference tokenizer's"
    comparison.goals.append(Goal("documents with other ids than the reference's", facts["differing"], 0, at_most=True))


def loaded_rate(measurement: Measurement) -> float:
    """MB per CPU second once the vocabulary is loaded."""
    return measurement.megabytes / (measurement.cpu_s - measurement.facts.get("load_cpu_s", 0))


def filters(comparison: Comparison) -> None:
    """Quality rules of prose, which are Gopher's and its repetition rules; verdicts written."""
    ours = "ours, both sets of rules"
    for cores in CORES:
        comparison.ours(ours, "quality", "documents", cores, options=PROSE)
    kept = comparison.measured[ours, 1].facts["summary"]
    comparison.notes["ours keeps"] = f"{kept['documents'] / kept['documents_in']:.1%}"
    peers = []
    for name in ("GopherQualityFilter", "GopherRepetitionFilter"):
        peers.append(comparison.peer(f"datatrove {name}", "peer_filters:datatrove", "small", rule=name))
        comparison.notes[f"{name} keeps"] = f"{peers[-1].facts['kept'] / peers[-1].documents:.1%} of its slice"
    rate = comparison.measured[ours, 1].per_cpu_second
    both = rate * sum(1 / peer.per_cpu_second for peer in peers)
    comparison.goals.append(Goal("both sets of rules over datatrove's two filters", both, 100))
    alone = rate / peers[0].per_cpu_second
    comparison.notes["both sets of rules over GopherQualityFilter alone"] = f"{alone:.1f} ×"


def fuzzy(comparison: Comparison) -> None:
    """Near-duplicates found, confirmed and written, at the published 26 x 11 and at datatrove's 14 x 8."""
    for cores in CORES:
        against(comparison, cores, "26 × 11", "dupekit", "planted", {})
        # The slow peer's documents are too few for a rate of ours: that is of more, the recall of the same.
        words = {"minhash": WORD_SHINGLES}
        comparison.ours("ours 14 × 8, planted", "near_duplicates", "planted", cores, options=words)
        comparison.ours("ours 14 × 8, natural", "near_duplicates", "documents", cores, options=words)
        against(comparison, cores, "14 × 8", "datatrove", "dense", words)
    comparison.ratio("26 × 11 over dupekit", 2, "ours 26 × 11", "dupekit 26 × 11")
    # A third of the planted set is duplicates, each of which is compared before it goes: datatrove compares none.
    comparison.ratio("14 × 8 over datatrove, planted", 60, "ours 14 × 8, planted", "datatrove 14 × 8")
    comparison.ratio("14 × 8 over datatrove, natural duplicates", 60, "ours 14 × 8, natural", "datatrove 14 × 8")


def against(comparison: Comparison, cores: int, bands: str, peer: str, name: str, options: dict[str, Any]) -> None:
    """Both methods over one set; on one core also how good they are."""
    files, truth = comparison.prepared.set(name).files("normalized"), comparison.prepared.truth
    with tempfile.TemporaryDirectory() as folder:
        links = f"{folder}/links.parquet"
        comparison.ours(f"ours {bands}", "near_duplicates", name, cores, options=options, links=links)
        ours = quality(links, truth, files) if cores == 1 else None
        comparison.peer(f"{peer} {bands}", f"peer_deduplication:{peer}", name, cores, links=links)
        theirs = quality(links, truth, files) if cores == 1 else None
    if not ours or not theirs:
        return
    for label, found in ((f"ours {bands}", ours), (f"{peer} {bands}", theirs)):
        recall = {f"recall, {kind}": found["recall"][kind] for kind in KINDS}
        likeness = {"mean Jaccard": found["mean_jaccard"], "≥ 0.7": found["alike"]}
        comparison.figures[label] = recall | likeness | {"removed": found["removed"]}
    for kind in KINDS:
        less = ours["recall"][kind] - theirs["recall"][kind]
        comparison.goals.append(Goal(f"{bands}: recall less {peer}'s, {kind}", less, -0.03))
    for what, key in (("mean Jaccard", "mean_jaccard"), ("share of 0.7 and more", "alike")):
        comparison.goals.append(Goal(f"{bands}: {what} less {peer}'s", ours[key] - theirs[key], -SAMPLING_ERROR))


def normalize(comparison: Comparison) -> None:
    """Raw files to normalized documents without exact duplicates; and the bare read, hash and write."""
    bare = {"polars, bare pass": "peer_passes:polars", "duckdb, bare pass": "peer_passes:duckdb"}
    for cores in CORES:
        comparison.ours("ours", "normalize", "documents", cores, sized_by="raw")
        for label, method in bare.items():
            found = comparison.peer(label, method, "documents", cores, reads="raw")
            comparison.notes[f"{label}, keeps"] = f"{found.facts['kept']:,} documents"
    kept = comparison.measured["ours", 1].facts["summary"]["documents"]
    comparison.notes["ours keeps"] = f"{kept:,} documents"
    for label in bare:
        comparison.ratio(f"over {label}", 0.6, "ours", label)


def memory(comparison: Comparison) -> None:
    """Peak memory of a rank of every stage, from raw files on: over the corpus, and over four times as much text."""
    roles = {"normalize": "normalized", "quality": "quality", "near_duplicates": "near_duplicates"}
    roles |= {"contamination": "contamination", "curate": "curated", "tokenize": "tokenized"}
    options = {"quality": PROSE, "tokenize": HELD_OUT}
    peaks: dict[str, list[float]] = {stage: [] for stage in roles}
    for name in ("documents", "fourfold"):
        made: dict[str, Any] = {}
        for stage, role in roles.items():
            arguments = {"options": options.get(stage), "inputs": dict(made), "warm_up": False, "keep": True}
            found = comparison.ours(f"{stage}, {name}", stage, name, 2, sized_by="raw", **arguments)
            made[role] = found.facts["spec"]
            peaks[stage].append(found.rss_mb)
        remove(comparison, made)
    comparison.notes["MB"] = "of the raw text; stages after quality read what it kept"
    for stage, (once, fourfold) in peaks.items():
        comparison.figures[stage] = {"peak MB": once, "of four times the text": fourfold, "ratio": fourfold / once}
        comparison.goals.append(Goal(f"{stage}: peak GB at four times the text", fourfold / 1e3, PEAK_GB, at_most=True))


def remove(comparison: Comparison, specs: dict[str, Any]) -> None:
    store = Store(comparison.prepared.store)
    for spec in specs.values():
        store.fs.rm(store.url(ArtifactSpec.from_json(spec)), recursive=True)


COMPARISONS: dict[str, Callable[[Comparison], None]] = {
    "tokenize": tokenize,
    "filters": filters,
    "fuzzy": fuzzy,
    "normalize": normalize,
    "memory": memory,
}
