"""The tables of a report: as many rows as it may have, and how many there are."""

from __future__ import annotations

from typing import Any

from steplens.report.ask import Asker
from steplens.report.parts import Parts
from steplens.report.window import Window
from steplens.server.runs import Shown
from steplens.server.tables.query import MOST_ROWS
from steplens.trace.columns import SPANS

#: moments by which rows belong to a window, the first one that a table has
_STARTS = tuple(dict.fromkeys(("start_ns", *(start for start, _ in SPANS.values()))))


def listed(asker: Asker, shown: Shown) -> list[dict[str, Any]]:
    """Every table of a run, as the server lists them."""
    found: list[dict[str, Any]] = asker.get(f"runs/{shown.id}/tables").json
    return found


def collect(asker: Asker, shown: Shown, table: dict[str, Any], window: Window, rows: int, parts: Parts) -> None:
    """Put one of the tables of ``listed`` into a report.

    Of a table with more than ``rows`` rows the report has those that begin in the window, or where there are none the first ones
    in the table's own order. A table of several traces is in the report once; per trace where it was cut.
    """
    whole = _collect(asker, shown, table["name"], None, window, rows, parts)
    if len(shown.run.traces) > 1 and table["per_trace"] and not whole:
        for trace in range(len(shown.run.traces)):
            _collect(asker, shown, table["name"], trace, window, rows, parts)


def _collect(asker: Asker, shown: Shown, name: str, trace: int | None, window: Window, rows: int, parts: Parts) -> bool:
    """One table, of one trace or of all; whether all of its rows are there."""
    path = f"runs/{shown.id}/tables/{name}"
    first = asker.post(path, {"trace": trace, "limit": min(MOST_ROWS, rows)})
    if not first.ok:
        # what is wrong with it is said in its place
        parts.add(_part(shown, name, trace), {"status": first.status, "problem": first.json})
        return True
    page = first.json
    where, kept, known = [], "all", page["rows"]
    if page["total"] > rows:
        kept = "first"
        when = next((one for one in _STARTS if any(column["name"] == one for column in page["columns"])), None)
        if when is not None:
            inside = [{"column": when, "at_least": window.start_ns, "at_most": window.end_ns}]
            if asker.post(path, {"trace": trace, "limit": 1, "where": inside}).json["matching"]:
                where, kept, known = inside, "window", None
    found = _rows(asker, path, trace, where, rows, known)
    body = {**page, "rows": found, "kept": kept}
    if not parts.add(_part(shown, name, trace), body):
        parts.lost("table", shown.id, trace, name, 0, page["total"], "size")
        return True
    if len(found) < page["total"]:
        parts.lost("table", shown.id, trace, name, len(found), page["total"], "rows")
    return len(found) == int(page["total"])


def _rows(
    asker: Asker, path: str, trace: int | None, where: list[dict[str, Any]], most: int, first: list[Any] | None
) -> list[Any]:
    """Up to ``most`` rows that match; ``first``: the first page of them, where it is known."""
    found: list[Any] = []
    page = first
    while len(found) < most:
        limit = min(MOST_ROWS, most - len(found))
        if page is None:
            page = asker.post(path, {"trace": trace, "where": where, "offset": len(found), "limit": limit}).json["rows"]
        found += page
        if len(page) < limit:
            break
        page = None
    return found


def _part(shown: Shown, name: str, trace: int | None) -> str:
    return f"table/{shown.id}/{name}/{'all' if trace is None else trace}"
