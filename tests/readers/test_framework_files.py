"""The binary files of FRAMEWORK: every field, cut files, foreign and hostile bytes."""

from __future__ import annotations

import os
import resource
import struct
import time
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steplens.readers.ascend.capture import framework_files as files
from steplens.readers.ascend.capture.framework_files import (
    COLLECTIONS,
    FORMATS,
    MEMORY_USAGE,
    OP_MARK,
    OP_RANGE,
    PARAMETERS,
    PYTHON_CALLS,
    PYTHON_NAMES,
    TaggedFormat,
    first_time,
    read_flat,
    read_tagged,
)
from steplens.readers.ascend.capture.raw_files import FRAMEWORK_PREFIXES
from steplens.trace.health import HealthLog

from . import ascend_fixture as fixture


def texts(records: files.Records, field: str) -> list[str | None]:
    column = records.texts[field]
    return [None if code < 0 else column.distinct[code] for code in column.codes]


def checks(health: HealthLog) -> dict[str, int]:
    return {finding.check: finding.count for finding in health.findings}


def read(folder: Path, layout: TaggedFormat, *records: bytes) -> tuple[files.Records, HealthLog]:
    (folder / layout.prefix).write_bytes(b"".join(records))
    health = HealthLog()
    return read_tagged(folder, layout, health), health


def test_sizes_of_the_fixed_structs() -> None:
    assert [layout.fixed.itemsize for layout in FORMATS] == [58, 40, 77, 8, 8, 33, 24]
    assert tuple(layout.prefix for layout in FORMATS) == FRAMEWORK_PREFIXES


def test_every_field_of_a_call(tmp_path: Path) -> None:
    fixed = struct.pack("<3q4QB?", -5, 7, -1, 1, 2, 3, 1 << 40, 7, True)
    fields = {2: "aten::mm", 3: "float;None", 4: "2,3;", 8: "a.py(1): f;b.py(2): g", 9: "Net.head", 5: "x", 10: "12"}
    records, health = read(tmp_path, OP_RANGE, fixture.tagged(1, fixed, fields))
    assert records.fixed.tolist() == [(-5, 7, -1, 1, 2, 3, 1 << 40, 7, 1)]
    found = {field: texts(records, field) for field in records.texts}
    assert found == {
        "name": ["aten::mm"], "types": ["float;None"], "shapes": ["2,3;"], "stack": ["a.py(1): f;b.py(2): g"],
        "module": ["Net.head"],
    }  # fmt: skip
    assert not health.findings


def test_every_field_of_the_other_records(tmp_path: Path) -> None:
    records, _ = read(tmp_path, OP_MARK, fixture.op_mark(2, 9, 4, "aclnnMm", tid=6, pid=5))
    assert records.fixed.tolist() == [(9, 2, 4, 6, 5)]
    assert texts(records, "name") == ["aclnnMm"]
    memory = fixture.memory_usage(
        -1, 2, -3, event=2, allocated=4, reserved=5, active=6, stream=7, device_type=-8, device=-1, component=1, allocator=1,
        tid=9, pid=10,
    )  # fmt: skip
    records, _ = read(tmp_path, MEMORY_USAGE, memory)
    assert records.fixed.tolist() == [(-1, 2, -3, 4, 5, 6, 7, -8, -1, 1, 2, 1, 9, 10)]
    records, _ = read(tmp_path, PYTHON_NAMES, fixture.python_name((1 << 64) - 1, "a.py(1): f"))
    assert (records.fixed["key"].tolist(), texts(records, "name")) == ([(1 << 64) - 1], ["a.py(1): f"])
    records, _ = read(tmp_path, PARAMETERS, fixture.parameter(3, "w)t)g"), fixture.parameter(4, optimizer="t)g)m>t"))
    assert (texts(records, "module"), texts(records, "optimizer")) == (["w)t)g", None], [None, "t)g)m>t"])
    (tmp_path / "torch.python_tracer_func").write_bytes(fixture.python_event(1, 4, 3, tid=2, pid=3))
    assert read_flat(tmp_path, PYTHON_CALLS, HealthLog()).tolist() == [(1, 2, 3, 4, 3)]
    (tmp_path / "torch.gc_record").write_bytes(fixture.collection(2, 3, pid=1))
    assert read_flat(tmp_path, COLLECTIONS, HealthLog()).tolist() == [(1, 2, 3)]


def test_the_decoding_example_of_the_format(tmp_path: Path) -> None:
    layout = TaggedFormat(
        "torch.op_range", np.dtype([("a", "<u4"), ("b", "<u2"), ("c", "<u8"), ("d", "<u8"), ("e", "<u8")]), (), 1, {1: "text"}
    )
    record = struct.pack("<HI", 1, 40) + struct.pack("<IH3Q", 111, 2, 333, 444, 555) + struct.pack("<HI4s", 1, 4, b"test")
    records, _ = read(tmp_path, layout, record)
    assert records.fixed.tolist() == [(111, 2, 333, 444, 555)]
    assert texts(records, "text") == ["test"]


def test_the_same_texts_in_another_order_are_the_same(tmp_path: Path) -> None:
    fixed = bytes(OP_RANGE.fixed.itemsize)
    variants = [{2: "mm", 4: "1,2"}, {4: "1,2", 2: "mm"}, {2: "mm"}, {}, {2: "mm", 4: "1,2"}, {2: "add", 4: "1,2"}]
    written = [fixture.tagged(OP_RANGE.type, fixed, fields) for fields in variants]
    records, _ = read(tmp_path, OP_RANGE, *written)
    assert records.texts["name"].codes.tolist() == [0, 0, 0, -1, 0, 1]
    assert (records.texts["name"].distinct, records.texts["shapes"].distinct) == (["mm", "add"], ["1,2"])
    assert texts(records, "shapes") == ["1,2", "1,2", None, None, "1,2", "1,2"]


def test_a_damaged_text_counts_once_per_record(tmp_path: Path) -> None:
    tail = struct.pack("<HI", 2, 99) + b"mm"
    broken = struct.pack("<HI", OP_RANGE.type, OP_RANGE.fixed.itemsize + len(tail)) + bytes(OP_RANGE.fixed.itemsize) + tail
    _, health = read(tmp_path, OP_RANGE, broken * 3)
    assert checks(health) == {"damaged_fields": 3}


def test_several_files_of_a_kind_by_name(tmp_path: Path) -> None:
    for number in (2, 1):
        (tmp_path / f"torch.op_mark_{number}").write_bytes(fixture.op_mark(0, number, number, f"op{number}", tid=1))
    (tmp_path / "other.op_mark").write_bytes(b"x")
    (tmp_path / "torch.op_mark_folder").mkdir()
    records = read_tagged(tmp_path, OP_MARK, HealthLog())
    assert texts(records, "name") == ["op1", "op2"]


def test_links_are_not_followed(tmp_path: Path) -> None:
    (tmp_path / "secret").write_bytes(fixture.op_mark(0, 1, 1, "op", tid=1))
    (tmp_path / "FRAMEWORK").mkdir()
    (tmp_path / "FRAMEWORK" / "torch.op_mark").symlink_to(tmp_path / "secret")
    assert len(read_tagged(tmp_path / "FRAMEWORK", OP_MARK, HealthLog())) == 0


def test_missing_and_empty(tmp_path: Path) -> None:
    health = HealthLog()
    assert len(read_tagged(tmp_path / "nowhere", OP_RANGE, health)) == 0
    (tmp_path / "torch.op_range").write_bytes(b"")
    records = read_tagged(tmp_path, OP_RANGE, health)
    assert (len(records), records.texts["stack"].series("stack", files.pl.String()).to_list()) == (0, [])
    assert first_time(tmp_path) is None
    assert not health.findings


def test_an_unreadable_file_names_itself(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    for layout in (OP_RANGE, COLLECTIONS):
        (tmp_path / layout.prefix).write_bytes(bytes(100))

    def refuse(*args: object, **kwargs: object) -> None:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(Path, "open", refuse)
    monkeypatch.setattr(np, "fromfile", refuse)
    health = HealthLog()
    assert len(read_tagged(tmp_path, OP_RANGE, health)) == 0
    assert len(read_flat(tmp_path, COLLECTIONS, health)) == 0
    assert first_time(tmp_path) is None
    assert [finding.message for finding in health.findings] == [
        "torch.op_range cannot be read (Permission denied)",
        "torch.gc_record cannot be read (Permission denied)",
    ]


def test_what_precedes_a_cut_is_kept_wherever_it_is(tmp_path: Path) -> None:
    records = fixture.golden_ops()
    whole = b"".join(records)
    ends = np.cumsum([0, *map(len, records)])
    for count in range(len(whole) + 1):
        found, health = read(tmp_path, OP_RANGE, whole[:count])
        complete = int((ends <= count).sum()) - 1
        assert len(found) == complete
        lost = count - int(ends[complete])
        if not lost:
            assert not health.findings
            continue
        (finding,) = health.findings
        assert finding.check == "truncated_file"
        assert "torch.op_range" in finding.message
        assert f"its last {lost} bytes" in finding.message


def test_a_cut_flat_file(tmp_path: Path) -> None:
    (tmp_path / "torch.gc_record").write_bytes(fixture.collection(1, 2) * 3 + b"12345")
    health = HealthLog()
    assert len(read_flat(tmp_path, COLLECTIONS, health)) == 3
    assert "its last 5 bytes" in health.findings[0].message


def test_blocks_do_not_matter(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    names = [f"op{number}" * (number % 7 + 1) for number in range(500)]
    records = [fixture.op_range(name, number, number + 1, stack="s" * (number % 90)) for number, name in enumerate(names)]
    whole, _ = read(tmp_path, OP_RANGE, *records)
    for size in (1, 7, 64, 1000):
        monkeypatch.setattr(files, "_BLOCK_BYTES", size)
        pieces, health = read(tmp_path, OP_RANGE, *records)
        assert (pieces.fixed == whole.fixed).all()
        assert texts(pieces, "name") == names
        assert texts(pieces, "stack") == texts(whole, "stack")
        assert not health.findings


def test_equal_texts_are_decoded_once(tmp_path: Path) -> None:
    records, _ = read(tmp_path, OP_RANGE, *(fixture.op_range("aten::mm", i, i, stack=f"{i % 3}") for i in range(1000)))
    assert records.texts["name"].distinct == ["aten::mm"]
    assert records.texts["stack"].distinct == ["0", "1", "2"]


def test_texts_that_are_not_utf8(tmp_path: Path) -> None:
    broken, whole = (fixture.tagged(1, bytes(58), {2: name}) for name in (b"\xff\xfe", b"fine"))
    records, health = read(tmp_path, OP_RANGE, broken, broken, whole)
    assert texts(records, "name") == ["N/A", "N/A", "fine"]
    assert checks(health) == {"undecodable_text": 2}


def test_records_of_other_types_are_passed_over(tmp_path: Path) -> None:
    mark = fixture.op_mark(0, 1, 1, "op", tid=1)
    records, health = read(tmp_path, OP_MARK, mark, fixture.tagged(9, b"abc", {}), mark, fixture.tagged(2, b"too short", {}))
    assert len(records) == 2
    assert checks(health) == {"damaged_records": 2}


def test_fields_that_leave_their_record(tmp_path: Path) -> None:
    fixed = bytes(40)
    too_long = struct.pack("<HI", 2, 40 + 6 + 2) + fixed + struct.pack("<HI", 1, 1 << 31) + b"ab"
    tail = struct.pack("<HI", 2, 40 + 3) + fixed + b"abc"
    good = fixture.op_mark(0, 1, 1, "op", tid=1)
    records, health = read(tmp_path, OP_MARK, too_long, tail, good)
    assert texts(records, "name") == [None, None, "op"]
    assert checks(health) == {"damaged_fields": 2}


def test_a_record_with_endless_fields(tmp_path: Path) -> None:
    many = fixture.tagged(2, bytes(40) + struct.pack("<HI", 7, 0) * 100_000, {1: "late"})
    records, health = read(tmp_path, OP_MARK, many, fixture.op_mark(0, 1, 1, "op", tid=1))
    assert texts(records, "name") == [None, "op"]
    assert checks(health) == {"damaged_fields": 1}


def test_a_length_of_four_gigabytes_allocates_nothing(tmp_path: Path) -> None:
    good = fixture.op_mark(0, 1, 1, "op", tid=1)
    hostile = struct.pack("<HI", 2, 0xFFFF_FFFF) + bytes(100)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    records, health = read(tmp_path, OP_MARK, good, hostile)
    assert texts(records, "name") == ["op"]
    assert f"its last {len(hostile)} bytes" in health.findings[0].message
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_a_record_larger_than_any_is_passed_over(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(files, "_RECORD_LIMIT", 10_000)
    monkeypatch.setattr(files, "_BLOCK_BYTES", 4096)
    good = fixture.op_mark(0, 1, 1, "op", tid=1)
    large = fixture.tagged(2, bytes(40), {1: b"x" * 50_000})
    records, health = read(tmp_path, OP_MARK, good, large, good)
    assert texts(records, "name") == ["op", "op"]
    assert checks(health) == {"damaged_records": 1}


def test_a_record_of_a_gigabyte_is_not_read(tmp_path: Path) -> None:
    """The file is sparse, so it takes no room, and its length is true; two more records follow."""
    path = tmp_path / "torch.op_mark"
    good = fixture.op_mark(0, 1, 1, "op", tid=1)
    with path.open("wb") as handle:
        handle.write(good + struct.pack("<HI", 2, 1 << 30))
        handle.seek(1 << 30, os.SEEK_CUR)
        handle.write(good + good)
    before = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    health = HealthLog()
    assert texts(read_tagged(tmp_path, OP_MARK, health), "name") == ["op"] * 3
    assert checks(health) == {"damaged_records": 1}
    assert resource.getrusage(resource.RUSAGE_SELF).ru_maxrss - before < 50_000


def test_a_file_of_empty_records(tmp_path: Path, million_steps_s: float) -> None:
    """Two million of them, as in a sparse file: they are counted, and the time grows with the file's size only."""
    path = tmp_path / "torch.op_mark"
    path.write_bytes(fixture.op_mark(0, 1, 1, "op", tid=1))
    os.truncate(path, 12 << 20)
    health = HealthLog()
    begin = time.process_time()
    assert len(read_tagged(tmp_path, OP_MARK, health)) == 1
    assert time.process_time() - begin < 250 * million_steps_s
    assert checks(health)["damaged_records"] == ((12 << 20) - len(fixture.op_mark(0, 1, 1, "op", tid=1))) // 6


@pytest.mark.parametrize("layout", FORMATS, ids=[layout.prefix for layout in FORMATS])
@settings(max_examples=60, deadline=None)
@given(data=st.data())
def test_any_bytes_are_read_without_a_crash(
    tmp_path_factory: pytest.TempPathFactory, layout: object, data: st.DataObject
) -> None:
    folder = tmp_path_factory.mktemp("fuzz")
    good = {
        "torch.op_range": fixture.golden_ops(), "torch.op_mark": fixture.golden_marks(),
        "torch.memory_usage": fixture.golden_memory(), "torch.python_tracer_hash": [fixture.python_name(1, "f")],
        "torch.param_tensor_info": [fixture.parameter(1, "a", "b")],
        "torch.python_tracer_func": [fixture.python_event(1, 1, 0)], "torch.gc_record": [fixture.collection(1, 2)],
    }  # fmt: skip
    assert isinstance(layout, files.TaggedFormat | files.FlatFormat)
    content = bytearray(data.draw(st.binary(max_size=300)) if data.draw(st.booleans()) else b"".join(good[layout.prefix]))
    for position, value in data.draw(st.lists(st.tuples(st.integers(0, 2000), st.integers(0, 255)), max_size=8)):
        if content:
            content[position % len(content)] = value
    content = content[: data.draw(st.integers(0, len(content)))] + data.draw(st.binary(max_size=40))
    (folder / layout.prefix).write_bytes(content)
    health = HealthLog()
    if isinstance(layout, files.TaggedFormat):
        records = read_tagged(folder, layout, health)
        assert len(records) * (6 + layout.fixed.itemsize) <= len(content)
        for column in records.texts.values():
            assert len(column.codes) == len(records)
            assert len(column.series("text", files.pl.String())) == len(records)
    else:
        assert len(read_flat(folder, layout, health)) == len(content) // layout.fixed.itemsize
    first_time(folder)
