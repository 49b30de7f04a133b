"""The lab's own order of sequences, and its evaluations' share of the validation sets, as Levanter's loader asks."""

import asyncio
from collections.abc import Collection, Sequence
from typing import TYPE_CHECKING, Any

import numpy as np

from marin_core.data.mixing.order import MixtureOrder

if TYPE_CHECKING:
    from haliax import Axis
    from levanter.data.text.datasets import LmDataConfig


def ordered_data(
    order: MixtureOrder, conversations: Collection[str], eval_sequences: int, **settings: Any
) -> "LmDataConfig":
    """Levanter's data configuration with the training order replaced by `order`.

    `conversations` names the components whose loss counts for the assistant's tokens only; evaluations read the first
    `eval_sequences` of each validation set, whatever their batches; `settings` are the fields of `LmDataConfig`.
    """
    from levanter.data.text.datasets import CausalLmDataset, LmDataConfig, NamedLmDataset, TokenSeqDataset

    class OrderedLmData(LmDataConfig):
        def train_set(self, Pos: "Axis", batch_schedule: Any, *, key: Any) -> Any:
            caches = self.build_caches("train")
            examples = {}
            for name in order.names:
                spoken = name in conversations
                tokens: Any = TokenSeqDataset(caches[name], Pos.size, "assistant_masks" if spoken else None)
                examples[name] = CausalLmDataset(
                    _assistant_only(tokens) if spoken else tokens,
                    Pos,
                    eos_id=self.the_tokenizer.eos_token_id,
                    block_cross_document_attention=self.block_cross_document_attention,
                )
            return NamedLmDataset(_ordered(examples, order), Pos)

        def tagged_eval_sets(self, Pos: "Axis") -> Any:
            return [(dataset.take(eval_sequences), tags) for dataset, tags in super().tagged_eval_sets(Pos)]

    return OrderedLmData(**settings)


def _ordered(components: dict[str, Any], order: MixtureOrder) -> Any:
    """Training sequences by index, without end: `order` says which sequence of which component each index is."""
    from levanter.data.dataset import AsyncDataset

    class OrderedExamples(AsyncDataset[Any]):
        async def async_len(self) -> int:
            raise ValueError("training sequences have no end")

        def is_finite(self) -> bool:
            return False

        async def get_batch(self, indices: Sequence[int]) -> Sequence[Any]:
            numbers, sequences = order.locate(indices)
            places = {int(number): (numbers == number).nonzero()[0] for number in np.unique(numbers)}
            reads = [components[order.names[n]].get_batch(sequences[at].tolist()) for n, at in places.items()]
            examples: list[Any] = [None] * len(indices)
            for at, batch in zip(places.values(), await asyncio.gather(*reads), strict=True):
                for place, example in zip(at, batch, strict=True):
                    examples[place] = example
            return examples

    return OrderedExamples()


def _assistant_only(tokens: Any) -> Any:
    """Token sequences whose loss counts where the *next* token is the assistant's."""
    from levanter.data.dataset import AsyncDataset

    class AssistantTokens(AsyncDataset[Any]):
        async def async_len(self) -> int:
            return await tokens.async_len()

        def is_finite(self) -> bool:
            return True

        async def get_batch(self, indices: Sequence[int]) -> Sequence[Any]:
            return [
                {**read, "loss_weights": np.roll(read["loss_weights"], -1).astype(np.float32)}
                for read in await tokens.get_batch(indices)
            ]

    return AssistantTokens()
