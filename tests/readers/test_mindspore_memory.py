"""The plan of memory that MindSpore's compiler leaves: written by hand as MindSpore writes it, read, and held against a loop."""

from __future__ import annotations

import random
from dataclasses import dataclass, field
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

import steplens
from steplens.analysis.memory.memory_graphs import graph_curve, graph_tensors, memory_graphs, tensors_at
from steplens.readers.mindspore.results.mindspore_memory import GRAPHS, TENSORS, read_plan
from steplens.run import Run
from steplens.trace.health import HealthLog

LIVES = ("LifeLongNone", "LifeLongGraphAll", "LifeLongGraphStart", "LifeLongGraphEnd")


def varint(value: int) -> bytes:
    value &= (1 << 64) - 1
    out = b""
    while value > 0x7F:
        out += bytes([value & 0x7F | 0x80])
        value >>= 7
    return out + bytes([value])


def number(place: int, value: int) -> bytes:
    return varint(place << 3) + varint(value)


def content(place: int, value: bytes | str) -> bytes:
    data = value.encode() if isinstance(value, str) else value
    return varint(place << 3 | 2) + varint(len(data)) + data


@dataclass
class Planned:
    """A graph: nodes with what they put out, and tensors as (id, size, start, end, life)."""

    id: int
    static: int
    nodes: list[tuple[str, list[int]]]
    tensors: list[tuple[int, int, int, int, str]] = field(default_factory=list)

    def message(self) -> bytes:
        parts = [number(1, self.id), number(2, self.static)]
        for place, (name, outputs) in enumerate(self.nodes):
            packed = content(4, b"".join(map(varint, outputs)))
            parts.append(content(3, content(1, name) + number(2, place) + packed))
        for id, size, start, end, life in self.tensors:
            parts.append(
                content(
                    4,
                    number(1, id) + number(2, size) + content(3, "Common") + number(4, start) + number(5, end) + content(6, life),
                )
            )
        names = [name for name, _ in self.nodes]
        return b"".join([*parts, content(5, names[1] if len(names) > 1 else ""), content(6, names[-1] if names else "")])

    def in_use(self) -> list[int]:
        """Bytes at every node, by looking at every tensor there."""
        count = len(self.nodes)
        used = []
        for node in range(count):
            alive = 0
            for _, size, start, end, life in self.tensors:
                first = 0 if life in LIVES[1:3] else start
                last = count - 1 if life in (LIVES[1], LIVES[3]) else end
                alive += size if first <= node <= last else 0
            used.append(self.static + alive)
        return used


def random_graph(id: int, count: int, seed: int) -> Planned:
    draw = random.Random(seed)
    nodes = [(f"Default/net/Op{place}-op{place}", [place]) for place in range(count)]
    tensors = []
    for tensor in range(count):
        start = draw.randrange(count)
        tensors.append((tensor, draw.randrange(1, 1 << 33), start, draw.randrange(start, count), draw.choice(LIVES)))
    return Planned(id, draw.randrange(1 << 33), nodes, tensors)


def run_of(folder: Path, graphs: list[Planned], total: int = 32 << 30, cut: int | None = None) -> Run:
    directory = folder / "profiler"
    directory.mkdir(parents=True, exist_ok=True)
    data = b"".join(content(1, graph.message()) for graph in graphs) + number(2, total)
    (directory / "memory_usage_0.pb").write_bytes(data[:cut])
    return steplens.open(folder)


def test_every_graph_is_read_and_its_use_is_that_of_a_loop(tmp_path: Path) -> None:
    graphs = [random_graph(3, 40, 1), random_graph(8, 7, 2)]
    trace = run_of(tmp_path, graphs).trace()
    table = memory_graphs(trace)
    assert table["graph"].to_list() == [3, 8] and set(table["capacity_bytes"]) == {32 << 30}
    for graph, row in zip(graphs, table.iter_rows(named=True), strict=True):
        used = graph.in_use()
        assert graph_curve(trace, graph.id).tolist() == used
        assert (row["peak_bytes"], row["peak_node"]) == (max(used), used.index(max(used)))
        assert (row["nodes"], row["tensors"], row["static_bytes"]) == (len(used), len(graph.tensors), graph.static)
        assert (row["forward_node"], row["backward_node"]) == (1, len(used) - 1)
        for node in (0, len(used) // 2, len(used) - 1):
            alive = tensors_at(graph_tensors(trace, graph.id), node)
            assert alive["bytes"].sum() + graph.static == used[node]
            assert alive["bytes"].to_list() == sorted(alive["bytes"], reverse=True)
            assert all(owner.endswith(f"op{tensor}") for tensor, owner in alive.select("tensor", "owner").iter_rows())
    with pytest.raises(ValueError, match="no planned graph 4; there is 3, 8"):
        graph_curve(trace, 4)


def test_a_run_without_a_plan_has_no_graphs() -> None:
    from ..writers.builder import build

    assert memory_graphs(build()).is_empty()
    with pytest.raises(ValueError, match="no planned graph 0; there is none"):
        graph_tensors(build(), 0)


def test_a_file_that_is_cut_off_keeps_what_comes_before(tmp_path: Path) -> None:
    first, second = random_graph(0, 5, 3), random_graph(1, 5, 4)
    run = run_of(tmp_path, [first, second], cut=len(content(1, first.message())) + 20)
    assert memory_graphs(run.trace())["graph"].to_list() == [0]
    assert graph_curve(run.trace(), 0).tolist() == first.in_use()
    assert "memory_usage_0.pb is not whole: it is cut off" in " ".join(run.health()["message"])


@given(st.binary(max_size=300))
def test_no_bytes_make_it_fail(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    path = tmp_path_factory.getbasetemp() / "any.pb"
    path.write_bytes(data)
    found = read_plan(path, HealthLog())
    assert set(found) >= {GRAPHS, TENSORS}


def test_lives_outside_the_graph_count_inside_it(tmp_path: Path) -> None:
    nodes = [("a", [0]), ("b", []), ("c", [])]
    lives = [(0, 10, 1, 99, LIVES[0]), (1, 5, 7, 9, LIVES[0]), (2, 3, 2, 1, LIVES[0]), (3, 0, 0, 2, LIVES[1])]
    trace = run_of(tmp_path, [Planned(0, 100, nodes, lives)]).trace()
    # the second begins behind the graph, the third ends before it begins, the last is empty
    assert graph_curve(trace, 0).tolist() == [100, 110, 110]
    assert tensors_at(graph_tensors(trace, 0), 2)["tensor"].to_list() == [0]
