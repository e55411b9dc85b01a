"""MindSpore's files of its records of the host (r2.2), made by ``steplens analyse`` and by ``Profiler.offline_analyse``."""

from __future__ import annotations

import csv
import io
import itertools
import json
import os
import random
import shutil
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from typer.testing import CliRunner

from steplens import mindspore_results
from steplens.cli.main import app

from .conftest import run_program

TITLES = ["tid", "pid", "parent_pid", "module_name", "event", "stage", "level", "start_end", "custom_info", "memory_usage(kB)",
          "time_stamp(us)"]  # fmt: skip
START_US = 1_697_000_000_000_000
THREAD = 140_737_353_930_560


def command(*arguments: str, code: int = 0) -> str:
    result = CliRunner().invoke(app, list(arguments))
    assert result.exit_code == code, result.output
    return " ".join(result.output.split())


def recorded(folder: Path, rows: list[dict[str, Any]], rank: int = 0) -> Path:
    """A ``profiler`` folder of an Ascend job of r2.2 with nothing but these records of the host."""
    (folder / "host_info").mkdir(parents=True, exist_ok=True)
    with (folder / "host_info" / f"host_info_{rank}.csv").open("w", newline="") as handle:
        writer = csv.DictWriter(handle, TITLES, lineterminator="\n")
        writer.writeheader()
        writer.writerows(rows)
    return folder


def row(event: str, point: int, after_us: int, module: str = "Dataset", info: str = "", memory: int = 0) -> dict[str, Any]:
    values = (THREAD, 4711, 1, module, event, "Run", 1, point, info, memory, START_US + after_us)
    return dict(zip(TITLES, values, strict=True))


def job(seed: int, count: int = 60) -> list[dict[str, Any]]:
    """Ranges in each other, moments, sizes of the process; the last range stays open."""
    rng = random.Random(seed)
    now, opened, rows = 0, [], []
    for _ in range(count):
        now += rng.randrange(5)
        memory = rng.choice([0, rng.randrange(1, 1 << 20)])
        module, event = rng.choice(["Dataset", "Graph"]), rng.choice(["Map", "Batch"])
        info = rng.choice(["", "{{workers:1}{op:2,3}}"])
        if opened and rng.random() < 0.5:
            module, event = opened.pop()
            rows.append(row(event, 1, now, module, info, memory))
        elif rng.random() < 0.2:
            rows.append(row(event, 2, now, module, info, memory))
        else:
            opened.append((module, event))
            rows.append(row(event, 0, now, module, "", memory))
    return [*rows, row("Open", 0, now, "Graph")]


def walked(rows: list[dict[str, Any]]) -> Iterator[tuple[str, dict[str, Any], int, str]]:
    """What happened, with its start and what is told of it: row by row, the latest open begin meets the next end."""
    opened: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for one in rows:
        key = (one["module_name"], one["event"])
        if one["start_end"] == 0:
            opened.setdefault(key, []).append(one)
        elif one["start_end"] == 2:
            yield "i", one, one["time_stamp(us)"], one["custom_info"]
        elif opened.get(key):
            begin = opened[key].pop()
            yield "X", one, begin["time_stamp(us)"], one["custom_info"] or begin["custom_info"]
    for left in opened.values():
        for one in left:
            yield "B", one, one["time_stamp(us)"], one["custom_info"]


def files(folder: Path) -> dict[str, int]:
    """Every file but the cache, with its time of change."""
    return {str(path.relative_to(folder)): path.stat().st_mtime_ns for path in sorted(folder.rglob("*"))
            if path.is_file() and ".steplens" not in path.parts}  # fmt: skip


def table(path: Path) -> list[dict[str, str]]:
    return list(csv.DictReader(io.StringIO(path.read_text())))


MADE = {"dataset_0.csv", "host_info/dataset_0.csv", "host_info/host_memory_0.csv", "host_info/timeline_0.json"}


@pytest.mark.parametrize("seed", range(4))
def test_the_files_tell_what_was_recorded(tmp_path: Path, seed: int) -> None:
    rows = job(seed)
    folder = recorded(tmp_path / "data" / "profiler", rows)
    command("analyse", str(tmp_path / "data"))
    assert set(files(folder)) == {*MADE, "host_info/host_info_0.csv"}
    happened = list(walked(rows))

    events = json.loads((folder / "host_info" / "timeline_0.json").read_text())
    base_ns = events[0]["args"]["base_time_ns"]
    drawn = [event for event in events if event["ph"] != "M"]
    assert all(earlier["ts"] <= later["ts"] for earlier, later in itertools.pairwise(drawn))
    found = sorted(
        (event["ph"], event["cat"], event["name"], base_ns // 1000 + round(event["ts"]), event.get("dur"),
         event["args"]["custom_info"], event["pid"], event["tid"]) for event in drawn
    )  # fmt: skip
    wanted = sorted(
        (kind, one["module_name"], f"{one['event']}::Run", start, one["time_stamp(us)"] - start if kind == "X" else None, info,
         4711, THREAD) for kind, one, start, info in happened
    )  # fmt: skip
    assert [tuple(map(str, event)) for event in found] == [tuple(map(str, event)) for event in wanted]

    sizes = [{title: str(one[title]) for title in TITLES} for one in rows if one["memory_usage(kB)"] > 0]
    assert table(folder / "host_info" / "host_memory_0.csv") == sizes

    lengths: dict[tuple[str, str], list[int]] = {}
    for kind, one, start, info in happened:
        if kind == "X" and one["module_name"] == "Dataset":
            lengths.setdefault((one["event"], info), []).append(one["time_stamp(us)"] - start)
    summed = table(folder / "dataset_0.csv")
    assert list(summed[0]) == ["Operation", "Stage", "Occurrences", "Avg. time (us)", "Custom Info"]
    assert [(one["Operation"], one["Custom Info"]) for one in summed] == list(lengths)
    for one, own in zip(summed, lengths.values(), strict=True):
        assert int(one["Occurrences"]) == len(own)
        assert float(one["Avg. time (us)"]) == pytest.approx(sum(own) / len(own))
    assert (folder / "host_info" / "dataset_0.csv").read_bytes() == (folder / "dataset_0.csv").read_bytes()


def test_what_is_there_stays_until_the_records_change(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "profiler", job(1))
    own = folder / "host_info" / "timeline_0.json"
    own.write_text("[]")
    assert "stay as they are" in command("analyse", str(folder))
    assert own.read_text() == "[]"
    there = files(folder)
    assert set(there) > MADE
    assert "stay as they are" in command("analyse", str(folder))
    assert files(folder) == there
    later = max(there.values()) + 10**9
    os.utime(folder / "host_info" / "host_info_0.csv", ns=(later, later))
    command("analyse", str(folder))
    assert own.read_text() != "[]"


def test_forced_and_offline_analyses_write_anew(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "profiler", job(1))
    own = folder / "host_info" / "timeline_0.json"
    for again in (lambda: command("analyse", str(folder), "--force"), lambda: mindspore_results.main(["analyse", str(tmp_path)])):
        own.write_text("[]")
        again()
        assert len(json.loads(own.read_text())) > 10
    assert mindspore_results.main(["analyse", str(tmp_path), "--pretty"]) == 0
    assert own.read_text().startswith("[\n {")


def test_ranks_of_one_folder_and_of_several(tmp_path: Path) -> None:
    shared_folder = recorded(recorded(tmp_path / "one" / "profiler", job(1)), job(2), rank=3)
    assert mindspore_results.main(["analyse", str(tmp_path / "one"), "--processes", "1"]) == 0
    assert {"host_info/timeline_0.json", "host_info/timeline_3.json", "dataset_3.csv"} <= set(files(shared_folder))
    for rank in (0, 1):
        recorded(tmp_path / "many" / f"rank_{rank}" / "profiler", job(rank), rank=rank)
    assert mindspore_results.main(["analyse", str(tmp_path / "many"), "--processes", "2"]) == 0
    assert {"rank_0/profiler/host_info/timeline_0.json", "rank_1/profiler/dataset_1.csv"} <= set(files(tmp_path / "many"))


def test_only_what_was_recorded_is_written(tmp_path: Path) -> None:
    times = recorded(tmp_path / "times", [row("A", 0, 0, "Graph"), row("A", 1, 5, "Graph")])
    command("analyse", str(times))
    assert set(files(times)) == {"host_info/host_info_0.csv", "host_info/timeline_0.json"}
    memory = recorded(tmp_path / "memory", [row("A", 0, -START_US, memory=9), row("A", 1, -START_US, memory=10)])
    command("analyse", str(memory))
    assert set(files(memory)) == {"host_info/host_info_0.csv", "host_info/host_memory_0.csv"}
    empty = recorded(tmp_path / "empty", [])
    assert "stay as they are" in command("analyse", str(empty))
    assert set(files(empty)) == {"host_info/host_info_0.csv"}


def test_cells_that_a_spreadsheet_would_run(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "profiler", [row("=cmd()", 0, 0), row("=cmd()", 1, 4, info="+1", memory=3)])
    command("analyse", str(folder))
    assert table(folder / "dataset_0.csv") == [
        {"Operation": "'=cmd()", "Stage": "Run", "Occurrences": "1", "Avg. time (us)": "4.0", "Custom Info": "'+1"}
    ]
    assert table(folder / "host_info" / "host_memory_0.csv")[0]["event"] == "'=cmd()"
    events = json.loads((folder / "host_info" / "timeline_0.json").read_text())
    assert events[-1]["name"] == "=cmd()::Run"


def test_what_cannot_be_used_is_said(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = recorded(tmp_path / "profiler", job(1))
    assert mindspore_results.main(["analyse", str(folder), "--steps", "1,2"]) == 2
    assert "belong to no step" in capsys.readouterr().err
    file = folder / "host_info" / "host_info_0.csv"
    file.write_text(",".join(TITLES) + "\n" + "x," * 10 + "x\n")
    assert mindspore_results.main(["analyse", str(folder)]) == 2
    assert "no record of the host that can be read: rows of host_info_0.csv are damaged" in capsys.readouterr().err.replace(
        ". ", ": "
    )
    assert set(files(folder)) == {"host_info/host_info_0.csv"}


def test_nothing_is_written_through_a_link(tmp_path: Path) -> None:
    elsewhere = recorded(tmp_path / "elsewhere", job(1))
    before = files(elsewhere)
    folder = tmp_path / "profiler"
    folder.mkdir()
    (folder / "host_info").symlink_to(elsewhere / "host_info")
    assert "is reached through a link" in command("analyse", str(folder), code=2)
    assert files(elsewhere) == before


def test_a_file_that_breaks_off(tmp_path: Path) -> None:
    folder = recorded(tmp_path / "profiler", job(3))
    file = folder / "host_info" / "host_info_0.csv"
    file.write_bytes(file.read_bytes()[:-20])
    command("analyse", str(folder))
    assert set(files(folder)) > MADE
    shown = subprocess.run(
        [sys.executable, "-m", "steplens", "summary", str(folder)], capture_output=True, text=True, timeout=600
    )
    assert shown.returncode == 2 and "Traceback" not in shown.stderr
    assert "host_info_0.csv breaks off" in shown.stdout and "begin and do not end" in " ".join(shown.stdout.split())


def test_the_interface_of_mindspore_makes_them(tmp_path: Path) -> None:
    recorded(tmp_path / "data" / "profiler", job(5))
    text = "from steplens.mindspore import Profiler\nProfiler.offline_analyse(path='data')\n"
    run_program(tmp_path, text)
    there = files(tmp_path / "data" / "profiler")
    assert set(there) == {*MADE, "host_info/host_info_0.csv"}
    made = {name: (tmp_path / "data" / "profiler" / name).read_bytes() for name in MADE}
    for name in MADE:
        (tmp_path / "data" / "profiler" / name).unlink()
    text = "from steplens.mindspore.r2_2 import Profiler\nProfiler(start_profile=False).analyse(offline_path='data')\n"
    run_program(tmp_path, text)
    assert {name: (tmp_path / "data" / "profiler" / name).read_bytes() for name in MADE} == made
    shutil.rmtree(tmp_path / "data")
