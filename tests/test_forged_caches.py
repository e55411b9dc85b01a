"""A capture may come with everything that steplens keeps beside one: forged, it changes no figure; ours is used."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest

import steplens
from steplens import offline
from steplens.cli.main import main
from steplens.common import rundir
from steplens.readers import detect
from steplens.readers.kineto import kineto
from steplens.server.timeline import tile_format
from steplens.server.timeline.tiles import build_tile
from steplens.timeline import presence, timeline_file
from steplens.timeline.layout import build_timeline
from steplens.timeline.pyramid import Pyramid
from steplens.timeline.time_origin import trace_origins
from steplens.trace.cache import store

from .trace import forged

NOBODY = 65534
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root gives files to somebody else")


def events(length: int = 30, count: int = 40) -> list[dict[str, Any]]:
    common = {"ph": "X", "pid": 1, "tid": 1}
    found: list[dict[str, Any]] = []
    for step in range(4):
        at = 1000 + step * 5000
        name = f"ProfilerStep#{step}"
        found.append({**common, "cat": "user_annotation", "name": name, "ts": at, "dur": 4290, "args": {}})
        found += [
            {**common, "cat": "cpu_op", "name": f"aten::op_{place % 3}", "ts": at + 100 * place, "dur": length, "args": {}}
            for place in range(count)
        ]
    return found


def write(path: Path, length: int = 30, count: int = 40) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": events(length, count)}))
    return path


def figures(path: Path) -> dict[str, Any]:
    """What a user is shown: steps, operators, and what health says."""
    run = steplens.open(path)
    return {
        "steps": run.steps().to_dicts(),
        "operators": run.operators().sort("name").to_dicts(),
        "health": run.health().to_dicts(),
    }


def cache_of(path: Path) -> Path:
    return path.parent / rundir.CACHE_DIRECTORY / path.name


@pytest.fixture(params=["small", "large"])
def capture(request: pytest.FixtureRequest, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A capture whose tables are kept as small ones, or as large ones."""
    if request.param == "large":
        monkeypatch.setattr(store, "_SMALL_BYTES", 0)
    return write(tmp_path / "shared" / "t.json")


def slower(ops: pl.DataFrame) -> pl.DataFrame:
    names = ops["name"].cast(pl.String).replace("aten::op_0", "aten::FORGED").cast(ops.schema["name"])
    return ops.with_columns(pl.col("self_ns") * 10, name=names)


def change_tables(cache: Path) -> None:
    """Steps of five seconds, self times ten times as long, an operator that never ran."""
    forged.change_table(cache, "steps", lambda steps: steps.with_columns(pl.col("end_ns") + 5_000_000_000))
    forged.change_table(cache, "ops", slower)


def with_digests(cache: Path, secret: bytes | None) -> None:
    change_tables(cache)
    manifest = forged.manifest_of(cache)
    manifest["tables"] = forged.digests(cache)
    if secret is None:
        forged.write_manifest(cache, manifest, json.loads((cache / forged.MANIFEST).read_bytes())["seal"])
    else:
        forged.reseal(cache, lambda it: it.update(manifest), secret)


def as_before_seals(cache: Path) -> None:
    """A manifest as it was when a checksum that anybody can make was enough."""
    change_tables(cache)
    raw = {file.name: file.read_bytes() for file in forged.table_files(cache)}
    tables = {name: [len(data), zlib.crc32(data)] for name, data in raw.items()}
    (cache / forged.MANIFEST).write_text(json.dumps({**forged.manifest_of(cache), "tables": tables}))


def other_manifest(cache: Path) -> None:
    manifest = forged.manifest_of(cache)
    del manifest["tables"][forged.table_file(cache, "steps").name]
    forged.write_manifest(cache, manifest, json.loads((cache / forged.MANIFEST).read_bytes())["seal"])


def nested(cache: Path) -> None:
    deep = "[" * 100_000 + "]" * 100_000
    (cache / forged.MANIFEST).write_text(f'{{"seal":"{"0" * 64}","manifest":{deep}}}')


def pipe(cache: Path) -> None:
    (cache / forged.MANIFEST).unlink()
    os.mkfifo(cache / forged.MANIFEST)


def of_another_version(cache: Path) -> None:
    """An older steplens of ours read the same file worse."""
    change_tables(cache)
    forged.reseal(cache, lambda it: (it["key"].update(steplens="0.0.1"), it.update(tables=forged.digests(cache))))


def of_another_capture(cache: Path) -> None:
    """A cache that is ours, but of another trace."""
    other = write(cache.parent.parent / "other" / cache.name, length=99)
    steplens.open(other)
    shutil.rmtree(cache)
    shutil.copytree(cache_of(other), cache)


def table_of_another_capture(cache: Path) -> None:
    other = write(cache.parent.parent / "other" / cache.name, length=99)
    steplens.open(other)
    shutil.copy(forged.table_file(cache_of(other), "ops"), cache)


FORGERIES: dict[str, Callable[[Path], Any]] = {
    "tables": change_tables,
    "tables and their digests": lambda cache: with_digests(cache, None),
    "another secret": lambda cache: with_digests(cache, b"x" * 32),
    "an empty secret": lambda cache: with_digests(cache, b""),
    "a manifest of before seals": as_before_seals,
    "a manifest with other tables": other_manifest,
    "a nested manifest": nested,
    "a pipe": pipe,
    "another version": of_another_version,
    "another capture": of_another_capture,
    "a table of another capture": table_of_another_capture,
}


@pytest.mark.parametrize("forgery", FORGERIES)
def test_a_forged_cache_changes_no_figure(forgery: str, capture: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    true = figures(capture)
    written = ".parquet" if store._SMALL_BYTES == 0 else ".arrow"
    assert {file.suffix for file in forged.table_files(cache_of(capture))} == {written}
    assert true["steps"] and {row["name"] for row in true["operators"]} >= {"aten::op_0", "aten::op_1"}
    assert detect.is_kept(detect.find_one(capture))
    FORGERIES[forgery](cache_of(capture))
    # a table is looked at when it is opened
    assert detect.is_kept(detect.find_one(capture)) == (forgery in ("tables", "a table of another capture"))
    assert figures(capture) == true
    # and from then on there is a cache of ours
    monkeypatch.setattr(kineto, "read", lambda path: pytest.fail("the capture was read again"))
    assert figures(capture) == true


def link_tables(capture: Path, elsewhere: Path) -> None:
    for file in forged.table_files(cache_of(capture)):
        file.rename(elsewhere / file.name)
        file.symlink_to(elsewhere / file.name)


def link_manifest(capture: Path, elsewhere: Path) -> None:
    file = cache_of(capture) / forged.MANIFEST
    file.rename(elsewhere / file.name)
    file.symlink_to(elsewhere / file.name)


def link_folder(capture: Path, elsewhere: Path) -> None:
    shutil.move(cache_of(capture), elsewhere / "cache")
    cache_of(capture).symlink_to(elsewhere / "cache")


def link_top(capture: Path, elsewhere: Path) -> None:
    shutil.move(cache_of(capture).parent, elsewhere / "top")
    cache_of(capture).parent.symlink_to(elsewhere / "top")


@pytest.mark.parametrize("link", [link_tables, link_manifest, link_folder, link_top])
def test_nothing_is_read_or_written_through_links(link: Callable[[Path, Path], None], capture: Path, tmp_path: Path) -> None:
    true = figures(capture)
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    link(capture, elsewhere)
    inside = next((folder for folder in elsewhere.rglob("t.json")), elsewhere / "cache" if link is link_folder else elsewhere)
    change_tables(inside if link is not link_manifest else cache_of(capture))
    there = {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in elsewhere.rglob("*") if file.is_file()}
    assert figures(capture) == true
    assert {file: (file.read_bytes(), file.stat().st_mtime_ns) for file in elsewhere.rglob("*") if file.is_file()} == there


@as_root
@pytest.mark.parametrize("what", ["folder", "table", "manifest", "all"])
def test_what_belongs_to_somebody_else_is_not_believed(what: str, capture: Path) -> None:
    true = figures(capture)
    cache = cache_of(capture)
    read: list[Path] = []
    names = {
        "folder": ["."],
        "table": [forged.table_file(cache, "ops").name],
        "manifest": [forged.MANIFEST],
        "all": [".", *os.listdir(cache)],
    }[what]
    for name in names:
        os.chown(cache / name, NOBODY, NOBODY)
    with pytest.MonkeyPatch.context() as patch:
        reader = kineto.read
        patch.setattr(kineto, "read", lambda path: (read.append(path), reader(path))[1])
        assert figures(capture) == true
        assert read == [capture], "the cache is not ours, whatever its seal says"
        # that of the other user stays, ours lies beside it
        assert figures(capture) == true
        assert read == [capture]
    assert what in ("table", "manifest") or cache.stat().st_uid == NOBODY


@as_root
def test_a_capture_of_somebody_else_has_a_cache_of_ours(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "theirs" / "t.json")
    for place in (path.parent, path):
        os.chown(place, NOBODY, NOBODY)
    true = figures(path)
    monkeypatch.setattr(kineto, "read", lambda path: pytest.fail("the capture was read again"))
    assert figures(path) == true


def test_a_cache_of_another_machine_is_made_again(capture: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    here = os.environ["XDG_STATE_HOME"]
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
    true = figures(capture)
    change_tables(cache_of(capture))
    forged.reseal(cache_of(capture), lambda it: it.update(tables=forged.digests(cache_of(capture))))
    assert figures(capture) != true, "whoever has the secret of a machine can forge its caches"
    monkeypatch.setenv("XDG_STATE_HOME", here)
    assert figures(capture) == true


def replaced(path: Path, old: bytes, new: bytes, *, in_place: bool = True) -> None:
    """Change a file, or put another one in its place, and give it back its size and time."""
    status, raw = path.stat(), path.read_bytes()
    assert raw.count(old) > 0 and len(old) == len(new)
    if not in_place:
        path.rename(path.with_name("before"))
        path.touch()
    with path.open("r+b") as file:
        file.write(raw.replace(old, new))
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert (path.stat().st_size, path.stat().st_mtime_ns) == (status.st_size, status.st_mtime_ns)


@pytest.mark.parametrize("in_place", [True, False])
@pytest.mark.parametrize("count", [40, 4000])
def test_a_source_of_the_same_size_and_time_is_read_again(count: int, in_place: bool, tmp_path: Path) -> None:
    path = write(tmp_path / "t.json", length=1, count=count)
    assert (path.stat().st_size > 192 << 10) == (count == 4000)
    assert "aten::op_1" in steplens.open(path).operators()["name"].to_list()
    replaced(path, b"aten::op_1", b"aten::op_9", in_place=in_place)
    names = steplens.open(path).operators()["name"].to_list()
    assert "aten::op_9" in names and "aten::op_1" not in names


def test_one_changed_byte_of_a_large_source_is_noticed(tmp_path: Path) -> None:
    """By the time that the file system notes: samples alone would miss it nearly always."""
    path = write(tmp_path / "t.json", length=1, count=4_000)
    before = steplens.open(path).operators().filter(name="aten::op_1")["calls"].item()
    raw = path.read_bytes()
    at = raw.index(b"aten::op_1", len(raw) // 2)
    status = path.stat()
    with path.open("r+b") as file:
        file.seek(at)
        file.write(b"aten::op_8")
    os.utime(path, ns=(status.st_atime_ns, status.st_mtime_ns))
    assert steplens.open(path).operators().filter(name="aten::op_1")["calls"].item() == before - 1


def test_a_large_capture_that_is_copied_with_its_times_keeps_its_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write(tmp_path / "here" / "t.json", length=1, count=4000)
    true = figures(path)["steps"]
    shutil.copytree(path.parent, tmp_path / "there")
    monkeypatch.setattr(kineto, "read", lambda path: pytest.fail("the capture was read again"))
    assert figures(tmp_path / "there" / "t.json")["steps"] == true


# --- timelines


@pytest.fixture
def small_timelines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(presence, "LEAST_EVENTS", 1)


def picture(path: Path) -> bytes:
    """The tile of the whole timeline, from its file where that is believed."""
    run = steplens.open(path)
    (trace,), origin = run.traces, trace_origins(run.traces)[0]
    assert trace.kept is not None
    pyramid = timeline_file.load_timeline(trace.kept, origin) or Pyramid(build_timeline(trace, origin))
    timeline_file.save_timeline(pyramid, trace.kept)
    low, high = pyramid.timeline.bounds
    return tile_format.encode_tile(
        build_tile(pyramid, range(len(pyramid.timeline.offsets) - 1), low, high, 300), pyramid.timeline
    )


def change_timeline(file: Path, mark: Callable[[bytes], bytes]) -> None:
    """Names and a column of a timeline changed, with digests that fit, under another seal."""
    raw = file.read_bytes()
    length = int.from_bytes(raw[8:16], "little")
    begin = 16 + 32
    header = msgspec.json.decode(raw[begin : begin + length])
    header["names"] = [name.replace("op_0", "FAKE") for name in header["names"]]
    counts = [one["count"] for one in header["columns"]]
    types = timeline_file._column_types(len(header["shifts"]))
    at, columns = begin + length, []
    for count, dtype in zip(counts, types, strict=True):
        at += -at % 64
        columns.append(np.frombuffer(raw, dtype, count, at).copy())
        at += columns[-1].nbytes
    columns[3] += 5
    header["columns"] = [{"count": len(one), "digest": hashlib.sha256(one.view(np.uint8)).hexdigest()} for one in columns]
    text = msgspec.json.encode(header)
    made = raw[:8] + len(text).to_bytes(8, "little") + mark(text) + text
    for one in columns:
        made += bytes(-len(made) % 64) + one.tobytes()
    file.write_bytes(made)


@pytest.mark.usefixtures("small_timelines")
@pytest.mark.parametrize("what", ["content", "old seal", "no seal", "link", "pipe", "other tables", "owner"])
def test_a_forged_timeline_changes_no_picture(what: str, capture: Path, tmp_path: Path) -> None:
    true = picture(capture)
    (file,) = cache_of(capture).glob("timeline_*.bin")
    raw = file.read_bytes()
    if what == "content":
        file.write_bytes(raw[:-1] + bytes([raw[-1] ^ 1]))
    elif what == "old seal":
        change_timeline(file, lambda text: raw[16:48])
    elif what == "no seal":
        change_timeline(file, lambda text: bytes(32))
    elif what == "link":
        file.rename(tmp_path / "elsewhere.bin")
        file.symlink_to(tmp_path / "elsewhere.bin")
    elif what == "pipe":
        file.unlink()
        os.mkfifo(file)
    elif what == "owner":
        if os.geteuid():
            pytest.skip("only root gives files to somebody else")
        os.chown(file, NOBODY, NOBODY)
    else:
        other = write(tmp_path / "other" / "t.json", length=99)
        picture(other)
        (its,) = cache_of(other).glob("timeline_*.bin")
        file.write_bytes(its.read_bytes())
    run = steplens.open(capture)
    place = run.traces[0].kept
    assert place is not None and timeline_file.load_timeline(place, trace_origins(run.traces)[0]) is None
    assert timeline_file.is_there(place) == (what == "content"), "which asks for the seal only"
    assert picture(capture) == true


@pytest.mark.usefixtures("small_timelines")
def test_a_timeline_with_our_seal_is_believed(capture: Path) -> None:
    """The forgery above fails by its seal alone."""
    true = picture(capture)
    (file,) = cache_of(capture).glob("timeline_*.bin")
    change_timeline(file, lambda text: timeline_file.seal.compute_seal("timeline", text) or b"")
    assert picture(capture) != true


# --- results and baselines


@pytest.fixture
def run_directory(tmp_path: Path) -> Path:
    run = tmp_path / "host_1000_20240101000000000_ascend_pt"
    write(run / rundir.RAW_DIRECTORY / rundir.RAW_TRACE)
    (run / rundir.RAW_DIRECTORY / rundir.STATE_FILE).write_text(json.dumps({"state": rundir.STATE_COLLECTED, "pid": 1}))
    return run


def results(run: Path) -> dict[str, bytes]:
    folder = run / rundir.OUTPUT_DIRECTORY
    return {file.name: file.read_bytes() for file in sorted(folder.iterdir()) if file.suffix in (".csv", ".json")
            and file.name != rundir.STATUS_FILE}  # fmt: skip


def analysed(run: Path) -> offline.RunResult:
    (result,) = offline.analyse(run, 1)
    assert result.ok, result.problem
    return result


def test_results_of_ours_are_left_alone(run_directory: Path) -> None:
    assert not analysed(run_directory).already_complete
    again = analysed(run_directory)
    assert again.already_complete and not again.note


@pytest.mark.parametrize("what", ["content", "another machine", "no seal", "source", "seal of another run"])
def test_forged_results_are_made_again(what: str, run_directory: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    if what == "another machine":
        monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "another machine"))
    analysed(run_directory)
    true = results(run_directory)
    monkeypatch.undo()
    own = run_directory / rundir.CACHE_DIRECTORY / "results.seal"
    table = run_directory / rundir.OUTPUT_DIRECTORY / "operator_details.csv"
    assert b"aten::op_0" in table.read_bytes()
    if what == "source":
        replaced(run_directory / rundir.RAW_DIRECTORY / rundir.RAW_TRACE, b"aten::op_0", b"aten::op_7")
        true = {name: raw.replace(b"op_0", b"op_7") for name, raw in true.items()}
    else:
        replaced(table, b"aten::op_0", b"aten::FAKE")
    if what == "no seal":
        own.unlink()
    elif what == "seal of another run":
        other = tmp_path / "other" / run_directory.name
        write(other / rundir.RAW_DIRECTORY / rundir.RAW_TRACE, length=99)
        analysed(other)
        shutil.copy(other / rundir.CACHE_DIRECTORY / "results.seal", own)
    result = analysed(run_directory)
    assert not result.already_complete
    assert results(run_directory) == true
    assert analysed(run_directory).already_complete


def test_results_of_others_in_a_closed_folder_stay_and_are_not_vouched_for(run_directory: Path) -> None:
    analysed(run_directory)
    (run_directory / rundir.CACHE_DIRECTORY / "results.seal").unlink()
    folder = run_directory / rundir.OUTPUT_DIRECTORY
    folder.chmod(0o555)
    try:
        result = analysed(run_directory)
    finally:
        folder.chmod(0o755)
    assert result.already_complete and "not made here" in result.note and "--out " in result.note


def test_a_baseline_with_a_forged_cache(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    before, after = write(tmp_path / "before" / "t.json", length=60), write(tmp_path / "after" / "t.json")

    def answer() -> str:
        assert main(["advise", str(after), "--since", str(before)]) == 0
        return capsys.readouterr().out

    true = answer()
    with_digests(cache_of(before), b"x" * 32)
    assert answer() == true
