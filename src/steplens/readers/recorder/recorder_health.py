"""What a recorder's file lost, in findings: records without room, a missing end, what is damaged."""

from __future__ import annotations

import os
from collections.abc import Sequence

import polars as pl

from steplens.readers.recorder.recorder_blocks import Blocks
from steplens.trace.health import (
    CALL_STACKS,
    ERROR,
    EVERYTHING,
    FLOWS,
    INFO,
    MEMORY,
    OPERATOR_CALLS,
    OPERATOR_SELF_TIMES,
    OPERATOR_TIMES,
    RUN_OPTIONS,
    STEP_TIMES,
    WARNING,
    HealthLog,
)

#: what calls that are missing would change
_OF_CALLS = (STEP_TIMES, OPERATOR_CALLS, OPERATOR_TIMES, OPERATOR_SELF_TIMES, FLOWS)
#: so many open calls are named
_NAMED = 12
#: so many frames of a stack
_NAMED_FRAMES = 6


def report_end(blocks: Blocks, log: HealthLog) -> None:
    """What the end of a file says, or that it has none."""
    if blocks.cut_bytes:
        message = f"the recording breaks off inside a block; of its last {blocks.cut_bytes} bytes only whole records were read"
        log.add("truncated_file", ERROR, 1, message, EVERYTHING)
    if blocks.totals is None:
        message = (
            "the recording has no end: its process was killed, still records, or could not write any more; "
            "what was not written yet is missing"
        )
        log.add("unended_recording", WARNING, 1, message, (*_OF_CALLS, MEMORY, RUN_OPTIONS))
        return
    totals = {name: int(blocks.totals[name][0]) for name in blocks.totals.dtype.names or ()}
    if totals["error_number"]:
        reason = os.strerror(totals["error_number"]) if 0 < totals["error_number"] < 1 << 31 else "an unknown error"
        log.add("recording_stopped_early", ERROR, 1, f"writing the recording ended early: {reason}", EVERYTHING)
    if totals["dropped_calls"]:
        message = "operator calls found no room on their way to the disk and were not recorded"
        log.add("dropped_records", WARNING, totals["dropped_calls"], message, _OF_CALLS)
    if totals["dropped_python_calls"]:
        message = "calls of Python found no room on their way to the disk, or were deeper than any, and were not recorded"
        log.add("dropped_records", WARNING, totals["dropped_python_calls"], message, CALL_STACKS)
    if totals["dropped_python_samples"]:
        message = "samples of Python stacks found no room on their way to the disk, or could not be taken"
        log.add("dropped_records", WARNING, totals["dropped_python_samples"], message, CALL_STACKS)
    if totals["stackless_python_samples"]:
        message = "samples have no Python stack: there were too many different ones; what they would have been of looks shorter"
        log.add("dropped_records", WARNING, totals["stackless_python_samples"], message, CALL_STACKS)
    if totals["cut_python_samples"]:
        message = "sampled Python stacks were deeper than 512 frames, and are recorded without their outermost ones"
        log.add("dropped_records", INFO, totals["cut_python_samples"], message, CALL_STACKS)
    if totals["dropped_memory_events"]:
        message = "allocator events found no room on their way to the disk and were not recorded"
        log.add("dropped_records", WARNING, totals["dropped_memory_events"], message, MEMORY)
    if totals["refused_python_threads"]:
        message = "threads were left to a profiler of the program (sys.setprofile): their calls of Python are not recorded"
        log.add("missing_python_calls", WARNING, totals["refused_python_threads"], message, CALL_STACKS)
    if totals["lost_python_threads"]:
        message = "threads were taken by a profiler of the program (sys.setprofile): their calls of Python end there"
        log.add("missing_python_calls", WARNING, totals["lost_python_threads"], message, CALL_STACKS)
    for name, there, words, unsafe in (
        ("calls", len(blocks.calls), "operator calls", _OF_CALLS),
        ("memory_events", len(blocks.memory), "allocator events", (MEMORY,)),
        ("python_calls", len(blocks.python_calls), "calls of Python", (CALL_STACKS,)),
        ("python_samples", len(blocks.python_samples), "samples of Python stacks", (CALL_STACKS,)),
    ):
        if totals[name] > there:
            message = f"{words} that the recording counts at its end are not in it"
            log.add("damaged_records", ERROR, totals[name] - there, message, unsafe)


def report_open_calls(names: Sequence[str], log: HealthLog, *, is_ended: bool) -> None:
    """The calls that had not ended when the recording did, outermost first.

    Args:
        names: of the calls.
        log: takes the finding.
        is_ended: whether somebody ended the recording, as inside of a user's range; else the process was killed.
    """
    if names:
        more = f" and {len(names) - _NAMED} more" if len(names) > _NAMED else ""
        message = f"calls had not ended when the recording did, and end with it here: {', '.join(names[:_NAMED])}{more}"
        log.add("open_calls", INFO if is_ended else WARNING, len(names), message, (OPERATOR_TIMES, OPERATOR_SELF_TIMES))


def report_open_python(frames: pl.DataFrame, log: HealthLog) -> None:
    """What of Python a process was in when it was killed, thread by thread.

    Args:
        frames: rows of ``python`` that had not ended.
        log: takes the finding.
    """
    threads = frames.group_by("tid", maintain_order=True).agg(pl.col("name").cast(pl.String).reverse())
    stacks = [
        f"thread {tid}: {' in '.join(names[:_NAMED_FRAMES])}{' in others' if len(names) > _NAMED_FRAMES else ''}"
        for tid, names in threads.rows()
    ]
    if stacks:
        more = f" and {len(stacks) - _NAMED} threads more" if len(stacks) > _NAMED else ""
        message = (
            f"calls of Python had not ended when the recording did, and end with it here: {'; '.join(stacks[:_NAMED])}{more}"
        )
        log.add("open_calls", WARNING, frames.height, message, CALL_STACKS)


def report_damage(damaged: int, unnamed: int, unknown_frees: int, log: HealthLog) -> None:
    """What was left out, or has no name.

    Args:
        damaged: blocks, records, texts and clock pairs that are impossible.
        unnamed: calls whose name and inputs cannot be told.
        unknown_frees: releases of memory that was allocated before recording began.
        log: takes the findings.
    """
    if damaged:
        message = "blocks, records or texts of the recording are damaged and were left out"
        log.add("damaged_records", ERROR, damaged, message, EVERYTHING)
    if unnamed:
        message = "operator calls have no name in the recording: their times are right, what they were given is unknown"
        log.add("unnamed_calls", WARNING, unnamed, message, OPERATOR_CALLS)
    if unknown_frees:
        message = "releases of memory that was allocated before recording began were left out: nothing tells its size"
        log.add("unknown_memory_events", INFO, unknown_frees, message)
