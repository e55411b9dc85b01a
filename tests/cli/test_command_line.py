"""A command in the process of the tests is the command that users start: equal texts, exit codes and files, nothing left."""

from __future__ import annotations

import os
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import pytest
import typer

from steplens.cli import main as entry
from steplens.cli.line.commands import ListedCommand

from ..command_line import run_command, run_process
from .conftest import Cli


@pytest.mark.parametrize(
    "arguments",
    [
        (),
        ("summary", "--help"),
        ("summary", "trace.json"),
        ("summary", "trace.json", "--json"),
        ("summary", "missing"),
        ("open", "größe.json"),
        ("advise", "trace.json", "--language", "zh"),
        ("table", "trace.json", "operators", "--nothing"),
        ("export", "trace.json", "--to", "memory"),
    ],
    ids=" ".join,
)
def test_says_what_a_process_says(tmp_path: Path, events: list[dict[str, Any]], arguments: tuple[str, ...]) -> None:
    events[1]["name"] = "größe \u202e 训练"
    answers = []
    # each in a folder where nothing is kept yet
    for name, run in (("here", run_command), ("process", run_process)):
        cli = Cli(tmp_path / name)
        for trace in ("trace.json", "größe.json"):
            cli.trace(trace, events)
        done = run(*arguments, folder=cli.folder, env={"COLUMNS": "80"})
        files = sorted(str(path.relative_to(cli.folder)) for path in cli.folder.rglob("*") if ".steplens" not in path.parts)
        answers.append((done.returncode, done.stdout, done.stderr, files))
    assert answers[0] == answers[1]


def test_leaves_the_process_as_it_was(cli: Any, events: list[dict[str, Any]], capfd: pytest.CaptureFixture[str]) -> None:
    before = (os.getcwd(), dict(os.environ), sys.stdout, sys.stderr, warnings.filters[:], warnings.showwarning)
    assert "aten::mm" in cli.run("summary", cli.trace("trace.json", events), env={"COLUMNS": "60"}).stdout
    assert (os.getcwd(), dict(os.environ), sys.stdout, sys.stderr, warnings.filters[:], warnings.showwarning) == before
    assert tuple(capfd.readouterr()) == ("", "")


def test_a_command_that_leaves_something_fails_its_test(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("tests.command_line.main", lambda arguments: sys.path.append("/left"))
    try:
        with pytest.raises(AssertionError, match="left something"):
            cli.run("open")
    finally:
        sys.path.remove("/left")


def test_warnings_and_what_libraries_write_are_seen(cli: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    def main(arguments: list[str]) -> int:
        warnings.warn("of the user", UserWarning, stacklevel=1)
        os.write(1, b"by its descriptor\n")
        raise LookupError("out of luck")

    monkeypatch.setattr("tests.command_line.main", main)
    done = cli.run("open", expect=1)
    assert "UserWarning: of the user" in done.stderr and done.stderr.endswith("LookupError: out of luck\n")
    assert done.stdout == "by its descriptor\n"
    assert entry.main is not main


def test_a_command_imports_what_it_needs_itself() -> None:
    """Of other commands nothing, and of the advice not what judges, where only its kept answers are read."""
    for program, unused in (
        (
            "from steplens.cli.main import main; main(['table'])",
            ("steplens.cli.advise", "steplens.cli.doctor", "steplens.cli.view"),
        ),
        ("import steplens.advice.prepare", ("steplens.advice.advice", "steplens.advice.judging.order")),
    ):
        found = f"print([name for name in {unused} if name in sys.modules], file=sys.stderr)"
        done = subprocess.run(
            [sys.executable, "-c", f"import sys; {program}; {found}"], capture_output=True, text=True, check=True
        )
        assert done.stderr.strip() == "[]"


def test_the_list_of_commands_imports_none_of_them() -> None:
    program = """
import sys
from steplens.cli.main import main
main(["--help"])
light = {"steplens.cli.main", "steplens.cli.recording.interrupted"}
names = [name for name in sys.modules if name.startswith("steplens.cli.") and ".line" not in name and ".text" not in name]
heavy = [name for name in ("polars", "numpy", "pydantic", "msgspec", "zipfile") if name in sys.modules]
print(sorted({*names, *heavy} - light - {"steplens.cli.recording"}), file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    assert done.stderr == "[]\n" and "summary" in done.stdout


def test_the_list_has_the_first_sentence_of_each_command() -> None:
    listed = typer.main.get_command(entry.app)
    context = listed.make_context("steplens", [], resilient_parsing=True)
    sentences = {name: command.help for name, command in listed.commands.items()}
    for name, sentence in sentences.items():
        command = listed.get_command(context, name)
        assert sentence == " ".join(command.help.split("\n\n")[0].split()), name
        assert type(command) is not ListedCommand and command is listed.get_command(context, name)


def test_values_that_need_no_check_are_those_that_typer_gives() -> None:
    """Without the library that typer checks with, which only values need that are to be checked."""
    program = """
import enum, pathlib, sys
from typing import Annotated, Optional
import typer
from steplens.cli.line.commands import Command
class Kind(str, enum.Enum):
    a = "a"
    b = "b"
app = typer.Typer(add_completion=False)
def show(
    path: Annotated[pathlib.Path, typer.Argument(parser=lambda text: pathlib.Path("/in", text))],
    more: Annotated[Optional[list[pathlib.Path]], typer.Argument(parser=pathlib.Path)] = None,
    kind: Kind = Kind.a, name: Optional[str] = None, names: Optional[list[str]] = None,
    count: Annotated[int, typer.Option(min=1)] = 3, share: float = 1.5, flag: bool = False, off: bool = True,
) -> None:
    print(path, more, repr(kind), name, names, count, share, flag, off)
app.command(cls=Command if sys.argv[1] == "ours" else None)(show)
light = ("x", "x y z --name n --names 1 --names 2 --flag --no-off")
for line in (*light, "--", "x --kind b", "x --count 4 --share 2", "x --count 0", ""):
    if line == "--":
        print("pydantic" in sys.modules, file=sys.stderr)
        continue
    try:
        app(line.split(), standalone_mode=False)
    except typer.BadParameter.__mro__[2] as error:
        print(error.format_message())
"""
    ours, theirs = (
        subprocess.run([sys.executable, "-c", program, who], capture_output=True, text=True, check=True)
        for who in ("ours", "theirs")
    )
    assert ours.stdout == theirs.stdout and "/in/x [PosixPath('y'), PosixPath('z')] <Kind.a: 'a'> n ['1', '2']" in ours.stdout
    assert ours.stderr == "False\n"


def test_every_command_is_there_for_whoever_asks_for_all() -> None:
    assert {"run", "view", "summary", "table", "export"} <= {command.name for command in entry.app.registered_commands}
    with pytest.raises(AttributeError, match="nothing"):
        entry.nothing  # noqa: B018
