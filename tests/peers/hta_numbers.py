"""Prints what HolisticTraceAnalysis says of traces, a line of JSON for each. Run by the Python of the peer's environment.

Usage: ``python hta_numbers.py [--all-steps] RANK TRACE [RANK TRACE ...]``; without the flag the last step is left out, as is its
default.
"""

from __future__ import annotations

import json
import os
import sys
from typing import Any

from hta.analyzers.breakdown_analysis import BreakdownAnalysis
from hta.analyzers.communication_analysis import CommunicationAnalysis
from hta.analyzers.cuda_kernel_analysis import CudaKernelAnalysis
from hta.analyzers.trace_counters import TraceCounters
from hta.common.trace import Trace


def rows(frame: Any) -> list[dict[str, Any]]:
    """A pandas frame as rows of plain values."""
    result: list[dict[str, Any]] = json.loads(frame.to_json(orient="records", double_precision=15))
    return result


def main(rank: int, path: str, all_steps: bool) -> None:
    """Analyse and print."""
    trace = Trace(trace_files={rank: path}, trace_dir=os.path.dirname(path))
    trace.load_traces(include_last_profiler_step=all_steps, use_multiprocessing=False)
    kinds, _ = BreakdownAnalysis.get_gpu_kernel_breakdown(trace, visualize=False, num_kernels=1_000_000, duration_ratio=1.0)
    with_memory, kernels = BreakdownAnalysis.get_gpu_kernel_breakdown(
        trace, visualize=False, num_kernels=1_000_000, duration_ratio=1.0, include_memory_kernels=True
    )
    queue = TraceCounters.get_queue_length_summary(trace, [rank])
    queue.columns = [name for _, name in queue.columns]
    launches = CudaKernelAnalysis.cuda_kernel_launch_stats(trace, [rank], visualize=False)[rank]
    idle, _ = BreakdownAnalysis.get_idle_time_breakdown(trace, consecutive_kernel_delay=30, rank=rank, visualize=False)
    # what the peer prints itself is told apart by its beginning
    print(
        "numbers: "
        + json.dumps(
            {
                "temporal": rows(BreakdownAnalysis.get_temporal_breakdown(trace, visualize=False))[0],
                "overlap": rows(CommunicationAnalysis.get_comm_comp_overlap(trace, visualize=False))[0],
                "kinds": rows(kinds),
                "kinds_with_memory": rows(with_memory),
                "kernels": rows(kernels),
                "queue": rows(queue.reset_index()),
                "launches": rows(launches),
                "idle": rows(idle),
            }
        )
    )


if __name__ == "__main__":
    told = [argument for argument in sys.argv[1:] if argument != "--all-steps"]
    for rank, path in zip(told[::2], told[1::2], strict=True):
        main(int(rank), path, "--all-steps" in sys.argv)
