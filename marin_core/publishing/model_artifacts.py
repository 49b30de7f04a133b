"""What a published model is made from, and whether it belongs together."""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from marin_core.data.sources.declaration import Source
from marin_core.errors import MarinError
from marin_core.evals.result import EvalResult
from marin_core.recipes import TrainPlan
from marin_core.store import Artifact

_LISTED_LICENCES = 8
# What a configuration of transformers must have of a plan, by their names.
_OF_THE_PLAN = {
    "hidden_size": "hidden_dim",
    "num_hidden_layers": "num_layers",
    "num_attention_heads": "num_heads",
    "num_key_value_heads": "num_heads",
    "head_dim": "head_dim",
    "intermediate_size": "mlp_dim",
    "vocab_size": "vocab_size",
    "max_position_embeddings": "seq_len",
}


@dataclass(frozen=True)
class DataSource:
    """A source that a model was trained on, as declared, and the licences that its own documents name, if they do."""

    declared: Source
    document_licences: Sequence[str] = ()

    @property
    def licence(self) -> str:
        """In words, with the declared page."""
        found = [licence for licence in self.document_licences if licence != self.declared.licence]
        more = f" and {len(found) - _LISTED_LICENCES} more" if len(found) > _LISTED_LICENCES else ""
        of_documents = f" (its documents: {', '.join(found[:_LISTED_LICENCES])}{more})" if found else ""
        page = f", {self.declared.homepage}" if self.declared.homepage else ""
        return f"{self.declared.licence}{of_documents}{page}"


@dataclass(frozen=True)
class ModelArtifacts:
    """What a published model is made from. `sources` are those of the mixture's components, by name."""

    plan: TrainPlan
    checkpoint: Artifact
    export: Artifact
    evals: Artifact
    mixture: Artifact
    tokenizer: Artifact
    sources: Mapping[str, DataSource]

    def check(self, label: str) -> None:
        """Raises MarinError unless export and evaluations are of this checkpoint, and the export was found equal."""
        said, content = self.export.read_json("export.json"), self.checkpoint.record.content
        check = said["check"]
        if not check["max_abs_difference"] <= check["tolerance"]:
            raise MarinError(
                f"{label}: the logits of its export differ from the checkpoint's by {check['max_abs_difference']:.3g}, "
                f"more than {check['tolerance']:.3g}; materialize {self.export.record.name} again"
            )
        if said["checkpoint"]["content"] != content:
            name = self.export.record.name
            raise MarinError(f"{label}: its export is of another checkpoint; materialize {name} again")
        if other := [each.evaluation for each in self.results() if each.model.content != content]:
            raise MarinError(
                f"{label}: its evaluations {', '.join(other)} are of another checkpoint; materialize "
                f"{self.evals.record.name} again"
            )
        config = self.export.read_json("config.json")
        for theirs, ours in _OF_THE_PLAN.items():
            if config[theirs] != getattr(self.plan, ours):
                raise MarinError(
                    f"{label}: config.json of its export has {theirs} {config[theirs]}, the plan {ours} "
                    f"{getattr(self.plan, ours)}; materialize {self.export.record.name} again"
                )

    def results(self) -> list[EvalResult]:
        return [EvalResult.from_json(each) for each in self.evals.read_json("evals.json")]
