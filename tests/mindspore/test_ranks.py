"""Two ranks on one machine: results of their own below one folder, and the same steps for both when a file asks."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import steplens

from .conftest import run_program
from .interpreter import server
from .programs import NETWORK, WAITING

pytestmark = pytest.mark.slow


def run_ranks(folder: Path, text: str, count: int = 2) -> list[str]:
    """Run a program once per rank, at the same time; their output."""
    program = folder / "train.py"
    program.write_text(NETWORK + text)
    ranks = ({"RANK_ID": str(rank), "RANK_SIZE": str(count)} for rank in range(count))
    done = server.run(*({"program": program, "environment": rank} for rank in ranks))
    outputs = [each.stdout + each.stderr for each in done]
    assert [each.returncode for each in done] == [0] * count, outputs
    return outputs


def test_ranks_share_a_directory(tmp_path: Path) -> None:
    run_ranks(
        tmp_path,
        """
from steplens.mindspore import Profiler
mode("graph")
rank = int(os.environ["RANK_ID"])
profiler = Profiler(output_path="result", data_process=True, profile_memory=True, data_simplification=False)
model().train(1, pipeline(4 + rank), dataset_sink_mode=False)
profiler.stop()
""",
    )
    text = "from steplens.mindspore import Profiler\nProfiler.offline_analyse('result', pretty=True, data_simplification=False)\n"
    run_program(tmp_path, text)
    run = steplens.open(tmp_path / "result")
    assert [trace.rank for trace in run.traces] == [0, 1]
    steps = run.steps()
    assert [steps.filter(rank=rank).height for rank in (0, 1)] == [4, 5]
    there = tmp_path / "result" / "profiler"
    for rank in (0, 1):
        info = json.loads((there / f"profiler_info_{rank}.json").read_text())
        assert (info["rank_id"], info["rank_size"], len(info["steps"])) == (str(rank), 2, 4 + rank)
        assert (there / f"dataset_iterator_profiling_{rank}.txt").is_file()
        assert len(list(there.glob(f"rank-{rank}_*_ascend_ms/ASCEND_PROFILER_OUTPUT/trace_view.json"))) == 1


def test_ranks_capture_the_same_steps(tmp_path: Path) -> None:
    run_ranks(
        tmp_path,
        """
from steplens.mindspore import DynamicProfilerMonitor
mode("graph")
"""
        + WAITING
        + """
class Slow(ms.Callback):
    def on_train_step_end(self, run_context):
        number = run_context.original_args().cur_step_num
        time.sleep(0.002 + 0.002 * int(os.environ["RANK_ID"]))
        if number == 40 and os.environ["RANK_ID"] == "0":
            # either may take any time to start
            wait_for(lambda ranks: len(ranks) == 2 and all(rank.step for rank in ranks))
            text = json.loads(open("dyn_cfg/profiler_config.json").read())
            text.update(start_step=150, stop_step=152, analyse_mode=0)
            open("dyn_cfg/profiler_config.json", "w").write(json.dumps(text))
        if number == 120:
            wait_for(lambda ranks: len(ranks) == 2 and all(rank.requests for rank in ranks))

monitor = DynamicProfilerMonitor("dyn_cfg", "dynprof_data")
model().train(1, pipeline(160), callbacks=[monitor, Slow()], dataset_sink_mode=False)
""",
    )
    assert sorted(path.name for path in (tmp_path / "dynprof_data").iterdir()) == [
        "rank0_start150_stop152",
        "rank1_start150_stop152",
    ]
    for rank in (0, 1):
        run = steplens.open(tmp_path / "dynprof_data" / f"rank{rank}_start150_stop152")
        assert [trace.rank for trace in run.traces] == [rank]
        assert run.steps()["step"].to_list() == [150, 151, 152]
