"""A task that the lab makes itself, in the files of lm-evaluation-harness: which continuation is the real one?

Asked are validation documents of the very domains that the lab trains on, so that models of a few thousand parameters
score above chance, and a laptop needs no hub to see how a downstream score grows with compute.
"""

import hashlib
import itertools
import json
import re
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from marin_core.errors import MarinError
from marin_core.evals.documents import ScoredText

CONTINUATION = "continuation"
# The version of what is asked: raise it when scores no longer compare with earlier ones.
CONTINUATION_VERSION = "1.0"
# Lab's choices, in characters: what the shortest context of the lab's recipes, 64 tokens, just holds.
_CONTEXT, _ANSWER = 56, 52
_CHOICES = 4
# Four words have 24 orders: among so many shuffles of them are always three different ones.
_LEAST_WORDS, _TRIES = 4, 64
_BLANKS = re.compile(r"\s+")
_END_OF_WORD = re.compile(r"(?<=\S)[ \n]")

_YAML = f"""\
task: {{name}}
dataset_path: json
dataset_kwargs:
  data_files:
    test: questions.jsonl
test_split: test
output_type: multiple_choice
doc_to_text: context
doc_to_choice: choices
doc_to_target: answer
target_delimiter: ""
metric_list:
  - metric: acc
    aggregation: mean
    higher_is_better: true
  - metric: acc_norm
    aggregation: mean
    higher_is_better: true
metadata:
  version: {CONTINUATION_VERSION}
"""


@dataclass(frozen=True)
class _Place:
    """A place in a document where a word ends: what stands before it, and what follows."""

    document: ScoredText
    context: str
    answer: str


def continuation_task(documents: Sequence[ScoredText], questions: int, name: str = CONTINUATION) -> dict[str, str]:
    """The files of the task, by name: its YAML, and `questions.jsonl` (set, document, context, choices, answer).

    From each set come as many questions as from the others, from each document one before a second from any. The wrong
    choices are the words of the right one in other orders: as long, and no rarer, so that what tells them apart is
    whether a model has learned what follows what. The orders come from hashes: the same documents give the same
    questions.

    Raises:
        MarinError: the documents do not give so many.
    """
    sets = list(dict.fromkeys(document.set for document in documents))
    asked: list[Mapping[str, object]] = []
    for number, each in enumerate(sets):
        wanted = questions // len(sets) + (number < questions % len(sets))
        places = list(itertools.islice(_places([d for d in documents if d.set == each]), wanted))
        if len(places) < wanted:
            raise MarinError(
                f"task {name}: the documents of {each} give {len(places)} questions, {wanted} are wanted; lower "
                f"`questions` or raise max_bytes in the profile"
            )
        asked += [_question(place) for place in places]
    lines = "".join(json.dumps(question, ensure_ascii=False, sort_keys=True) + "\n" for question in asked)
    return {f"{name}.yaml": _YAML.format(name=name), "questions.jsonl": lines}


def _places(documents: Sequence[ScoredText]) -> Iterator[_Place]:
    """The first place of every document, then the second of every one that has two, and so on."""
    columns = [_places_in(document) for document in documents]
    for row in itertools.zip_longest(*columns):
        yield from (place for place in row if place is not None)


def _places_in(document: ScoredText) -> Iterator[_Place]:
    text, at = document.text, _CONTEXT
    while (found := _END_OF_WORD.search(text, at)) and (begin := found.start()) + _ANSWER < len(text):
        # A whole number of words, so that no choice is known by a word that is cut.
        end = max(text.rfind(blank, begin + 1, begin + _ANSWER + 1) for blank in " \n")
        answer = text[begin:end].rstrip() if end > begin else ""
        if len(set(answer.split())) >= _LEAST_WORDS:
            yield _Place(document, text[begin - _CONTEXT : begin], answer)
        at = begin + _CONTEXT + _ANSWER


def _question(place: _Place) -> Mapping[str, object]:
    digest = hashlib.sha256(f"{place.document.id}\n{place.context}".encode()).digest()
    choices = list(itertools.islice(_shuffled(place.answer, digest), _CHOICES - 1))
    right = digest[0] % _CHOICES
    choices.insert(right, place.answer)
    return {
        "set": place.document.set,
        "document": place.document.id,
        "context": place.context,
        "choices": choices,
        "answer": right,
    }


def _shuffled(answer: str, digest: bytes) -> Iterator[str]:
    """The answer's words in other orders, with the blanks between them where they are; each order once."""
    blanks, words = _BLANKS.findall(answer), answer.split()
    seen = {answer}
    for number in range(_TRIES):
        order = sorted(range(len(words)), key=lambda at: hashlib.sha256(digest + bytes([number, at])).digest())
        text = "".join(itertools.chain.from_iterable(zip(blanks, [words[at] for at in order], strict=True)))
        if text not in seen:
            seen.add(text)
            yield text
