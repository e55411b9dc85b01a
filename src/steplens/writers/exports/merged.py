"""Several traces, such as the ranks of a job, as one timeline for Perfetto and chrome://tracing."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path

from steplens.common.errors import InputError
from steplens.trace.window import trace_window
from steplens.writers.common.output import NothingToWriteError, Output, first_event_ns
from steplens.writers.exports import result
from steplens.writers.exports.formats import chrome_base_ns
from steplens.writers.exports.subject import Subject
from steplens.writers.exports.target import new_file
from steplens.writers.trace_view import trace_view


@dataclass(frozen=True)
class Member:
    """One of the traces.

    Attributes:
        name: what its processes are called by, such as "Rank 3".
        subject: the trace and where it comes from.
        origin_ns: Unix ns of the moment that is the same for all members. Traces on one clock have one origin; that of another
            clock is where it is to be laid over the others.
    """

    name: str
    subject: Subject
    origin_ns: int


def write_merged(members: Sequence[Member], target: Path, within_ns: tuple[int, int] | None = None) -> None:
    """Write the events of all members to one file; one trace is in memory at a time.

    Args:
        members: at least one, in the order in which they are to be shown.
        target: the file; compressed when its name ends in ``.gz``.
        within_ns: only the events that overlap ``[start, end)``, whole; ns from the origins. None for all.

    Raises:
        InputError: none has events there, or the file cannot be written.
    """
    base_ns, base_origin_ns = _earliest_time_base(members)

    def member_outputs() -> Iterator[tuple[str, Output]]:
        for member in members:
            trace = member.subject.trace
            output = Output(trace, base_ns + member.origin_ns - base_origin_ns, result.recorded_level(trace))
            if within_ns is not None:
                start_ns, end_ns = (member.origin_ns + moment for moment in within_ns)
                output = replace(output, trace=trace_window(trace, start_ns, end_ns))
            yield member.name, output

    try:
        with new_file(target, compressed=target.suffix == ".gz") as handle:
            trace_view.write_several(member_outputs(), base_ns, handle)
    except NothingToWriteError as nothing:
        raise InputError(members[0].subject.path, f"cannot be exported: {nothing}") from nothing


def _earliest_time_base(members: Sequence[Member]) -> tuple[int, int]:
    """The time base and the origin of the member that begins first, so that no time of the others is before the base."""
    begins = {}
    for place, member in enumerate(members):
        first = first_event_ns(member.subject.trace)
        if first is not None:
            begins[place] = first - member.origin_ns
    member = members[min(begins, key=lambda place: begins[place], default=0)]
    return chrome_base_ns(member.subject), member.origin_ns
