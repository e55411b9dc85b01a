"""Which names the events of a timeline have: what a search there finds, without laying it out."""

from __future__ import annotations

import polars as pl

from steplens.timeline.sources import RECORDED
from steplens.trace.trace import Trace

#: between names, of which none holds one
_BREAK = "\n"


def has_event(trace: Trace, text: str) -> bool:
    """Whether an event of the timeline has ``text`` in its name, in either case of letters, as the search there looks for it."""
    return bool(text) and text.casefold() in trace.once(_folded_names)


def _folded_names(trace: Trace) -> str:
    """The different names of all recorded events, one behind the other."""
    names: set[str] = set()
    for source in RECORDED:
        rows = source.events(trace)
        if rows is not None:
            names.update(rows.select(pl.col("name").unique().cast(pl.String)).collect()["name"].drop_nulls().to_list())
    return _BREAK.join(name.casefold() for name in sorted(names))
