"""How long each analysis takes on a trace of a million operator calls, and how much memory it needs beside the trace.

Usage: ``python benchmarks/analyses.py [--calls 1000000] [--only NAME] [--json FILE]``

Two traces are made, not recorded: a CPU run with stacks, shapes, modules, steps and allocator events; and the same with an
accelerator: every device task has a launching call, runs on one of two streams, and there is communication of two ranks. Each
analysis answers in a process of its own that has loaded the tables before. "s" is wall time of the answer, "CPU s" processor time
of all its threads, and the goal is reached when one of the two is, because the machine may be busy; memory is how far the process
rises above what it held before. ``advise`` is all rules of the advice together, as a user asks them: the traces of a run side by
side. Which rules take how much is a table of its own, of rules that are asked one after the other: what several rules share is
counted for the first that asks for it.
"""

from __future__ import annotations

import argparse
import dataclasses
import json
import os
import platform
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

TARGET_S, TARGET_MB = 1.0, 500
ADVISE = "advise"
_RULES = "rules"
#: rules that take less of the advice are not listed
LEAST_RULE_S = 0.01
CPU, ACCELERATOR = "CPU", "accelerator"


def make(folder: Path, calls: int, kind: str, rank: int = 0) -> None:
    """Write the tables of a trace to a folder."""
    import numpy as np
    import polars as pl
    from tests.writers.builder import synthetic, table

    from steplens.trace.building.build import conform_to_schema
    from steplens.trace.schema import NAME

    trace = synthetic(ops=calls, kernels=calls // 2, memory_events=calls * 6 // 10, steps=20)
    tables = {name: trace.required(name).collect() for name in trace}
    number = pl.int_range(pl.len())
    names = pl.Series(["aten::mm", "aten::addmm", "aten::add_", "aten::copy_", "aten::empty"], dtype=NAME)
    modules = pl.Series([f"Net.layer{layer}.block{block}" for layer in range(12) for block in range(5)])
    known = pl.col("id") % 5 < 2
    tables["ops"] = tables["ops"].with_columns(
        name=pl.when(known).then(pl.lit(names).gather(pl.col("id") // 5 % 5)).otherwise("name"),
        module=pl.lit(modules.cast(NAME)).gather(pl.col("id") // 50 % 60),
        input_shapes=pl.when(known).then(pl.lit("64,128;128,256", dtype=NAME)).otherwise("input_shapes"),
        input_types=pl.lit("float;float", dtype=NAME),
        counted_as="id",
    )
    tasks = tables["kernels"].with_columns(kind=pl.lit("compute", dtype=NAME))
    if kind == ACCELERATOR:
        tasks = tasks.with_columns(
            core=pl.lit("CUDA", dtype=NAME),
            stream=pl.when(number % 7 == 0).then(20).otherwise(7).cast(pl.Int64),
            launch_ns=pl.col("start_ns") - 4_000,
            correlation=number + 1,
            wait_ns=pl.lit(4_000, dtype=pl.Int64),
            category=pl.lit("elementwise", dtype=NAME),
        )
        api = tasks.select(
            name=pl.lit("cudaLaunchKernel"), layer=pl.lit("cuda_runtime"), start_ns="launch_ns",
            end_ns=pl.col("launch_ns") + 3_000, pid=pl.lit(1000), tid=pl.lit(1001), correlation="correlation",
        )  # fmt: skip
        tables["api"] = conform_to_schema("api", api)
        every = np.arange(0, tasks.height, 25)
        late = 20_000 * rank
        moved = tasks[every].select(
            name=pl.lit("nccl:all_reduce"), kind=pl.lit("collective"), operation=pl.lit("allreduce"), group=pl.lit("0"),
            bytes=pl.lit(4_000_000), start_ns=pl.col("start_ns") + late, end_ns=pl.col("end_ns") + 40_000, step="step",
            ranks=pl.lit(2), device=pl.lit(0), stream=pl.lit(20),
        )  # fmt: skip
        tables["communication"] = conform_to_schema("communication", moved)
        tables["memory"] = tables["memory"].with_columns(
            device_type=pl.lit("CUDA", dtype=NAME), reserved=pl.col("allocated") + 1_000_000
        )
    tables["kernels"] = tasks
    tables["meta"] = table("meta", [{"key": "rank", "value": str(rank)}])
    folder.mkdir()
    for name, frame in tables.items():
        frame.write_parquet(folder / f"{name}.parquet")


def measure(folders: list[Path], name: str, by: str | None) -> dict[str, Any]:
    """Load the traces, then answer once."""
    import polars as pl

    from steplens.run import Run, Source
    from steplens.trace.trace import Trace

    traces = []
    for folder in folders:
        tables = {file.stem: pl.read_parquet(file) for file in sorted(folder.glob("*.parquet"))}
        traces.append((Source(folder), Trace(folder, tables)))
    run = Run(folders[0].parent, traces, [])
    taken: dict[str, float] = {}
    if name in (ADVISE, _RULES):
        from steplens.advice import advise
        from steplens.advice.registry import built_in_rules

        rules = [timed(rule, taken) if name == _RULES else rule for rule in built_in_rules()]

        def ask() -> int:
            return len(advise(run, rules).findings)
    else:

        def ask() -> int:
            return run.table(name, by).height

    before = _memory_kb("VmRSS")
    Path("/proc/self/clear_refs").write_text("5")
    begin, used = time.perf_counter(), time.process_time()
    rows = ask()
    seconds, used = time.perf_counter() - begin, time.process_time() - used
    found = {"seconds": seconds, "cpu": used, "mb": max(_memory_kb("VmHWM") - before, 0) / 1000, "rows": rows}
    return {**found, "rules": taken} if taken else found


def timed(rule: Any, taken: dict[str, float]) -> Any:
    """A rule that adds the processor time of its judging to ``taken``, s."""

    def of(ask: Callable[..., Any]) -> Callable[..., Any]:
        def asked(*arguments: Any) -> Any:
            used = time.process_time()
            try:
                # findings come one by one
                answer = ask(*arguments)
                return answer if isinstance(answer, bool) else list(answer)
            finally:
                taken[rule.name] = taken.get(rule.name, 0.0) + time.process_time() - used

        return asked

    judges = {name: of(ask) for name in ("judge", "judge_run") if (ask := getattr(rule, name)) is not None}
    return dataclasses.replace(rule, applies=of(rule.applies), **judges)


def _memory_kb(name: str) -> int:
    lines = Path("/proc/self/status").read_text().splitlines()
    return int(next(line for line in lines if line.startswith(f"{name}:")).split()[1])


def bench(folder: Path, calls: int, only: list[str] | None) -> list[dict[str, Any]]:
    """Every analysis with every grouping, on both traces."""
    from steplens.analysis.catalogue import ANALYSES

    make(folder / "cpu", calls, CPU)
    for rank in (0, 1):
        # two ranks together have the calls of one
        make(folder / f"accelerator{rank}", calls // 2, ACCELERATOR, rank)
    given = {CPU: [folder / "cpu"], ACCELERATOR: [folder / f"accelerator{rank}" for rank in (0, 1)]}
    questions: list[tuple[str, str | None]] = [(one.name, by) for one in ANALYSES for by in one.groups or (None,)]
    questions.append((ADVISE, None))
    found = []
    for name, by in questions:
        if only is not None and name not in only:
            continue
        row: dict[str, Any] = {"name": name, "by": by}
        for kind, folders in given.items():
            row[kind] = in_a_process(folders, name, by)
            if name == ADVISE:
                row[kind]["rules"] = in_a_process(folders, _RULES, by)["rules"]
        found.append(row)
    return found


def in_a_process(folders: list[Path], name: str, by: str | None) -> dict[str, Any]:
    """``measure`` in a process of its own."""
    arguments = ["--measure", name, "--folders", *map(str, folders), *(["--by", by] if by else [])]
    done = subprocess.run([sys.executable, __file__, *arguments], stdout=subprocess.PIPE, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def table_of(rows: list[dict[str, Any]]) -> str:
    """The figures as Markdown, and what misses the targets."""
    heads = [f"{kind}: {what}" for kind in (CPU, ACCELERATOR) for what in ("rows", "s", "CPU s", "MB")]
    lines = [f"| analysis | {' | '.join(heads)} |", f"|---|{'---|' * len(heads)}"]
    missed = []
    for row in rows:
        title = f"{row['name']} by {row['by']}" if row["by"] else row["name"]
        cells = []
        for kind in (CPU, ACCELERATOR):
            figures = row[kind]
            cells += [f"{figures['rows']:,}", f"{figures['seconds']:.2f}", f"{figures['cpu']:.2f}", f"{figures['mb']:.0f}"]
            # on a busy machine the time on the wall says how busy it is
            if min(figures["seconds"], figures["cpu"]) > TARGET_S or figures["mb"] > TARGET_MB:
                missed.append(f"{title} ({kind})")
        lines.append(f"| {title} | {' | '.join(cells)} |")
    verdict = f"missed by {', '.join(missed)}" if missed else "reached by all"
    return "\n".join([*lines, "", f"Goal, {TARGET_S:.0f} s and {TARGET_MB} MB beside the trace: {verdict}."])


def table_of_rules(row: dict[str, Any]) -> str:
    """What each rule takes of the advice, CPU s, as Markdown."""
    kinds = (CPU, ACCELERATOR)
    most = {name: max(row[kind]["rules"].get(name, 0.0) for kind in kinds) for kind in kinds for name in row[kind]["rules"]}
    lines = [f"| rule | {' | '.join(f'{kind}: CPU s' for kind in kinds)} |", "|---|---|---|"]
    for name in sorted(most, key=lambda one: -most[one]):
        if most[name] >= LEAST_RULE_S:
            cells = [f"{row[kind]['rules'].get(name, 0.0):.2f}" for kind in kinds]
            lines.append(f"| {name} | {' | '.join(cells)} |")
    others = [sum(taken for taken in row[kind]["rules"].values() if taken < LEAST_RULE_S) for kind in kinds]
    lines.append(f"| rules below {LEAST_RULE_S:g} s, together | {' | '.join(f'{taken:.2f}' for taken in others)} |")
    return "\n".join(lines)


def main() -> None:
    """Measure, print the table, and save the numbers."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--calls", type=int, default=1_000_000)
    parser.add_argument("--only", nargs="+", help="some analyses")
    parser.add_argument("--json", type=Path, help="save the numbers here")
    parser.add_argument("--measure", help=argparse.SUPPRESS)
    parser.add_argument("--folders", type=Path, nargs="+", help=argparse.SUPPRESS)
    parser.add_argument("--by", help=argparse.SUPPRESS)
    given = parser.parse_args()
    if given.measure:
        print(json.dumps(measure(given.folders, given.measure, given.by)))
        return
    with tempfile.TemporaryDirectory(prefix="steplens-bench-") as temporary:
        rows = bench(Path(temporary), given.calls, given.only)
    print(f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}, {given.calls:,} operator calls\n")
    print(table_of(rows))
    for row in rows:
        if row["name"] == ADVISE:
            print(f"\n{table_of_rules(row)}")
    if given.json is not None:
        given.json.write_text(json.dumps({"calls": given.calls, "analyses": rows}, indent=2))


if __name__ == "__main__":
    main()
