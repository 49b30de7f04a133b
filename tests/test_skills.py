"""The skills do what they say, as written; and every command that a page names exists, with the options it is given."""

import os
import re
import shlex
import subprocess
import textwrap
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from dagster._cli import create_dagster_cli

from marin_core.cli import cli
from marin_core.graph import LabGraph
from marin_core.profile import load_profile
from marin_core.records.experiment import Experiment
from tests.conftest import BIN, REPOSITORY, TINY_PROFILE

SKILLS = sorted((REPOSITORY / "marin_assets" / "skills").glob("*.md"))
PAGES = [REPOSITORY / "README.md", *SKILLS, *sorted((REPOSITORY / "marin_core").glob("*/README.md"))]
COMMANDS: dict[str, click.Command] = {"marin": cli, "dagster": create_dagster_cli()}
BASH = re.compile(r"^( *)```bash\n(.*?)^\1```$", re.MULTILINE | re.DOTALL)
PYTHON = re.compile(r"^```python\n(.*?)^```$", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`([^`\n]+)`")
# A command of ours where a command can stand: at the start of a line, of a pipe's part, after `deploy/run`.
CALL = re.compile(r"(?:^|[|;&(] *|deploy/run )(?:[A-Z_]+=\S+ )*((?:marin|dagster) [^|;&\n)]*)", re.MULTILINE)


def named(page: Path) -> str:
    return str(page.relative_to(REPOSITORY))


def bash_blocks(text: str) -> list[str]:
    return [textwrap.dedent(block) for _, block in BASH.findall(text)]


def without_blocks(text: str) -> str:
    return BASH.sub("", text)


def promised(text: str) -> list[str]:
    """The literal phrases in what the reader should see."""
    paragraphs = re.split(r"\n\s*\n", without_blocks(text))
    seen = [paragraph for paragraph in paragraphs if paragraph.strip().startswith("You should see")]
    return [phrase for paragraph in seen for phrase in INLINE.findall(paragraph)]


def calls(text: str) -> Iterator[list[str]]:
    """Every call of `marin` or `dagster` on a page, in blocks and in sentences, as arguments."""
    lines = [block.replace("\\\n", " ") for block in bash_blocks(text)]
    lines += [phrase for phrase in INLINE.findall(without_blocks(text)) if re.match(r"(marin|dagster) [a-z]", phrase)]
    for line in lines:
        for call in CALL.findall(line):
            yield shlex.split(call, comments=True)


@pytest.mark.slow
@pytest.mark.parametrize("skill", SKILLS, ids=lambda skill: skill.stem)
def test_a_skill_runs_as_written(skill: Path, tmp_path: Path) -> None:
    """Its blocks as one script, in the environment of somebody who has set nothing; what it says one should see is
    there to be seen."""
    text = skill.read_text()
    script = tmp_path / "skill.sh"
    script.write_text("\n".join(["set -euo pipefail", *bash_blocks(text)]))
    inherited = {k: v for k, v in os.environ.items() if not k.startswith(("MARIN_", "DAGSTER_", "WANDB_"))}
    variables = {
        **inherited,
        "PATH": f"{BIN}:{os.environ['PATH']}",
        "TMPDIR": str(tmp_path),
        # Shapes compile once for all tests.
        "JAX_COMPILATION_CACHE_DIR": str(REPOSITORY / ".marin" / "cache" / "jax"),
    }
    ran = subprocess.run(
        # Ends the processes of the script too, when it takes too long.
        ["timeout", "--kill-after=10", "900", "bash", str(script)],
        cwd=REPOSITORY,
        env=variables,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
        check=False,
    )
    assert ran.returncode == 0, ran.stdout[-8000:]
    shown = promised(text)
    assert shown
    assert [phrase for phrase in shown if phrase not in ran.stdout] == [], ran.stdout[-8000:]


@pytest.mark.parametrize("skill", SKILLS, ids=lambda skill: skill.stem)
def test_what_can_go_wrong_is_named_as_the_code_names_it(skill: Path) -> None:
    table = skill.read_text().split("## What can go wrong")[1]
    symptoms = [row.split("|")[1] for row in table.splitlines() if row.startswith("|")]
    code = "\n".join(
        file.read_text() for room in ("marin_core", "marin_assets") for file in (REPOSITORY / room).rglob("*.py")
    )
    literal = [phrase for symptom in symptoms for phrase in INLINE.findall(symptom)]
    assert [phrase for phrase in literal if phrase not in code] == []


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_the_commands_of_a_page_exist(page: Path) -> None:
    for call in calls(page.read_text()):
        command, arguments = COMMANDS[call[0]], call[1:]
        context = click.Context(command)
        while isinstance(command, click.Group) and arguments and not arguments[0].startswith("-"):
            found = command.get_command(context, arguments[0])
            if found is None and command.invoke_without_command:
                break
            assert found is not None, f"{shlex.join(call)}: there is no command {arguments[0]}"
            command, arguments = found, arguments[1:]
        known = {option for parameter in command.params for option in (*parameter.opts, *parameter.secondary_opts)}
        used = {argument.split("=")[0] for argument in arguments if argument.startswith("--")}
        assert used <= known, f"{shlex.join(call)}: {sorted(used - known)}"


@pytest.mark.parametrize("skill", SKILLS, ids=lambda skill: skill.stem)
def test_a_skill_says_when_to_use_it_and_what_it_needs(skill: Path) -> None:
    text = skill.read_text()
    assert re.search(r"^Use it when ", text, re.MULTILINE)
    assert re.search(r"^\*\*You need\*\* ", text, re.MULTILINE)
    assert text.index("## Steps") < text.index("## What can go wrong")


@pytest.mark.parametrize("page", PAGES, ids=named)
def test_the_files_that_a_page_links_are_there(page: Path) -> None:
    targets = re.findall(r"\]\((?!https?:|#)([^)#]+)", page.read_text())
    assert [target for target in targets if not (page.parent / target).exists()] == []


def test_the_example_of_an_experiment_compares_what_it_says() -> None:
    (example,) = PYTHON.findall((REPOSITORY / "marin_core" / "records" / "README.md").read_text())
    declared: dict[str, Any] = {}
    exec(example, declared)
    (experiment,) = [value for value in declared.values() if isinstance(value, Experiment)]
    profile = load_profile(str(TINY_PROFILE))
    graph = LabGraph(profile.scale, profile.place.hub, (experiment,))
    runs = graph.experiments[experiment.id].runs
    cells = list(graph.cells.values())
    assert all(run in cells for run in runs["as_is"])
    assert not any(run in cells for run in runs["longer"])
    for as_is, longer in zip(runs["as_is"], runs["longer"], strict=True):
        settings = as_is.config["plan"]["optimizer"]
        assert longer.config["plan"]["optimizer"] == {**settings, "warmup": 2 * settings["warmup"]}
