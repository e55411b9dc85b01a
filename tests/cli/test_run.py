from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

pytestmark = pytest.mark.slow

SHORT = """
    import torch
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.sum().backward()
    torch.optim.SGD([parameter]).step()
"""


def test_records_three_steps_of_an_unchanged_script(recorded: Any) -> None:
    (directory,) = recorded.run_directories()
    results = directory / "ASCEND_PROFILER_OUTPUT"
    assert (results / "analyse.done").exists()
    assert (results / "trace_view.json").exists()
    steps = recorded.json("summary", "result")["steps"]
    assert [row["step"] for row in steps] == [2, 3, 4]
    # the step ends after Optimizer.step, so each holds all of one, and nothing of the next
    assert all(row["forward_ns"] > 0 and row["backward_ns"] > 0 and row["optimizer_ns"] > 0 for row in steps)
    operators = {row["name"]: row for row in recorded.json("summary", "result", "--top", "1000")["operators"]}
    assert operators["Optimizer.step#SGD.step"]["calls"] == 3
    assert operators["aten::addmm"]["calls"] == 6


def test_script_keeps_its_output_arguments_path_and_exit_code(cli: Any) -> None:
    cli.write("other.py", "NAME = 'other'\n")
    script = """
        import other, sys
        print(sys.argv, __name__, other.NAME)
        print("to stderr", file=sys.stderr)
        sys.exit(3)
    """
    cli.write("script.py", script)
    done = cli.run("run", "--wait", "2", "script.py", "--wait", "7", "-m", "x", "--", "--help", expect=3)
    assert done.stdout == "['script.py', '--wait', '7', '-m', 'x', '--', '--help'] __main__ other\n"
    assert done.stderr.startswith("to stderr\n")
    assert "nothing was recorded" in done.stderr


def test_module(cli: Any) -> None:
    cli.write("package/__init__.py", "")
    cli.write("package/train.py", "import sys; print(sys.argv[1:], __name__, __package__)")
    done = cli.run("run", "--wait", "2", "-m", "package.train", "--wait", "7")
    assert done.stdout == "['--wait', '7'] __main__ package\n"


def test_exception_of_the_script_looks_as_python_shows_it(cli: Any) -> None:
    cli.write("script.py", "def fail():\n    raise ValueError('[red] mine')\n\nfail()\n")
    done = cli.run("run", "script.py", expect=1)
    lines = done.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert "script.py" in lines[1]
    assert "ValueError: [red] mine" in lines
    assert "runpy" not in done.stderr
    assert "steplens/cli" not in done.stderr


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("import sys; sys.exit('bye')", 1, "bye"),
        ("raise SystemExit", 0, ""),
        ("raise KeyboardInterrupt", 130, "KeyboardInterrupt"),
        ("import os; os._exit(5)", 5, ""),
        ("def broken(", 1, "SyntaxError"),
        ("from steplens.errors import InputError; raise InputError('mine', 'is mine')", 1, "mine: is mine"),
        ("raise BrokenPipeError", 1, "BrokenPipeError"),
    ],
)
def test_ends_as_the_script_ends(cli: Any, text: str, code: int, said: str) -> None:
    cli.write("script.py", text)
    assert said in cli.run("run", "script.py", expect=code).stderr


def test_what_was_recorded_survives_a_failing_script(cli: Any) -> None:
    script = """
        import torch
        parameter = torch.nn.Parameter(torch.zeros(4))
        optimizer = torch.optim.SGD([parameter], lr=0.1)
        for step in range(9):
            (parameter * 2).sum().backward()
            optimizer.step()
            if step == 3:
                raise RuntimeError("after four steps")
    """
    cli.write("script.py", script)
    done = cli.run("run", "--out", "kept", "script.py", expect=1)
    assert "RuntimeError: after four steps" in done.stderr
    assert "next: steplens summary" in done.stderr
    assert [row["step"] for row in cli.json("summary", "kept")["steps"]][:2] == [2, 3]


def test_only_the_first_optimizer_counts(cli: Any) -> None:
    script = """
        import torch
        one, two = (torch.nn.Parameter(torch.zeros(4)) for _ in range(2))
        leading, other = torch.optim.SGD([one], lr=0.1), torch.optim.Adam([two])
        for _ in range(5):
            for parameter, optimizer in ((one, leading), (two, other), (two, other)):
                (parameter * 2).sum().backward()
                optimizer.step()
    """
    cli.write("script.py", script)
    cli.run("run", "script.py")
    found = cli.json("summary", "result", "--top", "1000")
    assert [row["step"] for row in found["steps"]] == [2, 3, 4]
    calls = {row["name"]: row["calls"] for row in found["operators"]}
    assert calls["Optimizer.step#SGD.step"] == 3
    assert calls["Optimizer.step#Adam.step"] == 6


def test_nothing_heavy_is_imported_before_the_script(cli: Any) -> None:
    cli.write("script.py", "import sys; print([name for name in ('torch', 'polars', 'numpy', 'msgspec') if name in sys.modules])")
    assert cli.run("run", "script.py").stdout == "[]\n"


def test_says_why_nothing_was_recorded(cli: Any) -> None:
    cli.write("quiet.py", "print('no optimizer')")
    assert "torch.optim.Optimizer.step was never called" in cli.run("run", "quiet.py").stderr
    cli.write("short.py", SHORT)
    assert "took 1 optimizer steps" in cli.run("run", "short.py").stderr
    assert cli.run_directories() == []


def test_without_wait_recording_begins_after_the_first_step(cli: Any, recorded: Any) -> None:
    script = recorded.folder / "train.py"
    cli.run("run", "--wait", "0", "--warmup", "0", "--active", "2", "--no-analyse-flag", script, "3")
    (directory,) = cli.run_directories()
    assert not (directory / "ASCEND_PROFILER_OUTPUT" / "analyse.done").exists()
    assert [row["step"] for row in cli.json("summary", "result")["steps"]] == [0, 1]


def test_windows_repeat(cli: Any, recorded: Any) -> None:
    cli.run("run", "--active", "1", "--repeat", "2", recorded.folder / "train.py", "9")
    assert len(cli.run_directories()) == 2
    steps = cli.json("summary", "result")["steps"]
    assert sorted(row["step"] for row in steps) == [2, 5]
    assert len({row["window"] for row in steps}) == 2


def test_every_option_of_profile_is_a_flag(cli: Any) -> None:
    from steplens.options import OPTIONS

    text = cli.run("run", "--help", env={"COLUMNS": "300"}).stdout
    for option in OPTIONS:
        if option.cli and option.name != "dir_name":
            assert f"--{option.name.replace('_', '-')} " in text, option.name


def test_options_reach_the_profile(recorded: Any) -> None:
    info = next(recorded.run_directories()[0].glob("profiler_info*.json")).read_text()
    assert "Level1" in info
    assert set(recorded.json("summary", "result")["recorded"]) >= {"name", "shape", "module"}


def test_bad_command_lines(cli: Any) -> None:
    assert "no such script" in cli.refused("run", "missing.py")
    assert "no module named" in cli.refused("run", "-m", "missing_module")
    assert "SCRIPT" in cli.refused("run")
    assert "--nope" in cli.refused("run", "--nope", "x.py")
    assert "profiler" in cli.refused("run", "--profiler-level", "Level9", "x.py")


def test_a_script_that_changes_directory(cli: Any, tmp_path: Path, recorded: Any) -> None:
    script = "import os, runpy, sys\nos.makedirs('elsewhere'); os.chdir('elsewhere')\n"
    cli.write("script.py", script + f"sys.argv = ['t', '6']; runpy.run_path({str(recorded.folder / 'train.py')!r})")
    done = cli.run("run", "script.py")
    (directory,) = cli.run_directories()
    assert f"next: steplens summary result/{directory.name}" in done.stderr
