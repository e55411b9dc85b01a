"""The tables of a report: as many rows as it may have, and how many there are."""

from __future__ import annotations

from typing import Any

from steplens.report.ask import InProcessClient
from steplens.report.parts import Parts
from steplens.report.window import Window
from steplens.server.runs import OpenedRun
from steplens.server.tables.query import MOST_ROWS
from steplens.trace.columns import SPANS

#: moments by which rows belong to a window, the first one that a table has
_STARTS = tuple(dict.fromkeys(("start_ns", *(start for start, _ in SPANS.values()))))


def collect_table(
    asker: InProcessClient, shown: OpenedRun, table: dict[str, Any], window: Window, rows: int, parts: Parts
) -> None:
    """Put a table into a report, one of those that the server lists.

    Of a table with more than ``rows`` rows the report has those that begin in the window, or where there are none the first ones
    in the table's own order. A table of several traces is in the report once; per trace where it was cut.
    """
    is_whole = _collect_trace_rows(asker, shown, table["name"], None, window, rows, parts)
    if len(shown.run.traces) > 1 and table["per_trace"] and not is_whole:
        for trace in range(len(shown.run.traces)):
            _collect_trace_rows(asker, shown, table["name"], trace, window, rows, parts)


def _collect_trace_rows(
    asker: InProcessClient, shown: OpenedRun, name: str, trace: int | None, window: Window, rows: int, parts: Parts
) -> bool:
    """One table, of one trace or of all; whether all of its rows are there."""
    path = f"runs/{shown.id}/tables/{name}"
    first = asker.post(path, {"trace": trace, "limit": min(MOST_ROWS, rows)})
    if not first.ok:
        # what is wrong with it is said in its place
        parts.add(_part_name(shown, name, trace), {"status": first.status, "problem": first.json})
        return True
    page = first.json
    where, extent, total_rows = [], "all", page["rows"]
    if page["total"] > rows:
        extent = "first"
        when = next(
            (column_name for column_name in _STARTS if any(column["name"] == column_name for column in page["columns"])), None
        )
        if when is not None:
            in_window = [{"column": when, "at_least": window.start_ns, "at_most": window.end_ns}]
            if asker.post(path, {"trace": trace, "limit": 1, "where": in_window}).json["matching"]:
                where, extent, total_rows = in_window, "window", None
    table_rows = _read_rows(asker, path, trace, where, rows, total_rows)
    body = {**page, "rows": table_rows, "kept": extent}
    if not parts.add(_part_name(shown, name, trace), body):
        parts.lost("table", shown.id, trace, name, 0, page["total"], "size")
        return True
    if len(table_rows) < page["total"]:
        parts.lost("table", shown.id, trace, name, len(table_rows), page["total"], "rows")
    return len(table_rows) == int(page["total"])


def _read_rows(
    asker: InProcessClient, path: str, trace: int | None, where: list[dict[str, Any]], most: int, first: list[Any] | None
) -> list[Any]:
    """Up to ``most`` rows that match; ``first``: the first page of them, where it is known."""
    rows_read: list[Any] = []
    page = first
    while len(rows_read) < most:
        limit = min(MOST_ROWS, most - len(rows_read))
        if page is None:
            page = asker.post(path, {"trace": trace, "where": where, "offset": len(rows_read), "limit": limit}).json["rows"]
        rows_read += page
        if len(page) < limit:
            break
        page = None
    return rows_read


def _part_name(shown: OpenedRun, name: str, trace: int | None) -> str:
    return f"table/{shown.id}/{name}/{'all' if trace is None else trace}"
