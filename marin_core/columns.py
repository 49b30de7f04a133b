"""What the columns of tables mean: the one place that describes them, for data cards, the web UI and readers."""

from dataclasses import dataclass


@dataclass(frozen=True)
class Column:
    """Unit, None where there is none, and meaning."""

    unit: str | None
    meaning: str


COLUMNS: dict[str, Column] = {
    "kind": Column(None, "what the row is; see the table's description"),
    "name": Column(None, "run, budget or model that the row is about"),
    "partition": Column(None, "the run's partition key"),
    "cell": Column(None, "budget and width of the run's model"),
    "flops": Column("FLOPs", "compute budget"),
    "tokens": Column("tokens", "training tokens; of a minimum, the compute-optimal ones"),
    "params": Column("parameters", "model parameters; of a minimum, interpolated between its budget's runs"),
    "eval_loss": Column("nats per token", "validation loss at the end, mean over the validation sets"),
    "train_loss": Column("nats per token", "training loss; of a finished run, mean of its last ten steps"),
    "hidden_dim": Column(None, "width of the model"),
    "num_layers": Column(None, "layers"),
    "num_heads": Column(None, "attention heads"),
    "batch_size": Column("sequences", "batch"),
    "seq_len": Column("tokens", "sequence length"),
    "steps": Column("steps", "training steps of the plan"),
    "step": Column("steps", "training step, from 0"),
    "seed": Column(None, "seed of initialization and data order"),
    "learning_rate": Column(None, "AdamH learning rate; of a run, its peak"),
    "adam_lr": Column(None, "Adam learning rate; of a run, its peak"),
    "beta2": Column(None, "second-moment decay of the optimizer"),
    "status": Column(None, "how it ended: succeeded, or what went wrong"),
    "excluded": Column(None, "why the run is left out of the fits, null if it takes part"),
    "problem": Column(None, "why the budget is left out of the laws, null if it takes part"),
    "run": Column(None, "fingerprint of the training artifact"),
    "low": Column("nats per token", "lower end of the 95 % interval"),
    "high": Column("nats per token", "upper end of the 95 % interval"),
    "evaluation": Column(None, "name of the evaluation"),
    "version": Column(None, "version of the evaluation's task"),
    "metric": Column(None, "name of the metric"),
    "value": Column("as `unit` says", "the metric"),
    "stderr": Column("as `unit` says", "standard error over the examples, null where there is none"),
    "unit": Column(None, "unit of the metric"),
    "higher_is_better": Column(None, "whether a larger value is a better one"),
    "examples": Column("examples", "documents or questions that were scored"),
    "contaminated_documents": Column("documents", "training documents removed for holding text of it"),
    "soft": Column("as in `evals`", "soft metric of the task, as it is reported"),
    "soft_low": Column("as in `evals`", "lower end of its 95 % interval"),
    "soft_high": Column("as in `evals`", "upper end of its 95 % interval"),
    "hard": Column("share of 1", "hard metric of the task"),
    "hard_low": Column("share of 1", "lower end of its 95 % interval"),
    "hard_high": Column("share of 1", "upper end of its 95 % interval"),
    "wandb_url": Column(None, "the run's page at Weights & Biases, null where there is none"),
}
_SETS = {
    "_loss": Column("nats per token", "validation loss on one validation set"),
    "_bpb": Column("bits per byte", "validation loss on one validation set, or an average of them"),
}


def column_of(name: str) -> Column | None:
    """What a column of the suite's tables means; None if it is described nowhere."""
    if name in COLUMNS:
        return COLUMNS[name]
    if name.startswith("eval_"):
        return next((column for ending, column in _SETS.items() if name.endswith(ending)), None)
    return None
