"""How earlier attempts of a run ended is known to later ones, on disk and where nothing can be appended to."""

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from gcsfs.retry import HttpError

from marin_core.errors import MarinError
from marin_core.store import ArtifactSpec, LeaseLost, Store, Writer
from marin_core.termination import Terminated
from marin_core.training.attempts import attempt

SPEC = ArtifactSpec("checkpoints/delphi", "train", "1")
HARDWARE = {"device": "TPU v4", "count": 4, "processes": 1}
NONE = {"preempted": 0, "peer_lost": 0, "failed": 0, "died": 0}


@pytest.fixture(params=["local", "gcs"])
def writer(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Writer]:
    root = request.getfixturevalue("gcs_root") if request.param == "gcs" else str(tmp_path)
    with Store(root).writer(SPEC, resumable=True) as writer:
        yield writer


def end(writer: Writer, error: BaseException | None, after_step: int = -1) -> dict[str, int]:
    """An attempt that ends with an error; how those before it ended."""
    earlier: dict[str, int] = {}

    def is_loss(error: BaseException) -> bool:
        return "Gloo" in str(error)

    try:
        with attempt(writer, after_step=after_step, hardware=HARDWARE, is_loss=is_loss) as earlier:
            if error:
                raise error
    except BaseException as raised:
        assert raised is error
    return earlier


def kill(writer: Writer) -> None:
    """An attempt that ends without a word."""
    attempt(writer, after_step=-1, hardware=HARDWARE, is_loss=lambda error: False).__enter__()


def lines(writer: Writer) -> list[dict[str, Any]]:
    return [json.loads(line) for line in writer.fs.cat_file(writer.path("attempts.jsonl")).splitlines()]


def test_each_kind_of_end_is_counted(writer: Writer) -> None:
    assert end(writer, Terminated()) == NONE
    assert end(writer, RuntimeError("Gloo allreduce failed"), after_step=5) == NONE | {"preempted": 1}
    assert end(writer, MarinError("no such thing\nat all"), after_step=5) == NONE | {"preempted": 1, "peer_lost": 1}
    kill(writer)
    assert end(writer, None) == {"preempted": 1, "peer_lost": 1, "failed": 1, "died": 1}
    began = [line for line in lines(writer) if "began" in line]
    assert [(line["attempt"], line["after_step"], line["device"]) for line in began] == [
        (number, step, "TPU v4") for number, step in [(1, -1), (2, 5), (3, 5), (4, -1), (5, -1)]
    ]
    ended = {line["attempt"]: line for line in lines(writer) if "ended" in line}
    assert {number: line.get("error") for number, line in ended.items()} == {
        1: None,
        2: "RuntimeError: Gloo allreduce failed",
        3: "no such thing at all",
    }


def test_a_line_that_a_kill_cut_short_does_not_hide_the_next(writer: Writer) -> None:
    end(writer, Terminated())
    kill(writer)
    with writer.open("attempts.jsonl", "wb") as file:
        file.write("\n".join(json.dumps(line) for line in lines_of(1)).encode() + b'\n{"attempt": 2, "beg')
    kill(writer)
    assert end(writer, None) == NONE | {"preempted": 1, "died": 1}


def lines_of(attempt: int) -> list[dict[str, Any]]:
    return [{"attempt": attempt, "began": "then"}, {"attempt": attempt, "ended": "now", "how": "preempted"}]


def test_who_lost_the_lease_writes_nothing_any_more(writer: Writer) -> None:
    end(writer, LeaseLost("another writer took over"))
    assert [line for line in lines(writer) if "ended" in line] == []


def test_an_error_is_not_replaced_by_one_of_writing_it_down(tmp_path: Path) -> None:
    with (
        Store(str(tmp_path)).writer(SPEC, resumable=True) as writer,
        pytest.raises(RuntimeError, match="the disk is on fire"),
        attempt(writer, after_step=-1, hardware=HARDWARE, is_loss=lambda error: False),
    ):
        (Path(writer.url) / "attempts.jsonl").unlink()
        (Path(writer.url) / "attempts.jsonl").mkdir()
        raise RuntimeError("the disk is on fire")


def test_nor_by_what_only_one_kind_of_store_raises(writer: Writer, monkeypatch: pytest.MonkeyPatch) -> None:
    """An end by SIGTERM has an exit code of its own."""

    def unavailable(*args: Any, **kwargs: Any) -> None:
        raise HttpError({"code": 503, "message": "service unavailable"})

    with (
        pytest.raises(Terminated),
        attempt(writer, after_step=-1, hardware=HARDWARE, is_loss=lambda error: False),
    ):
        monkeypatch.setattr(writer.fs, "open", unavailable)
        with pytest.raises(HttpError):
            writer.open("attempts.jsonl", "wb")
        raise Terminated
