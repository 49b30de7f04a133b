"""What is written on a run as it begins, and what it says later of the process that it ran in."""

import multiprocessing
import os
import subprocess
import sys
from pathlib import Path

import dagster as dg
import pytest

from marin_assets import run_tags
from marin_assets.command_line import readable, typed_command
from marin_assets.run_tags import process_is_gone, tag_run
from marin_core.store.lease import process_started
from tests.conftest import REPOSITORY

TAGS = """
import dagster as dg, sys
from marin_assets.run_tags import tag_run
instance = dg.DagsterInstance.ephemeral()
run = instance.create_run_for_job(dg.job(name="empty")(lambda: None))
command = "dagster asset materialize --select 'delphi/*'"
tag_run(instance, run, store="s", profile="p", command=command, steps_are_processes=False)
for name, value in instance.get_run_by_id(run.run_id).tags.items():
    if name.startswith("marin/"):
        print(name, value, sep="=")
print('end=', flush=True)
sys.stdin.read()
"""


@pytest.fixture
def tagging() -> "subprocess.Popen[str]":
    """A process that has begun a run and waits."""
    return subprocess.Popen(
        [sys.executable, "-c", TAGS], cwd=REPOSITORY, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    )


def test_a_run_says_who_began_it_and_whether_that_process_is_still_there(tagging: "subprocess.Popen[str]") -> None:
    assert tagging.stdout and tagging.stdin
    tags: dict[str, str] = {}
    while "end" not in tags:
        name, _, value = tagging.stdout.readline().rstrip("\n").partition("=")
        tags[name] = value
    assert tags[run_tags.COMMAND] == "dagster asset materialize --select 'delphi/*'"
    assert {run_tags.STORE: "s", run_tags.PROFILE: "p"}.items() <= tags.items()
    assert not process_is_gone(tags)
    # On another host nobody here can tell.
    elsewhere = tags | {run_tags.HOST: "another"}
    pid = int(tags[run_tags.PROCESS].split()[0])
    assert process_started(pid)
    tagging.stdin.close()
    tagging.wait()
    assert process_is_gone(tags)
    assert not process_is_gone(elsewhere)
    assert not process_is_gone({})


def test_after_a_reboot_no_process_is_left(tagging: "subprocess.Popen[str]") -> None:
    output, _ = tagging.communicate("")
    tags = dict(line.split("=", 1) for line in output.splitlines())
    pid, started, boot, *rest = tags[run_tags.PROCESS].split()
    assert process_is_gone(tags | {run_tags.PROCESS: " ".join([pid, started, "another-boot", *rest])})
    # The same boot, but the process table of another container.
    assert not process_is_gone(tags | {run_tags.PROCESS: " ".join([pid, started, boot, "pid:[1]"])})


def tag_in_a_child(home: str, run_id: str, steps_are_processes: bool) -> None:
    """Tag a run in a process that Python's multiprocessing started, as a code server's runs are and a run's steps."""
    with dg.DagsterInstance.from_config(home) as instance:
        run = instance.get_run_by_id(run_id)
        assert run
        command = typed_command()
        tag_run(instance, run, store="s", profile="p", command=command, steps_are_processes=steps_are_processes)


@pytest.mark.parametrize("steps_are_processes", [False, True])
def test_the_process_of_a_run_is_its_own_and_not_that_of_a_step_or_a_server(
    tmp_path: Path, steps_are_processes: bool
) -> None:
    with dg.instance_for_test(temp_dir=str(tmp_path)) as instance:
        run = instance.create_run_for_job(dg.job(name="empty")(lambda: None))
        child = multiprocessing.get_context("spawn").Process(
            target=tag_in_a_child, args=(str(tmp_path), run.run_id, steps_are_processes)
        )
        child.start()
        child.join()
        tagged = instance.get_run_by_id(run.run_id)
    assert tagged
    pid = int(tagged.tags[run_tags.PROCESS].split()[0])
    assert pid == (os.getpid() if steps_are_processes else child.pid)
    # Nobody typed the command of such a process: it is that of the one it was started from.
    assert tagged.tags[run_tags.COMMAND] == typed_command()
    assert "multiprocessing" not in tagged.tags[run_tags.COMMAND]


def test_a_command_is_what_a_person_typed() -> None:
    typed = ["/usr/bin/python3", "/lab/.venv/bin/dagster", "asset", "materialize", "--select", "delphi/*"]
    assert readable(typed) == "dagster asset materialize --select 'delphi/*'"
    assert readable(["python", "-m", "dagster", "asset", "list"]) == "dagster asset list"
    # What Dagster starts has arguments that nobody reads.
    assert readable(["python", "-m", "dagster", "api", "grpc", "--socket", "/tmp/s"]) == "dagster api grpc …"
    assert readable(["python", "/usr/bin/dagster", "api", "execute_run", "x" * 5000]) == "dagster api execute_run …"
