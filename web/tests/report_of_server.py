"""Writes the parts of a report, and what the server answers about the same run, for the test of the embedded answers."""

from __future__ import annotations

import base64
import json
import random
import sys
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

from steplens.report.ask import InProcessClient
from steplens.report.collecting import Collector
from steplens.report.parts import Parts
from steplens.report.window import Window
from steplens.server.runs import RunLibrary
from steplens.server.search import PER_KIND

sys.path.insert(0, str(Path(__file__).parents[2] / "tests"))
sys.path.insert(0, str(Path(__file__).parents[2] / "tests" / "web"))
import hostile
import strategy_files

from readers.test_mindspore_memory import random_graph, run_of

NAMES = (
    "operators", "operators_by_shape", "kernels", "kernels_by_category", "api_calls", "memory", "allocations",
    "steps", "recorded_ops", "recorded_python", "recorded_kernels", "recorded_api", "recorded_memory", "recorded_meta",
    "operators_by_module",
)  # fmt: skip


def conditions(page: dict[str, Any], chance: random.Random) -> dict[str, Any]:
    """A random question about a table."""
    column = chance.choice(page["columns"])
    place = page["columns"].index(column)
    values = [row[place] for row in page["rows"] if row[place] is not None]
    where: list[dict[str, Any]] = []
    if values and column["type"] in ("integer", "number") and not any(isinstance(value, str) for value in values):
        low, high = sorted((chance.choice(values), chance.choice(values)))
        where = [{"column": column["name"], "at_least": low, "at_most": high + chance.choice((0, 0.5))}]
    elif values and column["type"] == "text":
        text = str(chance.choice(values))
        where = [
            chance.choice(
                ({"column": column["name"], "contains": text[1:6].swapcase()}, {"column": column["name"], "one_of": [text]})
            )
        ]
    elif column["type"] != "list":
        where = [{"column": column["name"], "missing": chance.random() < 0.5}]
    order = chance.choice(page["columns"])
    sort = [{"column": order["name"], "descending": chance.random() < 0.5}]
    return {"where": where, "sort": sort, "offset": chance.choice((0, 3)), "limit": chance.choice((5, 1000))}


def graphs_of_stages(ask: Callable[..., None], asker: InProcessClient) -> None:
    """Questions about the strategy: graphs with scopes that are open, every operator, and searches."""
    scopes: list[list[str]] = [[], ["Default"], ["Default", "Default/network"], ["Gradients"], ["Default/network"], ["nothing"]]
    for stage in (1, 2):
        for most in (2, 300):
            for expanded in scopes:
                ask("strategy/graph", run=1, stage=stage, expanded=expanded, most=most)
        for text in ("matmul", "OP1", strategy_files.HOSTILE[:5], "no such name"):
            ask("strategy/find", run=1, stage=stage, text=text, limit=2)
        found = asker.get("runs/1/strategy/find", {"stage": stage, "text": "op", "limit": 200}).json["hits"]
        for one in found:
            ask("strategy/operator", run=1, stage=stage, node=one["node"])


def main() -> None:
    """Write one JSON document: the parts, questions with their answers, and tiles."""
    hostile.LONG = "long" * 100
    cases: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder:
        planned = Path(folder) / "planned"
        planned.mkdir()
        run_of(planned, [random_graph(0, 30, 5), random_graph(4, 90, 6)])
        job = strategy_files.write_strategy(Path(folder) / "job")
        library = RunLibrary([hostile.trace_file(Path(folder) / "run"), job, planned])
        shown = library.runs[0]
        for one in library.runs:
            one.open()
        parts = Parts(1 << 40)
        with InProcessClient(library) as asker:
            low, high = shown.timeline(0).timeline.bounds
            collector = Collector(library, asker, [Window(low, high + 1)] * len(library.runs), 100_000)
            for job in collector.jobs():
                if job.kind in ("plans", "strategy", "shapes") or (job.run == shown.id and job.kind != "comparison"):
                    collector.do(job, parts)
            parts.add("report", {"per_kind": PER_KIND})
            chance = random.Random(7)

            def ask(path: str, run: int = 0, **query: Any) -> None:
                answer = asker.get(f"runs/{run}/{path}", query)
                assert answer.ok, (path, query, answer.body[:300])
                cases.append({"path": f"runs/{run}/{path}", "query": query, "body": None, "answer": answer.json})

            for name in NAMES:
                page = asker.post(f"runs/0/tables/{name}", {"limit": 1000}).json
                for _ in range(12):
                    body = conditions(page, chance)
                    answer = asker.post(f"runs/0/tables/{name}", body)
                    assert answer.ok, (name, body, answer.body[:300])
                    cases.append({"path": f"runs/0/tables/{name}", "query": {}, "body": body, "answer": answer.json})
            for text in ("image", "SCRIPT", "nn", "memory", "no such name", "{", "名前"):
                ask("search", text=text)
                ask("timeline/occurrences", text=text, whole=False, by="duration", limit=50)
                ask("timeline/occurrences", text=text, whole=False, by="start", limit=50, offset=2)
                for direction in ("next", "previous"):
                    for at in (low, (low + high) // 2, high):
                        ask("timeline/search", text=text, direction=direction, from_ns=at)
            for _ in range(10):
                start, end = sorted((chance.randint(low, high), chance.randint(low, high)))
                ask("timeline/selection", start_ns=start, end_ns=end, limit=100)
                ask("timeline/selection", start_ns=start, end_ns=end, limit=100, lanes="0,1")
            events = len(shown.timeline(0).timeline.start)
            for event in range(0, events, 13):
                ask(f"timeline/events/{event}", trace=0)
            for level in ("operator", "kernel"):
                known = [one["type"] for one in asker.get("runs/0/shapes", {"level": level}).json["types"]]
                for _ in range(6):
                    types = chance.sample(known, 2)
                    ask("shapes/series", types=types, trace=0, level=level)
                    for name in ("", types[0][2:6].swapcase()):
                        ask("shapes/runs", types=types, trace=0, level=level, name=name)
                ask("shapes/runs", types=known[:20], trace=0, level=level, points=7)
            graphs_of_stages(ask, asker)
            for graph in (0, 4):
                for node in (0, 1, 17, 99):
                    ask(f"memory/graphs/{graph}/tensors", run=2, trace=0, node=node)
            ask("overview")
            ask("steps", trace=0)
            tiles = []
            for _ in range(20):
                start, end = sorted((chance.randint(low, high), chance.randint(low, high)))
                query = {"start_ns": start, "end_ns": end + 1, "pixels": max(end - start, 1) if end - start < 20_000 else 20_000}
                tiles.append({"query": query, "answer": asker.get("runs/0/timeline/tile", {**query, "format": "json"}).json})
    packed = {name: base64.b64encode(piece).decode() for name, piece in parts.pieces.items()}
    print(json.dumps({"parts": packed, "cases": cases, "tiles": tiles, "events": events, "bounds": [low, high]}))


main()
