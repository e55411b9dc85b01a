"""Bad input to every command: one sentence on stderr, the right exit code, at once and without what only good input needs."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from ..command_line import command_environment

#: what takes long to import: a command that refuses its input has no use for them
HEAVY = ("polars", "numpy", "torch", "msgspec", "fastapi", "uvicorn", "steplens.run", "steplens.readers.detect")

#: the lines of this program's input are command lines; each is run as a command of its own would be, and says what it imported
PROGRAM = """
import contextlib, io, json, sys
from steplens.cli.main import main
for line in sys.stdin:
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        try:
            code = main(json.loads(line))
        except SystemExit as end:
            code = end.code
    heavy = [name for name in sys.argv[1:] if name in sys.modules]
    print(json.dumps([code, out.getvalue(), err.getvalue(), heavy]), flush=True)
"""

#: command line -> what its sentence says
BAD: tuple[tuple[tuple[str, ...], str], ...] = (
    (("nosuch",), "No such command 'nosuch'"),
    (("sumary", "trace.json"), "Did you mean 'summary'?"),
    (("--nosuch",), "No such option: --nosuch"),
    (("summary",), "Missing argument"),
    (("summary", "missing"), "missing: does not exist. Check the path"),
    (("summary", ""), "an argument is empty"),
    (("summary", "dead"), "is a link to a place that does not exist"),
    (("summary", "round"), "is a link that leads round in circles"),
    (("summary", "text.txt"), "is not a trace steplens knows"),
    (("summary", "picture.png"), "is not a trace steplens knows"),
    (("summary", "nothing.json"), "is empty. Record the trace again"),
    (("summary", "nothing"), "is not a trace steplens knows"),
    (("summary", "folder"), "is an empty folder"),
    (("summary", "foreign"), "holds no run and no trace, only a.json (a JSON file without events of a profiler); b.log"),
    (("summary", "object.json"), 'holds no "traceEvents", so it is not a trace'),
    (("summary", "list.json"), "holds no events. Record at least one step"),
    (("summary", "number.json"), "is not a JSON trace"),
    (("summary", "cut.json"), "holds no events. Record at least one step"),
    (("summary", "blank.json"), "is empty. Record the trace again"),
    (("summary", "damaged.json.gz"), "is not a readable gzip file"),
    (("summary", "/dev/null"), "is a device, and neither a file nor a folder"),
    (("summary", "pipe"), "is a pipe, and neither a file nor a folder"),
    (("summary", "text.txt/inside"), "does not exist"),
    (("summary", "text.txt", "--by", "colour"), "'colour' is not one of 'name', 'shape', 'stack', 'module'"),
    (("summary", "text.txt", "--top", "0"), "'--top'"),
    (("summary", "text.txt", "--top", "many"), "'--top'"),
    (("summary", "text.txt", "--top"), "--top"),
    (("summary", "text.txt", "other"), "unexpected extra argument"),
    (("summary", "text.txt", "--topp", "3"), "No such option"),
    (("open", "missing"), "does not exist"),
    (("open", "pipe"), "is a pipe"),
    (("analyse", "missing"), "does not exist"),
    (("analyze", "missing"), "does not exist"),
    (("analyse", "text.txt"), "is not a trace steplens knows"),
    (("analyse", "text.txt", "--export-type", "csv"), "'csv' is not one of 'text', 'db'"),
    (("analyse", "text.txt", "--out="), "the value of --out is empty"),
    (("analyse", "text.txt", "--output", ""), "the value of --output is empty"),
    (("export", "text.txt"), "'--to'"),
    (("export", "trace.json", "--to", "nosuch"), "'nosuch' is not one of 'kineto', 'chrome'"),
    (("export", "missing", "--to", "chrome"), "does not exist"),
    (("export", "text.txt", "--to", "stacks", "--metric", "joules"), "'joules' is not one of"),
    (("compare", "missing", "trace.json"), "does not exist"),
    (("compare", "trace.json", "text.txt"), "is not a trace steplens knows"),
    (("compare", "trace.json"), "PATH..."),
    (("compare", "trace.json", "trace.json", "--fail-on", "stp>2%"), "did you mean step?"),
    (("table", "missing", "operators"), "does not exist"),
    (("table", "trace.json", "operatos"), "there is no table 'operatos'; perhaps 'operators'"),
    (("table", "trace.json", "xyz"), "there is no table 'xyz'; `steplens table` lists them"),
    (("table", "trace.json", "operators", "--by", "colour"), "it must be one of name, category"),
    (("table", "trace.json", "marks", "--by", "name"), "it must be left out"),
    (("table", "trace.json", "operators", "--rank", "first"), "'--rank'"),
    (("table", "trace.json", "operators", "--csv", "gone/out.csv"), "lies in a folder that does not exist"),
    (("table", "trace.json", "operators", "--csv", "folder"), "is a folder"),
    (("sql", "missing", "SELECT 1"), "does not exist"),
    (("sql", "trace.json", "SELECT 1", "--csv", "gone/out.csv"), "lies in a folder that does not exist"),
    (("advise", "missing"), "does not exist"),
    (("advise", "trace.json", "--since", "missing"), "does not exist"),
    (("advise", "trace.json", "--rules", "missing"), "is no folder of rules"),
    (("advise", "trace.json", "--language", "fr"), "'fr' is not one of 'en', 'zh'"),
    (("advise", "trace.json", "--lang", "fr"), "'fr' is not one of 'en', 'zh'"),
    (("view",), "Missing argument"),
    (("view", "missing"), "does not exist"),
    (("view", "text.txt"), "is not a trace steplens knows"),
    (("view", "object.json"), 'holds no "traceEvents", so it is not a trace'),
    (("view", "trace.json", "--port", "99999"), "'--port'"),
    (("report", "missing"), "does not exist"),
    (("report", "trace.json", "--out", "gone/report.html"), "is not a folder that is there"),
    (("report", "trace.json", "--output", "folder"), "is a folder"),
    (("report", "trace.json", "--step", "1", "--window", "1:2"), "give one of them"),
    (("report", "trace.json", "--rows", "0"), "'--rows'"),
    (("status", "missing"), "there is no such folder"),
    (("trigger", "missing"), "there is no such folder"),
    (("trigger", "folder"), "there is no profiler_config.json"),
    (("trigger", "folder", "--rank", "x"), "--rank takes ranks"),
    (("run",), "give a SCRIPT or a COMMAND"),
    (("run", "missing.py"), "there is no such script"),
    (("run", ""), "an argument is empty"),
    (("run", "-m", "no_such_module_anywhere"), "there is no module named no_such_module_anywhere"),
    (("run", "--", "nosuchcmd"), "nosuchcmd: there is no such command"),
    (("run", "--step-on", "epoch", "script.py"), "'epoch' is not one of 'optimizer', 'forward'"),
    (("run", "--out", "", "script.py"), "the value of --out is empty"),
    (("run", "--wait", "soon", "script.py"), "'--wait'"),
)
#: exit codes that are not 2
CODES = {("run", "--", "nosuchcmd"): 127}
#: words of the libraries below
FOREIGN = re.compile(r"Traceback|pydantic|Value error|Input should be|validation error")


def write_bad_files(folder: Path) -> None:
    """The files that ``BAD`` names."""
    (folder / "foreign").mkdir()
    for name, content in (
        ("text.txt", b"hello\n"),
        ("picture.png", b"\x89PNG\r\n\x1a\n"),
        ("nothing.json", b""),
        ("nothing", b""),
        ("object.json", b"{}"),
        ("list.json", b"[]"),
        ("number.json", b"3"),
        ("cut.json", b'{"traceEvents": [{"ph": "X", "name": "aten'),
        ("blank.json", b" \n"),
        ("damaged.json.gz", b"\x1f\x8bnothing that zlib knows"),
        ("foreign/a.json", b'{"steps": 3}'),
        ("foreign/b.log", b"hello\n"),
    ):
        (folder / name).write_bytes(content)
    (folder / "trace.json").write_text('{"traceEvents": [{"ph": "X"}]}')
    (folder / "script.py").write_text("")
    (folder / "folder").mkdir()
    (folder / "dead").symlink_to("nowhere")
    (folder / "round").symlink_to("round")
    os.mkfifo(folder / "pipe")


@pytest.fixture(scope="module")
def answers(tmp_path_factory: pytest.TempPathFactory) -> dict[tuple[str, ...], Any]:
    """What each command answers: in one process, which must not import anything heavy for any of them."""
    folder = tmp_path_factory.mktemp("bad")
    write_bad_files(folder)
    lines = "".join(json.dumps(arguments) + "\n" for arguments, _ in BAD)
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, *HEAVY],
        input=lines,
        cwd=folder,
        env=command_environment(),
        capture_output=True,
        text=True,
        timeout=120,
        check=True,
    )
    return {arguments: json.loads(line) for (arguments, _), line in zip(BAD, done.stdout.splitlines(), strict=True)}


@pytest.mark.parametrize(("arguments", "expected"), BAD, ids=[" ".join(arguments) for arguments, _ in BAD])
def test_one_sentence(answers: dict[tuple[str, ...], Any], arguments: tuple[str, ...], expected: str) -> None:
    code, out, err, heavy = answers[arguments]
    assert code == CODES.get(arguments, 2), err
    assert len(err.splitlines()) == 1 and err.startswith("steplens: "), err
    assert expected in err
    assert not FOREIGN.search(err + out)
    assert out == ""
    assert not heavy


#: what only the data of a run tells -> what its sentence says
OF_DATA: tuple[tuple[tuple[str, ...], str], ...] = (
    (("table", "job", "operators", "--columns", "nosuch"), "has no column 'nosuch' in operators. Its columns are name, calls,"),
    (("table", "job", "steps", "--sort", "+nosuch"), "complete, chosen; of several traces also rank and window"),
    (("table", "job", "recorded_ops", "--columns", "id,nosuch"), "has no column 'nosuch' in recorded_ops"),
    (("table", "job", "operators", "--rank", "7"), "job: holds no rank 7; its ranks are 0, 1"),
    (("export", "job", "--to", "chrome", "--rank", "7"), "job: holds no rank 7; its ranks are 0, 1"),
)
#: of a query polars tells what is wrong, over tables without rows
OF_QUERIES: tuple[tuple[tuple[str, ...], str], ...] = (
    (("sql", "job", "SELECT nosuch FROM ops"), "there is no column 'nosuch'. There is id, name,"),
    (("sql", "job", "SELECT 1", "--rank", "7"), "job: holds no rank 7; its ranks are 0, 1"),
    (("sql", "job", "SELECT self_nss FROM operators"), "there is no column 'self_nss'; perhaps 'self_ns'"),
)


def test_what_only_data_tells_is_refused_without_reading(cli: Any, events: list[dict[str, Any]]) -> None:
    """Neither what reads a format nor what keeps or analyses tables is imported before the sentence."""
    for rank in (0, 1):
        cli.trace(f"job/rank{rank}.json", events, distributedInfo={"rank": rank, "world_size": 2})
    cli.json("table", "job", "steps")
    reading = [
        f"steplens.{name}"
        for name in ("readers.kineto.kineto", "readers.mindspore.mindspore_find", "readers.many", "trace.cache.store", "run")
    ]
    heavy = ["numpy", "torch", "msgspec", "steplens.trace.trace", "steplens.writers.exports.export", *reading]
    for refused, unwanted in ((OF_DATA, ["polars", *heavy]), (OF_QUERIES, heavy)):
        done = subprocess.run(
            [sys.executable, "-c", PROGRAM, *unwanted],
            input="".join(json.dumps(arguments) + "\n" for arguments, _ in refused),
            cwd=cli.folder,
            env=command_environment(),
            capture_output=True,
            text=True,
            timeout=60,
            check=True,
        )
        for (arguments, sentence), line in zip(refused, done.stdout.splitlines(), strict=True):
            code, out, err, imported = json.loads(line)
            assert (code, out, imported) == (2, "", []), (arguments, err)
            assert len(err.splitlines()) == 1 and err.startswith("steplens: ") and sentence in err, (arguments, err)


def test_there_are_enough_of_them() -> None:
    assert len(BAD) >= 40 and len({arguments for arguments, _ in BAD}) == len(BAD)


def test_a_script_that_cannot_import_says_so(cli: Any) -> None:
    cli.write("broken.py", "import no_such_module_anywhere")
    said = cli.run("run", "broken.py", expect=1).stderr
    assert "nothing was recorded: ModuleNotFoundError ended the script before its first step" in said
    assert "Optimizer.step was never called" not in said


def test_spellings(cli: Any, events: list[dict[str, Any]]) -> None:
    cli.trace("trace.json", events)
    for out in ("--out", "--output", "-o"):
        cli.run("export", "trace.json", "--to", "speedscope", out, f"{out.strip('-')}.txt")
        assert (cli.folder / f"{out.strip('-')}.txt").is_file()
    assert cli.run("advise", "trace.json", "--lang", "zh").stdout == cli.run("advise", "trace.json", "--language", "zh").stdout
    assert re.fullmatch(r"steplens \d+(\.\d+)+\n", cli.run("--version").stdout)
    assert "--install-completion" in cli.run("-h").stdout


def test_help(cli: Any) -> None:
    """Every command has -h; nothing is cut, no type of Python or half of a word is in it, whatever the width."""
    names = re.findall(r"^  ([a-z]+) ", cli.run("-h").stdout, re.MULTILINE)
    assert {"run", "view", "summary", "table", "sql", "analyse"} <= set(names)
    for name in names:
        for columns in ("60", "80", "200"):
            text = cli.run(name, "-h", env={"COLUMNS": columns}).stdout
            assert max(map(len, text.splitlines()[1:])) <= max(int(columns), 110)
            assert not re.search(r"<\w|list\[|…|\{", text), text
    text = cli.run("run", "-h").stdout
    npu = text[text.index("On an NPU") :]
    assert all(option in npu and option not in text[: text.index("On an NPU")] for option in ("--l2-cache", "--aic-metrics"))
    assert "PipeUtilization, ArithmeticUtilization" in text
