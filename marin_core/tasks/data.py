"""Tasks of the data plane: an artifact's config and inputs to the stages and functions of `marin_core.data`."""

from marin_core.build import Build, Outcome
from marin_core.data.contamination.stage import contamination_stage
from marin_core.data.curate import curate_stage
from marin_core.data.mixing.config import MixtureConfig
from marin_core.data.mixing.mixture import build_mixture
from marin_core.data.near_duplicates.config import MinHashConfig
from marin_core.data.near_duplicates.stage import near_duplicates_stage
from marin_core.data.normalization.stage import normalize_stage
from marin_core.data.quality.stage import quality_stage
from marin_core.data.sources.acquire import acquire_stage
from marin_core.data.sources.declaration import Source
from marin_core.data.stages import Stage
from marin_core.data.tokens.shards import tokenize_stage
from marin_core.data.tokens.tokenizer import fetch_tokenizer, train_tokenizer
from marin_core.errors import MarinError
from marin_core.graph.sources import EVALUATION_ROLE, tokenizer_folder
from marin_core.store import canonical_json


def acquire(build: Build) -> Stage:
    source = _source(build)
    if canonical_json(source.origin.identity()) != canonical_json(build.spec.config["origin"]):
        raise MarinError(f"the files of source {source.name!r} have changed since this was planned; run it again")
    return acquire_stage(source, build.workspace, build.log)


def normalize(build: Build) -> Stage:
    return normalize_stage(_source(build), build.input("raw"), build.workspace, build.log)


def judge_quality(build: Build) -> Stage:
    return quality_stage(_source(build), build.input("normalized"), build.workspace, build.log)


def find_near_duplicates(build: Build) -> Stage:
    settings = {key: value for key, value in build.spec.config.items() if key not in ("source", "enabled")}
    return near_duplicates_stage(
        _source(build),
        build.input("normalized"),
        build.input("quality"),
        MinHashConfig(**settings),
        build.workspace,
        build.log,
    )


def find_contamination(build: Build) -> Stage:
    evaluations = {
        role.removeprefix(EVALUATION_ROLE): build.input(role)
        for role in build.spec.inputs
        if role.startswith(EVALUATION_ROLE)
    }
    return contamination_stage(
        _source(build),
        build.input("normalized"),
        build.input("quality"),
        build.input("near_duplicates"),
        evaluations,
        build.workspace,
        build.log,
    )


def curate(build: Build) -> Stage:
    return curate_stage(
        _source(build),
        build.input("normalized"),
        build.input("quality"),
        build.input("near_duplicates"),
        build.input("contamination"),
        build.workspace,
        build.log,
    )


def tokenize(build: Build) -> Stage:
    config = build.spec.config
    return tokenize_stage(
        _source(build),
        build.input("curated"),
        build.input("tokenizer"),
        config["validation_share"],
        config["framing"],
        build.workspace,
        build.log,
    )


def train_bpe(build: Build) -> Outcome:
    curated = {role: build.input(role) for role in build.spec.inputs}
    config = build.spec.config
    return Outcome(train_tokenizer(curated, config["vocab_size"], config["sample_bytes"], build.writer, build.log))


def fetch_pretrained(build: Build) -> Outcome:
    folder = build.spec.context.get("folder")
    if folder is not None and tokenizer_folder(folder) != build.spec.config["folder"]:
        raise MarinError(f"the tokenizer in {folder} has changed since this was planned; run it again")
    settings = {**build.spec.config, "folder": folder}
    return Outcome(fetch_tokenizer(**settings, workspace=build.workspace, log=build.log))


def mix(build: Build) -> Outcome:
    config = MixtureConfig.from_json(build.spec.config)
    tokenized = {name: build.input(f"tokenized/{name}") for name in config.components}
    return Outcome(build_mixture(config, tokenized, build.workspace, build.log))


def _source(build: Build) -> Source:
    return Source.from_json(build.spec.context["source"])
