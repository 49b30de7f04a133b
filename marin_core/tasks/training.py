"""The training task: a plan and a mixture to `marin_core.training`."""

import contextlib
from collections.abc import Iterator

from marin_core.build import Build, Outcome
from marin_core.data.mixing.mixture import component_artifact, mixture_order
from marin_core.data.tokens.shards import check_tokenizer
from marin_core.errors import MarinError
from marin_core.recipes import TrainPlan
from marin_core.store import ArtifactSpec
from marin_core.training.levanter_config import TrainData
from marin_core.training.run import RunOptions, train, train_along


def train_plan(build: Build) -> Outcome | None:
    """The outcome, None in a process of a gang that does not lead it."""
    plan = TrainPlan.from_json(dict(build.spec.config["plan"]))
    options = RunOptions(
        scratch=build.options.scratch,
        checkpoint_every_seconds=build.options.checkpoint_every_seconds,
        checkpoint_every_steps=build.options.checkpoint_every_steps,
        peak_flops=build.options.peak_flops,
    )
    data = train_data(build, build.spec.inputs["mixture"], plan)
    with _offline():
        if build.gang and not build.gang.leads:
            return train_along(plan, data, build.workspace, options, build.gang)
        return Outcome(*train(plan, data, build.writer, options, build.log, build.report, build.gang, build.page))


def train_data(build: Build, mixture: ArtifactSpec, plan: TrainPlan) -> TrainData:
    """What a plan reads of a mixture.

    Raises:
        MarinError: the shards, the tokenizer and the plan do not fit together.
    """
    tokenizer = build.store.artifact(mixture.inputs["tokenizer"])
    vocab_size = tokenizer.record.summary["vocab_size"]
    if vocab_size != plan.vocab_size:
        raise MarinError(
            f"{tokenizer.record.name} has {vocab_size} entries, recipe {plan.recipe!r} expects {plan.vocab_size}; "
            f"set the tokenizer's vocab_size in the profile"
        )
    content = build.store.artifact(mixture).read_json("mixture.json")
    tokenized = {name: component_artifact(build.store, content, name) for name in content["components"]}
    for artifact in tokenized.values():
        check_tokenizer(artifact, tokenizer)
    return TrainData(
        tokenizer=tokenizer.url,
        components={name: artifact.url for name, artifact in tokenized.items()},
        order=mixture_order(content, seq_len=plan.seq_len, seed=plan.seed, run_tokens=plan.tokens),
        conversations=tuple(name for name in tokenized if mixture.inputs[f"tokenized/{name}"].config["messages_field"]),
    )


@contextlib.contextmanager
def _offline() -> Iterator[None]:
    """Everything a run reads is in the store; libraries that would ask a hub about it must not. The worker's next plan
    may be a download."""
    import huggingface_hub.constants as hub

    before = hub.HF_HUB_OFFLINE
    hub.HF_HUB_OFFLINE = True
    try:
        yield
    finally:
        hub.HF_HUB_OFFLINE = before
