"""What the web UI takes on a trace of ten million events, and what MindInsight takes where it can show the same.

Usage: ``python benchmarks/timeline.py [--events 10000000] [--moves 100] [--json FILE] [--keep FOLDER]``

1. A Kineto trace of so many events (two host threads with calls four deep, two streams of device tasks, steps) is shown with
   ``steplens view`` in a process of its own, three times: from its JSON; from the store of tables alone, as a program leaves it
   that only calls ``steplens.open``; and from the store and the file of its timeline, as an analysis, a command or an earlier
   showing leaves it. Each time a headless Chromium opens the timeline as soon as the link is there; the first time once more when
   the run is open. A picture is painted when the first events are on the canvas, be they a draft or all.
2. Moves are random zooms and pans: in the browser until a frame in which no tile is missing, neighbours asked for ahead
   included; on the server one tile of all lanes at 1600 pixels, at a random place and zoom (everything to 1 us). They begin when
   the advice, which the page asks for once it is there, has been worked out.
3. First answers of pages, each asked once and alone, with the processor time of the server meanwhile.
4. A job of MindSpore with 400 thousand events and 50 thousand operators is shown by MindInsight 2.3.1 (``make bench``
   installs it in ``.bench/mindinsight``) and by steplens, from the same files. MindInsight has no picture of a timeline: it gives
   a file for another viewer, so its time is that of the whole answer.

Memory is that of the server without mapped files, which the system can take back.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import random
import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parent))

import browser
import peer_mindinsight as peer
from enlarge import enlarge
from speed import row
from view import View

TARGET_PAINT_MS = 1000
TARGET_MOVE_MS = 100
TARGET_TABLE_MS = 50
PIXELS = 1600

#: what is asked once each, with a name for people
PAGES = (
    ("overview", "overview, up to 2 s of it for the advice"),
    ("steps", "steps"),
    ("operators", "operators by name"),
    ("calls", "page of all operator calls, filtered and sorted"),
    ("search", "search of a name: count per lane and next occurrence"),
    ("selection", "statistics of a selection of everything"),
)


def make(target: Path, events: int) -> int:
    """A trace of about so many events; returns how many."""
    generator = random.Random(1)
    lines: list[str] = []

    def add(name: str, category: str, tid: int, start: float, length: float, pid: int = 1) -> None:
        place = f'"pid": {pid}, "tid": {tid}, "ts": {start:.3f}, "dur": {length:.3f}'
        lines.append(f'    "ph": "X", "cat": "{category}", "name": "{name}", {place}, "args": {{\n    }}\n  ')

    at = 1000.0
    for step in range(4):
        begin = at
        for thread in (10, 11):
            at = begin + 1
            while at < begin + 4000:
                length = generator.uniform(4, 30)
                add(f"aten::layer_{generator.randrange(40)}", "cpu_op", thread, at, length)
                inside = at + 0.2
                while inside < at + length - 3:
                    part = generator.uniform(0.8, 2.5)
                    add(f"aten::operator_{generator.randrange(300)}", "cpu_op", thread, inside, part)
                    add(f"aten::inner_{generator.randrange(300)}", "cpu_op", thread, inside + 0.1, part / 2)
                    add(f"aten::innermost_{generator.randrange(300)}", "cpu_op", thread, inside + 0.2, part / 4)
                    stream = 7 + thread % 2
                    add(f"kernel_{generator.randrange(200)}", "kernel", stream, inside + 2, part * 0.8, pid=0)
                    inside += part + generator.uniform(0.05, 0.6)
                at += length + generator.uniform(0.1, 3)
        add(f"ProfilerStep#{step}", "user_annotation", 10, begin, 4060)
        at = begin + 4070
    head = '{\n  "schemaVersion": 1,\n  "traceEvents": [\n  {\n'
    body = "},\n  {\n".join(lines)
    source = target.with_name("source.json")
    source.write_text(f'{head}{body}}}\n  ],\n  "traceName": "made"\n}}\n')
    size = len(body)
    count = enlarge(source, target, size * max(events // len(lines), 1))
    return count * len(lines)


def quantile(values: list[float], share: float) -> float:
    """The value below which that share of the values lies."""
    ordered = sorted(values)
    return ordered[min(int(share * len(ordered)), len(ordered) - 1)]


def open_run(path: Path, chromium: browser.Browser | None) -> tuple[View, dict[str, Any]]:
    """Show a trace, and measure until its timeline is painted."""
    view = View(path)
    result: dict[str, Any] = {"link_s": view.link_s}
    if chromium is not None:
        result["at_once"] = chromium.first_paint(view.link)
        result["painted_s"] = time.perf_counter() - view.started
    result["open_s"] = json.loads(view.ask("/api/runs/0")[1])["progress"]["seconds"]
    result["laid_out_s"] = view.wait(lambda progress: progress["timelines"] == 1)
    if chromium is not None:
        result["later"] = chromium.first_paint(view.link)
    result |= {"cpu_s": view.cpu_s, "slowest_ms": view.slowest_ms, "peak_mb": view.peak_mb}
    return view, result


def moves_of(view: View, count: int) -> dict[str, Any]:
    """Tiles of random windows."""
    timeline = json.loads(view.ask("/api/runs/0/timeline")[1])
    low, high = timeline["start_ns"], timeline["end_ns"]
    generator = random.Random(2)
    times, sizes = [], []
    for _ in range(count):
        width = max(int((high - low) * (1000 / (high - low)) ** generator.random()), 1000)
        start = generator.randint(low, max(high - width, low))
        taken, content = view.ask("/api/runs/0/timeline/tile", start_ns=start, end_ns=start + width, pixels=PIXELS)
        times.append(taken)
        sizes.append(len(content) / 1e3)
    return {"ms": times, "kb": statistics.median(sizes), "events": timeline["events"], "lanes": len(timeline["lanes"])}


def pages_of(view: View) -> dict[str, tuple[float, float]]:
    """First answers: milliseconds, and seconds of processor time of the server meanwhile."""
    timeline = json.loads(view.ask("/api/runs/0/timeline")[1])
    low, high = timeline["start_ns"], timeline["end_ns"]
    calls = {"where": [{"column": "name", "contains": "operator_17"}], "sort": [{"column": "start_ns"}]}
    asked: dict[str, tuple[str, Any, dict[str, Any]]] = {
        "operators": ("tables/operators", {"sort": [{"column": "self_ns", "descending": True}]}, {}),
        "steps": ("steps", None, {}),
        "calls": ("tables/recorded_ops", calls, {}),
        "search": ("timeline/search", None, {"text": "operator_17", "from_ns": high // 2}),
        "selection": ("timeline/selection", None, {"start_ns": low, "end_ns": high}),
        # the advice goes on being worked out after it, so it comes last
        "overview": ("overview", None, {}),
    }
    found = {}
    for name, (path, body, parameters) in asked.items():
        before = view.cpu_s
        taken = view.ask(f"/api/runs/0/{path}", body, **parameters)[0]
        found[name] = taken, view.cpu_s - before
    return found


def bench_large(path: Path, moves: int, chromium: browser.Browser | None) -> dict[str, Any]:
    """The trace of ten million events, three times."""
    cache = path.parent / ".steplens"
    shutil.rmtree(cache, ignore_errors=True)
    result: dict[str, Any] = {}
    for case in ("json", "store", "again"):
        if case == "store":
            for file in cache.rglob("timeline_*.bin"):
                file.unlink()
        view, result[case] = open_run(path, chromium)
        try:
            if case == "store":
                # until the file of the timeline is there for the next time
                while not list(cache.rglob("timeline_*.bin")):
                    time.sleep(0.1)
                result["kept_mb"] = sum(file.stat().st_size for file in cache.rglob("timeline_*.bin")) / 1e6
            if case == "again":
                # the page has asked for advice, which takes both processors for seconds
                result["advice_ms"] = view.ask("/api/runs/0/advice")[0]
                result["moves"] = moves_of(view, moves)
                if chromium is not None:
                    result["browser_moves"] = chromium.moves(moves)
                result["moved_mb"] = view.peak_mb
        finally:
            view.close()
    # no page of a browser asks beside these
    view, _ = open_run(path, None)
    try:
        result["pages"] = pages_of(view)
        result["pages_mb"] = view.peak_mb
    finally:
        view.close()
    return result


def bench_job(folder: Path, rounds: int, chromium: browser.Browser | None) -> dict[str, Any]:
    """The job of MindSpore, shown by MindInsight and by steplens."""
    shown = peer.make(folder).parent
    result: dict[str, Any] = {"peer": peer.bench(folder, rounds)} if peer.PEER.is_dir() else {}
    for case in ("first", "again"):
        view, result[case] = open_run(shown, chromium)
        try:
            times = []
            for number in range(40):
                column = ("average_ns", "count", "name", "type")[number % 4]
                where = [{"column": "name", "contains": f"op{number}"}] if number % 2 else []
                page = {"where": where, "sort": [{"column": column, "descending": True}], "limit": 10}
                times.append(view.ask("/api/runs/0/tables/core_operators", page)[0])
            # the first one works the table out
            result[case] |= {"table_ms": times[0], "pages_ms": times[1:]}
        finally:
            view.close()
    return result


def milliseconds(values: list[float]) -> str:
    """Median and p95."""
    return f"{statistics.median(values):.0f} ms (p95 {quantile(values, 0.95):.0f} ms)"


def table(result: dict[str, Any]) -> str:
    """The figures as Markdown."""
    large = result["large"]
    cases = [large[case] for case in ("json", "store", "again")]
    moves = large["moves"]
    lines = [
        f"{os.cpu_count()} cores, Python {platform.python_version()}; load of the machine before: {result['load']:.1f}. "
        f"{moves['events']:,} events on {moves['lanes']} lanes, {result['json_mb']:.0f} MB of JSON.",
        "",
        row("", "from its JSON", "from its tables", "read by a command, analysed or shown before", "target"),
        row(*["---"] * 5),
        row("the command prints its link after", *(f"{one['link_s']:.2f} s" for one in cases), ""),
        row("the run is read in", *(f"{one['open_s']:.2f} s" for one in cases), ""),
        row("start of the command until the timeline is laid out", *(f"{one['laid_out_s']:.2f} s" for one in cases), ""),
    ]
    if "later" in cases[0]:
        target = f"{TARGET_PAINT_MS} ms"
        drafts = [one["at_once"]["draft_ms"] for one in cases]
        at_once, later = ([f"{one[key]['painted_ms']:.0f} ms" for one in cases] for key in ("at_once", "later"))
        first = [f"{draft:.0f} ms, a draft" if draft else whole for draft, whole in zip(drafts, at_once, strict=True)]
        lines.append(row("first picture in a browser that asks as soon as there is a link", *first, target))
        lines.append(row("the same, of all events", *at_once, ""))
        lines.append(row("first picture in a browser that asks when the timeline is laid out", *later, target))
    lines += [
        row("processor time of the server for all that", *(f"{one['cpu_s']:.1f} s" for one in cases), ""),
        row("slowest of ten small answers a second meanwhile", *(f"{one['slowest_ms']:.0f} ms" for one in cases), ""),
        row("most memory of the server", *(f"{one['peak_mb']:.0f} MB" for one in cases), ""),
        "",
        f"The file of the timeline takes {large['kept_mb']:.0f} MB.",
        "",
        row(f"{len(moves['ms'])} zooms and pans", "median", "p95", "slowest", "target of p95"),
        row(*["---"] * 5),
    ]
    measured = [("tile of all lanes on the server", moves["ms"])]
    if "browser_moves" in large:
        measured.append(("in the browser, until the next frame", large["browser_moves"]["frames"]))
        measured.append(("in the browser, until all is sharp", large["browser_moves"]["times"]))
    for name, times in measured:
        lines.append(row(name, *(f"{quantile(times, share):.1f} ms" for share in (0.5, 0.95, 1.0)), f"{TARGET_MOVE_MS} ms"))
    lines += ["", row("first answer", "time", "processor time"), row(*["---"] * 3)]
    lines += [row(title, f"{large['pages'][name][0]:.0f} ms", f"{large['pages'][name][1]:.2f} s") for name, title in PAGES]
    lines += [
        "",
        f"Memory of the server: {large['moved_mb']:.0f} MB after the moves, {large['pages_mb']:.0f} MB after these answers.",
        "",
    ]
    return "\n".join([*lines, *job_table(result["job"])])


def job_table(job: dict[str, Any]) -> list[str]:
    """The figures beside MindInsight's."""
    lines = [
        f"The same job of MindSpore, {peer.EVENTS:,} events, {peer.OPERATORS:,} operators:",
        "",
        row("", "MindInsight 2.3.1", "steplens, first time", "steplens, shown before", "target"),
        row(*["---"] * 5),
    ]
    theirs = job.get("peer")
    timeline = f"{milliseconds(theirs['timeline_ms'])}, {theirs['timeline_mb']:.0f} MB" if theirs else "not installed"
    ours = [job[case] for case in ("first", "again")]
    if "later" in ours[0]:
        painted = [f"{one['at_once']['painted_ms']:.0f} ms" for one in ours]
        lines.append(row("the timeline: their whole answer, our first picture", timeline, *painted, ""))
        painted = [f"{one['later']['painted_ms']:.0f} ms" for one in ours]
        lines.append(row("the same once more, from the running server", timeline, *painted, f"{TARGET_PAINT_MS} ms"))
    pages = milliseconds(theirs["pages_ms"]) if theirs else "not installed"
    mine = (milliseconds(one["pages_ms"]) for one in ours)
    lines.append(row("ten of all operators, sorted, every second time filtered", pages, *mine, f"{TARGET_TABLE_MS} ms"))
    return lines


def main() -> None:
    """Parse the command line and run."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--events", type=int, default=10_000_000)
    parser.add_argument("--moves", type=int, default=100)
    parser.add_argument("--json", type=Path)
    parser.add_argument("--keep", type=Path, help="leave the trace in this folder, and take one that is there")
    given = parser.parse_args()
    chromium = None if (why := browser.missing()) else browser.Browser()
    if why:
        print(f"no figures of a browser: {why}", file=sys.stderr)
    with tempfile.TemporaryDirectory(prefix="steplens-bench-") as temporary:
        folder = given.keep or Path(temporary)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / "trace.json"
        if not path.exists():
            make(path, given.events)
        result: dict[str, Any] = {"load": os.getloadavg()[0], "json_mb": path.stat().st_size / 1e6}
        try:
            result["large"] = bench_large(path, given.moves, chromium)
            shutil.rmtree(folder / "job", ignore_errors=True)
            result["job"] = bench_job(folder / "job", 3, chromium)
        finally:
            if chromium is not None:
                chromium.close()
    print(table(result))
    if given.json:
        given.json.write_text(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
