"""Profiles for pprof, decoded with Google's own library by the message definitions of profile.proto."""

from __future__ import annotations

import io
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

from steplens.trace.trace import Trace
from steplens.writers.common.output import NothingToWriteError
from steplens.writers.exports.flame import pprof
from steplens.writers.exports.subject import Subject

from ...writers.builder import BACKWARD, BASE_NS, MAIN, build, frame, kernel, op, synthetic, training_step

#: perftools.profiles, fields as in profile.proto: number, name, type ("*" for repeated)
MESSAGES = {
    "Profile": """1 sample_type *ValueType; 2 sample *Sample; 3 mapping *Mapping; 4 location *Location; 5 function *Function;
        6 string_table *string; 7 drop_frames int64; 8 keep_frames int64; 9 time_nanos int64; 10 duration_nanos int64;
        11 period_type ValueType; 12 period int64; 13 comment *int64; 14 default_sample_type int64""",
    "ValueType": "1 type int64; 2 unit int64",
    "Sample": "1 location_id *uint64; 2 value *int64; 3 label *Label",
    "Label": "1 key int64; 2 str int64; 3 num int64; 4 num_unit int64",
    "Mapping": """1 id uint64; 2 memory_start uint64; 3 memory_limit uint64; 4 file_offset uint64; 5 filename int64;
        6 build_id int64; 7 has_functions bool; 8 has_filenames bool; 9 has_line_numbers bool; 10 has_inline_frames bool""",
    "Location": "1 id uint64; 2 mapping_id uint64; 3 address uint64; 4 line *Line; 5 is_folded bool",
    "Line": "1 function_id uint64; 2 line int64",
    "Function": "1 id uint64; 2 name int64; 3 system_name int64; 4 filename int64; 5 start_line int64",
}


@pytest.fixture(scope="module")
def message() -> Any:
    """The class of a profile, made from ``MESSAGES``."""
    pool_module = pytest.importorskip("google.protobuf.descriptor_pool")
    from google.protobuf import descriptor_pb2, message_factory

    file = descriptor_pb2.FileDescriptorProto(name="profile.proto", package="perftools.profiles", syntax="proto3")
    for name, fields in MESSAGES.items():
        kind = file.message_type.add(name=name)
        for number, field, type_ in re.findall(r"(\d+) (\w+) (\*?\w+)", fields):
            added = kind.field.add(name=field, number=int(number), label=3 if type_.startswith("*") else 1)
            plain = type_.lstrip("*")
            if plain in MESSAGES:
                added.type, added.type_name = 11, f".perftools.profiles.{plain}"
            else:
                added.type = {"int64": 3, "uint64": 4, "bool": 8, "string": 9}[plain]
    pool = pool_module.DescriptorPool()
    pool.Add(file)
    return message_factory.GetMessageClass(pool.FindMessageTypeByName("perftools.profiles.Profile"))


def decode(message: Any, trace: Trace) -> Any:
    handle = io.BytesIO()
    pprof.write(Subject(trace, Path("result/host_1_ascend_pt")), handle)
    profile = message()
    assert profile.ParseFromString(handle.getvalue()) == len(handle.getvalue())
    # nothing that the definitions do not know
    assert len(profile.SerializeToString()) == len(handle.getvalue())
    check(profile)
    return profile


def check(profile: Any) -> None:
    """What pprof itself checks when it reads a profile."""
    assert profile.string_table[0] == ""
    locations = {location.id: location for location in profile.location}
    functions = {function.id: function for function in profile.function}
    mappings = {mapping.id for mapping in profile.mapping}
    assert 0 not in locations and 0 not in functions
    assert len(locations) == len(profile.location) and len(functions) == len(profile.function)
    for location in profile.location:
        assert location.mapping_id in mappings
        assert all(line.function_id in functions for line in location.line)
    for sample in profile.sample:
        assert len(sample.value) == len(profile.sample_type)
        assert all(number in locations for number in sample.location_id)
        assert [profile.string_table[label.key] for label in sample.label] == ["thread"]


def stacks(profile: Any) -> dict[tuple[str, ...], list[int]]:
    """(thread, outermost ... innermost) -> values."""
    names = {
        location.id: profile.string_table[
            next(function for function in profile.function if function.id == location.line[0].function_id).name
        ]
        for location in profile.location
    }
    found = {}
    for sample in profile.sample:
        path = tuple(names[number] for number in reversed(sample.location_id))
        key = (profile.string_table[sample.label[0].str], *path)
        assert key not in found
        found[key] = list(sample.value)
    return found


def test_a_training_step(message: Any) -> None:
    profile = decode(message, training_step())
    types = [(profile.string_table[item.type], profile.string_table[item.unit]) for item in profile.sample_type]
    assert types == [("calls", "count"), ("time", "nanoseconds")]
    assert profile.string_table[profile.default_sample_type] == "time"
    assert (profile.time_nanos, profile.duration_nanos) == (BASE_NS + 500, 98_500)
    step = (f"thread {MAIN}", "<module>", "ProfilerStep#7")
    module = (*step, "nn.Module: Linear_0")
    found = stacks(profile)
    assert found[(*module, "aten::linear", "aten::mm")] == [1, 16_001]
    assert found[(*module, "aten::linear")] == [1, 28_000 - 16_001]
    assert found[(f"thread {BACKWARD}", "LinearBackward0")] == [1, 30_000]
    (function,) = [item for item in profile.function if profile.string_table[item.system_name] == "train.py(9): <module>"]
    assert profile.string_table[function.filename] == "train.py"
    assert function.start_line == 9


def test_device_time_of_a_gpu(message: Any) -> None:
    calls = [op("outer", 0, 10), op("inner", 2, 6, parent=0, depth=1, device_self_ns=3_000), op("outer", 20, 25)]
    profile = decode(message, build(ops=calls, kernels=[kernel("k", 7, 10, core="CUDA", op=1)]))
    assert [profile.string_table[item.type] for item in profile.sample_type] == ["calls", "time", "device"]
    assert stacks(profile) == {
        (f"thread {MAIN}", "outer"): [2, 6_000 + 5_000, 0],
        (f"thread {MAIN}", "outer", "inner"): [1, 4_000, 3_000],
    }


def test_equal_stacks_are_one_sample_and_recursion_is_not(message: Any) -> None:
    calls = [op("f", start + depth, start + 10 - depth) for start in (0, 20) for depth in range(3)]
    found = stacks(decode(message, build(ops=calls, python=[frame("a.py(3): g", 40, 41)])))
    thread = f"thread {MAIN}"
    assert found[(thread, "f")] == [2, 4_000]
    assert found[(thread, "f", "f")] == [2, 4_000]
    assert found[(thread, "f", "f", "f")] == [2, 12_000]


def test_odd_names(message: Any) -> None:
    names = ["", "é\n", "C:\\x.py(7): run", "x" * 3000]
    profile = decode(message, build(ops=[op(name, 2 * number, 2 * number + 1) for number, name in enumerate(names)]))
    assert {path[1] for path in stacks(profile)} == {"", "é\n", "run", "x" * 3000}


def test_sums_of_many_calls(message: Any) -> None:
    trace = synthetic(ops=60_000, kernels=10, memory_events=20, steps=2)
    profile = decode(message, trace)
    by_name: Counter[str] = Counter()
    for path, (calls, own) in stacks(profile).items():
        by_name[path[-1]] += own
        assert calls > 0
    expected: Counter[str] = Counter()
    for name, own in trace.ops.select("name", "self_ns").iter_rows():
        expected[name] += own
    assert by_name == expected


def test_nothing_to_write() -> None:
    with pytest.raises(NothingToWriteError):
        pprof.write(Subject(build(meta={"rank": 0}), Path("x")), io.BytesIO())
