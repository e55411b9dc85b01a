"""A selection as a flame: the calls below one another, or the modules or Python stacks that they are of."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

import numpy as np
import polars as pl

from steplens.server.timeline import nested
from steplens.server.timeline.models import Flame, FlameNode
from steplens.timeline.layout import Lane, Timeline
from steplens.timeline.sources import DEVICE
from steplens.trace.building.devices import cpu_is_device
from steplens.trace.trace import Trace

NAME, MODULE, STACK = "name", "module", "stack"
#: between the frames of a stack, the innermost first
_BETWEEN_FRAMES = ";"
_BETWEEN_MODULES = "."


@dataclass
class _Tree:
    """Nodes with what is counted of each; see ``FlameNode``."""

    parent: list[int] = field(default_factory=list)
    name: list[str] = field(default_factory=list)
    count: list[int] = field(default_factory=list)
    total_ns: list[int] = field(default_factory=list)
    self_ns: list[int] = field(default_factory=list)
    places: dict[tuple[int, str], int] = field(default_factory=dict)

    def find_node(self, parent: int, name: str) -> int:
        """The node of a name below another one, made where there is none."""
        place = self.places.setdefault((parent, name), len(self.parent))
        if place == len(self.parent):
            self.parent.append(parent)
            self.name.append(name)
            for column in (self.count, self.total_ns, self.self_ns):
                column.append(0)
        return place

    def add_counts(self, place: int, count: int, total_ns: int, self_ns: int) -> None:
        self.count[place] += count
        self.total_ns[place] += total_ns
        self.self_ns[place] += self_ns

    def add_along(self, path: Iterable[str], count: int, self_ns: int, top: int) -> None:
        """Count at the end of a path, and its time in all nodes of it."""
        place = top
        for name in path:
            place = self.find_node(place, name)
            self.total_ns[place] += self_ns
        self.add_counts(place, count, 0, self_ns)


def build_flame(
    trace: Trace, timeline: Timeline, lanes: Sequence[Lane], start_ns: int, end_ns: int, by: str, limit: int
) -> Flame:
    """What ran on some lanes in a window, as a tree; times are the parts of the events inside the window.

    By name a box is a call below its callers. By module or stack the self times of the calls (of device tasks: how long they
    run) are added up along the module, or the Python frames from the outermost one on, of the operator that they are or that
    launched them, with their names at the end. Several lanes are boxes of their own.

    Args:
        trace: the tables.
        timeline: of the trace.
        lanes: of the timeline.
        start_ns: from the origin.
        end_ns: from the origin.
        by: NAME, MODULE or STACK.
        limit: boxes to answer with, the largest.
    """
    tree = _Tree()
    for lane in lanes:
        top = tree.find_node(-1, lane.label) if len(lanes) > 1 else -1
        before = len(tree.parent)
        rows = nested.nested_rows(timeline, lane, start_ns, end_ns)
        total = _add_calls(tree, timeline, rows, top) if by == NAME else _add_origins(tree, trace, timeline, lane, rows, top, by)
        if top >= 0:
            tree.total_ns[top] += total
            if len(tree.parent) == before:
                # nothing of this lane lies in the window
                del tree.places[-1, lane.label]
                for column in (tree.parent, tree.name, tree.count, tree.total_ns, tree.self_ns):
                    column.pop()
    return _as_answer(tree, by, limit, [NAME, *(column for column in (MODULE, STACK) if _is_recorded(trace, column))])


def _add_calls(tree: _Tree, timeline: Timeline, rows: Iterable[nested.NestedRow], top: int) -> int:
    """Add the calls of a lane below their callers; the time of the outermost ones."""
    outermost = 0
    nodes_above = np.empty(0, dtype=np.int64)
    names = len(timeline.names)
    for row in rows:
        parent = np.where(row.parent >= 0, nodes_above[row.parent], top) if len(nodes_above) else np.full(len(row.events), top)
        outermost += int(row.inside_ns[row.parent < 0].sum())
        key = (parent + 1) * names + timeline.name[row.events]
        distinct, which = np.unique(key, return_inverse=True)
        count = np.bincount(which, minlength=len(distinct))
        total = np.bincount(which, weights=row.inside_ns, minlength=len(distinct)).astype(np.int64)
        self_ns = np.bincount(which, weights=row.self_ns, minlength=len(distinct)).astype(np.int64)
        places = np.empty(len(distinct), dtype=np.int64)
        for number, code in enumerate(distinct.tolist()):
            places[number] = tree.find_node(code // names - 1, timeline.names[code % names])
            tree.add_counts(int(places[number]), int(count[number]), int(total[number]), int(self_ns[number]))
        nodes_above = places[which] if len(distinct) else np.empty(0, dtype=np.int64)
    return outermost


def _add_origins(
    tree: _Tree, trace: Trace, timeline: Timeline, lane: Lane, rows: Iterable[nested.NestedRow], top: int, by: str
) -> int:
    """Add the self times of the events of a lane by module or stack; all of them."""
    parts = list(rows)
    events = np.concatenate([np.empty(0, dtype=np.int64), *(row.events for row in parts)])
    frame = pl.DataFrame(
        {
            "name": timeline.name[events],
            "row": timeline.table_row[events].astype(np.int64),
            "self_ns": np.concatenate([np.empty(0, dtype=np.int64), *(row.self_ns for row in parts)]),
        }
    ).join(_find_origins(trace, lane, by), on="row", how="left")
    grouped = frame.group_by("origin", "name").agg(count=pl.len(), self_ns=pl.col("self_ns").sum()).sort("origin", "name")
    for origin, name, count, self_ns in grouped.iter_rows():
        tree.add_along([*_split_path(origin, by), timeline.names[name]], count, self_ns, top)
    return int(grouped["self_ns"].sum())


def _find_origins(trace: Trace, lane: Lane, by: str) -> pl.DataFrame:
    """Module or stack (``origin``) of the rows of the table of a lane; empty where there is none."""
    calls = trace.required("ops").select(pl.col(by).cast(pl.String).alias("origin")).with_row_index("row")
    calls = calls.with_columns(pl.col("row").cast(pl.Int64))
    if lane.source.table == "ops":
        return calls.collect()
    if lane.source.group == DEVICE and not cpu_is_device(trace):
        tasks = trace.required(lane.source.table).select("op").with_row_index("row").with_columns(pl.all().cast(pl.Int64))
        return (
            tasks.join(calls.rename({"row": "op"}), on="op", how="left", maintain_order="left").select("row", "origin").collect()
        )
    return pl.DataFrame(schema={"row": pl.Int64, "origin": pl.String})


def _split_path(origin: str | None, by: str) -> list[str]:
    if not origin:
        return []
    if by == MODULE:
        return origin.split(_BETWEEN_MODULES)
    return [frame for frame in (part.strip() for part in reversed(origin.split(_BETWEEN_FRAMES))) if frame]


def _is_recorded(trace: Trace, column: str) -> bool:
    if "ops" not in trace:
        return False
    return bool(trace.required("ops").select(pl.col(column).is_not_null().any()).collect().item())


def _as_answer(tree: _Tree, by: str, limit: int, offered: list[str]) -> Flame:
    """The largest boxes, parents before children, the largest child first."""
    total = np.array(tree.total_ns, dtype=np.int64)
    depth = np.zeros(len(total), dtype=np.int64)
    for place, parent in enumerate(tree.parent):
        # a parent is made before its children
        depth[place] = depth[parent] + 1 if parent >= 0 else 0
    largest = set(np.lexsort((depth, -total))[:limit].tolist())
    children: dict[int, list[int]] = {}
    for place in largest:
        children.setdefault(tree.parent[place], []).append(place)
    nodes: list[FlameNode] = []
    # a parent's box is as long as those of its children together, and so was kept before them
    waiting = [(place, -1) for place in sorted(children.get(-1, []), key=lambda place: (total[place], -place))]
    while waiting:
        place, parent = waiting.pop()
        number = len(nodes)
        nodes.append(
            FlameNode(
                parent=parent, name=tree.name[place], count=tree.count[place],
                total_ns=tree.total_ns[place], self_ns=tree.self_ns[place],
            )
        )  # fmt: skip
        waiting += [(child, number) for child in sorted(children.get(place, []), key=lambda child: (total[child], -child))]
    total_ns = sum(tree.total_ns[place] for place, parent in enumerate(tree.parent) if parent < 0)
    return Flame(by=by, total_ns=total_ns, nodes=nodes, left_out=len(total) - len(nodes), offered=offered)
