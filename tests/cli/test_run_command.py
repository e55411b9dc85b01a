"""``steplens run`` with a command: its processes are recorded, its exit status and signals pass through."""

from __future__ import annotations

import contextlib
import fcntl
import json
import os
import pty
import signal
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest

import steplens

pytestmark = pytest.mark.slow

TORCHRUN = [sys.executable, "-m", "torch.distributed.run", "--standalone", "--nproc-per-node", "2"]

#: an optimizer of somebody's own; the first of PyTorch's own imports its compiler, which takes as long as PyTorch
DESCENT = """
    import torch
    class Descent(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {})
        def add_param_group(self, group):
            self.param_groups.append(group)
        @torch.no_grad()
        def step(self):
            for parameter in self.param_groups[0]["params"]:
                parameter -= 0.1 * parameter.grad
                parameter.grad = None
"""

RANKS = f"""{DESCENT}
    import atexit
    import os
    import torch.distributed as dist
    dist.init_process_group("gloo")
    model = torch.nn.Linear(8, 8, bias=False)
    optimizer = Descent(model.parameters())
    for _ in range(7):
        model(torch.ones(4, 8)).sum().backward()
        dist.all_reduce(model.weight.grad)
        optimizer.step()
    dist.barrier()
    dist.destroy_process_group()
    # torch aborts a process that finalises while a thread of gloo still lets go of its last tensor, however late that runs
    atexit._run_exitfuncs()
    os._exit(0)
"""

TRAIN = f"""{DESCENT}
    import sys
    parameter = torch.nn.Parameter(torch.zeros(4))
    optimizer = Descent([parameter])
    for _ in range(int(sys.argv[1]) if len(sys.argv) > 1 else 6):
        (parameter * 2).sum().backward()
        optimizer.step()
"""


def infos(directories: list[Path]) -> list[dict[str, Any]]:
    return [json.loads(next(path.glob("profiler_info*.json")).read_text()) for path in directories]


def test_torchrun_leaves_one_directory_per_rank(cli: Any) -> None:
    cli.write("ranks.py", RANKS)
    done = cli.run("run", "--", *TORCHRUN, "ranks.py")
    directories = cli.run_directories()
    assert sorted(info["rank_id"] for info in infos(directories)) == [0, 1]
    assert all(info["world_size"] == 2 for info in infos(directories))
    assert done.stderr.count("steplens: recorded ") == 2
    assert done.stderr.rstrip().endswith("summary result (in the terminal)")
    assert sum("next: " in line for line in done.stderr.splitlines()) == 1
    steps = cli.json("summary", "result")["steps"]
    assert sorted((row["rank"], row["step"]) for row in steps) == [(rank, step) for rank in (0, 1) for step in (2, 3, 4)]
    # gloo's collectives of each step, so nothing is cut
    run = steplens.open(cli.folder / "result")
    operators = dict(run.operators(annotations=True).select("name", "calls").iter_rows())
    assert operators["Optimizer.step#Descent.step"] == 6
    assert operators["gloo:all_reduce"] == 6


def test_a_shell_script_and_children_that_do_not_train(cli: Any) -> None:
    cli.write("train.py", TRAIN)
    cli.write("idle.py", "import torch, os; print(os.getpid())")
    lines = [f"{sys.executable} -c 'print(1)'", f"{sys.executable} idle.py", f"{sys.executable} train.py 6", "echo done $1"]
    cli.write("train.sh", "\n".join(lines))
    done = cli.run("run", "--", "bash", "train.sh", "--now")
    assert done.stdout.splitlines()[0] == "1"
    assert done.stdout.endswith("done --now\n")
    assert len(cli.run_directories()) == 1
    assert [row["step"] for row in cli.json("summary", "result")["steps"]] == [2, 3, 4]
    # no process is left
    assert str(cli.folder) not in subprocess.run(["ps", "-eo", "lstart,args"], capture_output=True, text=True, check=True).stdout


def test_nothing_is_imported_into_processes_without_pytorch(cli: Any) -> None:
    code = "import sys; print([name for name in sys.modules if name.startswith(('steplens', 'torch', 'json'))])"
    done = cli.run("run", "--", sys.executable, "-c", code)
    assert done.stdout == "[]\n"
    assert "no process of the command left word that it imported PyTorch" in done.stderr


def test_the_steps_of_a_process_that_leaves_without_a_word_are_not_told(cli: Any) -> None:
    cli.write("train.py", TRAIN + "    import os\n    os._exit(0)\n")
    said = cli.run("run", "--wait", "100", "--", sys.executable, "train.py").stderr
    assert "took steps and left no word of how many, as one does that is killed, ends by os._exit or still runs" in said
    assert "took 1 " not in said and "let it run longer" not in said


def test_processes_that_a_script_starts(cli: Any) -> None:
    script = """
    import torch.multiprocessing as multiprocessing
    def train(rank):
        parameter = torch.nn.Parameter(torch.zeros(4))
        optimizer = Descent([parameter])
        for _ in range(3 + rank):
            (parameter * 2).sum().backward()
            optimizer.step()
    if __name__ == "__main__":
        torch.set_num_threads(1)
        for method, count in (("spawn", 1), ("fork", 2)):
            children = [multiprocessing.get_context(method).Process(target=train, args=(rank,)) for rank in range(count)]
            for child in children: child.start()
            for child in children: child.join()
            assert {child.exitcode for child in children} == {0}
"""
    cli.write("parent.py", DESCENT + script)
    done = cli.run("run", "--wait", "1", "--warmup", "0", "--active", "5", "--no-analyse-flag", "parent.py")
    # the windows are cut by the end of the processes, which for the forked ones comes without atexit
    directories = cli.run_directories()
    assert len(directories) == 3, done.stderr
    states = [json.loads((path / "KINETO" / "state.json").read_text()) for path in directories]
    assert all(state["state"] == "collected" for state in states)
    assert sorted(state["last_step"] for state in states) == [3, 3, 4]


@pytest.mark.parametrize(("command", "status"), [("exit 7", 7), ("kill -KILL $$", -9), ("kill -TERM $$", -15)])
def test_the_exit_status_is_that_of_the_command(cli: Any, command: str, status: int) -> None:
    cli.run("run", "--", "sh", "-c", command, expect=status)


def test_signals_reach_the_command(cli: Any, tmp_path: Path) -> None:
    traps = "trap 'echo got HUP' HUP; trap 'echo got USR2' USR2; trap 'echo got TERM; exit 3' TERM"
    trap = f"{traps}; echo ready; while :; do sleep 0.1; done"
    process = subprocess.Popen(
        [sys.executable, "-m", "steplens", "run", "--", "sh", "-c", trap],
        cwd=tmp_path,
        env=dict(os.environ),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # under nohup it is ignored, which a shell keeps to
        preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_DFL),
    )
    assert process.stdout is not None
    assert process.stdout.readline() == "ready\n"
    for number, said in ((signal.SIGHUP, "got HUP\n"), (signal.SIGUSR2, "got USR2\n"), (signal.SIGTERM, "got TERM\n")):
        process.send_signal(number)
        assert process.stdout.readline() == said
    assert process.wait(120) == 3
    process.stdout.close()
    assert process.stderr is not None
    process.stderr.close()


def test_ranks_that_are_killed_keep_the_windows_they_closed(cli: Any) -> None:
    killed = RANKS.replace(
        "optimizer.step()", "optimizer.step()\n        if _ == 5: import signal; os.kill(os.getpid(), signal.SIGKILL)"
    )
    cli.write("ranks.py", killed)
    done = cli.run("run", "--active", "1", "--repeat", "0", "--no-analyse-flag", "--", *TORCHRUN, "ranks.py", expect=1)
    # steps 2 and 5: the second window was closed, or still open, when the rank was killed
    rows = {(row["rank"], row["step"]) for row in cli.json("summary", "result")["steps"]}
    assert {(0, 2), (1, 2)} <= rows
    assert "Traceback" not in done.stderr.split("steplens: ")[-1]


def test_what_cannot_be_started(cli: Any, tmp_path: Path) -> None:
    done = cli.run("run", "--", "no-such-program", expect=127)
    assert "no-such-program" in done.stderr
    text = tmp_path / "text"
    text.write_text("#!/no/such/interpreter\n")
    text.chmod(0o755)
    done = cli.run("run", "--", "./text", expect=127)
    assert done.stderr == "steplens: ./text cannot be started: No such file or directory\n"


def test_results_can_land_elsewhere(cli: Any) -> None:
    cli.write("train.py", TRAIN)
    done = cli.record("--out", "there", "--local-dir", "here", "--async-mode", "train.py")
    (directory,) = cli.run_directories("there")
    assert (directory / "ASCEND_PROFILER_OUTPUT" / "analyse.done").exists()
    assert cli.run_directories("here") == []
    assert f"moved {directory.name} to " in done.stderr
    assert done.stderr.rstrip().endswith("summary there (in the terminal)")


def test_a_url_that_does_not_take_results(cli: Any) -> None:
    cli.write("train.py", TRAIN)
    done = cli.record("--out", "nosuchprotocol://bucket", "--local-dir", "here", "train.py")
    (directory,) = cli.run_directories("here")
    assert f"{directory} could not be moved to nosuchprotocol://bucket and stays where it is" in done.stderr
    assert [row["step"] for row in cli.json("summary", str(directory))["steps"]] == [2, 3, 4]


# fewer steps than the black box wants to know before it calls one slow, which a busy machine may make of any
FAILING = f"""{DESCENT}
    parameter = torch.nn.Parameter(torch.zeros(4))
    optimizer = Descent([parameter])
    for step in range(20):
        (parameter * 2).sum().backward()
        if step == 9:
            raise ValueError("mine")
        optimizer.step()
"""


@pytest.mark.parametrize("command", [[], ["--", sys.executable]])
def test_black_box(cli: Any, command: list[str]) -> None:
    cli.write("train.py", FAILING)
    options = ("--black-box", "operators", *command, "train.py")
    done = cli.run("run", *options, expect=1) if command else cli.record(*options, expect=1)
    (folder,) = [path for path in (cli.folder / "result").iterdir() if path.name.endswith("_exception")]
    event = json.loads((folder / "black_box.json").read_text())
    assert event["message"] == "step 8 ended with ValueError: mine"
    assert f"steplens: {event['message']}: {folder}" in done.stderr
    # step n follows the n-th optimizer step; all run directories of the event are analysed
    steps = [row["step"] for row in cli.json("summary", str(folder))["steps"]]
    assert steps[-3:] == [6, 7, 8]
    assert steps == list(range(steps[0], 9))
    assert all((path / "ASCEND_PROFILER_OUTPUT" / "analyse.done").exists() for path in folder.glob("*_ascend_pt"))


def test_black_box_in_which_nothing_happens(cli: Any) -> None:
    cli.write("train.py", TRAIN)
    done = cli.record("--black-box", "numbers", "train.py", "5")
    assert "nothing was recorded: nothing happened in 5 optimizer steps" in done.stderr
    assert not (cli.folder / "result").exists()


def test_a_black_box_lands_as_a_whole(cli: Any) -> None:
    cli.write("train.py", FAILING)
    done = cli.record("--black-box", "numbers", "--out", "there", "--local-dir", "here", "train.py", expect=1)
    (folder,) = (cli.folder / "there").iterdir()
    assert json.loads((folder / "black_box.json").read_text())["event"] == "exception"
    assert f"moved {folder.name} to " in done.stderr
    assert list((cli.folder / "here").iterdir()) == []


def test_ctrl_c_reaches_the_command_once(cli: Any) -> None:
    code = """
        import signal, sys, time
        got = []
        signal.signal(signal.SIGINT, lambda *_: got.append(1))
        print("ready", flush=True)
        until = time.monotonic() + 60
        while not got and time.monotonic() < until:
            time.sleep(0.05)
        time.sleep(0.5)
        print("got", len(got), flush=True)
    """
    cli.write("waits.py", code)
    pid, terminal = pty.fork()
    if pid == 0:
        os.chdir(cli.folder)
        os.execv(sys.executable, [sys.executable, "-m", "steplens", "run", "--", sys.executable, "waits.py"])
    said = b""
    try:
        while b"ready" not in said:
            said += os.read(terminal, 1000)
        # the terminal sends it to the whole foreground: to steplens and to the command
        os.write(terminal, b"\x03")
        with contextlib.suppress(OSError):  # the end of a terminal
            while more := os.read(terminal, 1000):
                said += more
    finally:
        _, status = os.waitpid(pid, 0)
        os.close(terminal)
    assert b"got 1\r\n" in said
    assert os.waitstatus_to_exitcode(status) == 0


def test_what_a_killed_command_left_is_removed_by_the_next(cli: Any, tmp_path: Path) -> None:
    temporary = tmp_path / "temporary"
    temporary.mkdir()
    cli.write("killed.py", "import os, signal; os.kill(os.getpid(), signal.SIGKILL)")
    cli.write("lives.py", "import os; print(len(os.listdir(os.environ['TMPDIR'])))")
    cli.run("run", "killed.py", env={"TMPDIR": str(temporary)}, expect=-signal.SIGKILL)
    (left,) = temporary.iterdir()
    long_ago = time.time() - 3600
    os.utime(left, (long_ago, long_ago))
    # one of a command that still runs is as old, but locked
    held = temporary / "steplens_run_held"
    held.mkdir()
    os.utime(held, (long_ago, long_ago))
    lock = os.open(held, os.O_RDONLY)
    try:
        fcntl.flock(lock, fcntl.LOCK_EX)
        assert cli.run("run", "lives.py", env={"TMPDIR": str(temporary)}).stdout == "2\n"
    finally:
        os.close(lock)
    assert list(temporary.iterdir()) == [held]
