"""The analysis that follows a window."""

import json
import os
import re
import subprocess
import sys
import time
from pathlib import Path

import pytest

from steplens import profile, schedule, tensorboard_trace_handler
from steplens.collect.common import log
from steplens.collect.handoff import closing_line, handler

pytestmark = pytest.mark.slow

OUTPUT = "ASCEND_PROFILER_OUTPUT"
SOURCE = Path(handler.__file__).resolve().parents[3]


def test_analysis_is_done_when_the_window_is(train, look, capfd):
    with profile(on_trace_ready=tensorboard_trace_handler("out"), record_shapes=True):
        train(2)
    (run,) = look.runs("out")
    assert (run / OUTPUT / "analyse.done").is_file(), capfd.readouterr().err
    assert (run / OUTPUT / "trace_view.json").is_file()
    logs = list((run / "logs").glob("profiler_*_analyse.log"))
    assert any(log.read_text().startswith(str(run.absolute())) for log in logs)
    assert {log.stat().st_mode & 0o777 for log in logs} == {0o640}


#: an analysis that begins when the training is over, however long the training takes
LATER = """
import os, sys, time
until = time.monotonic() + 300
while not os.path.exists("over") and time.monotonic() < until:
    time.sleep(0.01)
os.execv(sys.argv[1], sys.argv[1:])
"""


def test_training_does_not_wait_with_async_mode(train, look, tmp_path, monkeypatch):
    command = handler.offline_command
    monkeypatch.setattr(handler, "offline_command", lambda *arguments: [sys.executable, "-c", LATER, *command(*arguments)])
    plan = schedule(wait=0, warmup=1, active=1, repeat=2)
    with profile(schedule=plan, on_trace_ready=tensorboard_trace_handler("out", async_mode=True)) as prof:
        train(5, prof)
    # had the training waited, it would not be here
    found = look.runs("out")
    assert len(found) == 2
    assert not any((run / OUTPUT / "analyse.done").exists() for run in found)
    (tmp_path / "over").touch()
    handler.wait_for_analyses()
    assert all((run / OUTPUT / "analyse.done").is_file() for run in found)


#: its analyses begin when somebody has read that it waits for them
ASYNC = """
import sys, torch, steplens
from steplens.collect.common import log
from steplens.collect.handoff import closing_line, handler
command = handler.offline_command
handler.offline_command = lambda *arguments: [sys.executable, "-c", sys.argv[1], *command(*arguments)]
ready = steplens.tensorboard_trace_handler("out", async_mode=True)
with steplens.profile(schedule=steplens.schedule(wait=0, warmup=1, active=1, repeat=3), on_trace_ready=ready) as prof:
    for _ in range(7):
        torch.ones(3).cumsum(0)
        prof.step()
"""


def test_program_waits_for_its_analyses(look, tmp_path):
    said = []
    command, environment = [sys.executable, "-c", ASYNC, LATER], {**os.environ, "PYTHONPATH": str(SOURCE), "PWD": str(tmp_path)}
    with subprocess.Popen(command, cwd=tmp_path, env=environment, stderr=subprocess.PIPE, text=True) as process:
        for line in process.stderr:
            said.append(line)
            if "Waiting for" in line:
                (tmp_path / "over").touch()
    assert process.returncode == 0, said
    assert "Waiting for 3 analyses" in "".join(said)
    found = look.runs(tmp_path / "out")
    assert len(found) == 3
    assert all((run / OUTPUT / "analyse.done").is_file() for run in found)
    # three windows, and one line at the end
    assert sum("next:" in line for line in said) == 1
    assert re.search(r"the recorded steps are in out; next: \S+ view out .*\S+ summary out ", said[-1])
    assert "USDT" not in "".join(said), "Kineto marks its windows"


def _window(folder, rank, start_ns, number):
    raw = folder / f"host_{number}_20260101000000000_ascend_pt" / "KINETO"
    raw.mkdir(parents=True)
    (raw / "state.json").write_text(json.dumps({"state": "collected", "rank": rank, "start_ns": start_ns}))


@pytest.mark.parametrize(
    ("rank", "others", "speaks"),
    [
        (-1, [], True),
        (0, [1], True),
        (1, [0], False),
        (3, [], True),
        (3, [5], True),
        (5, [3], False),
        (1, ["earlier"], True),
        (0, ["earlier", 0], True),
    ],
)
def test_one_rank_says_what_is_next(tmp_path, monkeypatch, capfd, rank, others, speaks):
    monkeypatch.setenv("PWD", str(tmp_path))
    monkeypatch.setattr(closing_line, "_folders", {})
    folder, now = tmp_path / "all ranks", time.time_ns()
    _window(folder, rank, now, 0)
    for number, other in enumerate(others, 1):
        _window(folder, 0 if other == "earlier" else other, now - 3600 * 10**9 if other == "earlier" else now, number)
    closing_line.add_window(folder, rank)
    closing_line.add_window(folder, rank)
    closing_line.say_next_command()
    said = capfd.readouterr().err
    assert said.count("\n") == speaks
    shown = "'all ranks/host_0_20260101000000000_ascend_pt'" if others == ["earlier"] else "'all ranks'"
    assert (f"view {shown} (in the browser)" in said) is speaks
    assert ("a folder of its own" in said) is (others == ["earlier", 0])
    closing_line.say_next_command()
    assert capfd.readouterr().err == ""


@pytest.mark.parametrize(("rank", "others", "speaks"), [(0, [], True), (-1, [], True), (1, [0], False), (0, [1], True)])
def test_a_window_of_mindspore_is_named_too(tmp_path, monkeypatch, capfd, rank, others, speaks):
    monkeypatch.setenv("PWD", str(tmp_path))
    monkeypatch.setattr(closing_line, "_folders", {})
    stamp = time.strftime("%Y%m%d%H%M%S000")
    for number, of_rank in enumerate([rank, *others]):
        run = tmp_path / "data" / f"host_{number}_{stamp}_ascend_ms"
        run.mkdir(parents=True)
        (run / f"profiler_info_{max(of_rank, 0)}.json").write_text("{}")
    closing_line.add_window(tmp_path / "data", rank)
    closing_line.say_next_command()
    assert ("the recorded steps are in data; next: " in capfd.readouterr().err) is speaks
    # a folder with the results of all ranks
    closing_line.add_results(tmp_path / "data" / "profiler", rank)
    closing_line.add_results(tmp_path / "data" / "profiler", rank)
    closing_line.say_next_command()
    assert ("the recorded steps are in data/profiler; next: " in capfd.readouterr().err) is (rank <= 0)


def test_quiet_says_only_what_is_wrong(tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("STEPLENS_QUIET", "1")
    _window(tmp_path, 0, time.time_ns(), 0)
    closing_line.add_window(tmp_path, 0)
    closing_line.say_next_command()
    log.report_progress("The analysis is done.")
    assert capfd.readouterr().err == ""
    log.error("The analysis failed.")
    assert "[ERROR]" in capfd.readouterr().err
    monkeypatch.delenv("STEPLENS_QUIET")
    log.report_progress("The analysis is done.", rank=1)
    assert capfd.readouterr().err == ""
    assert tensorboard_trace_handler("out", quiet=True).quiet and not tensorboard_trace_handler("out").quiet


def test_failed_analysis_is_one_error_line(train, look, capfd, monkeypatch):
    monkeypatch.setattr(handler, "offline_command", lambda *_: [sys.executable, "-c", "print('broken'); raise SystemExit(2)"])
    with profile(on_trace_ready=tensorboard_trace_handler("out")):
        train(1)
    (run,) = look.runs("out")
    (line,) = [line for line in capfd.readouterr().err.splitlines() if "[ERROR]" in line]
    (log,) = (run / "logs").iterdir()
    assert str(log) in line
    assert "broken" in log.read_text()
    assert look.state(run)["state"] == "collected"


def test_files_in_the_training_folder_are_not_imported(train, look, tmp_path):
    for name in ("polars", "random", "json"):
        (tmp_path / f"{name}.py").write_text("raise SystemExit('imported from the training folder')")
    with profile(on_trace_ready=tensorboard_trace_handler("out")):
        train(1)
    assert (look.runs("out")[0] / OUTPUT / "analyse.done").is_file()


def test_analysis_cannot_see_a_gpu(monkeypatch):
    monkeypatch.setenv("CUDA_VISIBLE_DEVICES", "0,1")
    monkeypatch.setenv("RANK", "1")
    environment = handler.offline_environment()
    assert environment["CUDA_VISIBLE_DEVICES"] == ""
    assert environment["RANK"] == "1"
    where = subprocess.run(
        [sys.executable, "-c", "import steplens; print(steplens.__file__)"],
        env=environment,
        cwd="/",
        capture_output=True,
        text=True,
    ).stdout
    assert where.strip() == os.path.join(environment["PYTHONPATH"].split(os.pathsep)[0], "steplens", "__init__.py")


def test_converted_trace_has_names_of_our_own_view(train, tmp_path):
    prof = profile(record_shapes=True)
    prof.start()
    train(1)
    prof.stop()
    prof.export_chrome_trace("trace.json")
    assert (tmp_path / "trace.json").read_bytes().startswith(b"[")
