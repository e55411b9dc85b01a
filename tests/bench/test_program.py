"""One run of a program: what counts, what does not, and that nothing of it lives on."""

from __future__ import annotations

import os
import signal
import threading
import time
import venv
from pathlib import Path

import pytest

import steplens
from steplens.bench import program
from steplens.bench.checkouts import ProgramError, Version, check_out
from steplens.bench.program import Plan, run_program
from steplens.bench.signals import leave_on_signals

from .conftest import TAKES_STEPS, git

#: of 2 that are skipped and 5 that are timed
NEEDED = 8
ENVIRONMENT = {"PYTHONPATH": str(Path(steplens.__file__).parents[1])}


def plan_with(**changes: object) -> Plan:
    arguments = {"skip": 2, "timed": 5, "recorded": 0, "step_on": "optimizer", "profile": {}, "to_the_end": False}
    return Plan(**{**arguments, "patience_s": 30.0, **changes})  # type: ignore[arg-type]


def run_text(folder: Path, text: str, **changes: object) -> program.TimedRun:
    (folder / "takes_steps.py").write_text(TAKES_STEPS + text)
    return run_program(Version("main", folder, environment=ENVIRONMENT), ["takes_steps.py"], plan_with(**changes), folder / "out")


def test_a_program_that_takes_its_steps(tmp_path: Path) -> None:
    run = run_text(tmp_path, f"take_steps({NEEDED})")
    assert run.steps == 5 and [len(times) for times in run.step_times_ns] == [5]


@pytest.mark.parametrize(
    ("text", "to_the_end", "problem"),
    [
        (f"take_steps({NEEDED}); sys.exit(1)", True, "main: the command ended with exit code 1"),
        ("take_steps(6); sys.exit(1)", False, "main: the command ended with exit code 1"),
        ("take_steps(6); os.kill(os.getpid(), 9)", False, "main: the command was ended by SIGKILL"),
        ("take_steps(6); os.kill(os.getpid(), 40)", False, "main: the command was ended by signal 40"),
        ("take_steps(6)", False, "main: took 6 steps at most, and 8 are needed"),
        ("take_steps(6)", True, "main: took 6 steps at most, and 8 are needed"),
        ("take_steps(6); os._exit(0)", False, "main: ended before 8 steps were timed and recorded, and left no word of how many"),
        ("", False, "main: took no step that was noticed"),
    ],
)
def test_what_counts_for_nothing(tmp_path: Path, text: str, to_the_end: bool, problem: str) -> None:
    with pytest.raises(ProgramError) as failed:
        run_text(tmp_path, text, to_the_end=to_the_end)
    assert str(failed.value).startswith(problem)


def test_steps_that_are_too_few_to_be_recorded(tmp_path: Path) -> None:
    # their time is taken, and nothing would explain it
    with pytest.raises(ProgramError, match=r"took 8 steps at most, and 12 are needed"):
        run_text(tmp_path, "import steplens.collect.dynamic.launched_processes as launched\n"
                 "launched.StepRecording.on_step = lambda self: None\ntake_steps(8)", recorded=3)  # fmt: skip


def test_an_end_behind_the_last_step_is_as_good_as_ours(tmp_path: Path) -> None:
    assert run_text(tmp_path, f"take_steps({NEEDED}); sys.exit(1)").steps == 5


def test_processes_that_take_few_steps_do_not_count(tmp_path: Path) -> None:
    # the first one ends long before the second one, which is waited for
    run = run_text(tmp_path, f"""\
import time
if os.fork() == 0:
    take_steps(6)
    sys.exit(0)
os.wait()
time.sleep(0.2)
take_steps({NEEDED})
time.sleep(30)
""")  # fmt: skip
    assert run.steps == 5 and len(run.step_times_ns) == 1


def test_a_rank_that_ends_early(tmp_path: Path) -> None:
    ranks = """\
pipes = os.pipe(), os.pipe()
rank = 1 if os.fork() == 0 else 0
os.environ["RANK"] = str(rank)
def meet():
    os.write(pipes[rank][1], b".")
    os.read(pipes[1 - rank][0], 1)

# as in a job, no rank is ahead of the other one; of one that ends nobody waits any more
take_steps({}, meet)
os.write(pipes[rank][1], b"..")
if os.environ["RANK"] == "0":
    os.wait()
"""
    assert len(run_text(tmp_path, ranks.format(NEEDED)).step_times_ns) == 2
    with pytest.raises(ProgramError, match=r"main: rank 1 ended before its 5 steps were timed, unlike others"):
        run_text(tmp_path, ranks.format(f"{NEEDED} if rank == 0 else 6"))


def test_a_program_that_will_not_end_is_ended_by_the_second_signal(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    stubborn = "import signal, time\nsignal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
    stubborn += "open('pid', 'w').write(str(os.getpid()))\ntime.sleep(60)"
    monkeypatch.setattr(program, "_GRACE_S", 30.0)

    def ask_twice() -> None:
        deadline = time.monotonic() + 20.0
        while not ((tmp_path / "pid").is_file() and (tmp_path / "pid").read_text()) and time.monotonic() < deadline:
            time.sleep(0.02)
        os.kill(os.getpid(), signal.SIGTERM)
        time.sleep(0.3)
        os.kill(os.getpid(), signal.SIGTERM)

    asking = threading.Thread(target=ask_twice)
    asking.start()
    begin = time.monotonic()
    with leave_on_signals():
        with pytest.raises(SystemExit) as ended:
            run_text(tmp_path, stubborn)
        asking.join()
    assert ended.value.code == 143 and time.monotonic() - begin < 20.0
    with pytest.raises(ProcessLookupError):
        os.kill(int((tmp_path / "pid").read_text()), 0)


def test_an_environment_in_the_repository_belongs_to_both_versions(repository: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    venv.create(repository / ".venv", symlinks=True, with_pip=False)
    packages = next((repository / ".venv").glob("lib/python*/site-packages"))
    (packages / "installed.py").write_text("")
    (repository / "lib").mkdir()
    (repository / "lib" / "part.py").write_text("")
    (repository / "run.py").write_text(TAKES_STEPS + f"import installed, model\ntake_steps({NEEDED})\n")
    git(repository, "add", "lib", "run.py")
    git(repository, "commit", "--quiet", "-m", "run")
    command = [str(repository / ".venv" / "bin" / "python"), "run.py"]
    # where the worktrees lie in the repository as well
    for temporary in (None, str(repository)):
        monkeypatch.setattr("tempfile.tempdir", temporary)
        monkeypatch.setenv("PYTHONPATH", ENVIRONMENT["PYTHONPATH"])
        with check_out(["main", "main"]) as versions:
            assert [run_program(version, command, plan_with(), Path("out")).foreign_modules for version in versions] == [(), ()]
    # an editable install
    (packages / "editable.pth").write_text(f"{repository / 'lib'}\n")
    (repository / "run.py").write_text(TAKES_STEPS + f"import installed, part\ntake_steps({NEEDED})\n")
    git(repository, "commit", "--quiet", "-a", "-m", "run")
    with check_out(["main", "main"]) as versions:
        run = run_program(versions[0], command, plan_with(), Path("out"))
    assert run.foreign_modules == (f"part from {repository / 'lib' / 'part.py'}",)
