"""What is written on a run as it begins, and what it says later of the process that it ran in."""

import subprocess
import sys

import pytest

from marin_assets import run_tags
from marin_assets.run_tags import process_is_gone, shortened_command
from marin_core.store.lease import process_started
from tests.conftest import REPOSITORY

TAGS = """
import dagster as dg, sys
from marin_assets.run_tags import tag_run
instance = dg.DagsterInstance.ephemeral()
run = instance.create_run_for_job(dg.job(name="empty")(lambda: None))
tag_run(instance, run, store="s", profile="p", command="dagster asset materialize --select 'delphi/*'")
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


def test_what_dagster_adds_to_a_command_is_left_out() -> None:
    typed = "dagster asset materialize --select 'delphi/*'"
    assert shortened_command(typed) == typed
    assert shortened_command(f"dagster api execute_run '{'x' * 5000}'") == "dagster api execute_run '…'"
