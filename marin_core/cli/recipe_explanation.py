"""Why a budget's run is the one it is, in Markdown. Every number is read from the recipe, the law and the run."""

from collections.abc import Iterator

from marin_core.cli.recipe_choice import Choice
from marin_core.cli.recipe_needs import Hardware, Needs
from marin_core.cli.recipe_table import hours, no_pool, rate
from marin_core.recipes import CompletedAdamHParams, WidthScaledAdamHParams, format_budget


def explanation(choice: Choice, needed: Needs, hardware: Hardware) -> str:
    """The choice in prose: budget, law, model, batch, rates, hardware, seeds."""
    run, recipe = choice.run, choice.recipe
    title = f"# {format_budget(choice.flops)} FLOPs: `{run.key}` of recipe {recipe.name}, version {recipe.version}"
    summary = (
        f"A model of {run.params:,} parameters ({run.num_layers} layers of width {run.hidden_dim}, {run.num_heads} "
        f"heads), trained on {run.tokens:,} tokens in {run.steps:,} steps of {run.batch_size:,} sequences of "
        f"{run.seq_len:,} tokens."
    )
    sections = {
        "The model": _model(choice),
        "The batch": _batch(choice),
        "The optimizer": _optimizer(choice),
        "The hardware": _hardware(choice, needed, hardware),
        "The seeds": _seeds(choice),
    }
    bodies = [f"## {heading}\n\n{'\n\n'.join(paragraphs)}" for heading, paragraphs in sections.items()]
    return "\n\n".join([title, summary, *bodies])


def _model(choice: Choice) -> Iterator[str]:
    law, run, best = choice.law, choice.cell, choice.best_tokens
    reaches = run.tokens >= best
    rule = (
        "the recipe's candidate with the fewest tokens that are at least as many"
        if reaches
        else "the recipe's candidate with the most tokens, for none has as many"
    )
    yield (
        f"The token law {law.text}, {law.source}, calls D* = {best:.4g} tokens optimal for C = "
        f"{format_budget(choice.flops)} FLOPs. Chosen is {rule}: `{run.key}`, which sees {run.tokens:,} tokens "
        f"({_percent(run.tokens / best)} of D*). A width's tokens are C over its training FLOPs per token, "
        f"{choice.recipe.flops_per_token(run.hidden_dim):,} here."
    )
    yield "\n".join(_candidate_rows(choice))
    yield "\n".join(_neighbours(choice)) or "There is no other candidate."


def _candidate_rows(choice: Choice) -> Iterator[str]:
    yield "| run | layers | parameters | tokens | tokens / D* | batch | steps | |"
    yield "|---|---:|---:|---:|---:|---:|---:|---|"
    for c in choice.candidates:
        counts = " | ".join(f"{n:,}" for n in (c.num_layers, c.params, c.tokens))
        mark = "chosen" if c.hidden_dim == choice.run.hidden_dim else ""
        share = f"{c.tokens / choice.best_tokens:.3g}"
        yield f"| `{c.key}` | {counts} | {share} | {c.batch_size:,} | {c.steps:,} | {mark} |"


def _neighbours(choice: Choice) -> Iterator[str]:
    """Why the next larger and the next smaller model were not taken."""
    index, best = choice.candidates.index(choice.cell), choice.best_tokens
    if index > 0:
        larger = choice.candidates[index - 1]
        share = _percent(larger.tokens / best)
        yield f"- Not `{larger.key}`, the next larger model: its {larger.tokens:,} tokens are {share} of D*, too few."
    if index + 1 < len(choice.candidates):
        smaller = choice.candidates[index + 1]
        share = _percent(smaller.tokens / best)
        yield (
            f"- Not `{smaller.key}`, the next smaller model: its {smaller.tokens:,} tokens are {share} of D*, more "
            "than are needed."
        )


def _batch(choice: Choice) -> Iterator[str]:
    recipe, cell, run = choice.recipe, choice.cell, choice.run
    tokens = recipe.exact_tokens(choice.flops, cell.hidden_dim)
    exact = tokens / (recipe.target_steps * recipe.seq_len)
    tried = recipe.tried_batches(choice.flops, cell.hidden_dim)
    text = (
        f"{tokens:,.0f} tokens in at most {recipe.target_steps:,} steps of sequences of {recipe.seq_len:,} tokens need "
        f"{exact:.4g} sequences a step; the next power of two is {tried[0]:,}."
    )
    if len(tried) > 1:
        text += f" It is halved to {tried[-1]:,}, until no rate is at its cap and beta2 is above its floor."
    yield (
        f"{text} That gives {cell.steps:,} steps. The recipe allows {recipe.min_batch_size:,} to "
        f"{recipe.max_batch_size:,} sequences."
    )
    if choice.has_own_batch:
        grid = "as the grid has" if run.batch_size == cell.batch_size else f"not the grid's {cell.batch_size:,}"
        yield (
            f"Held-out runs of this budget have {run.batch_size:,} sequences a step, {grid}: {run.steps:,} steps, "
            f"{run.tokens:,} tokens. The optimizer's settings follow from that batch."
        )


def _optimizer(choice: Choice) -> Iterator[str]:
    settings = choice.run.optimizer
    own = choice.recipe.heldout_runs.get(choice.flops)
    if type(choice.recipe.hparams) in (CompletedAdamHParams, WidthScaledAdamHParams):
        yield "\n".join(_formulas(choice))
    else:
        rule = choice.recipe.hparams.to_json()["rule"]
        yield (
            f"The rule `{rule}` gives an AdamH rate of {rate(settings.learning_rate)}, an Adam rate of "
            f"{rate(settings.adam_lr)}, epsilon {rate(settings.epsilon)} and beta2 {settings.beta2:.4f}."
        )
    z_loss = f"z-loss weight {settings.z_loss_weight:g}"
    if own is not None and own.z_loss_weight is not None:
        z_loss += f" (held-out runs of this budget; the rule's is {choice.recipe.hparams.z_loss_weight:g})"
    yield (
        f"Whatever the run: beta1 {settings.beta1:g}; gradients clipped at a norm of {settings.max_grad_norm:g}; "
        f"linear warmup over {settings.warmup:.0%} of the steps, linear decay over the last {settings.decay:.0%} to "
        f"{settings.min_lr_ratio:g} of the peak; {z_loss}."
    )


def _formulas(choice: Choice) -> Iterator[str]:
    """The transfer rule with the numbers put in."""
    rule, run, settings = choice.recipe.hparams, choice.run, choice.run.optimizer
    # A grid's cell has the real-valued horizon in its formulas, a run in another batch the tokens that it sees.
    horizon = run.tokens if choice.has_own_batch else choice.recipe.exact_tokens(choice.flops, run.hidden_dim)
    tokens, tuned = f"{horizon:,.0f}", f"{rule.reference_tokens:g}"
    batches = f"{run.batch_size}/{rule.reference_batch_size}"
    width = ""
    if isinstance(rule, WidthScaledAdamHParams):
        width = f" · {rule.reference_width}/{run.hidden_dim}"
    cap = f"{rule.learning_rate_cap:g}"
    yield (
        f"- AdamH rate = min({cap}, {rule.reference_learning_rate:g} · √({batches}) · "
        f"({tuned}/{tokens})^{rule.token_horizon_exponent:g}) = {rate(settings.learning_rate)}"
    )
    yield (
        f"- Adam rate = min({cap}, {rule.reference_adam_lr:g} · √({batches} · {tuned}/{tokens}){width}) = "
        f"{rate(settings.adam_lr)}"
    )
    yield f"- epsilon = {rule.reference_epsilon:g} / √({batches} · {tuned}/{tokens}) = {rate(settings.epsilon)}"
    yield (
        f"- beta2 = {rule.reference_beta2:g}^({batches}), between {rule.beta2_min:g} and {rule.beta2_max:g} = "
        f"{settings.beta2:.4f}"
    )


def _hardware(choice: Choice, needed: Needs, hardware: Hardware) -> Iterator[str]:
    text = (
        f"The published launches reserve {needed.hbm_gib:,.1f} GiB of HBM for such a run, all chips together; "
        f"{needed.least_hbm_gib:,.1f} GiB is what no run can do without. At a model FLOPs utilization of "
        f"{hardware.mfu:g} it takes {hours(needed.chip_hours)} chip-hours of {hardware.family}."
    )
    if needed.pool is None:
        yield f"{text} {no_pool(hardware)}"
        return
    chosen = "" if hardware.pool else f", the smallest {hardware.family} pool with that memory,"
    yield (
        f"{text} On `{needed.pool}`{chosen} of {needed.chips:,} chips that is {needed.hbm_gib_per_chip:.1f} of "
        f"{needed.hbm_gib_available:g} GiB per chip, a tensor-parallel degree of {needed.tensor_parallel}, and "
        f"{hours(needed.hours or 0)} hours."
    )


def _seeds(choice: Choice) -> Iterator[str]:
    seeds = ", ".join(map(str, choice.seeds))
    yield f"Trained once, with seed {seeds}." if len(choice.seeds) == 1 else f"Trained once for each of {seeds}."


def _percent(share: float) -> str:
    return f"{100 * share:.1f} %"
