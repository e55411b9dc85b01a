"""One box that finds everything: operators, modules, device tasks, runtime calls, findings and tables."""

from __future__ import annotations

from typing import Annotated

import polars as pl
from fastapi import Query
from pydantic import BaseModel

from steplens.analysis.device.api import FRAMEWORK
from steplens.analysis.device.kernels import kernel_statistics
from steplens.analysis.tools.parallel import layout
from steplens.server import advice
from steplens.server.http.page_store import is_many
from steplens.server.http.routing import create_router
from steplens.server.requests import Chosen
from steplens.server.runs import OpenedRun
from steplens.server.tables import tables
from steplens.trace.building.devices import cpu_is_device
from steplens.trace.trace import Trace

router = create_router("/api/runs/{run}", "search")

#: table -> its column of counts, and that of the time by which hits are ordered
_SEARCHED = {
    "operators": ("calls", "total_ns"),
    "operators_by_module": ("calls", "total_ns"),
    "kernels": ("count", "total_ns"),
    "api_calls": ("count", "total_ns"),
}
#: of a job of many ranks names are those of one rank of so many stages
_MOST_STAGES = 16
#: hits of one kind that are listed
PER_KIND = 20

FINDING, TABLE = "finding", "table"


class Hit(BaseModel):
    """Something whose name holds the text.

    Attributes:
        kind: "operators", "operators_by_module", "kernels", "api_calls" (names of tables), "finding" or "table".
        name: of it; of a finding its id, of a table its address.
        title: what to show.
        count: how often it occurs; 0 for findings and tables, and of many ranks, of which some are looked through.
        total_ns: time that it takes; 0 where ``count`` is.
    """

    kind: str
    name: str
    title: str
    count: int = 0
    total_ns: int = 0


class Hits(BaseModel):
    """What was found: the best of each kind, and how many there are of each."""

    hits: list[Hit]
    matching: dict[str, int]


class Entry(Hit):
    """Something that can be found: ``words`` is what is looked through, in small letters."""

    words: str


@router.get("/search")
def search(chosen: Chosen, text: Annotated[str, Query(min_length=1, max_length=1000)]) -> Hits:
    """Everything whose name holds ``text``, in either case of letters."""
    folded = text.lower()
    hits: list[Hit] = []
    matching: dict[str, int] = {}
    for kind, kind_entries in chosen.answer(("search",), lambda: searchable_entries(chosen), _size_of_entries).items():
        hits_of_kind = [entry for entry in kind_entries if folded in entry.words]
        matching[kind] = len(hits_of_kind)
        hits += [Hit(**entry.model_dump(exclude={"words"})) for entry in hits_of_kind[:PER_KIND]]
    return Hits(hits=hits, matching=matching)


def searchable_entries(chosen: OpenedRun) -> dict[str, list[Entry]]:
    """Everything that can be found, by kind, in the order in which it is shown."""
    by_kind: dict[str, list[Entry]] = {}
    for kind, (count, total) in _SEARCHED.items():
        name = pl.col("name").cast(pl.String)
        rows = _rows_counted_once(chosen, kind).filter(name.is_not_null())
        added = rows.group_by(name).agg(pl.col(count).sum(), pl.col(total).sum()).collect()
        by_kind[kind] = [
            Entry(kind=kind, name=text, title=text, count=calls, total_ns=time, words=text.lower())
            for text, calls, time in added.sort([total, "name"], descending=[True, False]).iter_rows()
        ]
    by_kind[FINDING] = [
        Entry(
            kind=FINDING,
            name=item.id,
            title=item.texts["en"].title,
            words="\n".join(
                f"{item.id} {finding_text.title} {finding_text.cause}".lower() for finding_text in item.texts.values()
            ),
        )
        for item in map(advice.finding_shown, advice.advise_on_run(chosen).findings)
    ]
    by_kind[TABLE] = [
        Entry(kind=TABLE, name=item.name, title=item.title, words=" ".join((item.name, *item.aliases, item.title)).lower())
        for item in tables.every_table().values()
    ]
    return by_kind


def _rows_counted_once(chosen: OpenedRun, kind: str) -> pl.LazyFrame:
    """Rows of a table without those that tell of operator calls a second time: the CPU's tasks, the framework's own layer."""
    table = tables.find_table(kind)
    if kind == "kernels" and not is_many(chosen.run) and any(cpu_is_device(trace) for trace in chosen.run.traces):
        with_device = [number for number, trace in enumerate(chosen.run.traces) if not cpu_is_device(trace)]
        empty = kernel_statistics(Trace(chosen.run.traces[0].source, {})).lazy()
        return pl.concat([empty, *(tables.table_rows(chosen, table, number) for number in with_device)], how="diagonal_relaxed")
    rows = tables.table_rows(chosen, table, None) if not is_many(chosen.run) else _rows_of_some(chosen, table)
    return rows.filter(pl.col("layer").ne_missing(FRAMEWORK)) if kind == "api_calls" else rows


def _rows_of_some(chosen: OpenedRun, table: tables.Table) -> pl.LazyFrame:
    """The rows of the first rank of each stage, none counted: ranks of a stage run one program, and nobody reads a thousand."""
    job = layout(chosen.run.traces)
    first = {job.stage_of(trace.rank): number for number, trace in reversed(list(enumerate(chosen.run.traces)))}
    frames = [tables.table_rows(chosen, table, number) for number in sorted(first.values())[:_MOST_STAGES]]
    count, total = _SEARCHED[table.name]
    return pl.concat(frames, how="diagonal_relaxed").with_columns(pl.col(count, total) * 0)


def _size_of_entries(found: dict[str, list[Entry]]) -> int:
    return sum(512 + 3 * len(entry.words) for kind_entries in found.values() for entry in kind_entries)
