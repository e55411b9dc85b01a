"""A trace as a file for other tools: Perfetto, chrome://tracing, speedscope, pprof, FlameGraph."""

from __future__ import annotations

import contextlib
import shutil
import tempfile
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Annotated, Any, Literal

from fastapi import Query
from starlette.responses import FileResponse
from starlette.types import Receive, Scope, Send

from steplens.server.http.errors import Refusal
from steplens.server.http.routing import create_router
from steplens.server.requests import FAR, Chosen, Moment, TraceNumber, attachment_headers
from steplens.server.runs import OpenedRun
from steplens.trace.window import trace_window
from steplens.writers.exports.export import export
from steplens.writers.exports.merged import Member, write_merged
from steplens.writers.exports.subject import list_subjects

router = create_router("/api/runs/{run}", "download")

#: format -> how its file ends
_ENDINGS = {"chrome": ".json.gz", "kineto": ".json.gz", "speedscope": ".json.gz", "pprof": ".pb.gz", "stacks": ".txt"}

_FILE: dict[int | str, dict[str, Any]] = {
    200: {"content": {"application/octet-stream": {"schema": {"type": "string", "format": "binary"}}}}
}


#: traces whose numbers the name of a file tells
_MOST_TOLD = 8
#: numbers of traces, "0,3,4"
_NUMBERS = r"^\d{1,9}(,\d{1,9})*$"


@router.get("/download", responses=_FILE, response_class=FileResponse)
def download(
    chosen: Chosen,
    trace: TraceNumber = 0,
    traces: Annotated[
        str | None, Query(pattern=_NUMBERS, max_length=100_000, description='several traces in one file of "chrome", as "0,3,4"')
    ] = None,
    to: Literal["chrome", "kineto", "speedscope", "pprof", "stacks"] = "chrome",
    start_ns: Moment | None = None,
    end_ns: Moment | None = None,
) -> FileResponse:
    """One trace as a file: "chrome" for Perfetto and chrome://tracing; the others as ``steplens export`` writes them.

    With ``start_ns`` or ``end_ns`` it holds the events that overlap this window, whole. With ``traces`` a file of "chrome" holds
    several: the processes of each with its rank in front of their names, moments as the timeline shows them.
    """
    within = None
    if start_ns is not None or end_ns is not None:
        within = (-FAR if start_ns is None else start_ns), (FAR if end_ns is None else end_ns)
        if within[1] < within[0]:
            raise Refusal(422, "the window ends before it starts", "end_ns")
    if traces is None:
        return _answer_with_file(chosen, str(trace), to, lambda file: _write_one(chosen, trace, to, within, file))
    if to != "chrome":
        raise Refusal(422, f"{to!r} holds one trace", "traces", "Leave it out, or ask for chrome")
    numbers = sorted({int(number) for number in traces.split(",")})
    traces_text = "-".join(map(str, numbers)) if len(numbers) <= _MOST_TOLD else f"{len(numbers)}_traces"
    return _answer_with_file(chosen, traces_text, to, lambda file: _write_several(chosen, numbers, within, file))


def _write_one(chosen: OpenedRun, number: int, to: str, within: tuple[int, int] | None, file: Path) -> None:
    tables = chosen.trace(number)
    if within is not None:
        tables = trace_window(tables, chosen.origins[number] + within[0], chosen.origins[number] + within[1])
    export(tables, to, file)


def _write_several(chosen: OpenedRun, numbers: Sequence[int], within: tuple[int, int] | None, file: Path) -> None:
    members = [
        Member(_trace_name(chosen, number), list_subjects(chosen.trace(number))[0], chosen.origins[number]) for number in numbers
    ]
    write_merged(members, file, within)


def _trace_name(chosen: OpenedRun, number: int) -> str:
    """What a file calls a trace, as the pages do: by its rank, and by its number where that alone tells it."""
    rank = chosen.trace(number).rank
    if rank < 0:
        return f"Trace {number}"
    alone = sum(other_trace.rank == rank for other_trace in chosen.run.traces) == 1
    return f"Rank {rank}" if alone else f"Rank {rank} (trace {number})"


def _answer_with_file(chosen: OpenedRun, told: str, to: str, write: Callable[[Path], None]) -> FileResponse:
    folder = Path(tempfile.mkdtemp(prefix="steplens-view-"))
    with contextlib.ExitStack() as unless_answered:
        unless_answered.callback(shutil.rmtree, folder, ignore_errors=True)
        file = folder / f"trace{_ENDINGS[to]}"
        write(file)
        headers = attachment_headers(chosen, f"{told}_{to}{_ENDINGS[to]}")
        answer = _Passing(file, media_type="application/octet-stream", headers=headers)
        unless_answered.pop_all()
    return answer


class _Passing(FileResponse):
    """A file that goes with its folder once it was sent.

    A background task would not do: none runs where a range is refused, or where the receiver left.
    """

    async def __call__(self, scope: Scope, receive: Receive, send: Send) -> None:
        try:
            await super().__call__(scope, receive, send)
        finally:
            shutil.rmtree(Path(self.path).parent, ignore_errors=True)
