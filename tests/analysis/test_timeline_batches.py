"""When batches are drawn on the timeline: one that was handed on before that moment, one that the device receives behind it."""

from __future__ import annotations

from steplens.timeline.sources import _batch_events

from ..writers.builder import build


def test_batches_are_drawn_while_they_were_made() -> None:
    rows = [
        {"kind": "iterate", "batch": 1, "time_ns": 1000, "total_ns": 300, "wait_ns": 50},
        {"kind": "send", "batch": 1, "time_ns": 2000},
        {"kind": "receive", "batch": 1, "time_ns": 3000, "wait_ns": 40},
    ]
    events = _batch_events(build(pipeline_batches=rows))
    assert events is not None
    assert events.select("start_ns", "end_ns").collect().rows() == [(700, 1000), (2000, 2000), (3000, 3040)]
