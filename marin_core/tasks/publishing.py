"""Tasks of publishing: a run's export, and the tables behind the figures, to repositories of a hub."""

import dataclasses
from collections.abc import Iterable
from typing import Literal

from marin_core.build import Build, Outcome
from marin_core.data.sources.declaration import Source
from marin_core.errors import MarinError
from marin_core.publishing.dataset_card import dataset_card
from marin_core.publishing.model_artifacts import DataSource, ModelArtifacts
from marin_core.publishing.model_card import CARD, model_card
from marin_core.publishing.naming import dataset_name, model_name
from marin_core.publishing.ownership import BRANCHES
from marin_core.publishing.repository import PUBLIC_HUB, Repository
from marin_core.publishing.upload import OutgoingFile, publish
from marin_core.recipes import TrainPlan
from marin_core.store import ArtifactSpec, Store

PLAN, PUBLISHED = "plan.json", "published.json"


def publish_model(build: Build) -> Outcome:
    """A model repository with the files of the input `export`, `plan.json` and a card; `published.json` and the card
    are the artifact. Config: `namespace`, `private`, `tag`, and optionally `licence`, the hub's id of the model's own,
    and `endpoint`, the URL of another hub than the public one.

    Raises:
        MarinError: there is no namespace or no token, the export is not of the checkpoint or was not found equal to it,
            the repository holds something else than this checkpoint's model, or the hub refuses.
    """
    namespace = _namespace(build)
    checkpoint = build.input("checkpoint")
    artifacts = ModelArtifacts(
        plan=TrainPlan.from_json(checkpoint.read_json(PLAN)),
        checkpoint=checkpoint,
        export=build.input("export"),
        evals=build.input("evals"),
        mixture=build.input("mixture"),
        tokenizer=build.input("tokenizer"),
        sources=data_sources(build.store, build.spec.inputs["mixture"]),
    )
    artifacts.check(build.spec.label)
    name = f"{namespace}/{model_name(artifacts.plan)}"
    config = build.spec.config
    card = model_card(artifacts, name, config["tag"], build.spec.fingerprint, config.get("licence"))
    plan = OutgoingFile.of_bytes(PLAN, checkpoint.read(PLAN))
    files = [*OutgoingFile.of_artifact(artifacts.export), plan]
    return _publish(build, _repository(build, "model", name), card, files, checkpoint.record.fingerprint)


def publish_dataset(build: Build) -> Outcome:
    """A dataset repository with the files of the input `dataset` and a card; `published.json` and the card are the
    artifact. Config as for a model.

    Raises:
        MarinError: there is no namespace or no token, a table is not as described, the repository holds what no lab
            published, or the hub refuses.
    """
    recipe = build.spec.inputs["dataset"].inputs["suite"].inputs["recipe"].config["recipe"]["name"]
    name = f"{_namespace(build)}/{dataset_name(recipe)}"
    config, dataset = build.spec.config, build.input("dataset")
    card = dataset_card(dataset, name, recipe, config["tag"], build.spec.fingerprint, config.get("licence"))
    return _publish(build, _repository(build, "dataset", name), card, OutgoingFile.of_artifact(dataset))


def data_sources(store: Store, mixture: ArtifactSpec) -> dict[str, DataSource]:
    """The sources of a mixture's components by name, with the licences of their documents where those are committed."""
    sources = {}
    for role, tokenized in mixture.inputs.items():
        if role.startswith("tokenized/"):
            curated = tokenized.inputs["curated"]
            record = store.record(curated.name, curated.fingerprint)
            licences = record.summary.get("licences", ()) if record else ()
            sources[role.removeprefix("tokenized/")] = DataSource(
                Source.from_json(tokenized.context["source"]), tuple(licences)
            )
    return sources


def _repository(build: Build, kind: Literal["model", "dataset"], name: str) -> Repository:
    return Repository(kind, name, build.log, build.spec.config.get("endpoint") or PUBLIC_HUB)


def _publish(
    build: Build,
    repository: Repository,
    card: str,
    files: Iterable[OutgoingFile],
    checkpoint: str | None = None,
) -> Outcome:
    config = build.spec.config
    done = publish(
        repository,
        [*files, OutgoingFile.of_bytes(CARD, card.encode())],
        branch=f"{BRANCHES}{build.spec.fingerprint}",
        tag=config["tag"],
        private=config["private"],
        message=f"{build.spec.label} ({build.spec.fingerprint})",
        scratch=build.options.scratch,
        log=build.log,
        checkpoint=checkpoint,
    )
    summary = dataclasses.asdict(done)
    with build.writer.open(CARD) as file:
        file.write(card.encode())
    build.writer.write_json(PUBLISHED, {**summary, "private": config["private"]})
    return Outcome(summary)


def _namespace(build: Build) -> str:
    namespace = build.spec.config["namespace"]
    if not namespace:
        raise MarinError(
            f"{build.spec.label}: the profile does not say where to publish; set namespace in [place.hub] to a user or "
            f"an organization of the hub"
        )
    return namespace
