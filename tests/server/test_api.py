"""Every address, on a real CPU run and on the shared samples: its figures are those of the analyses."""

from __future__ import annotations

import csv
import io
import json
import socket
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import quote

import numpy as np
import polars as pl
import pytest
from rich.console import Console

import steplens
from steplens.advice import advise
from steplens.advice.compare import compare
from steplens.analysis.cluster.arrivals import arrivals, slow_rank
from steplens.analysis.data_loading.data_pipeline import bottlenecks, operations
from steplens.analysis.device.idle import idle_causes
from steplens.analysis.memory.memory import operator_memory
from steplens.analysis.memory.memory_peak import memory_peak
from steplens.analysis.operators.operators import operators
from steplens.analysis.steps.summary import summarize_steps
from steplens.analysis.steps.times import step_times
from steplens.cli.text.health_text import show_health
from steplens.run import Run
from steplens.trace.not_recorded import PARTS
from steplens.trace.schema import SCOPE_USER
from steplens.trace.trace import Trace

from .conftest import DEADLINE_S, TOKEN, Client, Start, sample

CPU, CUDA, ASCEND, MINDSPORE, CLUSTER = range(5)


@pytest.fixture(scope="module")
def paths(recorded: Path) -> list[Path]:
    return [
        recorded,
        sample("kineto", "cuda_nccl_distributed.json.gz"),
        sample("ascend_pytorch", "text_level1"),
        sample("mindspore", "profiler"),
        sample("mindspore", "cluster_propose"),
    ]


@pytest.fixture(scope="module")
def client(serve: Start, paths: list[Path]) -> Client:
    return serve(paths)


@pytest.fixture(scope="module")
def runs(paths: list[Path]) -> list[Run]:
    return [steplens.open(path) for path in paths]


def equal(got: Any, expected: Any) -> bool:
    """Equal as JSON can hold it."""
    if isinstance(expected, float):
        if not np.isfinite(expected):
            return got is None
        return got == pytest.approx(expected)
    if isinstance(expected, int) and not isinstance(expected, bool) and abs(expected) > 2**53:
        return got == str(expected)
    if isinstance(expected, (list, tuple)):
        return len(got) == len(expected) and all(map(equal, got, expected))
    return bool(got == expected)


def plain(frame: pl.DataFrame) -> pl.DataFrame:
    return frame.with_columns(pl.col(pl.Categorical).cast(pl.String))


def test_the_session_lists_what_was_asked_for(client: Client, paths: list[Path]) -> None:
    session = client.get("/api/session")
    assert [run["path"] for run in session["runs"]] == [str(path) for path in paths]
    assert session["version"] == steplens.__version__
    assert set(session["languages"]) == {"en", "zh"}
    for run in session["runs"]:
        progress = run["progress"]
        assert progress["state"] == "ready"
        assert progress["done"] == progress["total"] > 0
        assert client.get(f"/api/runs/{run['run']}")["origin_ns"] == run["origin_ns"]


def test_the_session_says_what_a_run_has_nothing_of(client: Client, runs: list[Run]) -> None:
    for told, run in zip(client.get("/api/session")["runs"], runs, strict=True):
        missing = told["not_recorded"]
        assert [part for part in PARTS if part in missing] == missing
        recorded = {name for trace in run.traces for name in trace}
        for part, table in {"steps": "steps", "python": "python", "counters": "counters"}.items():
            assert (part in missing) == (table not in recorded), (told["name"], part)
        with_stacks = any((trace.ops["stack"].null_count() < trace.ops.height) for trace in run.traces if trace.ops is not None)
        assert ("stacks" in missing) != with_stacks
        assert ("ranks" in missing) == (len({trace.rank for trace in run.traces}) == 1)


def test_more_is_awaited_of_a_folder_alone_that_changes(client: Client, paths: list[Path]) -> None:
    assert not any(told["growing"] for told in client.get("/api/session")["runs"])
    number, folder = next((number, path) for number, path in enumerate(paths) if path.is_dir())
    added = folder / "came_later.txt"
    added.touch()
    try:
        assert client.get(f"/api/runs/{number}")["growing"]
    finally:
        added.unlink()
    assert not client.get(f"/api/runs/{number}")["growing"]


@pytest.mark.parametrize("run", range(5))
def test_the_overview_repeats_the_analyses(client: Client, runs: list[Run], run: int) -> None:
    found, mine = overview_with_advice(client, run), runs[run]
    summary = summarize_steps(mine.traces)
    assert found["steps"] == found["figures"]["steps"] == summary.steps
    assert equal(found["step_ns"], summary.step_time_ns)
    for names, whole in ((summary.host, summary.host_mean_ns), (summary.device, summary.device_mean_ns)):
        assert {name: found["parts"][name] for name in names} == pytest.approx(names)
        assert not names or sum(found["parts"][name] for name in names) == pytest.approx(whole)
    assert [rank["rank"] for rank in found["ranks"]] == [trace.rank if trace.rank >= 0 else None for trace in mine.traces]
    for rank, trace in zip(found["ranks"], mine.traces, strict=True):
        alone = summarize_steps([trace])
        assert rank["steps"] == alone.steps
        assert equal(rank["step_ns"], alone.step_time_ns)
        assert rank["tables"] == {name: trace.required(name).select(pl.len()).collect().item() for name in trace}
    assert found["work"] == sorted(found["work"], key=lambda row: (-row["step_ns"], row["name"]))
    alone = found["work_trace"]
    of = mine.traces if alone is None else [mine.traces[alone]]
    for row in found["work"]:
        assert row["step_ns"] == pytest.approx(work_by_hand(of, row["name"], row["kind"])) and 0 < row["ratio"] <= 1
    assert bool(found["work"]) == any({"ops", "kernels"} & set(rank["tables"]) for rank in found["ranks"])
    assert sum(found["idle"].values()) == pytest.approx(summary.device.get("idle_ns", 0.0) if found["idle"] else 0.0)
    verdict = mine.verdict()
    if verdict.kind == "communication" and verdict.of_device:
        assert verdict.share == pytest.approx(found["parts"]["exposed_communication_ns"] / found["base_ns"])
    advice = advise(mine)
    assert found["findings"] == len(advice.findings)
    assert [one["id"] for one in found["advice"]] == [one.id for one in advice.findings[:3]]
    notes = client.get(f"/api/runs/{run}/health")
    groups = {one["group"]: one["severity"] for one in notes}
    assert found["health"] == dict(Counter(sorted(groups.values())))
    assert client.get(f"/api/runs/{run}/ranks") == found["ranks"]


def work_by_hand(traces: Sequence[Trace], name: str, kind: str) -> float:
    """Time of a name in a step: of each trace that has work the mean over its chosen steps, and their mean."""
    means = []
    for trace in traces:
        rows = []
        for table in ("kernels", "communication") if trace.has_accelerator else ("ops",):
            frame = plain(trace.required(table).collect()).filter(pl.col("start_ns").is_not_null())
            is_work = {"kernels": pl.col("kind").is_in(["compute", "copy"]), "ops": pl.col("scope").is_in([0, 1])}.get(
                table, pl.lit(True)
            )
            length = "self_ns" if table != "communication" else pl.col("end_ns") - pl.col("start_ns")
            called = "operation" if table == "communication" else "name"
            if kind.startswith("launched") and table == "kernels":
                operators = dict(trace.required("ops").select("id", pl.col("name").cast(pl.String)).collect().rows())
                frame = frame.with_columns(name=pl.col("op").replace_strict(operators, default=None, return_dtype=pl.String))
            kept = frame.filter(is_work).select(pl.col(called).alias("name"), "step", length=length, of=pl.lit(table))
            rows += kept.rows()
        steps = step_times(trace).filter("chosen")
        steps = steps.drop_nulls("device_period_ns") if trace.has_accelerator else steps
        of = {
            "launched": "kernels",
            "launched copy": "kernels",
            "compute": "kernels",
            "copy": "kernels",
            "communication": "communication",
            "operator": "ops",
        }[kind]
        if any(step in set(steps["step"]) for _, step, _, _ in rows):
            lengths = [sum(row[2] for row in rows if row[:2] == (name, step) and row[3] == of) for step in steps["step"]]
            means.append(float(np.mean(lengths)))
    return float(np.mean(means)) if means else 0.0


@pytest.mark.parametrize("run", range(5))
def test_trends_repeat_the_analyses(client: Client, runs: list[Run], run: int) -> None:
    trace = runs[run].traces[0]
    found = client.get(f"/api/runs/{run}/trends")
    steps = step_times(trace).drop_nulls("step_time_ns")
    assert [(one["step"], one["step_time_ns"], one["counted"]) for one in found["steps"]] == steps.select(
        "step", "step_time_ns", "chosen"
    ).rows()
    assert [tuple(one.values()) for one in found["idle"]] == idle_causes(trace).select("step", "cause", "idle_ns").rows()
    peaks = runs[run].memory()["peak_allocated"].drop_nulls()
    assert (found["memory"] is not None) == bool(trace.required("memory").select(pl.len()).collect().item())
    if found["memory"] is not None:
        assert found["memory"]["peak_bytes"] == max(found["memory"]["bytes"]) == peaks.max()


def overview_with_advice(client: Client, run: int) -> dict[str, Any]:
    """The first page does not wait for advice that takes long; on a busy machine it may."""
    deadline = time.monotonic() + DEADLINE_S
    while not (found := client.get(f"/api/runs/{run}/overview"))["judged"]:
        assert found["advice"] == []
        assert time.monotonic() < deadline
    return found


@pytest.mark.parametrize("run", range(5))
def test_the_steps_are_all_there_with_their_spread(client: Client, runs: list[Run], run: int) -> None:
    found = client.get(f"/api/runs/{run}/steps")
    origins = [int(rank["origin_ns"]) for rank in client.get(f"/api/runs/{run}/ranks")]
    expected = [
        {**row, **{name: row[name] - origin for name in ("start_ns", "device_start_ns") if row[name] is not None}}
        for trace, origin in zip(runs[run].traces, origins, strict=True)
        for row in step_times(trace).to_dicts()
    ]
    assert len(found["steps"]) == len(expected)
    for got, row in zip(found["steps"], expected, strict=True):
        assert {name: got[name] for name in row} == row
        assert 0 <= got["start_ns"] < 2**53
    lengths = [row["step_time_ns"] for row in expected if row["chosen"]]
    spread = found["spread"]
    assert spread["count"] == len(lengths) == sum(spread["counts"])
    if lengths:
        assert equal(spread["median_ns"], float(np.median(lengths)))
        assert equal(spread["p90_ns"], float(np.percentile(lengths, 90)))
        assert (spread["min_ns"], spread["max_ns"]) == (min(lengths), max(lengths))
    one = client.get(f"/api/runs/{run}/steps", trace=0)["steps"]
    assert [row["step"] for row in one] == step_times(runs[run].traces[0])["step"].to_list()


@pytest.mark.parametrize("run", range(5))
def test_the_advice_has_words_in_every_language(client: Client, runs: list[Run], run: int) -> None:
    found, expected = client.get(f"/api/runs/{run}/advice"), advise(runs[run])
    assert [one["id"] for one in found["findings"]] == [one.id for one in expected.findings]
    assert len(found["silenced"]) == len(expected.silenced)
    for got, finding in zip(found["findings"], expected.findings, strict=True):
        assert got["level"] == finding.level
        assert [one["value"] for one in got["evidence"]] == [pytest.approx(one.value) for one in finding.evidence]
        assert (got["saving"] or {}).get("likely_ns") == (finding.saving.likely_ns if finding.saving else None)
        for language in ("en", "zh"):
            assert got["texts"][language]["title"]
            assert "{" not in got["texts"][language]["title"]
            assert all(one["words"][language] for one in got["evidence"])
        assert any("\u4e00" <= character <= "\u9fff" for character in got["texts"]["zh"]["title"])
    # what the page offers to show in the timeline is there
    for evidence in (one for got in found["findings"] for one in got["evidence"]):
        for event in evidence["events"]:
            assert event["place"] in evidence["places"]
            hits = client.get(f"/api/runs/{run}/timeline/search", text=event["place"], trace=event["trace"])
            assert hits["total"] and event["step"] in (None, *evidence["steps"])


@pytest.mark.parametrize("run", range(5))
def test_health_names_what_is_unsafe(client: Client, runs: list[Run], run: int) -> None:
    found, expected = client.get(f"/api/runs/{run}/health"), runs[run].health().to_dicts()
    assert [(one["check"], one["count"], ", ".join(one["unsafe"])) for one in found] == [
        (row["check"], row["count"], row["unsafe"]) for row in expected
    ]


def test_what_two_traces_share_is_one_finding_in_the_terminal_and_on_the_pages(client: Client, runs: list[Run]) -> None:
    """Of four rows two say of a rank each how many arrows have no other end."""
    (run,) = (number for number, run in enumerate(runs) if run.path == sample("ascend_pytorch", "text_level1"))
    found = client.get(f"/api/runs/{run}/health")
    assert [(one["check"], one["group"]) for one in found] == [
        ("unmatched_launches", 0),
        ("unmatched_launches", 0),
        ("tasks_before_launch", 1),
        ("missing_ranks", 2),
    ]
    assert client.get(f"/api/runs/{run}/overview")["health"] == {"info": 3}
    out = Console(file=io.StringIO(), width=200)
    show_health(out, runs[run].health().to_dicts())
    assert "Health of the data: 3 notes" in out.file.getvalue()  # type: ignore[attr-defined]


@pytest.mark.slow
def test_every_table_is_answered_sorted_by_every_column_and_exported(client: Client) -> None:
    """Each table of each run; sorted in the run in which most of its columns have values, the one with most rows of those."""
    pages: dict[str, list[tuple[int, int, str, Any]]] = {}
    for run in range(5):
        tables = client.get(f"/api/runs/{run}/tables")
        assert len(tables) > 25
        for table in tables:
            address = f"/api/runs/{run}/tables/{table['name']}"
            page = client.post(address, {"limit": 1000})
            assert page["total"] == page["matching"] >= len(page["rows"])
            for place, column in enumerate(page["columns"]):
                if column["unit"] in ("ns", "moment"):
                    # a Unix time that is not told from the origin, or a length that is, would be text
                    values = [row[place] for row in page["rows"] if row[place] is not None]
                    assert all(isinstance(value, (int, float)) for value in values), (address, column)
            raw = client.ask(f"{address}/csv").body.decode()
            lines = list(csv.reader(io.StringIO(raw)))
            assert lines[0] == [column["name"] for column in page["columns"]], address
            assert len(lines) == page["total"] + 1, address
            filled = sum(any(cell is not None for cell in cells) for cells in zip(*page["rows"], strict=True))
            pages.setdefault(table["name"], []).append((filled, page["total"], address, page["columns"]))
    for candidates in pages.values():
        _, _, address, columns = max(candidates, key=lambda one: one[:2])
        for place, column in enumerate(columns):
            ordered = client.post(address, {"limit": 150, "sort": [{"column": column["name"]}]})
            cells = [row[place] for row in ordered["rows"]]
            values = [cell for cell in cells if cell is not None]
            if column["type"] in ("integer", "number", "boolean"):
                assert values == sorted(values, key=float), (address, column)
            elif column["type"] == "text":
                assert values == sorted(values, key=str.encode), (address, column)
            assert cells[len(values) :] == [None] * (len(cells) - len(values))


@pytest.mark.parametrize("run", [CPU, CUDA, ASCEND])
@pytest.mark.parametrize(
    ("table", "by"),
    [("operators", "name"), ("operators_by_shape", "shape"), ("operators_by_stack", "stack"), ("operators_by_module", "module")],
)
def test_operators_by_everything(client: Client, runs: list[Run], run: int, table: str, by: Any) -> None:
    expected = runs[run].operators(by)
    page = client.post(f"/api/runs/{run}/tables/{table}", {"limit": 1000})
    assert page["total"] == expected.height
    names = [column["name"] for column in page["columns"]]
    assert names == expected.columns
    for got, row in zip(page["rows"], expected.iter_rows(), strict=False):
        assert all(map(equal, got, row))
    one = client.post(f"/api/runs/{run}/tables/{table}", {"limit": 1000, "trace": 0})
    assert one["total"] == operators(runs[run].traces[0], by).height


def test_conditions_keep_what_they_say(client: Client, runs: list[Run]) -> None:
    address = f"/api/runs/{CUDA}/tables/recorded_kernels"
    kernels = plain(runs[CUDA].traces[0].required("kernels").collect())
    origin = int(client.get(f"/api/runs/{CUDA}")["origin_ns"])
    names = list(kernels.columns)
    middle = int(kernels["start_ns"].median()) - origin  # type: ignore[arg-type]
    cases: list[tuple[dict[str, Any], pl.Expr]] = [
        ({"column": "name", "contains": "GEMM"}, pl.col("name").str.to_lowercase().str.contains("gemm", literal=True)),
        ({"column": "name", "contains": "(.*"}, pl.col("name").str.contains("(.*", literal=True)),
        ({"column": "kind", "one_of": ["copy", "communication"]}, pl.col("kind").is_in(["copy", "communication"])),
        ({"column": "stream", "one_of": [7, 20.0]}, pl.col("stream").is_in([7, 20])),
        ({"column": "start_ns", "at_least": middle}, pl.col("start_ns") >= middle + origin),
        ({"column": "start_ns", "at_most": middle}, pl.col("start_ns") <= middle + origin),
        ({"column": "wait_ns", "at_least": 10000.5, "at_most": 20000}, pl.col("wait_ns").is_between(10001, 20000)),
        ({"column": "op", "missing": True}, pl.col("op").is_null()),
        ({"column": "op", "missing": False, "at_most": 100}, pl.col("op") <= 100),
        ({"column": "name", "one_of": []}, pl.lit(False)),
    ]
    for condition, expression in cases:
        expected = kernels.filter(expression)
        page = client.post(address, {"where": [condition], "limit": 1000})
        assert (page["matching"], page["total"]) == (expected.height, kernels.height), condition
        ids = [row[names.index("id")] for row in page["rows"]]
        assert ids == expected["id"].head(1000).to_list(), condition
    both = client.post(address, {"where": [cases[0][0], cases[4][0]], "limit": 1000})
    assert both["matching"] == kernels.filter(cases[0][1] & cases[4][1]).height


def test_sorting_and_paging_agree_with_the_whole_table(client: Client, runs: list[Run]) -> None:
    address = f"/api/runs/{CUDA}/tables/recorded_kernels"
    kernels = plain(runs[CUDA].traces[0].required("kernels").collect())
    expected = kernels.sort(["name", "start_ns"], descending=[True, False], nulls_last=True)["id"].to_list()
    sort = [{"column": "name", "descending": True}, {"column": "start_ns"}]
    place = kernels.columns.index("id")
    got = []
    for offset in range(0, kernels.height, 1000):
        got += [row[place] for row in client.post(address, {"sort": sort, "offset": offset, "limit": 1000})["rows"]]
    assert got == expected
    for offset in (10**9, 1 << 32, 1 << 40):
        for sorted_by in ([], sort):
            assert client.post(address, {"offset": offset, "sort": sorted_by})["rows"] == []


def test_a_csv_file_keeps_unix_times_and_guards_formulas(client: Client, runs: list[Run]) -> None:
    where = [{"column": "kind", "one_of": ["communication"]}]
    answer = client.ask(f"/api/runs/{CUDA}/tables/recorded_kernels/csv?query=" + json.dumps({"where": where}).replace(" ", "%20"))
    assert answer.headers["content-type"].startswith("text/csv")
    assert "attachment" in answer.headers["content-disposition"]
    rows = list(csv.DictReader(io.StringIO(answer.body.decode())))
    expected = runs[CUDA].traces[0].required("kernels").filter(pl.col("kind").cast(pl.String) == "communication").collect()
    assert [int(row["start_ns"]) for row in rows] == expected["start_ns"].to_list()


@pytest.mark.parametrize(
    ("body", "status", "says"),
    [
        ([], 422, ""),
        ({"limit": 0}, 422, ""),
        ({"limit": 1001}, 422, "1000"),
        ({"offset": -1}, 422, ""),
        ({"sort": [{"column": "nothing"}]}, 422, "no such column"),
        ({"where": [{"column": "nothing", "contains": "a"}]}, 422, "no such column"),
        ({"where": [{"column": "name", "at_least": 1}]}, 422, "numbers"),
        ({"where": [{"column": "calls", "one_of": ["a"]}]}, 422, "numbers"),
        ({"where": [{"column": "name", "one_of": 1}]}, 422, ""),
        ({"where": [{"column": "name", "one_of": ["a", "\ud800"]}]}, 422, "surrogate"),
        ({"where": [{"column": "name", "contains": "\udfff"}]}, 422, "surrogate"),
        ({"where": [{"column": "\ud800", "contains": "a"}]}, 422, "surrogate"),
        ({"sort": [{"column": "\ud800"}]}, 422, "surrogate"),
        ({"where": [{"column": "name", "contains": "a"}] * 101}, 422, "at most 100"),
        ({"where": [{"column": "name", "contains": "a" * 10_001}]}, 422, "at most 10000"),
        ({"where": [{"column": "name" * 10_000, "contains": "a"}]}, 422, "at most 10000"),
        ({"where": [{"column": "name", "one_of": ["a"] * 10_001}]}, 422, "at most 10000"),
        ({"where": [{"column": "name", "one_of": ["a" * 10_001]}]}, 422, "at most 10000"),
        ({"sort": [{"column": "name"}] * 21}, 422, "at most 20"),
        ({"unknown": 1}, 422, ""),
        ({"trace": 99}, 404, "traces"),
        ({"sort": 1}, 422, ""),
    ],
)
def test_a_wrong_question_is_answered_with_what_is_wrong(client: Client, body: Any, status: int, says: str) -> None:
    answer = client.post(f"/api/runs/{CPU}/tables/operators", body, expect=status)
    assert set(answer) == {"problem", "where", "remedy"}
    assert says in answer["problem"] + answer["remedy"]


def test_a_file_is_refused_as_a_page_is(client: Client) -> None:
    asked = quote(json.dumps({"sort": [{"column": "name"}] * 21}))
    answer = client.ask(f"/api/runs/{CPU}/tables/operators/csv?query={asked}")
    assert answer.status == 422 and answer.json["where"] == "query" and "at most 20" in answer.json["problem"]


def test_as_many_conditions_as_may_be_are_answered_as_one(client: Client) -> None:
    address = f"/api/runs/{CPU}/tables/operators"
    one = client.post(address, {"where": [{"column": "name", "contains": "mm"}]})
    conditions = [{"column": "name", "contains": "m" * (1 + number % 2)} for number in range(100)]
    assert client.post(address, {"where": conditions, "sort": [{"column": "name"}] * 20})["matching"] == one["matching"] > 0


@pytest.mark.parametrize("length", ["Content-Length: 1048577", "Transfer-Encoding: chunked"])
def test_a_body_is_bounded_whether_its_length_is_told_or_not(client: Client, length: str) -> None:
    with socket.create_connection(("127.0.0.1", client.port), timeout=DEADLINE_S) as one:
        told = (f"POST /api/runs/{CPU}/tables/operators HTTP/1.1", "Host: 127.0.0.1", length)
        kind = ("Content-Type: application/json", f"Authorization: Bearer {TOKEN}", "", "")
        one.sendall("\r\n".join((*told, *kind)).encode())
        if "chunked" in length:
            for _ in range(32):
                one.sendall(b"8000\r\n" + b" " * 0x8000 + b"\r\n")
            one.sendall(b"1\r\n \r\n")
        # its end is not waited for
        answer = b""
        while piece := one.recv(1 << 16):
            answer += piece
    head, _, body = answer.partition(b"\r\n\r\n")
    assert head.startswith(b"HTTP/1.1 413 ") and b"connection: close" in head.lower()
    assert "1048576 bytes" in json.loads(body)["problem"]


def test_numbers_of_any_size_are_looked_for(client: Client) -> None:
    address = f"/api/runs/{CPU}/tables/operators"
    page = client.post(address, {"limit": 1000})
    for kind in ("number", "integer"):
        place, name = next((place, column["name"]) for place, column in enumerate(page["columns"]) if column["type"] == kind)
        value = next(row[place] for row in page["rows"] if row[place] is not None)
        found = client.post(address, {"where": [{"column": name, "one_of": [10**400, -(10**400), value]}]})
        assert found["matching"] == sum(row[place] == value for row in page["rows"]) > 0
        assert client.post(address, {"where": [{"column": name, "one_of": [10**400]}]})["matching"] == 0


@pytest.mark.parametrize("path", ["runs/7", "runs/0/tables/nothing/csv", "runs/0/timeline?trace=9", "nothing", "runs/0/nothing"])
def test_what_is_not_there_is_404(client: Client, path: str) -> None:
    assert client.get(f"/api/{path}", expect=404)["problem"]


def test_memory_alive_at_a_moment(client: Client, runs: list[Run]) -> None:
    origin = int(client.get(f"/api/runs/{CPU}")["origin_ns"])
    trace = runs[CPU].traces[0]
    rows = plain(operator_memory(trace))
    times = sorted({int(moment) for moment in rows["allocation_ns"]})
    for moment in (times[0], times[len(times) // 2], times[-1]):
        alive = [
            row
            for row in rows.to_dicts()
            if row["allocation_ns"] <= moment
            and not any(end is not None and end <= moment for end in (row["release_ns"] or row["active_release_ns"],))
        ]
        found = client.get(f"/api/runs/{CPU}/memory/alive", time_ns=moment - origin, limit=1000)
        assert found["allocations"] == len(alive)
        assert found["bytes"] == sum(row["bytes"] for row in alive)
        assert sum(owner["bytes"] for owner in found["by_owner"]) == found["bytes"]
        assert [row["bytes"] for row in found["largest"]] == sorted((row["bytes"] for row in alive), reverse=True)
        events = trace.required("memory").sort("time_ns", maintain_order=True).filter(pl.col("time_ns") <= moment).collect()
        unlisted = (events["allocated"][-1] if events.height else 0) - found["bytes"]
        assert [row["rest_bytes"] for row in found["unlisted"]] == ([unlisted] if unlisted > 0 else [])
    # at the peak the owners are those of the table of the peak
    peak = memory_peak(trace)
    found = client.get(f"/api/runs/{CPU}/memory/alive", time_ns=int(peak["peak_ns"][0]) - origin, limit=1000)
    by_peak = {row["name"]: row["bytes"] for row in peak.filter(pl.col("kind") == "allocated").to_dicts()}
    assert {row["name"]: row["bytes"] for row in found["by_owner"]} == by_peak


def test_user_annotations_are_those_that_were_marked(client: Client, runs: list[Run]) -> None:
    ops = runs[CUDA].traces[0].required("ops").select(pl.col("name").cast(pl.String), "scope").collect()
    marked = sorted(ops.filter(pl.col("scope") == SCOPE_USER)["name"].unique())
    assert client.get(f"/api/runs/{CUDA}/operators/annotations") == marked
    assert client.get(f"/api/runs/{CUDA}/operators/annotations", trace=0) == marked
    assert marked and not any(name.startswith("aten::") for name in marked)


def test_the_memory_curve_keeps_its_peak(client: Client, runs: list[Run]) -> None:
    timeline = client.get(f"/api/runs/{CPU}/timeline")
    (series,) = [one for one in timeline["series"] if one["label"].startswith("memory allocated")]
    memory = runs[CPU].traces[0].required("memory").collect()
    window = {"start_ns": timeline["start_ns"] - 10**9, "end_ns": timeline["end_ns"] + 10**9}
    for points in (1, 7, 100, 20_000):
        curve = client.get(f"/api/runs/{CPU}/timeline/series/{series['series']}", **window, points=points)
        assert len(curve["max"]) <= points
        assert sum(curve["count"]) == series["samples"] == memory["allocated"].count()
        assert max(curve["max"]) == memory["allocated"].max() == runs[CPU].memory()["peak_allocated"].max()
        assert min(curve["min"]) == memory["allocated"].min()
        assert curve["last"][-1] == memory.sort("time_ns", maintain_order=True)["allocated"][-1]


def test_the_pipeline_and_its_queues(client: Client, runs: list[Run]) -> None:
    for number, trace in enumerate(runs[MINDSPORE].traces):
        found, expected = client.get(f"/api/runs/{MINDSPORE}/pipeline", trace=number), operations(trace)
        assert [row["id"] for row in found["operations"]] == expected["id"].to_list()
        assert found["bottlenecks"] == bottlenecks(expected)
        for row in expected.drop_nulls("queue_sizes").to_dicts():
            curve = client.get(f"/api/runs/{MINDSPORE}/pipeline/queue", trace=number, op=row["id"], points=20_000)
            assert curve["last"] == row["queue_sizes"]
            assert curve["capacity"] == row["queue_capacity"]
            coarse = client.get(f"/api/runs/{MINDSPORE}/pipeline/queue", trace=number, op=row["id"], points=2)
            assert (max(coarse["max"]), min(coarse["min"])) == (max(row["queue_sizes"]), min(row["queue_sizes"]))


def test_communication_says_who_waits(client: Client, runs: list[Run]) -> None:
    for run in (ASCEND, CLUSTER):
        found, mine = client.get(f"/api/runs/{run}/communication"), runs[run]
        arrived = arrivals(mine.traces)
        assert [row["rank"] for row in found["waits"]] == arrived["rank"].unique().sort().to_list()
        lengths = pl.concat([step_times(trace) for trace in mine.traces]).filter("complete")["duration_ns"]
        slow = slow_rank(arrived, float(lengths.mean()))  # type: ignore[arg-type]
        assert (found["slow_rank"] or {}).get("rank") == (slow.rank if slow else None)


def test_search_finds_names_tables_and_findings(client: Client, runs: list[Run]) -> None:
    found = client.get(f"/api/runs/{CPU}/search", text="ADDMM")
    table = runs[CPU].operators().filter(pl.col("name").str.to_lowercase().str.contains("addmm"))
    hits = {hit["name"]: hit for hit in found["hits"] if hit["kind"] == "operators"}
    assert found["matching"]["operators"] == table.height == len(hits)
    for row in table.to_dicts():
        assert (hits[row["name"]]["count"], hits[row["name"]]["total_ns"]) == (row["calls"], row["total_ns"])
    assert any(
        hit["kind"] == "table" and hit["name"] == "memory" for hit in client.get("/api/runs/0/search", text="memory")["hits"]
    )
    finding = client.get(f"/api/runs/{CPU}/advice")["findings"]
    if finding:
        hits_of = client.get(f"/api/runs/{CPU}/search", text=finding[0]["id"])["hits"]
        assert finding[0]["id"] in [hit["name"] for hit in hits_of if hit["kind"] == "finding"]


def in_chosen_steps(trace: Trace, table: str) -> dict[str, tuple[float, float]]:
    """Calls and time by name per chosen step, added up row by row."""
    steps = set(step_times(trace).filter("chosen")["step"].to_list())
    found: dict[str, tuple[float, float]] = {}
    for row in trace.required(table).collect().iter_rows(named=True):
        if row["step"] not in steps or row.get("scope", 0) not in (0, 1):
            continue
        once = table == "kernels" or row["counted_as"] == row["id"]
        taken = row["self_ns"]
        calls, total = found.get(row["name"], (0.0, 0.0))
        found[row["name"]] = calls + once / len(steps), total + taken / len(steps)
    return found


def test_two_runs_side_by_side(client: Client, runs: list[Run]) -> None:
    found = client.get("/api/compare", before=CPU, after=CUDA, limit=1000)
    assert equal(found["before"]["step_ns"], step_times(runs[CPU].traces[0]).filter("chosen")["step_time_ns"].median())
    for table, counted in (("operators", "ops"), ("tasks", "kernels")):
        before, after = (in_chosen_steps(runs[run].traces[0], counted) for run in (CPU, CUDA))
        assert before or table == "tasks"
        assert after
        assert {row["name"] for row in found[table]} == before.keys() | after.keys()
        for row in found[table]:
            first, second = before.get(row["name"], (0, 0)), after.get(row["name"], (0, 0))
            assert (row["before_calls"] or 0, row["after_calls"] or 0) == pytest.approx((first[0], second[0]))
            assert (row["before_ns"] or 0, row["after_ns"] or 0) == pytest.approx((first[1], second[1]))
            assert row["difference_ns"] == pytest.approx(second[1] - first[1])
    assert found["different"] == len(found["operators"])
    assert found["different_tasks"] == len(found["tasks"])
    # a multilayer perceptron beside a ResNet
    assert 0 < found["common_share"] < 0.5 and any("two programs" in doubt["en"] for doubt in found["doubts"])
    same = client.get("/api/compare", before=CPU, after=CPU, limit=1)
    assert (same["common_share"], same["different"] > 1, len(same["operators"])) == (pytest.approx(1), True, 1)
    assert {part["difference_ns"] for part in same["parts"]} == {0}
    assert found["before"]["peak_bytes"] == runs[CPU].memory()["peak_allocated"].max()
    # of runs of two programs nothing was cured, and nothing was to be expected
    assert client.get("/api/compare/findings", before=CPU, after=CUDA) == {
        "cured": [], "remaining": [], "new": [], "promised_ns": 0,
    }  # fmt: skip
    became = client.get("/api/compare/findings", before=CPU, after=CPU)
    change = compare(advise(runs[CPU]), advise(runs[CPU]))
    for part in ("cured", "remaining", "new"):
        assert [one["id"] for one in became[part]] == [one.id for one in getattr(change, part)]


def test_what_recording_holds_a_part_of_is_not_compared(serve: Start) -> None:
    # two steps, of which the recording has the whole of one
    path = sample("kineto", "rocm_mi250_minitoy.json.gz")
    steps = step_times(steplens.open(path).traces[0])
    assert steps["complete"].sum() < steps.height
    found = serve([path]).get("/api/compare", before=0, after=0, limit=1000)
    for table, counted in (("operators", "ops"), ("tasks", "kernels")):
        expected = in_chosen_steps(steplens.open(path).traces[0], counted)
        got = {row["name"]: (row["before_calls"], row["before_ns"]) for row in found[table]}
        assert got == {name: pytest.approx(values) for name, values in expected.items()}
