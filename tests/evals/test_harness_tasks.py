"""The task that the lab makes of its own documents, and tasks as artifacts."""

import json
from pathlib import Path
from typing import Any

import pytest

from marin_core.errors import MarinError
from marin_core.evals.documents import ScoredText
from marin_core.evals.harness_tasks import continuation_task
from marin_core.store import ArtifactSpec, Store
from marin_core.tasks.harness import task_folder_origin, write_harness_task
from tests.evals.harness_lab import write_files
from tests.evals.models import commit_texts, run

_SENTENCE = "the model reads a text of many words and says which of four ends is the one that was written there"
_WORDS = _SENTENCE.split()


def _text(number: int) -> str:
    """Some hundred words, in another order in every document."""
    return " ".join(_WORDS[(number * at * at + at) % len(_WORDS)] for at in range(1, 120)) + "."


def _documents(set_: str, count: int) -> list[ScoredText]:
    return [ScoredText(set_, f"{set_}{number:04x}", _text(number + 1)) for number in range(count)]


def _questions(files: dict[str, str]) -> list[dict[str, Any]]:
    return [json.loads(line) for line in files["questions.jsonl"].splitlines()]


def test_the_right_choice_is_what_the_document_says_and_the_others_are_its_words() -> None:
    documents = [*_documents("a", 5), *_documents("b", 3)]
    texts = {document.id: document.text for document in documents}
    questions = _questions(continuation_task(documents, 20))
    assert [question["set"] for question in questions] == ["a"] * 10 + ["b"] * 10
    answers = set()
    for question in questions:
        choices, answer = question["choices"], question["answer"]
        assert len(set(choices)) == 4
        assert {tuple(sorted(choice.split())) for choice in choices} == {tuple(sorted(choices[0].split()))}
        assert len({len(choice) for choice in choices}) == 1
        continued = [f"{question['context']}{choice}" in texts[question["document"]] for choice in choices]
        assert continued == [at == answer for at in range(4)]
        answers.add(answer)
    assert answers == {0, 1, 2, 3}


def test_every_document_is_asked_about_before_any_is_a_second_time() -> None:
    questions = _questions(continuation_task(_documents("a", 5), 7))
    asked = [question["document"] for question in questions]
    assert sorted(asked[:5]) == [f"a{number:04x}" for number in range(5)]
    assert len({(question["document"], question["context"]) for question in questions}) == 7


def test_the_same_documents_give_the_same_questions() -> None:
    documents = _documents("a", 4)
    assert continuation_task(documents, 8) == continuation_task(list(documents), 8)


def test_too_few_documents_are_told_with_the_remedy() -> None:
    with pytest.raises(MarinError, match=r"documents of a give \d+ questions, 500 are wanted; lower `questions`"):
        continuation_task(_documents("a", 2), 500)


def test_a_task_of_documents_is_an_artifact(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store"))
    documents = commit_texts(store, "words", [_text(number) for number in range(1, 9)])
    config = {"name": "which", "questions": 8, "shares": {"words": 1.0}, "max_bytes": 10_000}
    spec = ArtifactSpec("harness_tasks/which", "write_harness_task", "1", config, {"documents/words": documents})
    record = run(store, spec, write_harness_task, tmp_path)
    assert record.summary == {"task": "which", "files": 2, "questions": 8}
    assert b"task: which\n" in store.artifact(spec).read("which.yaml")


def test_a_tasks_folder_is_known_by_its_content(tmp_path: Path) -> None:
    store = Store(str(tmp_path / "store"))
    folder = write_files(tmp_path / "task", {"mine.yaml": "task: mine\n"})
    (folder / "data").mkdir()
    (folder / "data" / "test.jsonl").write_text("{}\n")
    config = {"name": "mine", "folder": task_folder_origin(str(folder)).identity()}
    spec = ArtifactSpec("harness_tasks/mine", "write_harness_task", "1", config, context={"folder": str(folder)})
    run(store, spec, write_harness_task, tmp_path)
    assert {entry.path for entry in store.artifact(spec).record.files} == {"mine.yaml", "data/test.jsonl"}
    write_files(folder, {"mine.yaml": "task: other\n"})
    assert task_folder_origin(str(folder)).identity() != config["folder"]
    store.retire(spec, store.artifact(spec).record)
    with pytest.raises(MarinError, match="have changed since this was planned"):
        run(store, spec, write_harness_task, tmp_path)
