"""The file of a timeline beside its tables: the same answers, and nothing that does not fit or is damaged is shown."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pytest

import steplens
from steplens.cli.main import main
from steplens.common import partial
from steplens.server import runs
from steplens.server.runs import RunLibrary
from steplens.server.timeline import tile_format
from steplens.server.timeline.tiles import build_tile
from steplens.timeline import prebuild, presence, timeline_file
from steplens.timeline.layout import build_timeline
from steplens.timeline.prebuild import lay_out
from steplens.timeline.pyramid import Pyramid
from steplens.timeline.time_origin import trace_origins
from steplens.trace.kept_tables import KeptTables
from steplens.trace.trace import Trace

from .conftest import DEADLINE_S

EVENTS = 4000


def write(path: Path, names: int = 7) -> None:
    """A Kineto trace with nested calls on two threads and tasks that overlap on a stream."""
    events = []
    for place in range(EVENTS):
        name, at = f"aten::op_{place % names}", 1000 + 7 * place
        events.append(
            {"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": place % 2, "ts": at, "dur": 30 - place % 5, "args": {}}
        )
        events.append(
            {
                "ph": "X",
                "cat": "kernel",
                "name": "名",
                "pid": 0,
                "tid": 7,
                "ts": at,
                "dur": 1 + 200 * (place % 97 == 0),
                "args": {},
            }
        )
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))


@pytest.fixture(autouse=True)
def small_files(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "LEAST_EVENTS", 1)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    file = tmp_path / "trace.json"
    write(file)
    return file


def opened(path: Path) -> tuple[Trace, KeptTables, int]:
    run = steplens.open(path)
    (trace,) = run.traces
    assert trace.kept is not None
    return trace, trace.kept, trace_origins(run.traces)[0]


def saved(path: Path) -> tuple[Pyramid, KeptTables, int, Path]:
    trace, place, origin = opened(path)
    pyramid = Pyramid(build_timeline(trace, origin))
    file = timeline_file.save_timeline(pyramid, place)
    assert file is not None
    return pyramid, place, origin, file


def test_what_is_kept_gives_the_same_answers_without_taking_memory(path: Path) -> None:
    pyramid, place, origin, _ = saved(path)
    found = timeline_file.load_timeline(place, origin)
    assert found is not None
    assert pyramid.size_bytes > 100_000
    assert found.size_bytes == 0
    assert found.timeline.lanes == pyramid.timeline.lanes
    assert found.timeline.names == pyramid.timeline.names
    assert found.timeline.unplaced == pyramid.timeline.unplaced
    assert [level.shift for level in found.levels] == [level.shift for level in pyramid.levels]
    low, high = pyramid.timeline.bounds
    rows = range(len(pyramid.timeline.offsets) - 1)
    for start, end, pixels in ((low, high, 10), (low, high, 5000), (high // 3, high // 2, 200)):
        answers = [tile_format.encode_tile(build_tile(one, rows, start, end, pixels), one.timeline) for one in (pyramid, found)]
        assert answers[0] == answers[1]


@pytest.mark.parametrize("earlier", [0, 1, 12_345_678, 10**15, -3])
def test_among_other_ranks_the_times_are_moved(path: Path, earlier: int) -> None:
    trace, _, origin = opened(path)
    _, place, _, file = saved(path)
    built, found = Pyramid(build_timeline(trace, origin - earlier)), timeline_file.load_timeline(place, origin - earlier)
    assert found is not None
    assert found.timeline.lanes == built.timeline.lanes
    assert found.timeline.origin_ns == origin - earlier
    assert found.timeline.bounds == built.timeline.bounds
    rows = range(len(built.timeline.offsets) - 1)
    low, high = built.timeline.bounds
    for start, end, pixels in ((low, high, 3), (low, high, 700), (low, low + 20_000, 20_000), (high // 3, high // 2, 200)):
        answers = [tile_format.encode_tile(build_tile(one, rows, start, end, pixels), one.timeline) for one in (built, found)]
        assert answers[0] == answers[1]
    assert found.size_bytes == 0 if not earlier else 0 < found.size_bytes < built.size_bytes
    # from then on there is a file for these times as well
    again = timeline_file.save_timeline(found, place)
    assert again is not None and (again == file) == (not earlier)
    own = timeline_file.load_timeline(place, origin - earlier)
    assert own is not None and own.size_bytes == 0


def test_a_file_of_another_origin_is_trusted_no_more_than_any(path: Path) -> None:
    _, place, origin, file = saved(path)
    (place.folder / "timeline_x.bin").write_bytes(b"nothing")
    (place.folder / f"timeline_{origin + 5}.bin").write_bytes(file.read_bytes())
    assert timeline_file.load_timeline(place, origin + 1) is not None
    file.unlink()
    # its name says another origin than its header
    assert timeline_file.load_timeline(place, origin + 1) is None
    assert timeline_file.load_timeline(place, origin + 5) is None


def test_an_analysis_lays_the_timeline_out(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from steplens.offline import analyse

    (result,) = analyse(path, output=path.parent / "results")
    assert result.ok
    trace, place, origin = opened(path)
    found = timeline_file.load_timeline(place, origin)
    assert found is not None and found.size_bytes == 0
    assert len(found.timeline.start) == len(build_timeline(trace, origin).start)
    # it is there
    assert lay_out(trace) is None
    for file in place.folder.glob("timeline_*"):
        file.unlink()
    # the time to lay so few out is not noticed
    monkeypatch.setattr(presence, "LEAST_EVENTS", 1 << 20)
    assert lay_out(trace) is None
    assert not list(place.folder.glob("timeline_*"))


@pytest.mark.parametrize("command", [("summary",), ("advise",), ("open",), ("table", "operators")])
def test_a_command_that_reads_a_run_lays_the_timeline_out(path: Path, command: tuple[str, ...]) -> None:
    name, *more = command
    assert main([name, str(path), *more]) == 0
    trace, place, origin = opened(path)
    found = timeline_file.load_timeline(place, origin)
    assert found is not None and len(found.timeline.start) == len(build_timeline(trace, origin).start)
    (file,) = place.folder.glob("timeline_*")
    before = file.stat().st_mtime_ns
    assert main([name, str(path), *more]) == 0
    assert file.stat().st_mtime_ns == before, "once"


def test_ranks_are_laid_out_from_the_origin_of_all(tmp_path: Path) -> None:
    for rank in range(2):
        write(tmp_path / f"rank{rank}.json")
    text = (tmp_path / "rank1.json").read_text()
    (tmp_path / "rank1.json").write_text(text.replace('"ts": 1000,', '"ts": 400,', 1))
    assert main(["summary", str(tmp_path)]) == 0
    run = steplens.open(tmp_path)
    (origin,) = set(trace_origins(run.traces))
    for trace in run.traces:
        assert trace.kept is not None
        assert [file.name for file in trace.kept.folder.glob("timeline_*")] == [f"timeline_{origin}.bin"]


def test_a_command_does_without_a_timeline(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: object) -> None:
        raise MemoryError("too many events")

    monkeypatch.setattr(prebuild, "build_timeline", fails)
    assert main(["summary", str(path)]) == 0


def test_an_analysis_does_without_a_timeline(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    from steplens.offline import analyse, one_run

    def fails(trace: Trace) -> None:
        raise MemoryError("too many events")

    monkeypatch.setattr(one_run, "lay_out", fails)
    (result,) = analyse(path, output=path.parent / "results")
    assert result.ok
    (log,) = (path.parent / "results").rglob("*.log")
    assert "the timeline could not be laid out" in log.read_text()


def test_other_tables_have_files_of_their_own(path: Path) -> None:
    _, place, origin, _ = saved(path)
    assert timeline_file.load_timeline(KeptTables(place.folder, "0" * 64), origin) is None
    before = path.stat().st_mtime_ns
    write(path, names=5)
    # later than before, however coarsely the file system tells times
    os.utime(path, ns=(before + 10**9, before + 10**9))
    trace, now, at = opened(path)
    assert now.fingerprint != place.fingerprint
    assert timeline_file.load_timeline(now, at) is None
    assert {name for name in build_timeline(trace, at).names if name.startswith("aten::")} == {
        f"aten::op_{place}" for place in range(5)
    }


def test_no_damage_goes_unnoticed(path: Path) -> None:
    pyramid, place, origin, file = saved(path)
    whole = file.read_bytes()
    used = sum(column.nbytes for column in pyramid.timeline.columns)
    assert len(whole) > used
    rng = np.random.default_rng(1)
    refused = 0
    for at in [0, 9, 17, 30, *rng.integers(0, len(whole), 60).tolist()]:
        file.write_bytes(whole[:at] + bytes([whole[at] ^ 0x40]) + whole[at + 1 :])
        found = timeline_file.load_timeline(place, origin)
        # the only bytes that do not matter are those between the columns
        assert found is None or whole[at] == 0
        refused += found is None
    assert refused > 50
    for size in (0, 5, 24, 200, len(whole) // 2, len(whole) - 70):
        file.write_bytes(whole[:size])
        assert timeline_file.load_timeline(place, origin) is None
    file.write_bytes(whole)
    assert timeline_file.load_timeline(place, origin) is not None


def test_links_are_not_followed(path: Path, tmp_path: Path) -> None:
    pyramid, place, origin, file = saved(path)
    elsewhere = tmp_path / "elsewhere.bin"
    file.rename(elsewhere)
    file.symlink_to(elsewhere)
    assert timeline_file.load_timeline(place, origin) is None
    assert timeline_file.save_timeline(pyramid, place) is not None
    assert not file.is_symlink()
    moved = tmp_path / "moved"
    shutil.move(place.folder, moved)
    place.folder.symlink_to(moved)
    assert timeline_file.load_timeline(place, origin) is None
    assert timeline_file.save_timeline(pyramid, place) is None


def test_files_do_not_pile_up(path: Path) -> None:
    trace, place, origin = opened(path)
    ended = subprocess.Popen([sys.executable, "-c", ""])
    ended.wait()
    name = partial.partial_path(place.folder / "timeline_1.bin").name
    (place.folder / name.replace(f"-{os.getpid()}-", f"-{ended.pid}-")).write_bytes(b"left by a server that was killed")
    for shift in range(4):
        assert timeline_file.save_timeline(Pyramid(build_timeline(trace, origin - shift)), place) is not None
        os.utime(place.folder / f"timeline_{origin - shift}.bin", ns=(shift, shift))
    names = {file.name for file in place.folder.iterdir() if file.suffix not in (".arrow", ".parquet")}
    assert names == {"manifest.json", f"timeline_{origin - 2}.bin", f"timeline_{origin - 3}.bin"}


def test_little_is_not_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trace, place, origin = opened(path)
    monkeypatch.setattr(presence, "LEAST_EVENTS", 10 * EVENTS)
    assert timeline_file.save_timeline(Pyramid(build_timeline(trace, origin)), place) is None
    monkeypatch.setattr(presence, "LEAST_EVENTS", 1)
    monkeypatch.setattr("steplens.common.rundir.free_bytes", lambda _: 1000)
    assert timeline_file.save_timeline(Pyramid(build_timeline(trace, origin)), place) is None


def test_a_server_keeps_its_timelines_and_uses_them_the_next_time(path: Path) -> None:
    answers = []
    for time_of_showing in range(2):
        library = RunLibrary([path])
        library.start()
        deadline = time.monotonic() + DEADLINE_S
        shown = library.runs[0]
        while shown.opening.timelines < 1 or shown.timeline(0).size_bytes:
            assert time.monotonic() < deadline
            time.sleep(0.01)
        place = shown.trace(0).kept
        assert place is not None
        files = list(place.folder.glob("timeline_*.bin"))
        assert len(files) == 1
        pyramid = shown.timeline(0)
        rows = range(len(pyramid.timeline.offsets) - 1)
        answers.append(
            (files[0].stat().st_mtime_ns, tile_format.encode_tile(build_tile(pyramid, rows, 0, 10**6, 100), pyramid.timeline))
        )
        assert time_of_showing == 0 or answers[0] == answers[1]


def test_who_waits_for_a_timeline_does_not_wait_until_the_tables_are_kept(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """They are kept once somebody has seen it."""
    monkeypatch.setattr(runs, "_PAINTING_WAITS_S", DEADLINE_S)
    library = RunLibrary([path])
    library.start()
    shown = library.runs[0]
    deadline = time.monotonic() + DEADLINE_S
    while shown.opening.timelines < 1:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert shown.trace(0).kept is None
    laid_out = shown.timeline(0)
    assert laid_out.size_bytes
    shown.seen.set()
    while shown.timeline(0).size_bytes:
        assert time.monotonic() < deadline
        time.sleep(0.01)
    assert shown.trace(0).kept is not None
    assert np.array_equal(shown.timeline(0).timeline.start, laid_out.timeline.start)
