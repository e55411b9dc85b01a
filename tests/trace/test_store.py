"""The Parquet cache: used when it matches, rebuilt when it does not, never written through a link."""

from __future__ import annotations

import json
import os
import stat
from pathlib import Path

import polars as pl
import pytest

from steplens.common import rundir
from steplens.readers import detect
from steplens.readers.kineto import kineto
from steplens.run import open_run
from steplens.trace.cache import manifest, store
from steplens.trace.trace import Trace

from . import forged


@pytest.fixture
def trace_file(tmp_path: Path) -> Path:
    return write(tmp_path / "t.json", "aten::a")


def write(path: Path, name: str) -> Path:
    events = [{"ph": "X", "cat": "cpu_op", "name": name, "pid": 1, "tid": 1, "ts": 5.0, "dur": 2.0}]
    path.write_text(json.dumps({"traceEvents": events}))
    return path


def names(path: Path) -> list[str]:
    return open_run(path).operators()["name"].to_list()


def cache_of(path: Path) -> Path:
    return path.parent / rundir.CACHE_DIRECTORY / path.name


def test_second_opening_reads_no_json(trace_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert names(trace_file) == ["aten::a"]
    monkeypatch.setattr(kineto, "read", lambda path: pytest.fail("the raw file was read again"))
    assert names(trace_file) == ["aten::a"]
    for file in cache_of(trace_file).iterdir():
        assert stat.S_IMODE(file.stat().st_mode) == rundir.FILE_MODE
    assert stat.S_IMODE(cache_of(trace_file).stat().st_mode) == rundir.DIRECTORY_MODE


def test_a_column_that_no_row_fills_is_not_written_and_is_there_all_the_same(
    trace_file: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(store, "_SMALL_BYTES", 0)
    built = open_run(trace_file).trace().ops
    assert "flops" not in pl.read_parquet_schema(cache_of(trace_file) / "ops.parquet")
    trace = open_run(trace_file).trace()
    assert trace.in_memory("ops") is None
    ops = trace.lazy("ops")
    assert ops is not None and built is not None
    assert ops.select("flops", "name").collect().equals(built.select("flops", "name"))
    assert ops.filter(pl.col("flops").is_null()).select(pl.len()).collect().item() == 1
    assert trace.ops is not None and trace.ops.equals(built)
    assert trace.ops.schema == built.schema


def test_tables_that_are_kept_afterwards_are_in_memory_until_then(trace_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(store, "_SMALL_BYTES", 0)
    monkeypatch.setattr(store, "_KEPT_BYTES", 0)
    with store.tables_kept_afterwards() as waiting:
        trace = open_run(trace_file).trace()
    assert trace.kept is None and not cache_of(trace_file).exists()
    read = trace.in_memory("ops")
    assert read is not None
    (keep,) = waiting
    keep()
    assert trace.kept is not None and trace.in_memory("ops") is None
    kept = trace.table("ops")
    assert kept is not None and kept.equals(read)
    monkeypatch.setattr(kineto, "read", lambda path: pytest.fail("the raw file was read again"))
    assert names(trace_file) == ["aten::a"]


def test_a_file_that_changes_before_its_tables_are_kept_is_read_again(trace_file: Path) -> None:
    with store.tables_kept_afterwards() as waiting:
        trace = open_run(trace_file).trace()
    write(trace_file, "aten::other")
    waiting[0]()
    assert trace.kept is None and not cache_of(trace_file).exists()
    assert names(trace_file) == ["aten::other"]


def test_of_several_traces_none_waits_in_memory(tmp_path: Path) -> None:
    for name in ("a", "b"):
        write(tmp_path / f"{name}.json", f"aten::{name}")
    with store.tables_kept_afterwards() as waiting:
        run = open_run(tmp_path)
    assert not waiting and all(trace.kept is not None for trace in run.traces)


def test_a_moved_run_has_its_cache_and_its_new_place(trace_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    before = open_run(trace_file).trace().source
    assert before == trace_file
    folder = trace_file.parent / "moved"
    folder.mkdir()
    for name in (trace_file.name, rundir.CACHE_DIRECTORY):
        (trace_file.parent / name).rename(folder / name)
    monkeypatch.setattr(kineto, "read", lambda path: pytest.fail("the raw file was read again"))
    assert open_run(folder / trace_file.name).trace().source == folder / trace_file.name
    # opened by another path
    monkeypatch.chdir(folder)
    assert open_run(trace_file.name).trace().source.resolve() == folder / trace_file.name


def test_a_moved_run_directory(tmp_path: Path) -> None:
    from ..readers.ascend_fixture import write_golden

    run = write_golden(tmp_path / "a")
    assert open_run(run).trace().source == run
    moved = tmp_path / "b" / run.name
    moved.parent.mkdir()
    run.rename(moved)
    cache = next((moved / rundir.CACHE_DIRECTORY).iterdir()) / "manifest.json"
    before = cache.stat().st_mtime_ns
    assert open_run(moved).trace().source == moved
    assert cache.stat().st_mtime_ns == before


@pytest.mark.parametrize("source", ["/etc", "../../etc", "a/../../b", "../x"])
def test_a_manifest_that_leads_elsewhere_is_not_trusted(trace_file: Path, source: str) -> None:
    names(trace_file)
    forged.reseal(cache_of(trace_file), lambda manifest: manifest.update(source=source))
    assert open_run(trace_file).trace().source == trace_file


def test_a_changed_file_is_read_again(trace_file: Path) -> None:
    assert names(trace_file) == ["aten::a"]
    write(trace_file, "aten::b")
    assert names(trace_file) == ["aten::b"]
    status = trace_file.stat()
    write(trace_file, "aten::c")
    os.utime(trace_file, ns=(status.st_atime_ns, status.st_mtime_ns + 1))
    assert names(trace_file) == ["aten::c"]


@pytest.mark.parametrize("small", [True, False], ids=["small", "large"])
@pytest.mark.parametrize("damage", ["manifest", "table", "columns", "link", "missing", "foreign_table"])
def test_a_damaged_cache_is_rebuilt(
    trace_file: Path, tmp_path: Path, damage: str, small: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    if not small:
        monkeypatch.setattr(store, "_SMALL_BYTES", 0)
    names(trace_file)
    cache = cache_of(trace_file)
    ops = cache / ("small.arrow" if small else "ops.parquet")
    assert ops.exists()
    if damage == "manifest":
        (cache / "manifest.json").write_text("[1")
    elif damage == "table":
        ops.write_bytes(b"PAR1")
    elif damage == "columns":
        forged.change_table(cache, "ops", lambda _: pl.DataFrame({"x": [1]}))
        forged.reseal(
            cache, lambda manifest: (manifest["key"].update(columns="other"), manifest.update(tables=forged.digests(cache)))
        )
    elif damage == "link":
        ops.rename(tmp_path / "elsewhere")
        ops.symlink_to(tmp_path / "elsewhere")
    elif damage == "missing":
        ops.unlink()
    else:
        forged.reseal(cache, lambda manifest: manifest["tables"].update({"../../x": 1}))
    assert names(trace_file) == ["aten::a"]
    assert open_run(trace_file).trace().ops.height == 1


def test_a_linked_cache_folder_is_not_written(trace_file: Path, tmp_path: Path) -> None:
    outside = tmp_path / "outside"
    outside.mkdir()
    (tmp_path / rundir.CACHE_DIRECTORY).symlink_to(outside)
    assert names(trace_file) == ["aten::a"]
    assert list(outside.iterdir()) == []


def test_a_folder_closed_to_writing_gets_no_cache(trace_file: Path) -> None:
    trace_file.parent.chmod(0o555)
    try:
        assert names(trace_file) == ["aten::a"]
        assert list(trace_file.parent.iterdir()) == [trace_file]
    finally:
        trace_file.parent.chmod(0o755)


def test_run_questions_over_a_folder_of_windows(tmp_path: Path) -> None:
    for index, state in enumerate(("collected", "collected", "recording")):
        run = tmp_path / f"host_1_2026010100000000{index}_ascend_pt"
        (run / rundir.RAW_DIRECTORY).mkdir(parents=True)
        (run / rundir.RAW_DIRECTORY / rundir.STATE_FILE).write_text(
            json.dumps({"state": state, "pid": 1, "first_step": 4 + index, "health": []})
        )
        if state == "collected":
            write(run / rundir.RAW_DIRECTORY / rundir.RAW_TRACE, f"aten::op{index}")
    opened = open_run(tmp_path)
    assert [trace.rank for trace in opened.traces] == [0, 0]
    assert sorted(opened.operators()["name"].to_list()) == ["aten::op0", "aten::op1"]
    assert opened.sql("select count(*) as n from ops")["n"].to_list() == [2]
    lost = opened.health().filter(check="unreadable").row(0, named=True)
    assert "step 6" in lost["message"]
    assert "cannot be told here" in lost["message"], "it does not say of which machine its process was"


def test_a_small_table_with_long_texts_is_kept_as_a_large_one(trace_file: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """The size of a frame does not count the texts of its categories."""
    monkeypatch.setattr(store, "_SMALL_FILE_BYTES", 4096)
    # random, so that it stays as long when it is compressed
    write(trace_file, "aten::" + os.urandom(8192).hex())
    long = names(trace_file)
    assert (cache_of(trace_file) / "ops.parquet").exists()
    assert detect.is_kept(detect.find_one(trace_file)) and names(trace_file) == long
    monkeypatch.setattr(kineto, "read", lambda path: pytest.fail("the capture was read again"))
    assert names(trace_file) == long


def test_sources_are_known_by_the_folders_they_lie_in(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Files of one name may be swapped, and the number of a device stands in the name of its folder."""
    run = tmp_path / "run"
    sources = [run / folder / "data" for folder in ("device_0", "device_1")]
    for number, source in enumerate(sources):
        source.parent.mkdir(parents=True)
        source.write_text(str(number))
        os.utime(source, ns=(0, 0))
    cache = run / rundir.CACHE_DIRECTORY / "x"
    store.cached_trace(cache, sources, lambda: Trace(run, {}))
    assert manifest.kept_manifest(cache, sources) and not manifest.kept_manifest(cache, sources, told=[3])
    # seen from elsewhere it is the same
    monkeypatch.chdir(tmp_path)
    relative = [source.relative_to(tmp_path) for source in sources]
    assert manifest.kept_manifest(cache.relative_to(tmp_path), relative) and manifest.kept_manifest(cache, relative)
    (tmp_path / "link").symlink_to(run)
    assert manifest.kept_manifest(tmp_path / "link" / rundir.CACHE_DIRECTORY / "x", sources)
    sources[0].parent.rename(run / "device_2")
    sources[1].parent.rename(sources[0].parent)
    (run / "device_2").rename(sources[1].parent)
    assert not manifest.kept_manifest(cache, sources)
