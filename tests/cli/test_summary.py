from __future__ import annotations

import json
import os
import pty
import re
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

import steplens
from steplens.analysis.operators.operators import operators
from steplens.analysis.steps.times import DEVICE_PARTS, HOST_PARTS
from steplens.cli.summary.summary import collect_summary

from ..shared_data import shared
from .conftest import event


def test_shows_steps_operators_memory_health_and_what_is_next(recorded: Any) -> None:
    text = recorded.run("summary", "result").stdout
    steps = ("A step takes ", "of steps 2-4", "step 2", "f forward", "c computing")
    for expected in (*steps, "aten::", "Memory peak", "CPU:", "Health", "results:", "next: steplens"):
        assert expected in text
    # a step that stands out is not usual, whatever the machine did meanwhile
    assert "shares are of the mean of steps " in " ".join(text.split())
    assert "\x1b" not in text
    assert all(line == line.rstrip() for line in text.splitlines())


def test_json_is_one_document(recorded: Any) -> None:
    found = recorded.json("summary", "result")
    assert len(found["steps"]) == 3
    for row in found["steps"]:
        assert sum(row[phase] for phase in HOST_PARTS) == row["duration_ns"]
        assert sum(row[part] for part in DEVICE_PARTS) == row["device_period_ns"]
    assert found["verdict"]["sentence"] and 0 <= found["verdict"]["share"] <= 1
    assert sum(found["step"][phase] for phase in HOST_PARTS) == pytest.approx(found["step"]["host_mean_ns"])
    assert len(found["operators"]) == 10
    assert found["memory"][0]["peak_allocated"] > 0
    assert found["problem"] == ""


def test_shares_are_those_of_the_table_of_operators(recorded: Any) -> None:
    """Which the pages show too."""
    text = recorded.run("summary", "result", env={"COLUMNS": "200"}).stdout
    shown = {name: float(share) for name, share in re.findall(r"^(aten::\S+) .* ([0-9.]+) % ", text, re.M)}
    table = recorded.json("table", "result", "operators", "--top", "1000")
    percent = {row["name"]: row["self_percent"] for row in table["rows"]}
    assert len(shown) >= 3
    assert shown == {name: pytest.approx(percent[name], abs=0.06) for name in shown}


@pytest.mark.parametrize(
    ("by", "expected"), [("name", "aten::addmm"), ("shape", "8,32"), ("module", "Sequential.0"), ("stack", "No stacks")]
)
def test_groups_operators(recorded: Any, by: str, expected: str) -> None:
    text = recorded.run("summary", "result", "--by", by, "--top", "40", env={"COLUMNS": "200"}).stdout
    assert expected in text.replace("8, 32", "8,32")


def test_a_gpu_that_runs_behind_the_host_has_steps_as_long_as_its_own(cli: Any) -> None:
    """Figures of the capture: 95.5 ms a step, and a GPU that is some 98 % busy."""
    name = str(shared("kineto", "cuda_ns_resolution_rank0.json.gz"))
    text = cli.run("summary", name, env={"COLUMNS": "200"}).stdout
    assert text.splitlines()[1].startswith("Compute bound: the GPU computes 98 % of the step")
    assert re.search(r"A step takes 95\.5\d ms .*: median of steps 103-105; left out: 101, 102 \(warm-up\)", text)
    for name in ("host", "device"):
        legend = next(line for line in text.splitlines() if line.startswith(f"{name}  "))
        assert sum(map(float, re.findall(r"([0-9.]+) %", legend))) == pytest.approx(100, abs=0.3)


def test_a_wait_for_the_device_is_named(cli: Any) -> None:
    text = cli.run("summary", str(shared("ascend_pytorch", "text_level1", "rank0_ascend_pt")), env={"COLUMNS": "200"}).stdout
    assert text.splitlines()[1].startswith("Communication bound: ")
    assert "waiting for the device: aten::item 92." in text
    # the phase has the name that it has on the pages; a loop without workers waits for nobody
    assert "data loading " in text and "waiting for data" not in text


def test_shares_of_a_device_period_that_recording_has_cut_are_of_the_step_as_in_the_verdict(cli: Any) -> None:
    """139 of 155 ms: what the bar of the device lacks of the step is told, and both lines and the verdict have one base."""
    run = steplens.open(shared("ascend_pytorch", "text_level1"))
    text = cli.run("summary", str(run.path), env={"COLUMNS": "400"}).stdout
    assert f"{100 * run.verdict().share:.0f} % of the step is exposed all-reduce" in text.splitlines()[1]
    exposed_ns, step_ns = run.step_summary().device["exposed_communication_ns"], run.step_summary().step_mean_ns
    assert step_ns is not None and f"m exposed communication {100 * exposed_ns / step_ns:.1f} %" in text
    for name in ("host", "device"):
        legend = next(line for line in text.splitlines() if line.startswith(f"{name}  "))
        assert sum(map(float, re.findall(r"([0-9.]+) %", legend))) == pytest.approx(100, abs=0.4)
    assert "before and after the device period" in text
    assert re.search(r"shares are of the mean of step 50 on 2 ranks, 154\.94 ms$", text, re.M)


@pytest.mark.parametrize("width", [30, 50, 80, 160])
def test_fits_the_terminal(recorded: Any, width: int) -> None:
    text = recorded.run("summary", "result", env={"COLUMNS": str(width)}).stdout
    bars = [line for line in text.splitlines() if line.startswith(("step", "       "))]
    assert bars
    assert max(map(len, bars)) <= width


def test_colours_on_a_terminal(recorded: Any) -> None:
    leader, follower = pty.openpty()
    environment = {**os.environ, "TERM": "xterm-256color", "COLUMNS": "100"}
    environment.pop("NO_COLOR", None)
    command = [sys.executable, "-m", "steplens", "summary", "result"]
    with subprocess.Popen(command, cwd=recorded.folder, env=environment, stdout=follower, stdin=subprocess.DEVNULL) as process:
        os.close(follower)
        text = b""
        while True:
            try:
                more = os.read(leader, 65536)
            except OSError:
                break
            if not more:
                break
            text += more
    os.close(leader)
    assert process.returncode == 0
    assert "█" in text.decode()
    assert "\x1b[" in text.decode()


def test_names_are_shown_as_text(cli: Any, events: Any) -> None:
    evil = "[red]x[/red]\x1b[2J\x1b]0;title\x07\u202e\nline"
    events[1]["name"] = evil
    text = cli.run("summary", cli.trace("trace.json", events)).stdout
    assert "[red]x[/red]" in text
    assert not {"\x1b", "\x07", "\u202e"} & set(text)
    assert evil in [row["name"] for row in cli.json("summary", "trace.json")["operators"]]


def test_long_names_leave_room_for_the_numbers(cli: Any, events: Any) -> None:
    events[1]["name"] = "aten::" + "long_" * 40
    for width in (40, 80):
        text = cli.run("summary", cli.trace("trace.json", events), env={"COLUMNS": str(width)}).stdout
        (line,) = [line for line in text.splitlines() if line.startswith("aten::long") and " us" in line]
        assert "20.00 us" in line
        assert len(line) <= width


def test_a_step_too_short_for_a_bar_leaves_no_spaces(cli: Any, events: Any) -> None:
    """Beside one that takes a thousand times as long; and the line begins with its time all the same."""
    long = [{**event, "name": event["name"].replace("#2", "#3"), "ts": 1200.0, "dur": 300_000.0} for event in events[3:4]]
    text = cli.run("summary", cli.trace("trace.json", events + long)).stdout
    (line,) = (line for line in text.splitlines() if line.startswith("step 1"))
    assert line.split() == ["step", "1", "100.00", "us"]
    assert [line for line in text.splitlines() if line != line.rstrip()] == []


def test_ascii_terminal(process_cli: Any, events: Any) -> None:
    events[1]["name"] = "größe"
    path = process_cli.trace("trace.json", events)
    process_cli.run("summary", path, env={"PYTHONIOENCODING": "ascii"})


def test_several_runs_in_a_folder(cli: Any, recorded: Any) -> None:
    for name in ("one_ascend_pt", "two_ascend_pt"):
        (cli.folder / "many").mkdir(exist_ok=True)
        subprocess.run(["cp", "-r", recorded.run_directories()[0], cli.folder / "many" / name], check=True)
    text = cli.run("summary", "many").stdout
    assert "A step takes " in text
    assert "window 1 step 2" in text
    assert "window 2 CPU:" in text
    # one of them is damaged: the other is shown, health names the damaged one
    (cli.folder / "many/two_ascend_pt/KINETO/trace.json").write_text("")
    text = cli.run("summary", "many").stdout
    assert "A step takes " in text
    assert "error:" in text


def test_closed_pipe_is_no_error(recorded: Any) -> None:
    command = f"{sys.executable} -m steplens summary result --json --top 1000 | head -c 1"
    done = subprocess.run(["bash", "-c", command], cwd=recorded.folder, capture_output=True, text=True, check=False)
    assert done.stdout == "{"
    assert done.stderr == ""


@pytest.mark.skipif(not Path("/dev/full").is_char_device(), reason="stands for a full disk")
@pytest.mark.parametrize("form", ["", "--json"])
def test_a_full_disk_behind_stdout_is_told(cli: Any, events: Any, form: str) -> None:
    cli.trace("trace.json", events)
    command = f"{sys.executable} -m steplens summary trace.json {form} > /dev/full"
    done = subprocess.run(["bash", "-c", command], cwd=cli.folder, capture_output=True, text=True, check=False)
    assert (done.returncode, done.stderr) == (1, "steplens: the output cannot be written: No space left on device\n")


def test_truncated_trace_shows_what_precedes_the_cut(cli: Any, events: Any) -> None:
    path = cli.trace("trace.json", events * 200)
    path.write_bytes(path.read_bytes()[:-300])
    done = cli.run("summary", path, expect=2)
    assert "aten::mm" in done.stdout
    assert "truncated" in done.stderr
    assert len(done.stderr.splitlines()) == 1
    found = cli.json("summary", path, expect=2)
    assert found["steps"]
    assert "truncated" in found["problem"]


def test_trace_without_steps(cli: Any, events: Any) -> None:
    done = cli.run("summary", cli.trace("trace.json", [event for event in events if "Profiler" not in event["name"]]), expect=2)
    assert "aten::mm" in done.stdout
    assert "no steps" in done.stderr
    assert len(done.stderr.splitlines()) == 1


NO_TRACES = ["", "{", "[", "nonsense", '{"traceEvents": []}', '{"other": 1}', "\x00\x01", '{"traceEvents": "x"}', "[1, 2]", "{}"]


@pytest.mark.parametrize("content", NO_TRACES)
@pytest.mark.parametrize("command", ["summary", "analyse"])
def test_bad_files(cli: Any, command: str, content: str) -> None:
    assert "trace.json" in cli.refused(command, cli.write("trace.json", content))


@pytest.mark.parametrize("command", ["summary", "analyse"])
def test_bad_paths(cli: Any, command: str) -> None:
    assert "does not exist" in cli.refused(command, "missing")
    (cli.folder / "empty").mkdir()
    assert "no run" in cli.refused(command, "empty")
    assert "notes.txt" in cli.refused(command, cli.write("notes.txt", "hello"))
    (cli.folder / "bad.json.gz").write_bytes(b"\x1f\x8b nothing")
    assert "bad.json.gz" in cli.refused(command, "bad.json.gz")


def test_bad_input_as_json(cli: Any) -> None:
    done = cli.run("summary", "missing", "--json", expect=2)
    assert "does not exist" in json.loads(done.stdout)["problem"]
    assert len(done.stderr.splitlines()) == 1


def test_a_step_that_was_cut_short_is_shown_and_not_averaged(cli: Any) -> None:
    capture = shared("kineto", "rocm_mi250_minitoy.json.gz")
    # ProfilerStep#1 lasts 9.3 ms; recording ended 49 us into ProfilerStep#2
    text = cli.run("summary", capture).stdout
    assert "A step takes 9.29 ms: step 1 alone; left out: 2 (cut by recording); few steps" in text.replace("\n", " ")
    assert [step["complete"] for step in cli.json("summary", capture)["steps"]] == [True, False]


def test_operators_are_those_of_the_rank_that_is_late(job: Path) -> None:
    """A mean over ranks of which one multiplies 60 times and the others once is of none of them."""
    run = steplens.open(job)
    found = collect_summary(run, job, "name", 10)
    assert found.verdict["rank"] == 3 and found.basis.startswith("rank 3 alone, per step (mean of steps ")
    (late,) = [trace for trace in run.traces if trace.rank == 3]
    by_hand = operators(late, per_step=True)
    assert [row["name"] for row in found.operators] == by_hand["name"].head(10).to_list()
    assert {row["name"]: row["calls"] for row in found.operators}["aten::mm"] >= 60
    assert found.self_ns == pytest.approx(by_hand["self_ns"].sum())


def test_says_how_a_job_is_laid_out_and_how_fast_it_communicates(cli: Any, tmp_path: Path) -> None:
    from benchmarks.jobs.__main__ import main

    folder = tmp_path / "job"
    small = ["--layers", "1", "--operators-per-layer", "3", "--batches", "2", "--steps", "2", "--seed", "5"]
    main([str(folder), *small, "--layout", "2x1x2"])
    found = cli.json("summary", folder)["job"]
    assert found["layout"] == {
        "ranks": 4, "data": 2, "tensor": 2, "pipeline": 1, "context": 1, "expert": 1,
        "reason": "the sizes of the groups multiply to the number of ranks",
    }  # fmt: skip
    (rate,) = found["bandwidths"]
    text = " ".join(cli.run("summary", folder).stdout.split())
    rate_text = f"all-reduce {rate['bus_bytes_per_s'] / 1e9:.3g} GB/s (96.0 MiB, 2 ranks)"
    assert f"4 ranks: 2 data x 2 tensor parallel; bus bandwidth: {rate_text}" in text
    # one rank alone is no job
    assert cli.json("summary", next(folder.glob("*.json")))["job"] == {}


def test_says_how_long_a_step_takes_without_the_profiler(cli: Any) -> None:
    """A thousand calls of 0.4 us in a step of 10 ms: recording them takes 0.76 to 1.8 ms, none of a step without them."""
    steps = [event(f"ProfilerStep#{step}", 1000 + step * 10_000, 9999, "user_annotation") for step in range(6)]
    calls = [event("aten::mm", 1000 + step * 10_000, 5000) for step in range(6)]
    views = [event("aten::as_strided", 7000 + step * 10_000 + 2 * n, 0.4) for step in range(6) for n in range(1000)]
    text = cli.run("summary", cli.trace("views.json", [*steps, *calls, *views])).stdout
    assert "without the profiler a step takes about 8.2 ms to 9.2 ms; figures below are of the recorded one" in " ".join(
        text.split()
    )
    low, high = cli.json("summary", "views.json")["step"]["without_recording_ns"]
    assert (low, high) == (pytest.approx(10e6 - 1.8e6, rel=0.01), pytest.approx(10e6 - 0.76e6, rel=0.01))
    without = cli.trace("none.json", [*steps, *calls])
    assert "without the profiler" not in cli.run("summary", without).stdout
    assert cli.json("summary", without)["step"]["without_recording_ns"] is None
