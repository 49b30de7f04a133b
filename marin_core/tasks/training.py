"""The training task: a plan and a mixture to `marin_core.training`."""

from marin_core.build import Build, Outcome
from marin_core.errors import MarinError
from marin_core.recipes import TrainPlan
from marin_core.store import ArtifactSpec
from marin_core.training.levanter_config import TrainData
from marin_core.training.run import RunOptions, train


def train_plan(build: Build) -> Outcome:
    plan = TrainPlan.from_json(dict(build.spec.config["plan"]))
    options = RunOptions(
        scratch=build.options.scratch,
        checkpoint_every_seconds=build.options.checkpoint_every_seconds,
        checkpoint_every_steps=build.options.checkpoint_every_steps,
    )
    data = train_data(build, build.spec.inputs["mixture"], plan)
    return Outcome(*train(plan, data, build.writer, options, build.log, build.report))


def train_data(build: Build, mixture: ArtifactSpec, plan: TrainPlan) -> TrainData:
    """Raises MarinError if the shards and the plan disagree on the tokenizer."""
    build.store.artifact(mixture)
    tokenizer = build.store.artifact(mixture.inputs["tokenizer"])
    vocab_size = tokenizer.record.summary["vocab_size"]
    if vocab_size != plan.vocab_size:
        raise MarinError(
            f"{tokenizer.record.name} has {vocab_size} entries, recipe {plan.recipe!r} expects {plan.vocab_size}; "
            f"set the tokenizer's vocab_size in the profile"
        )
    weights = mixture.config["weights"]
    for name in weights:
        made_with = mixture.inputs[name].inputs["tokenizer"].fingerprint
        if made_with != tokenizer.record.fingerprint:
            raise MarinError(
                f"tokenized/{name} was made with tokenizer {made_with}, not {tokenizer.record.fingerprint}"
            )
    return TrainData(
        tokenizer=tokenizer.url,
        components={name: build.store.artifact(mixture.inputs[name]).url for name in weights},
        weights=weights,
        block_size=mixture.config["block_size"],
    )
