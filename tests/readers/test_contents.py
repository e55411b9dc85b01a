"""Finding what a path holds: nested, mixed, partial, hostile; and which of several sources is read."""

from __future__ import annotations

import errno
import gzip
import json
import os
import sqlite3
from pathlib import Path
from typing import Any

import pytest

import steplens
from steplens.common import rundir
from steplens.common.errors import InputError
from steplens.readers import contents, detect, search
from steplens.readers.ascend.capture import raw_captures
from steplens.readers.ascend.database import database_captures
from steplens.readers.ascend.text import text_captures
from steplens.readers.contents import Contents, contents_of, is_trace_file
from steplens.readers.kineto import kineto_captures
from steplens.readers.reader import AnyReader
from steplens.readers.steplens_run import run_captures
from steplens.readers.unread import LINK, TOO_DEEP, Unread, abbreviate_names, group_by_reason

PROF = "PROF_000001_20231115061320000_ABCDEF"
KINETO = {"schemaVersion": 1, "traceEvents": [{"ph": "X", "name": "a", "ts": 1, "dur": 1, "pid": 1, "tid": 1, "cat": "cpu_op"}]}


def write(path: Path, text: str = "") -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(text)
    return path


def run(top: Path, *parts: str) -> Path:
    """A run directory with the given parts: "kineto", "framework", "prof", "exported", "text", "database", "analysis"."""
    top.mkdir(parents=True, exist_ok=True)
    output = top / rundir.OUTPUT_DIRECTORY
    if "kineto" in parts:
        (top / rundir.RAW_DIRECTORY).mkdir()
    if "framework" in parts:
        write(top / "FRAMEWORK" / "torch.op_range")
    if "prof" in parts or "exported" in parts:
        (top / PROF / "host").mkdir(parents=True)
    if "exported" in parts:
        write(top / PROF / contents.EXPORT_DIRECTORY / "msprof_20231115061320.json", "[]")
    if "text" in parts:
        write(output / "step_trace_time.csv", "Step\n")
    if "database" in parts:
        database(output / "ascend_pytorch_profiler_0.db")
    if "analysis" in parts:
        database(output / "analysis.db")
    return top


def database(path: Path) -> Path:
    path.parent.mkdir(parents=True, exist_ok=True)
    with sqlite3.connect(path) as connection:
        connection.execute("create table STRING_IDS (id integer, value text)")
    connection.close()
    return path


@pytest.mark.parametrize(
    ("parts", "expected", "ignored"),
    [
        (["kineto", "text"], run_captures.READER, ["text files of ASCEND_PROFILER_OUTPUT"]),
        (["framework", "exported", "text", "database"], raw_captures.READER, ["text files", "ascend_pytorch_profiler_0.db"]),
        (["exported"], raw_captures.READER, []),
        (["framework", "prof", "text", "database"], database_captures.READER, ["FRAMEWORK", PROF, "text files"]),
        (["framework", "prof", "text"], text_captures.READER, ["FRAMEWORK", PROF]),
        (["text", "analysis"], text_captures.READER, []),
        (["analysis"], text_captures.READER, []),
        (["database", "analysis"], database_captures.READER, []),
        (["framework", "prof"], raw_captures.READER, []),
        (["framework"], raw_captures.READER, []),
        (["prof"], raw_captures.READER, []),
    ],
)
def test_what_lies_nearest_to_the_measurement_is_read(
    tmp_path: Path, parts: list[str], expected: AnyReader, ignored: list[str]
) -> None:
    (found,) = detect.find_traces(run(tmp_path / "w_1_2_ascend_pt", *parts))
    assert found.reader is expected
    assert found.reason
    assert len(found.ignored) == len(ignored)
    for text, item in zip(ignored, found.ignored, strict=True):
        assert text in item


@pytest.mark.parametrize("raw", ["framework", "kineto"])
@pytest.mark.parametrize(
    ("form", "complete", "expected"),
    [
        ("text", True, text_captures.READER),
        ("database", True, database_captures.READER),
        ("text", False, None),
        ("analysis", True, None),
    ],
)
def test_complete_results_come_before_raw_data_that_was_simplified(
    tmp_path: Path, raw: str, form: str, complete: bool, expected: AnyReader | None
) -> None:
    path = run(tmp_path / "w_1_2_ascend_pt", raw, "prof", form)
    write(path / rundir.OUTPUT_DIRECTORY / rundir.STATUS_FILE, "{}")
    if complete:
        write(path / rundir.OUTPUT_DIRECTORY / rundir.COMPLETION_MARKER)
    (found,) = detect.find_traces(path)
    made_from = run_captures.READER if raw == "kineto" else raw_captures.READER
    assert found.reader is (expected or made_from)
    assert detect.raw_of(found).reader is made_from
    if expected:
        assert PROF in found.ignored
        # exported again, the raw data is read
        write(path / PROF / "msprof_20231115061320.db")
        (found,) = detect.find_traces(path)
        assert found.reader is made_from and detect.raw_of(found) is found


def test_nested_and_mixed_contents_are_all_found(tmp_path: Path) -> None:
    run(tmp_path / "job" / "rank0" / "w_1_2_ascend_pt", "text")
    run(tmp_path / "job" / "rank1" / "w_1_3_ascend_pt", "framework", "exported")
    run(tmp_path / "job" / "other_ascend_pt", "kineto")
    write(tmp_path / "gpu" / "worker.1.pt.trace.json", json.dumps(KINETO))
    (tmp_path / "gpu" / "worker.2.pt.trace.json.gz").write_bytes(gzip.compress(json.dumps(KINETO).encode()))
    write(tmp_path / "gpu" / "settings.json", '{"learning_rate": 1}')
    write(tmp_path / "gpu" / "list.json", "[1, 2]")
    database(tmp_path / "cann" / "msprof_20240101000000.db")
    write(tmp_path / ".hidden" / "trace.json", json.dumps(KINETO))
    found = {str(item.path.relative_to(tmp_path)): item.reader for item in detect.find_traces(tmp_path)}
    assert found == {
        "cann/msprof_20240101000000.db": database_captures.READER,
        "gpu/worker.1.pt.trace.json": kineto_captures.READER,
        "gpu/worker.2.pt.trace.json.gz": kineto_captures.READER,
        "job/other_ascend_pt": run_captures.READER,
        "job/rank0/w_1_2_ascend_pt": text_captures.READER,
        "job/rank1/w_1_3_ascend_pt": raw_captures.READER,
    }


@pytest.mark.parametrize("part", [rundir.OUTPUT_DIRECTORY, "FRAMEWORK"])
def test_a_part_stands_for_its_run_directory(tmp_path: Path, part: str) -> None:
    path = run(tmp_path / "w_1_2_ascend_pt", "framework", "exported", "text")
    (found,) = detect.find_traces(path / part)
    assert found.path == path
    assert found.reader is raw_captures.READER


OTHER_PROF = "PROF_000001_20231115061320001_GHIJKL"


def exported(path: Path) -> Path:
    write(path / contents.EXPORT_DIRECTORY / "msprof_20231115061320.json", "[]")
    return path


def test_device_data_hides_nothing_beside_it(tmp_path: Path) -> None:
    exported(tmp_path / PROF)
    exported(tmp_path / OTHER_PROF)
    write(tmp_path / "worker.pt.trace.json", json.dumps(KINETO))
    run(tmp_path / "w_1_2_ascend_pt", "kineto")
    write(tmp_path / PROF / "more" / "trace.json", json.dumps(KINETO))
    found = {str(item.path.relative_to(tmp_path)): item.reader for item in detect.find_traces(tmp_path)}
    assert found == {
        PROF: raw_captures.READER,
        OTHER_PROF: raw_captures.READER,
        "w_1_2_ascend_pt": run_captures.READER,
        "worker.pt.trace.json": kineto_captures.READER,
    }


def test_device_data_that_is_given_is_opened_alone(tmp_path: Path) -> None:
    top = run(tmp_path / "w_1_2_ascend_pt", "framework", "exported", "text")
    for path in (top / PROF, exported(tmp_path / "several" / PROF)):
        exported(path.parent / OTHER_PROF)
        (found,) = detect.find_traces(path)
        assert (found.path, found.reader) == (path, raw_captures.READER)
        assert detect.find_one(path).path == path


def test_a_run_directory_hides_no_trace_in_it(tmp_path: Path) -> None:
    """It can still be asked for itself: its own data is what its path stands for."""
    path = run(tmp_path / "w_1_2_ascend_pt", "kineto", "text")
    write(path / "profiler_info_0.json", "{}")
    write(path / "logs" / "log.json", json.dumps(KINETO))
    trace = write(path / "sub" / "trace.json", json.dumps(KINETO))
    assert [found.path for found in detect.find_traces(path)] == [path, trace]
    assert detect.find_one(path).path == path


def test_what_is_not_read_is_named_with_the_reason(tmp_path: Path) -> None:
    write(tmp_path / "trace.json", json.dumps(KINETO))
    write(tmp_path / "notes.txt", "text")
    write(tmp_path / "settings.json", "{}")
    write(tmp_path / "empty.csv")
    (tmp_path / "rows.parquet").write_bytes(b"PAR1 and more")
    database(tmp_path / "other.sqlite")
    with sqlite3.connect(tmp_path / "report.sqlite") as connection:
        connection.execute("create table CUPTI_ACTIVITY_KIND_KERNEL (start integer)")
    connection.close()
    (tmp_path / "link").symlink_to(tmp_path / "trace.json")
    deep = write(tmp_path.joinpath(*map(str, range(search._DEPTH))) / "trace.json", json.dumps(KINETO)).parent
    unread: list[Unread] = []
    assert len(detect.find_traces(tmp_path, unread)) == 1
    assert {item.path.name: item.reason for item in unread} == {
        "notes.txt": "none of the files that steplens reads",
        "settings.json": "a JSON file without events of a profiler",
        "empty.csv": "an empty file",
        "rows.parquet": "a Parquet table, for which there is no reader",
        "other.sqlite": "a database of another program",
        "report.sqlite": "an export of Nsight Systems, for which there is no reader",
        "link": LINK,
        deep.name: TOO_DEEP,
    }
    assert {item.path for item in steplens.open(tmp_path).unread} == {item.path for item in unread}
    (tmp_path / "trace.json").unlink()
    with pytest.raises(InputError, match=r"holds no run and no trace, only .*Nsight Systems"):
        detect.find_traces(tmp_path)


def test_many_names_are_counted() -> None:
    names = [Path("folder") / f"{number}.txt" for number in range(7)]
    ((folder, reason, grouped_names),) = group_by_reason(Unread(path, LINK) for path in names)
    assert (folder, reason) == (Path("folder"), LINK)
    assert abbreviate_names(grouped_names) == "0.txt, 1.txt, 2.txt, 3.txt, 4.txt and 2 more"


def test_a_result_folder_that_lies_alone_is_found_whatever_it_is_called(tmp_path: Path) -> None:
    path = tmp_path / "copied"
    write(path / "trace_view.json", "[]")
    (found,) = detect.find_traces(tmp_path)
    assert found.reader is text_captures.READER
    assert isinstance(found.where, Contents)
    assert found.where.output == path


def test_a_database_file_is_read_with_what_lies_beside_it(tmp_path: Path) -> None:
    path = run(tmp_path / "w_1_2_ascend_pt", "database")
    (found,) = detect.find_traces(path / rundir.OUTPUT_DIRECTORY / "ascend_pytorch_profiler_0.db")
    assert found.reader is database_captures.READER
    assert isinstance(found.where, Contents)
    assert found.where.path == path


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        (json.dumps(KINETO["traceEvents"]), kineto_captures.READER),
        ('[{"ph": "X", "name": "a", "ts": "1736405443863674.400", "dur": 1}]', text_captures.READER),
        ('[{"ph": "M", "name": "process_name", "pid": 1, "args": {"name": "Ascend Hardware"}}]', text_captures.READER),
        (json.dumps(KINETO), kineto_captures.READER),
    ],
)
def test_arrays_of_events_are_told_apart(tmp_path: Path, text: str, expected: AnyReader) -> None:
    (found,) = detect.find_traces(write(tmp_path / "some.json", text))
    assert found.reader is expected


def test_links_are_not_followed(tmp_path: Path) -> None:
    run(tmp_path / "elsewhere" / "w_1_2_ascend_pt", "text")
    (tmp_path / "top").mkdir()
    (tmp_path / "top" / "link").symlink_to(tmp_path / "elsewhere")
    (tmp_path / "top" / "loop").symlink_to(tmp_path / "top")
    with pytest.raises(InputError, match="holds no run and no trace"):
        detect.find_traces(tmp_path / "top")


def test_a_search_that_would_not_end_is_refused(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(search, "_ENTRIES", 20)
    for number in range(30):
        write(tmp_path / f"{number}.txt")
    with pytest.raises(InputError, match="nearer to the runs"):
        detect.find_traces(tmp_path)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may list every folder")
def test_a_folder_that_cannot_be_listed_says_so(tmp_path: Path) -> None:
    (tmp_path / "closed").mkdir(mode=0)
    with pytest.raises(InputError, match="cannot be listed"):
        detect.find_traces(tmp_path / "closed")


@pytest.mark.parametrize("content", [b"", b"\x1f\x8b broken", b"\x00" * 100, b'{"a": 1}'])
def test_other_files_are_no_traces(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(content)
    assert not is_trace_file(path)


def kineto_text(ranks: int, behind: str = '"traceEvents": [{"ph": "X"}]') -> bytes:
    """A file of Kineto of a job of many ranks: all of them stand in front of the events."""
    groups = [{"pg_name": "0", "pg_desc": "default_pg", "pg_size": ranks, "ranks": list(range(ranks))}]
    return f'{{"schemaVersion": 1, "distributedInfo": {json.dumps({"rank": 0, "pg_config": groups})}, {behind}}}'.encode()


@pytest.mark.parametrize("ranks", [8, 10_000, 12_000, 100_000])
@pytest.mark.parametrize("compressed", [False, True])
def test_a_trace_of_a_job_of_many_ranks_is_one(ranks: int, compressed: bool, tmp_path: Path) -> None:
    path = tmp_path / ("a.json.gz" if compressed else "a.json")
    path.write_bytes(gzip.compress(kineto_text(ranks)) if compressed else kineto_text(ranks))
    assert is_trace_file(path)


def test_a_file_without_events_is_read_no_further_than_a_bound(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = tmp_path / "a.json"
    path.write_bytes(kineto_text(20_000, '"more": 1'))
    assert not is_trace_file(path)
    behind = kineto_text(20_000)
    path.write_bytes(behind)
    bound = behind.index(b'"traceEvents"') + len(b'"traceEvents"')
    monkeypatch.setattr(contents, "_KINETO_HEAD", bound)
    assert is_trace_file(path)
    monkeypatch.setattr(contents, "_KINETO_HEAD", bound - 1)
    assert not is_trace_file(path)
    # what is no file of Kineto's is not read on at all
    path.write_bytes(b'{"a": "' + b"x" * (1 << 17) + b'", "traceEvents": []}')
    assert not is_trace_file(path)
    path.write_bytes(gzip.compress(kineto_text(20_000))[:200])
    assert not is_trace_file(path)


def test_an_empty_folder_holds_nothing(tmp_path: Path) -> None:
    assert not contents_of(tmp_path)
    with pytest.raises(InputError, match="reads Kineto"):
        detect.find_traces(tmp_path)


def test_what_is_closed_to_this_user(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """For root nothing is closed, so its answer is made."""
    closed, mine = tmp_path / "closed_ascend_pt", run(tmp_path / "mine_ascend_pt", "kineto")
    closed.mkdir()
    real = os.stat

    def stat(path: Any, *arguments: Any, **options: Any) -> os.stat_result:
        if not isinstance(path, int) and closed in Path(os.fsdecode(path)).parents:
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES), str(path))
        return real(path, *arguments, **options)

    monkeypatch.setattr(os, "stat", stat)
    # in Python 3.10 pathlib holds a function of its own
    monkeypatch.setattr(Path, "stat", lambda path, **options: stat(path, **options))
    assert [found.path for found in detect.find_traces(tmp_path)] == [mine]
    with pytest.raises(InputError, match=r"cannot be reached \(Permission denied\)"):
        detect.find_traces(closed / "run")
