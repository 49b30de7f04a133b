"""A model on a hub: which files, what its card says of the artifacts that it is made from, and what is refused."""

import dataclasses
import json
from typing import Any

import pytest
from huggingface_hub import ModelCard
from huggingface_hub.repocard_data import EvalResult as HubResult

from marin_core.errors import MarinError
from tests.publishing.lab import PLAN, SUMMARY, TARGET, TOKENS, PublishingLab, as_json, export_files, hf_config
from tests.publishing.writable_hub import WritableHub, running

NAME = "lab/delphi-3e18-447Mparams-1.2Btokens"


def published_card(hub: WritableHub, name: str = NAME) -> str:
    return hub.model(name).content("adamh_v6")["README.md"].decode()


def rows(card: str) -> dict[str, list[str]]:
    """The cells of every table row by the first one."""
    tables = [[cell.strip() for cell in line.strip("|").split("|")] for line in card.splitlines() if line[:1] == "|"]
    return {first: rest for first, *rest in tables}


def test_the_repository_has_the_export_the_plan_and_the_card(hub: WritableHub, lab: PublishingLab) -> None:
    spec = lab.publication()
    record = lab.build(spec)
    files = hub.model(NAME).content("adamh_v6")
    assert files.keys() == {*export_files({}), "export.json", "plan.json", "README.md", ".gitattributes"}
    assert files["model.safetensors"] == export_files(hf_config())["model.safetensors"]
    assert json.loads(files["plan.json"]) == PLAN.to_json()
    assert files == hub.model(NAME).content("main")
    artifact = lab.store.artifact(spec)
    assert artifact.read("README.md") == files["README.md"]
    said = artifact.read_json("published.json")
    assert said == {**record.summary, "private": False}
    assert record.summary == {
        "repository": NAME,
        "url": f"{hub.url}/{NAME}",
        "revision": hub.model(NAME).tags["adamh_v6"],
        "tag": "adamh_v6",
        "files": 8,
        "bytes_uploaded": sum(map(len, files.values())) - len(files[".gitattributes"]),
        "bytes_reused": 0,
    }
    assert f"artifact-{spec.fingerprint}" in hub.model(NAME).branches


def test_the_metadata_is_what_the_hub_reads_and_has_the_metrics_to_the_last_digit(
    hub: WritableHub, lab: PublishingLab
) -> None:
    lab.build(lab.publication(target={**TARGET, "licence": "apache-2.0"}))
    data: Any = ModelCard(published_card(hub)).data
    assert data.library_name == "transformers"
    assert data.license == "apache-2.0"
    assert data.datasets == ["bigcode/starcoderdata"]
    results: list[HubResult] = data.eval_results
    assert {(r.dataset_name, r.metric_name): r.metric_value for r in results} == {
        ("perplexity", "macro/bits_per_byte"): 0.98765432101,
        ("perplexity", "code/nats_per_token"): 2.5,
        ("quiz", "acc"): 0.4166666666666667,
    }
    assert {r.metric_name: (r.metric_args or {}).get("standard_error") for r in results} == {
        "macro/bits_per_byte": 0.0123456,
        "code/nats_per_token": None,
        "acc": 0.045,
    }


def test_the_card_names_the_optimizer_of_the_plan(hub: WritableHub, lab: PublishingLab) -> None:
    shared = {name: value for name, value in PLAN.to_json()["optimizer"].items() if name != "adam_lr"}
    lab.build(lab.publication(optimizer={**shared, "weight_decay": 0.125}))
    (said,) = rows(published_card(hub))["Optimizer"]
    assert said.startswith(f"AdamW, rate {PLAN.optimizer.learning_rate:.6g}, weight decay 0.125, beta1 0.9")


def test_the_card_says_what_the_artifacts_say(hub: WritableHub, lab: PublishingLab) -> None:
    spec = lab.publication()
    lab.build(spec)
    card = published_card(hub)
    said = rows(card)
    assert said["Parameters"] == ["447,244,032"]
    assert (said["Hidden size"], said["Layers"], said["Attention heads"]) == (["1,024"], ["11"], ["8"])
    assert said["Vocabulary"] == ["128,256"]
    assert said["Budget"] == ["3e18 FLOPs"]
    assert (said["Tokens"], said["Steps"]) == (["1,223,393,280"], ["37,335"])
    assert said["Recipe"] == [f"delphi, version {PLAN.recipe_version}"]
    assert f"AdamH, rate {PLAN.optimizer.learning_rate:.6g}, Adam's rate" in said["Optimizer"][0]
    assert said["Hardware"] == ["8 × TPU v4, processes: 2"]
    assert said["Time in steps"] == ["71,234.50 s (19.79 h)"]
    assert said["Attempts before the last"] == ["1 died, 3 preempted"]
    assert said["Training loss at the end"] == ["3.61235 nats per token"]
    # 0.4 * 64 = 25.6 and 0.6 * 64 = 38.4 sequences of 64: 25, and the larger one the rest.
    code = "see homepage (its documents: MIT, Apache-2.0)"
    assert said["code"] == ["40.0000 %", "39.0625 %", f"{TOKENS['code']:,}", code]
    prose = "CC-BY-4.0, https://example.org/prose"
    assert said["prose"] == ["60.0000 %", "60.9375 %", f"{TOKENS['prose']:,}", prose]
    assert said["From"] == ["lab/tokenizer at v1"]
    assert ["1", "macro/bits_per_byte", "0.987654", "0.0123456", "bits per byte", "87"] in table(card, "perplexity")
    assert ["quizzes", "120", "code", "500", "5", "3", "0.875"] in table(card, "quiz")
    assert "- `gsm8k` (version 3) infra_failed: the endpoint did not answer within 60 s" in card
    assert "Not looked for in the training sources: text of perplexity, gsm8k." in card
    checkpoint = lab.store.artifact(spec.inputs["checkpoint"]).record
    made_from = f"{checkpoint.fingerprint} (content {checkpoint.content})"
    assert said["Artifact checkpoints/delphi"] == [made_from]
    assert said["Fingerprint of this publication"] == [spec.fingerprint]
    assert str(checkpoint.provenance.commit) in said["Code that trained it"][0]
    assert said["W&B"] == ["https://wandb.example/lab/runs/abc"]
    assert f'from_pretrained("{NAME}", revision="adamh_v6")' in card
    assert "largest difference of a logit is\n2.5e-05 (at most 0.00115 were allowed" in card


def test_scores_of_another_server_are_left_out_and_said_so(hub: WritableHub, lab: PublishingLab) -> None:
    lab.build(lab.publication())
    card = published_card(hub)
    assert "\n\nLeft out, since another server was asked and not this model: `riddle` (of `large-model`).\n\n" in card
    assert card.count("riddle") == 1
    assert "10.0.0.7" not in card


def test_what_a_run_did_not_record_is_said_so(hub: WritableHub, lab: PublishingLab) -> None:
    absent = ("hardware", "attempts", "wandb_url")
    lab.build(lab.publication(summary={key: value for key, value in SUMMARY.items() if key not in absent}))
    said = rows(published_card(hub))
    assert {said[name][0] for name in ("Hardware", "Attempts before the last", "W&B")} == {"not recorded"}


def test_a_run_without_interruption_says_so(hub: WritableHub, lab: PublishingLab) -> None:
    lab.build(lab.publication(summary={**SUMMARY, "attempts": dict.fromkeys(("preempted", "failed", "died"), 0)}))
    assert rows(published_card(hub))["Attempts before the last"] == ["none"]


def test_another_seed_is_another_repository(hub: WritableHub, lab: PublishingLab) -> None:
    lab.build(lab.publication(seed=42))
    assert list(hub.repos) == [("model", f"{NAME}-seed42")]


def test_another_hub_is_another_publication(hub: WritableHub, lab: PublishingLab) -> None:
    first = lab.build(lab.publication())
    with running(WritableHub()) as other:
        second = lab.build(lab.publication(target={**TARGET, "endpoint": other.url}))
        assert (first.summary["url"], second.summary["url"]) == (f"{hub.url}/{NAME}", f"{other.url}/{NAME}")
        there = other.model(NAME).content("adamh_v6")
    here = hub.model(NAME).content("main")
    assert there.keys() == here.keys()
    assert there["model.safetensors"] == here["model.safetensors"]


def test_a_model_of_another_checkpoint_is_not_replaced(hub: WritableHub, lab: PublishingLab) -> None:
    first, other = lab.publication(), lab.publication(code=0.5)
    lab.build(first)
    repo = hub.model(NAME)
    before, branches, tags = repo.content("main"), dict(repo.branches), dict(repo.tags)
    of_first, of_other = (spec.inputs["checkpoint"].fingerprint for spec in (first, other))
    with pytest.raises(
        MarinError, match=f"has the model of checkpoint {of_first}, to be published is checkpoint {of_other}.*namespace"
    ):
        lab.build(other)
    assert (repo.content("main"), repo.branches, repo.tags) == (before, branches, tags)


def test_a_checkpoint_is_published_again_under_another_licence(hub: WritableHub, lab: PublishingLab) -> None:
    lab.build(lab.publication())
    lab.build(lab.publication(target={**TARGET, "licence": "apache-2.0"}))
    for revision in ("main", "adamh_v6"):
        assert b"license: apache-2.0" in hub.model(NAME).content(revision)["README.md"]


def test_a_publication_that_is_committed_asks_the_hub_nothing(hub: WritableHub, lab: PublishingLab) -> None:
    first = lab.build(lab.publication())
    asked = len(hub.seen)
    assert lab.build(lab.publication()) == first
    assert len(hub.seen) == asked


def test_an_export_that_was_not_found_equal_is_not_published(hub: WritableHub, lab: PublishingLab) -> None:
    def differ(said: dict[str, Any]) -> None:
        said["check"]["max_abs_difference"] = 0.5

    with pytest.raises(MarinError, match=r"logits of its export differ from the checkpoint's by 0\.5, more"):
        lab.build(lab.publication(export=differ))
    assert not hub.seen


def test_an_export_of_another_checkpoint_is_not_published(hub: WritableHub, lab: PublishingLab) -> None:
    def other(said: dict[str, Any]) -> None:
        said["checkpoint"]["content"] = "0" * 16

    with pytest.raises(MarinError, match="its export is of another checkpoint; materialize exports/delphi again"):
        lab.build(lab.publication(export=other))
    assert not hub.seen


def test_evaluations_of_another_checkpoint_are_not_published(hub: WritableHub, lab: PublishingLab) -> None:
    spec = lab.publication()
    results = lab.store.artifact(spec.inputs["evals"]).read_json("evals.json")
    results[0]["model"]["content"] = "0" * 16
    other = dataclasses.replace(spec.inputs["evals"], config={"of": "another"})
    lab.commit(other, {"evals.json": as_json(results)}, {})
    spec = dataclasses.replace(spec, inputs={**spec.inputs, "evals": other})
    with pytest.raises(MarinError, match="evaluations perplexity are of another checkpoint; materialize evals/delphi"):
        lab.build(spec)
    assert not hub.seen


def test_an_export_of_another_shape_than_planned_is_not_published(hub: WritableHub, lab: PublishingLab) -> None:
    def wider(config: dict[str, Any]) -> None:
        config["hidden_size"] = 1152

    with pytest.raises(MarinError, match=r"config\.json of its export has hidden_size 1152, the plan hidden_dim 1024"):
        lab.build(lab.publication(config=wider))
    assert not hub.seen


def test_without_a_namespace_the_profile_is_named(hub: WritableHub, lab: PublishingLab) -> None:
    with pytest.raises(MarinError, match=r"does not say where to publish; set namespace in \[place\.hub\]"):
        lab.build(lab.publication(target={**TARGET, "namespace": None}))
    assert not hub.seen


def table(card: str, first: str) -> list[list[str]]:
    """The rows that begin so, without that cell."""
    lines = [[cell.strip() for cell in line.strip("|").split("|")] for line in card.splitlines() if line[:1] == "|"]
    return [rest for name, *rest in lines if name == first]
