from __future__ import annotations

import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import steplens
from steplens.trace.schema import SCOPE_MODULE

from .conftest import TRAIN

pytestmark = pytest.mark.slow

SHORT = """
    import torch
    parameter = torch.nn.Parameter(torch.zeros(1))
    parameter.sum().backward()
    torch.optim.SGD([parameter]).step()
"""


def recorded_calls(cli: Any) -> dict[str, int]:
    """How often each operator, step mark and user annotation was called in the whole recording."""
    return dict(steplens.open(cli.folder / "result").operators(annotations=True).select("name", "calls").iter_rows())


def test_records_three_steps_of_an_unchanged_script(recorded: Any) -> None:
    (directory,) = recorded.run_directories()
    results = directory / "ASCEND_PROFILER_OUTPUT"
    assert (results / "analyse.done").exists()
    assert (results / "trace_view.json").exists()
    steps = recorded.json("summary", "result")["steps"]
    assert [row["step"] for row in steps] == [2, 3, 4]
    # the step ends after Optimizer.step, so each holds all of one, and nothing of the next
    assert all(row["forward_ns"] > 0 and row["backward_ns"] > 0 and row["optimizer_ns"] > 0 for row in steps)
    calls = recorded_calls(recorded)
    assert (calls["Optimizer.step#SGD.step"], calls["aten::addmm"]) == (3, 6)
    # the summary is of a step, and a mark is no operator
    operators = {row["name"]: row for row in recorded.json("summary", "result", "--top", "1000")["operators"]}
    assert "Optimizer.step#SGD.step" not in operators and operators["aten::addmm"]["calls"] == 2


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


LATE = """
    import atexit, os, pickle, threading
    class Mine:
        pass
    def late():
        threading.main_thread().join()
        print("thread", len(pickle.dumps(Mine())) > 0)
    threading.Thread(target=late).start()
    atexit.register(lambda: print("exit", len(pickle.dumps(Mine())) > 0))
    print(os.path.isabs(__file__), __spec__, __package__, type(__loader__).__name__)
"""


def test_what_runs_after_the_script_finds_its_module(cli: Any) -> None:
    cli.write("script.py", LATE)
    done = cli.run("run", "script.py")
    assert done.stdout == "True None None SourceFileLoader\nthread True\nexit True\n", done.stderr


def test_exception_of_the_script_looks_as_python_shows_it(cli: Any) -> None:
    cli.write("script.py", "def fail():\n    raise ValueError('[red] mine')\n\nfail()\n")
    done = cli.run("run", "script.py", expect=1)
    lines = done.stderr.splitlines()
    assert lines[0] == "Traceback (most recent call last):"
    assert "script.py" in lines[1]
    assert "ValueError: [red] mine" in lines
    assert "runpy" not in done.stderr
    assert "steplens/cli" not in done.stderr


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="stands for a full disk")
# one that is closed and one that is full are written to in the same way
@pytest.mark.parametrize("stderr", ["2>&-", pytest.param("2>/dev/full", marks=pytest.mark.long)])
def test_a_stderr_that_takes_nothing_changes_nothing(cli: Any, stderr: str) -> None:
    cli.write("train.py", TRAIN)
    command = f"{shlex.quote(sys.executable)} -m steplens run --out result train.py {stderr}"
    environment = {name: value for name, value in os.environ.items() if name != "PYTHONUNBUFFERED"}
    done = subprocess.run(["sh", "-c", command], cwd=cli.folder, env=environment, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stdout) == (0, "trained 6\n")
    assert len(list((cli.folder / "result").glob("*_ascend_pt"))) == 1


@pytest.mark.parametrize(
    ("text", "code", "said"),
    [
        ("import sys; sys.exit('bye')", 1, "bye"),
        ("raise SystemExit", 0, ""),
        ("raise KeyboardInterrupt", -signal.SIGINT, "KeyboardInterrupt"),
        ("import os, signal; os.kill(os.getpid(), signal.SIGTERM)", -signal.SIGTERM, ""),
        ("import os; os._exit(5)", 5, ""),
        ("def broken(", 1, "SyntaxError"),
        ("from steplens.common.errors import InputError; raise InputError('mine', 'is mine')", 1, "mine: is mine"),
        ("raise BrokenPipeError", 1, "BrokenPipeError"),
    ],
)
def test_ends_as_the_script_ends(cli: Any, text: str, code: int, said: str) -> None:
    cli.write("script.py", text)
    assert said in cli.run("run", "script.py", expect=code).stderr


def test_a_script_that_is_interrupted_ends_by_the_signal_behind_what_waits_for_the_end(cli: Any) -> None:
    script = """
        import atexit, os, signal, sys, threading, torch
        atexit.register(print, "at exit")
        parameter = torch.nn.Parameter(torch.zeros(4))
        optimizer = torch.optim.SGD([parameter], lr=0.1)
        for step in range(9):
            (parameter * 2).sum().backward()
            optimizer.step()
            if step == 3:
                print("interrupted", end=" ")
                signal.raise_signal(signal.SIGINT)
    """
    cli.write("script.py", script)
    done = cli.record("--out", "kept", "script.py", expect=-signal.SIGINT)
    assert done.stdout.startswith("interrupted ") and done.stdout.endswith("at exit\n")
    assert done.stderr.count("KeyboardInterrupt") == done.stderr.count("Traceback") == 1
    assert "summary kept (in the terminal)" in done.stderr
    assert [row["step"] for row in cli.json("summary", "kept")["steps"]][:2] == [2, 3]


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
    done = cli.record("--out", "kept", "script.py", expect=1)
    assert "RuntimeError: after four steps" in done.stderr
    assert "summary kept (in the terminal)" in done.stderr
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
    cli.record("script.py")
    found = cli.json("summary", "result", "--top", "1000")
    assert [row["step"] for row in found["steps"]] == [2, 3, 4]
    calls = recorded_calls(cli)
    assert calls["Optimizer.step#SGD.step"] == 3
    assert calls["Optimizer.step#Adam.step"] == 6


OWN_PROFILER = """
    import torch
    parameter = torch.nn.Parameter(torch.zeros(4))
    optimizer = torch.optim.SGD([parameter])

    def step():
        (parameter * 2).sum().backward()
        optimizer.step()
"""


@pytest.mark.parametrize("recorder", ["auto", "off"])
def test_a_window_ends_where_the_script_begins_to_use_the_profiler_of_pytorch(
    cli: Any, recorder: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPLENS_RECORDER", recorder)
    script = """
    for number in range(8):
        if number != 4:
            step()
            continue
        with torch.profiler.profile() as profiler:
            step()
        print(sum(event.name == "aten::mul" for event in profiler.events()))
"""
    cli.write("script.py", OWN_PROFILER + script)
    done = cli.record("script.py")
    assert done.stdout == "2\n"
    ends = "Another profiler of the program begins: the window that began at step 2 ends here." in done.stderr
    assert ends == (recorder == "off")
    assert [row["step"] for row in cli.json("summary", "result")["steps"]] == [2, 3, 4]


@pytest.mark.parametrize("options", [(), ("--black-box", "operators"), ("--warmup", "0"), ("--wait", "2")])
def test_the_schedule_of_the_profiler_of_pytorch_comes_first(
    cli: Any, options: tuple[str, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("STEPLENS_RECORDER", "off")
    script = """
    count = lambda profiler: print(sum(event.name == "aten::mul" for event in profiler.events()))
    schedule = torch.profiler.schedule(wait=1, warmup=1, active=3, repeat=1)
    with torch.profiler.profile(schedule=schedule, on_trace_ready=count) as profiler:
        for _ in range(8):
            step()
            profiler.step()
"""
    cli.write("script.py", OWN_PROFILER + script)
    done = cli.record(*options, "script.py")
    assert done.stdout == "6\n"
    assert options or "holds no trace: Another profiler of the program begins: nothing is recorded in this window" in done.stderr


def test_every_step_counts_while_another_thread_is_inside_of_a_step(cli: Any) -> None:
    script = """
        import threading, torch
        one, two = (torch.nn.Parameter(torch.zeros(4)) for _ in range(2))
        leading, other = torch.optim.SGD([one], lr=0.1), torch.optim.Adam([two])
        inside, go_on = threading.Event(), threading.Event()

        def closure():
            inside.set()
            assert go_on.wait(60)

        (one * 2).sum().backward()
        leading.step()
        thread = threading.Thread(target=other.step, args=(closure,))
        thread.start()
        assert inside.wait(60)
        for _ in range(4):
            (one * 2).sum().backward()
            leading.step()
        go_on.set()
        thread.join()
    """
    cli.write("script.py", script)
    cli.record("script.py")
    assert [row["step"] for row in cli.json("summary", "result")["steps"]] == [2, 3, 4]


def test_optimizers_that_step_inside_of_backward(cli: Any) -> None:
    """Each parameter is updated as soon as its gradient is there; a step ends with the backward pass, not within it."""
    script = """
        import torch
        layers = [torch.nn.Linear(4, 4) for _ in range(3)]
        model = torch.nn.Sequential(*layers)
        optimizers = {parameter: torch.optim.SGD([parameter], lr=0.1) for parameter in model.parameters()}
        checkpointed = torch.utils.checkpoint.checkpoint

        def update(parameter):
            optimizers[parameter].step()
            optimizers[parameter].zero_grad()

        for parameter in model.parameters():
            parameter.register_post_accumulate_grad_hook(update)
        for _ in range(5):
            # a checkpoint runs a backward pass inside of the backward pass
            checkpointed(model, torch.ones(2, 4, requires_grad=True), use_reentrant=True).sum().backward()
    """
    cli.write("script.py", script)
    done = cli.record("script.py")
    assert "holds no trace" not in done.stderr
    found = cli.json("summary", "result", "--top", "1000")
    assert [row["step"] for row in found["steps"]] == [2, 3, 4]
    calls = recorded_calls(cli)
    assert calls["Optimizer.step#SGD.step"] == 3 * 6
    assert calls["CheckpointFunction"] == calls["CheckpointFunctionBackward"] == 3


PREDICT = """
    import sys, torch

    class Net(torch.nn.Module):
        def __init__(self):
            super().__init__()
            self.first = torch.nn.Linear(32, 32)
            self.rest = torch.nn.Sequential(torch.nn.ReLU(), torch.nn.Linear(32, 4))

        def forward(self, values):
            return self.rest(self.first(values))

    model = Net().eval()
    found = []
    with torch.inference_mode():
        for _ in range(int(sys.argv[1])):
            found += model(torch.randn(8, 32)).argmax(1).tolist()
    print("predicted", len(found))
"""


def test_steps_of_a_script_that_trains_nothing(cli: Any) -> None:
    cli.write("predict.py", PREDICT)
    done = cli.record("--step-on", "forward", "--with-modules", "predict.py", "8")
    assert done.stdout == "predicted 64\n"
    (directory,) = cli.run_directories()
    found = cli.json("summary", "result", "--top", "1000")
    assert [row["step"] for row in found["steps"]] == [2, 3, 4]
    assert all(row["complete"] and row["forward_ns"] > 0 and row["backward_ns"] == 0 for row in found["steps"])
    calls = recorded_calls(cli)
    assert (calls["aten::addmm"], calls["aten::argmax"]) == (6, 3)
    assert all("overlap" not in row["check"] for row in found["health"])
    modules = {row["name"]: row["calls"] for row in cli.json("summary", "result", "--by", "module")["operators"]}
    assert modules["Net"] == modules["Net.first"] == modules["Net.rest.1"] == 1
    # every call of the model lies in one step
    trace = steplens.open(directory).traces[0]
    steps = trace.required("steps").collect().to_dicts()
    ranges = trace.required("ops").filter(pl.col("module").cast(pl.String) == "Net", pl.col("scope") == SCOPE_MODULE).collect()
    assert ranges.height == 3
    for one, step in zip(ranges.sort("start_ns").to_dicts(), steps, strict=True):
        assert step["start_ns"] <= one["start_ns"] <= one["end_ns"] <= step["end_ns"]


def test_other_processes_that_train_nothing(cli: Any) -> None:
    cli.write("predict.py", PREDICT)
    cli.run("run", "--step-on", "forward", "--", sys.executable, "predict.py", "8")
    assert [row["step"] for row in cli.json("summary", "result")["steps"]] == [2, 3, 4]
    cli.write("short.py", PREDICT)
    assert "took 1 steps from one call of the model to the next" in cli.record("--step-on", "forward", "short.py", "2").stderr


def test_nothing_heavy_is_imported_before_the_script(cli: Any) -> None:
    cli.write("script.py", "import sys; print([name for name in ('torch', 'polars', 'numpy', 'msgspec') if name in sys.modules])")
    assert cli.run("run", "script.py").stdout == "[]\n"


def test_says_why_nothing_was_recorded(cli: Any) -> None:
    cli.write("quiet.py", "print('no optimizer')")
    said = cli.run("run", "quiet.py").stderr
    assert "nothing was recorded, because torch.optim.Optimizer.step was never called" in said
    assert "steplens run --step-on forward" in said
    assert "no torch.nn.Module was called twice" in cli.run("run", "--step-on", "forward", "quiet.py").stderr
    cli.write("short.py", SHORT)
    assert "took 1 optimizer steps" in cli.record("short.py").stderr
    assert cli.run_directories() == []


@pytest.mark.parametrize(
    ("out", "why"),
    [
        ("afile", "afile: is a file"),
        ("afile/below", "afile: is a file"),
        ("n" * 300, "File name too long"),
        (f"new/{'n' * 300}", "File name too long"),
        ("/proc/new", "cannot hold what is recorded"),
    ],
)
def test_a_folder_that_cannot_be_used_is_said_before_the_script_starts(cli: Any, out: str, why: str) -> None:
    cli.write("afile", "")
    cli.write("script.py", "print('started')")
    done = cli.run("run", "--out", out, "script.py", expect=2)
    assert done.stdout == "" and why in done.stderr and done.stderr.count("\n") == 1
    assert sorted(path.name for path in cli.folder.iterdir()) == ["afile", "script.py"]


def test_without_wait_recording_begins_after_the_first_step(cli: Any, recorded: Any) -> None:
    script = recorded.folder / "train.py"
    cli.record("--wait", "0", "--warmup", "0", "--active", "2", "--no-analyse-flag", script, "3")
    (directory,) = cli.run_directories()
    assert not (directory / "ASCEND_PROFILER_OUTPUT" / "analyse.done").exists()
    assert [row["step"] for row in cli.json("summary", "result")["steps"]] == [0, 1]


def test_windows_repeat(cli: Any, recorded: Any) -> None:
    cli.record("--active", "1", "--repeat", "2", recorded.folder / "train.py", "9")
    assert len(cli.run_directories()) == 2
    steps = cli.json("summary", "result")["steps"]
    assert sorted(row["step"] for row in steps) == [2, 5]
    assert len({row["window"] for row in steps}) == 2


def test_every_option_of_profile_is_a_flag(cli: Any) -> None:
    from steplens.common.options import OPTIONS

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
    done = cli.record("script.py")
    (directory,) = cli.run_directories()
    assert "summary result (in the terminal)" in done.stderr and directory.parent.name == "result"
