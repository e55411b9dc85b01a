"""Baselines tell the causes that their recordings tell."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
import pytest

from steplens.common import json_text
from steplens.comparison.baselines import cause_sides
from steplens.comparison.baselines.cause_sides import KeptSource, describe_causes
from steplens.comparison.baselines.causes_document import CausesDocument
from steplens.comparison.baselines.side_document import describe_side, read_side
from steplens.comparison.causes.cause import Causes
from steplens.comparison.causes.cause_side import CauseSource, JoinedSource, RecordedSource
from steplens.comparison.causes.find import explain_change
from steplens.comparison.comparison import compare_sides
from steplens.comparison.measure import measure_side
from steplens.comparison.recordings import Recording, find_recordings
from steplens.run import open_run

from ...shared_data import shared
from .. import test_causes, test_device_causes
from ..device_programs import recorded_on_device
from ..programs import program, recorded

PROGRAMS = [(recorded, *row) for row in test_causes.CHANGES] + [(recorded_on_device, *row) for row in test_device_causes.CHANGES]


def kept(recordings: Sequence[Recording], source: CauseSource | None = None) -> KeptSource:
    """What a baseline of recordings holds, written and read."""
    content = msgspec.json.encode(describe_causes(source or RecordedSource(recordings)))
    return KeptSource(msgspec.convert(json_text.loads(content), type=CausesDocument), recordings)


def assert_alike(found: Causes | None, expected: Causes | None) -> None:
    """The same causes of the same size, and as sure."""
    assert found is not None and expected is not None and found.side == expected.side
    assert found.change_ns == pytest.approx(expected.change_ns, abs=1.0) and found.rest_ns == pytest.approx(0.0, abs=2.0)
    assert (found.explained is None) == (expected.explained is None)
    assert found.explained == pytest.approx(expected.explained, abs=0.02)
    first, same = found.causes[0], expected.causes[0]
    # of names that took as long either may be first
    assert (first.kind, first.names[:1], len(first.names)) == (same.kind, same.names[:1], len(same.names))
    assert (first.modules, first.phase, first.work) == (same.modules, same.phase, same.work)
    assert first.difference_ns == pytest.approx(same.difference_ns, abs=5.0) and first.is_certain == same.is_certain
    assert (first.before_calls, first.after_calls) == pytest.approx((same.before_calls, same.after_calls))
    assert first.sentence == same.sentence or first.names != same.names
    certain = [{(cause.kind, cause.names[:1]) for cause in side.causes if cause.is_certain} for side in (found, expected)]
    assert certain[0] <= certain[1]


@pytest.mark.parametrize(
    ("record", "after", "before"), [(row[0], row[2], row[3]) for row in PROGRAMS], ids=[row[1] for row in PROGRAMS]
)
def test_a_kept_side_tells_the_causes_that_its_recordings_tell(record: Any, after: Any, before: Any) -> None:
    sides = record(before), record(after)
    fresh = [RecordedSource(side) for side in sides]
    of_baselines = [kept(side) for side in sides]
    expected = explain_change(fresh[0], fresh[1])
    assert_alike(explain_change(of_baselines[0], of_baselines[1]), expected)
    assert_alike(explain_change(of_baselines[0], fresh[1]), expected)


def test_equal_programs_have_no_certain_cause() -> None:
    for record, base in ((recorded, test_causes.BASE), (recorded_on_device, test_device_causes.BASE)):
        sides = record(base), record(base)
        for before, after in ((kept(sides[0]), kept(sides[1])), (kept(sides[0]), RecordedSource(sides[1]))):
            told = explain_change(before, after)
            assert told is not None and told.explained is None and not any(cause.is_certain for cause in told.causes)


def test_the_same_recordings_give_the_same_bytes_and_so_do_those_that_were_kept() -> None:
    recordings = recorded_on_device(test_device_causes.BASE)
    content = msgspec.json.encode(describe_causes(RecordedSource(recordings)))
    again = recorded_on_device(test_device_causes.BASE)
    assert msgspec.json.encode(describe_causes(RecordedSource(again))) == content
    assert msgspec.json.encode(describe_causes(kept(recordings))) == content


def test_recordings_that_came_one_by_one_tell_what_they_tell_together() -> None:
    slower = test_causes.CHANGES[0][1]
    one, other = ([recording] for recording in recorded(test_causes.BASE))
    joined = JoinedSource([kept(one), RecordedSource(other)], [*one, *other])
    expected = explain_change(RecordedSource([*one, *other]), RecordedSource(recorded(slower)))
    assert_alike(explain_change(joined, RecordedSource(recorded(slower))), expected)
    assert_alike(explain_change(kept([*one, *other], joined), RecordedSource(recorded(slower))), expected)
    # what only some of them have takes no time in the others
    longer = find_recordings([program((*test_causes.BASE, test_causes.called("aten::norm", 40.0)), 7)])
    mixed = JoinedSource([kept(one), kept(longer)], [*one, *longer])
    told = explain_change(RecordedSource(one), kept([*one, *longer], mixed))
    assert told is not None and (told.causes[0].names, round(told.causes[0].difference_ns)) == (("aten::norm",), 21_000)


def test_a_device_that_runs_behind_on_one_side_is_compared_on_the_device() -> None:
    recordings = recorded_on_device(test_device_causes.BASE)
    host = recorded(test_causes.BASE)
    assert kept(recordings).is_behind and not kept(host).is_behind
    told = explain_change(kept(recordings), kept(recordings))
    assert told is not None and told.side == "device"
    # of a side without tasks there are times of the host alone
    mixed = explain_change(kept(recordings), kept(host))
    fresh = explain_change(RecordedSource(recordings), RecordedSource(host))
    assert mixed is not None and fresh is not None and mixed.side == fresh.side == "host"


def test_of_many_rows_shapes_are_left_out_first_and_then_modules(monkeypatch: pytest.MonkeyPatch) -> None:
    sides = recorded(test_causes.BASE), recorded(test_causes.CHANGES[0][1])
    measured = RecordedSource(sides[0]).measure_side("host")
    assert measured is not None
    keys = measured.times.keys
    fewer = keys.select("part", "leaf", "phase", "module", "path", "ranges", "detail").n_unique()
    assert fewer <= keys.height
    expected = explain_change(RecordedSource(sides[0]), RecordedSource(sides[1]))
    monkeypatch.setattr(cause_sides, "_MOST_ROWS", fewer)
    told = explain_change(kept(sides[0]), RecordedSource(sides[1]))
    assert told is not None and expected is not None
    assert told.causes[0].difference_ns == pytest.approx(expected.causes[0].difference_ns, abs=5.0)
    monkeypatch.setattr(cause_sides, "_MOST_ROWS", 1)
    assert explain_change(kept(sides[0]), RecordedSource(sides[1])) is None


def test_calls_inside_of_each_other_by_the_thousand_are_not_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cause_sides, "_MOST_PAIRS", 10)
    document = describe_causes(RecordedSource(recorded(test_causes.BASE)))
    assert document.host is None and not document.paths.name


CAPTURES = [
    ("kineto/cuda_ns_resolution_rank0.json.gz", "kineto/cuda_nccl_distributed.json.gz"),
    ("kineto/cuda_ns_resolution_rank0.json.gz", "tracelens/mi300_resnet_act_checkpoint.json.gz"),
    ("tracelens/h100", "tracelens/mi300"),
]


@pytest.mark.parametrize("captures", CAPTURES)
def test_captures_of_gpus_say_the_same_as_baselines(captures: tuple[str, str]) -> None:
    """All causes, whether they are certain, and what holds memory."""
    before, after = (measure_side(open_run(shared(*capture.split("/")))) for capture in captures)
    kept_sides = [read_side(describe_side(side), Path("a.baseline")) for side in (before, after)]
    fresh, found = compare_sides(before, after), compare_sides(kept_sides[0], kept_sides[1])
    assert fresh.causes is not None and found.causes is not None and fresh.causes.side == found.causes.side
    assert [(cause.sentence, cause.is_certain) for cause in found.causes.causes] == [
        (cause.sentence, cause.is_certain) for cause in fresh.causes.causes
    ]
    assert found.memory_changes == fresh.memory_changes


def mutations(document: Any) -> list[Any]:
    """A document with each of its columns damaged in several ways."""
    damaged: list[Any] = []

    def visit(node: Any, rebuild: Any) -> None:
        if isinstance(node, dict):
            for key, inner in node.items():
                visit(inner, lambda new, key=key: rebuild({**node, key: new}))
            damaged.extend(rebuild({name: inner for name, inner in node.items() if name != key}) for key in node)
        elif isinstance(node, list) and node and isinstance(node[0], dict):
            visit(node[0], lambda new: rebuild([new, *node[1:]]))
            damaged.append(rebuild([]))
        elif isinstance(node, list):
            damaged.extend(map(rebuild, ([], node[1:], [*node, node[-1]] if node else [0])))
            for odd in (-2, -1, 0, 1 << 40, 1 << 63, 0.5, "a", None):
                damaged.append(rebuild([odd, *node[1:]]))
                damaged.append(rebuild([*node[:-1], odd]))
        else:
            damaged.extend(map(rebuild, (None, -1, 0, 1 << 40, 0.5, "", "\u00e9" * 40, "~" * 40, True, [])))

    visit(document, lambda new: new)
    return damaged


def test_a_damaged_document_is_refused_or_compared() -> None:
    recordings = recorded_on_device((test_device_causes.LINEAR, test_device_causes.GELU, *test_device_causes.BACKWARD))
    fresh = RecordedSource(recordings)
    document = json_text.loads(msgspec.json.encode(describe_causes(fresh)))
    refused = 0
    for number, damaged in enumerate(mutations(document)):
        try:
            source = KeptSource(msgspec.convert(damaged, type=CausesDocument), recordings)
        except (ValueError, msgspec.MsgspecError):
            refused += 1
            continue
        if number % 5 == 0:
            explain_change(source, fresh)
    assert refused > 300
