"""Jobs with seeded faults, and what steplens names in them: ``python -m benchmarks.jobs.verdicts OUT``.

A fault is named where the advice has a finding about what has it that is worth saying (3 % of a step, likely or at most), and
none about anything else that would be slow. Of a job without a fault nothing may be named. In none may communication be said to
take more than it moves.
"""

from __future__ import annotations

import argparse
import json
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

import polars as pl
from benchmarks.jobs.faults import parse_faults
from benchmarks.jobs.job import write_job
from benchmarks.jobs.layout import Layout, parse_layout
from benchmarks.jobs.program import Model
from benchmarks.jobs.truth import MESSAGES, RECORD, STEPS

import steplens
from steplens.advice.advice import advise
from steplens.advice.finding import LOW, Finding
from steplens.advice.judging.order import is_worth_saying

LAYOUTS = ("8x1x1", "4x2x2", "2x4x1", "2x2x4")
FAULTS = (
    "none", "slow_rank", "slow_rank:what=forward", "slow_rank:what=backward", "slow_rank:what=aten::mm,factor=2",
    "slow_rank:what=host", "slow_host", "slow_link", "slow_link of two stages", "imbalanced_stage",
)  # fmt: skip
#: several hosts in every layout
RANKS_PER_HOST = 4
_OF_STAGES = "slow_link of two stages"
#: rules that say what of a job is slower than the rest of it
NAMING = ("slow_rank", "slow_host", "slow_stage", "slow_messages", "slow_card", "slow_link", "slow_interval", "stage_balance")
#: rules that call communication too much
_COMMUNICATION = ("stage_waits", "stage_collectives")


@dataclass(frozen=True)
class Case:
    """A job."""

    fault: str
    layout: str
    seed: int

    @property
    def name(self) -> str:
        return re.sub(r"[^\w-]", "_", f"{self.fault}-{self.layout}-{self.seed}")

    @property
    def ranks(self) -> Layout:
        """Who is where. Of a pipeline of four stages on two hosts all that leaves one reaches the other: four hosts tell more."""
        a_stage_each = self.fault == "slow_link" and parse_layout(self.layout, None).pipeline > 2
        return parse_layout(self.layout, None, RANKS_PER_HOST // 2 if a_stage_each else RANKS_PER_HOST)

    @property
    def seeded(self) -> str:
        """The fault as ``parse_faults`` takes it."""
        if self.fault != _OF_STAGES:
            return self.fault
        rank = (5 * self.seed) % (self.ranks.ranks - self.ranks.ranks_per_stage)
        return f"slow_link:a={rank},b={rank + self.ranks.ranks_per_stage}"


def cases(layouts: list[str], faults: list[str], seeds: int) -> Iterator[Case]:
    """All that there are: a job of one stage has no imbalanced one, nor links between stages."""
    for layout in layouts:
        for fault in faults:
            if not (fault in ("imbalanced_stage", _OF_STAGES) and parse_layout(layout, None).pipeline == 1):
                yield from (Case(fault, layout, seed) for seed in range(1, seeds + 1))


def write_case(case: Case, out: Path, model: Model, steps: int) -> Path:
    """The job of a case, written once; clocks of its hosts differ."""
    folder = out / case.name
    if (folder / RECORD).exists():
        return folder
    shutil.rmtree(folder, ignore_errors=True)
    faults = parse_faults([case.seeded, "clock_offset"], case.ranks, steps, case.seed)
    write_job(folder, case.ranks, model, faults, seed=case.seed, steps=steps)
    return folder


def expected_name(folder: Path) -> str:
    """What is to be named in a job; empty where nothing is."""
    record = json.loads((folder / RECORD).read_text())
    fault = next((fault for fault in record["faults"] if not fault["kind"].startswith("clock")), None)
    if fault is None:
        return ""
    if fault["kind"] == "slow_rank":
        return f"rank {fault['ranks'][0]}"
    if fault["kind"] == "imbalanced_stage":
        return f"stage {fault['stage'] + 1}"
    if fault["kind"] == "slow_link" and record["layout"]["pipeline"] * record["layout"]["tensor"] == 1:
        # all messages are of all ranks: which of them is slow, nothing tells
        return ""
    if "link" in fault:
        return "link {}-{}".format(*sorted(fault["link"]))
    return f"{'link of ' if fault['kind'] == 'slow_link' else ''}host {fault['host']}"


def named(finding: Finding, layout: Layout) -> str:
    """What a finding names, in the words of ``expected_name``."""
    values = finding.values
    if finding.rule == "slow_host":
        return f"host {layout.host_of(finding.ranks[0])}"
    if finding.rule == "slow_messages":
        ends = finding.ranks
        return f"link {ends[0]}-{ends[1]}" if values.get("case") == "of_ranks" else f"link of host {layout.host_of(ends[0])}"
    if "stage" in values:
        return f"stage {values['stage']}"
    return f"rank {values['rank']}" if "rank" in values else finding.id


def _claims_more(finding: Finding, folder: Path, layout: Layout) -> bool:
    """Whether a finding about the collectives of a stage says more than what they moved; of a sound job that a stage waits."""
    if "stage" not in finding.values or finding.rule == "stage_waits":
        return not expected_name(folder)
    ranks = layout.ranks_of_stage(int(finding.values["stage"]) - 1).tolist()
    messages = pl.read_parquet(folder / MESSAGES).filter(pl.col("rank").is_in(ranks), pl.col("peer").is_null())
    whole_ns = pl.read_parquet(folder / STEPS).filter(pl.col("rank").is_in(ranks))["duration_ns"].sum()
    return float(finding.values["percent"]) > 100 * messages["transfer_ns"].sum() / whole_ns + 1


def judge(folder: Path, layout: Layout) -> dict[str, str | bool]:
    """What was named in a job, and whether that is right."""
    run = steplens.open(folder)
    advice = advise(run)
    weighty = [finding for finding in advice.findings if finding.level != LOW]
    found = sorted({named(finding, layout) for finding in advice.findings if finding.rule in NAMING and is_worth_saying(finding)})
    false = sorted(finding.id for finding in weighty if finding.rule in _COMMUNICATION and _claims_more(finding, folder, layout))
    expected = expected_name(folder)
    others = sorted(f"{finding.level} {finding.id}" for finding in weighty if finding.rule not in NAMING)
    return {
        "expected": expected or "nothing",
        "named": ", ".join(found) or "nothing",
        "right": found == ([expected] if expected else []) and not false,
        "false": ", ".join(false),
        "also": ", ".join(others),
        "verdict": run.verdict().sentence(),
    }


def main(arguments: list[str] | None = None) -> None:
    """Write the jobs that are not there yet, and print the table."""
    parser = argparse.ArgumentParser(prog="python -m benchmarks.jobs.verdicts", description=__doc__)
    parser.add_argument("out", type=Path, help="a folder for the jobs")
    parser.add_argument("--layout", action="append", help="of the jobs: DATAxPIPELINExTENSOR; any number of times")
    parser.add_argument("--fault", action="append", help="KIND[:name=value,...]; any number of times")
    parser.add_argument("--seeds", type=int, default=3)
    parser.add_argument("--steps", type=int, default=3)
    parser.add_argument("--layers", type=int, default=1)
    parser.add_argument("--write-only", action="store_true", help="look at none")
    parser.add_argument("--table", type=Path, help="a CSV file for the table")
    given = parser.parse_args(arguments)
    rows = []
    for case in cases(given.layout or list(LAYOUTS), given.fault or list(FAULTS), given.seeds):
        folder = write_case(case, given.out, Model(layers=given.layers), given.steps)
        if given.write_only:
            continue
        row = {"fault": case.fault, "layout": case.layout, "seed": case.seed}
        row |= judge(folder, case.ranks)
        rows.append(row)
        print("right" if row["right"] else "WRONG", *(row[name] for name in ("fault", "layout", "seed", "expected")), "->",
              row["named"], f"[{row['also']}] {row['verdict']}", flush=True)  # fmt: skip
    if rows:
        table = pl.DataFrame(rows)
        print(f"{table['right'].sum()} of {table.height} right")
        if given.table:
            table.write_csv(given.table)


if __name__ == "__main__":
    main()
