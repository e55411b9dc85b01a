"""The recipes of ``msprof-analyze cluster``: what they find in real jobs, a straggler and a slow link among it."""

from __future__ import annotations

import shutil
from collections import Counter, defaultdict
from collections.abc import Callable
from pathlib import Path

import polars as pl
import pytest

import steplens
from steplens.analysis.steps.ascend_step_times import ascend_step_times
from steplens.analysis.steps.device_work import computing_tasks
from steplens.trace.trace import Trace
from steplens.writers.result import Settings, write_result

from . import msprof, runs
from .conftest import SLOW_RANK
from .jobs import train

pytestmark = pytest.mark.slow

STEPS = 3
PARTS_OF_COLLECTIVES = "COMMUNICATION_TASK_INFO"

#: recipe -> its tables, none of which may be empty
FOUND = {
    "compute_op_sum": ["ComputeOpAllRankStats", "ComputeOpPerRankStatsByOpType", "ComputeOpPerRankStatsByOpName"],
    "hccl_sum": ["HcclAllRankStats", "HcclPerRankStats", "HcclTopOpStats", "HcclGroupNameMap"],
    "communication_bottleneck": ["CommunicationBottleneck"],
    "free_analysis": ["FreeAnalysis"],
    "module_statistic": ["ModuleStatistic"],
}
#: what fails without data that runs on a CPU cannot have, with what the tool then says
IMPOSSIBLE = {
    # the CPU is its own launch: its calls of a runtime have no length, and the tool divides by their sum
    "cann_api_sum": "cannot concatenate",
    "freq_analysis": "No aic freq data",
    # it takes every range for one that a device's task marks, too, which the marks of the host alone have nowhere
    "mstx_sum": "unsupported operand type",
}


def copied(folder: Path, target: Path) -> Path:
    """A copy, because several recipes write into what they read."""
    return shutil.copytree(folder, target, ignore=shutil.ignore_patterns("KINETO", ".steplens", "logs"))


@pytest.mark.parametrize("recipe", FOUND)
def test_recipes_find_something(job: Callable[[int], Path], tmp_path: Path, recipe: str) -> None:
    ran = msprof.cluster(copied(job(2) / "db", tmp_path / "job"), tmp_path / "out", recipe)
    # where it takes the device of the late rank for the cause, it asks for the parts of collectives too, which only an NPU has
    lacking = ran.log.count(f"no such table: {PARTS_OF_COLLECTIVES}") if recipe == "communication_bottleneck" else 0
    assert len(ran.errors) == lacking, ran.log
    assert set(ran.tables) >= set(FOUND[recipe])
    for table in FOUND[recipe]:
        assert ran.tables[table], table
    if recipe == "hccl_sum":
        by_type = {row["OpType"]: row["Count"] for row in ran.tables["HcclAllRankStats"]}
        assert by_type["broadcast"] == 2 * STEPS * train.BROADCASTS


@pytest.mark.parametrize("recipe", IMPOSSIBLE)
def test_recipes_that_no_run_on_a_cpu_can_serve(job: Callable[[int], Path], tmp_path: Path, recipe: str) -> None:
    ran = msprof.cluster(copied(job(2) / "db", tmp_path / "job"), tmp_path / "out", recipe)
    assert any(IMPOSSIBLE[recipe] in line for line in ran.errors), ran.log
    assert not ran.tables


def test_runtime_calls_of_a_gpu_are_summed(cuda: Path, tmp_path: Path) -> None:
    ran = msprof.cluster(copied(cuda / "db", tmp_path / "job"), tmp_path / "out", "cann_api_sum")
    assert ran.errors == [], ran.log
    launches = {row["name"]: row["totalCount"] for row in ran.tables["CannApiSum"]}
    expected = 0
    for trace in steplens.open(cuda / "db").traces:
        steps = trace.required("steps").select(pl.col("start_ns").min(), last=pl.col("end_ns").max()).collect().row(0)
        calls = trace.required("api").filter(pl.col("name").cast(pl.String) == "cudaLaunchKernel")
        expected += calls.filter(pl.col("start_ns").is_between(*steps)).select(pl.len()).collect().item()
    assert launches["cudaLaunchKernel"] >= expected > 0


def test_sends_of_a_cpu_stay_unpaired(pipeline: Path, tmp_path: Path) -> None:
    """The tool pairs by the notifications of an NPU's library; without any it says so and leaves the database as it is."""
    folder = copied(pipeline / "pipeline", tmp_path / "job")
    ran = msprof.cluster(folder, tmp_path / "out", "p2p_pairing")
    assert ran.errors == [], ran.log
    assert "Some communication data is missing" in ran.log
    for run in runs.run_directories(folder):
        (database,) = runs.output(run).glob("ascend_pytorch_profiler_*.db")
        assert "opConnectionId" not in dict(msprof.tables(database))["COMMUNICATION_OP"][0]


def test_time_of_each_step(job: Callable[[int], Path], tmp_path: Path) -> None:
    """The parts sum up to the step, but for what precedes its first task and follows its last."""
    folder = job(4) / "db"
    ran = msprof.cluster(copied(folder, tmp_path / "job"), tmp_path / "out", "cluster_time_summary")
    assert ran.errors == [], ran.log
    found = {(row["rank"], row["step"]): row for row in ran.tables["ClusterTimeSummary"]}
    traces = {trace.rank: trace for trace in steplens.open(folder).traces}
    assert set(found) == {(rank, step) for rank in range(4) for step in runs.steps_of(4)}
    for rank, trace in traces.items():
        lengths = dict(trace.required("steps").select("id", pl.col("end_ns") - pl.col("start_ns")).collect().rows())
        for times in ascend_step_times(trace).to_dicts():
            row = found[rank, times["step"]]
            assert row["stepTime"] == pytest.approx(lengths[times["step"]] / 1000, abs=1e-3)
            parts = (row["computation"], row["communicationNotOverlapComputation"], row["free"])
            expected = (times["computing_ns"], times["communication_not_overlapped_ns"], times["free_ns"])
            assert parts == pytest.approx([time / 1000 for time in expected], abs=1e-3)
            # preparing and the parts reach from the beginning of the step to the end of its last task
            ends = [table.filter(pl.col("step") == times["step"]).select(pl.col("end_ns").max()).collect().item()
                    for table in (computing_tasks(trace), trace.required("communication"))]  # fmt: skip
            last = max(ends)
            whole = sum(parts) + times["preparing_ns"] / 1000
            assert whole == pytest.approx((last - times["start_ns"]) / 1000, abs=1e-2)
            # transmission and waiting are the whole of all operations; gloo's threads may run two of them at a time
            operations = trace.required("communication").filter(pl.col("step") == times["step"])
            spent = operations.select((pl.col("end_ns") - pl.col("start_ns")).sum()).collect().item() / 1000
            stages = row["communicationWaitStageTime"] + row["communicationTransmitStageTime"]
            assert 0.999 * row["communication"] <= stages <= 1.001 * spent
            assert row["memory"] > 0


def rewritten(run: Path, target: Path, change: Callable[[pl.DataFrame], pl.DataFrame]) -> None:
    """The databases of a recorded run, with other rows of communication."""
    (trace,) = steplens.open(run).traces
    changed = change(trace.required("communication").collect())
    tables = {name: trace.table(name) for name in ("meta", "ops", "steps", "kernels")}
    other = Trace(run, {**{name: table for name, table in tables.items() if table is not None}, "communication": changed})
    target.mkdir(parents=True)
    (target / f"profiler_info_{trace.rank}.json").write_text("{}")
    statuses = write_result(other, target, Settings(level="Level1"), export_types=("db",))
    assert not [status for status in statuses.values() if status.status == "failed"]


def lengths_by_name(folder: Path) -> dict[str, dict[int, int]]:
    """How long (ns) each rank took for each operation, by the operation's name."""
    found: dict[str, dict[int, int]] = defaultdict(dict)
    for run in runs.run_directories(folder):
        rank = runs.rank_of(run)
        tables = dict(msprof.tables(runs.output(run) / f"ascend_pytorch_profiler_{rank}.db"))
        names = {row["id"]: row["value"] for row in tables["STRING_IDS"]}
        for row in tables["COMMUNICATION_OP"]:
            found[names[row["opName"]]][rank] = row["endNs"] - row["startNs"]
    return found


def outlier(lengths: dict[int, int]) -> int | None:
    """The one of four ranks that waited so much less than the others that Dixon's test calls it an outlier (at 99.5 %)."""
    first, second, _, last = sorted(lengths.values())
    if len(set(lengths.values())) < 4 or (second - first) / (last - first) <= 0.920:
        return None
    return next(rank for rank, length in lengths.items() if length == first)


def test_the_votes_are_those_of_the_recorded_lengths(job: Callable[[int], Path], tmp_path: Path) -> None:
    """Each operation whose lengths have an outlier, the shortest, is a vote, whoever was late on this machine."""
    folder = job(4) / "db"
    ran = msprof.cluster(folder, tmp_path, "slow_rank")
    assert ran.errors == [], ran.log
    lengths = lengths_by_name(folder)
    assert len(lengths) > STEPS * train.BROADCASTS and all(set(each) == set(range(4)) for each in lengths.values())
    expected = {name: rank for name, each in lengths.items() if (rank := outlier(each)) is not None}
    assert {row["OpName"]: int(row["SlowRank"]) for row in ran.tables.get("SlowOpStats", [])} == expected
    votes = {row["rankId"]: row["slowAffectCount"] for row in ran.tables.get("SlowRank", [])}
    assert votes == Counter(expected.values())


def test_a_straggler_gets_the_votes(job: Callable[[int], Path], tmp_path: Path) -> None:
    """One collective of each step waits for a rank as long as it sleeps: made so in the recorded tables.

    As it was recorded, others may wait unequally long, or be late themselves, where the machine has fewer processors than ranks.
    """
    for run in runs.run_directories(job(4) / "db"):
        rank = runs.rank_of(run)
        waited = int(train.SLEEP_S * 1e9) if rank != SLOW_RANK else 0
        reduction = pl.col("operation").cast(pl.String) == "allreduce"
        # the first of a step is that of the gradients; what else differs between ranks is some us
        waits = reduction & (pl.col("start_ns").rank("ordinal").over("step", "operation") == 1)
        length = pl.when(waits).then(100_000 + 1000 * rank + waited).otherwise(100_000)
        rewritten(
            run,
            tmp_path / "job" / run.name,
            lambda rows, length=length: rows.with_columns(end_ns=pl.col("start_ns") + length),
        )
    ran = msprof.cluster(tmp_path / "job", tmp_path / "out", "slow_rank")
    assert ran.errors == [], ran.log
    assert {row["rankId"]: row["slowAffectCount"] for row in ran.tables["SlowRank"]} == {SLOW_RANK: STEPS}
    assert {row["OpName"] for row in ran.tables["SlowOpStats"] if row["SlowRank"] == str(SLOW_RANK)} == {
        f"hcom_allReduce__256_{step}_0" for step in runs.steps_of(4)
    }


def test_a_slow_link_shows(job: Callable[[int], Path], tmp_path: Path) -> None:
    """One broadcast of many takes far longer on every rank, as over a slow link: made so in the recorded tables."""
    slow = (3, 4)

    def slower(rows: pl.DataFrame) -> pl.DataFrame:
        broadcast = pl.col("operation").cast(pl.String) == "broadcast"
        number = pl.col("start_ns").rank("ordinal").over("step", "operation")
        chosen = broadcast & (pl.col("step") == slow[0]) & (number == slow[1] + 1)
        longest = rows.filter(broadcast).select((pl.col("end_ns") - pl.col("start_ns")).max()).item()
        return rows.with_columns(end_ns=pl.when(chosen).then(pl.col("start_ns") + 100 * longest).otherwise("end_ns"))

    for run in runs.run_directories(job(4) / "db"):
        rewritten(run, tmp_path / "job" / run.name, slower)
    ran = msprof.cluster(tmp_path / "job", tmp_path / "out", "slow_link")
    assert ran.errors == [], ran.log
    name = f"hcom_broadcast__256_{slow[0]}_{slow[1]}"
    outliers = [row for row in ran.tables["SlowLinkOps"] if row["opName"] == name]
    assert len(outliers) == 4
    largest = max(ran.tables["SlowLinkOps"], key=lambda row: row["transmitTime"])
    assert largest["opName"] == name
    (summed,) = [
        row for row in ran.tables["SlowLinkSum"] if row["opTypeRelatedRanksDataSize"] == f"broadcast4_{4 * train.BROADCAST}"
    ]
    assert summed["offsetRatio"] > 3


def test_without_an_outlier_the_tool_says_so(job: Callable[[int], Path], tmp_path: Path) -> None:
    """Two ranks cannot vote, with any input."""
    ran = msprof.cluster(job(2) / "db", tmp_path, "slow_rank")
    assert ran.errors == [], ran.log
    assert "SlowRank" not in ran.tables
    assert "No slow rank found" in ran.log


def test_baseline_and_comparison(job: Callable[[int], Path], tmp_path: Path) -> None:
    folder = copied(job(2) / "db", tmp_path / "job")
    # the recipe wants the summary in the default place
    assert msprof.cluster(folder, folder, "cluster_time_summary").errors == []
    ran = msprof.cluster(folder, folder, "cluster_time_compare_summary", "--bp", str(folder))
    assert ran.errors == [], ran.log
    for row in ran.tables["ClusterTimeCompareSummary"]:
        assert {row[name] for name in row if name.endswith("Diff")} == {0}
    assert len(ran.tables["ClusterTimeCompareSummary"]) == 2 * STEPS
