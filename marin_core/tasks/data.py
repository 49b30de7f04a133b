"""Tasks of the data plane: an artifact's config and inputs to the functions of `marin_core.data`."""

from marin_core.build import Build, Outcome
from marin_core.data.curate import curate, write_raw
from marin_core.data.mixture import build_mixture
from marin_core.data.shards import tokenize
from marin_core.data.sources import InstalledSource
from marin_core.data.tokenizer import train_tokenizer


def read_source(build: Build) -> Outcome:
    config = build.spec.config
    source = InstalledSource(config["source"], config["kind"], tuple(config["packages"]), config["max_bytes"])
    return Outcome(write_raw(source, build.writer, build.log))


def curate_source(build: Build) -> Outcome:
    return Outcome(curate(build.spec.config["source"], build.input("raw"), build.writer, build.log))


def train_bpe(build: Build) -> Outcome:
    curated = {role: build.input(role) for role in build.spec.inputs}
    config = build.spec.config
    return Outcome(train_tokenizer(curated, config["vocab_size"], config["sample_bytes"], build.writer, build.log))


def tokenize_source(build: Build) -> Outcome:
    config = build.spec.config
    curated, tokenizer = build.input("curated"), build.input("tokenizer")
    return Outcome(tokenize(config["source"], curated, tokenizer, config["validation_share"], build.writer, build.log))


def mix(build: Build) -> Outcome:
    config = build.spec.config
    tokenized = {name: build.input(name) for name in config["weights"]}
    return Outcome(build_mixture(config["weights"], config["block_size"], tokenized, build.writer, build.log))
