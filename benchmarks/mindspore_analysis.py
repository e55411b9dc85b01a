"""How long the analysis of a million launches recorded by MindSpore takes, and the memory it needs.

Usage: ``python benchmarks/mindspore_analysis.py [--launches 1000000]``; needs ``.bench/mindspore`` (``make test`` makes it)

A process trains a small network in graph mode until MindSpore's profiler has recorded that many launches of operators. The
analysis runs in a process of its own, as ``Profiler.analyse`` starts it, first from the raw files to the Parquet store and every
file of the result; then the result is opened again from its store.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
INTERPRETER = ROOT / ".bench" / "mindspore" / "bin" / "python"
#: the first ones write to memory that the system has not used for files yet
ROUNDS = 7


def record(who: str, out: str, count: int) -> dict[str, Any]:
    """Records ``count`` launches with steplens, and says how many steps that were; or so many steps with MindSpore's profiler.

    MindSpore's also analyses them, and the time of that (s) is given.
    """
    import numpy as np

    import mindspore as ms
    from mindspore import nn

    if who == "MindSpore":
        from mindspore import Profiler
    else:
        from steplens.mindspore import Profiler  # type: ignore[assignment]

    ms.set_context(mode=ms.GRAPH_MODE, device_target="CPU")
    net = nn.SequentialCell([layer for _ in range(10) for layer in (nn.Dense(16, 16), nn.ReLU())])
    train = nn.TrainOneStepCell(nn.WithLossCell(net, nn.MSELoss()), nn.Momentum(net.trainable_params(), 0.01, 0.9))
    train(ms.Tensor(np.ones([4, 16], np.float32)), ms.Tensor(np.zeros([4, 16], np.float32))).asnumpy()

    def window(steps: int) -> int:
        """Record so many steps of a loop over a dataset; number of launches recorded so far."""
        rows = np.ones([steps, 4, 16], np.float32)
        batches = ms.dataset.NumpySlicesDataset((rows, rows), shuffle=False, num_parallel_workers=1).create_tuple_iterator()
        profiler.start()
        for data, label in batches:
            train(data, label).asnumpy()
        profiler.stop()
        return _launches(out)

    profiler = Profiler(output_path=out, start_profile=False)
    if who == "MindSpore":
        # it records once per process, so that steps cannot be tried first
        window(count)
        begin = time.perf_counter()
        profiler.analyse()
        return {"analyse": time.perf_counter() - begin}
    a_step = window(10) // 10
    return {"steps": 10 + count // a_step, "launches": window(count // a_step)}


def _launches(out: str) -> int:
    """Launches in the raw files: every line is an operator and its type, then start, length and worker of each launch."""
    count = 0
    for file in Path(out).rglob("*op_execute_timestamp*"):
        with file.open("rb") as lines:
            count += sum(line.count(b",") // 2 for line in lines)
    return count


def main() -> None:
    parser = argparse.ArgumentParser(description="Times the analysis of a million launches of MindSpore.")
    parser.add_argument("--launches", type=int, default=1_000_000)
    parser.add_argument("--child", nargs=3, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        who, out, count = options.child
        print(json.dumps(record(who, out, int(count))))
        return
    environment = {**os.environ, "GLOG_v": "3", "PYTHONPATH": str(ROOT / "src")}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "recorded"
        recorded = _child(environment, "steplens", out, options.launches)
        own = _child(environment, "MindSpore", Path(folder) / "own", recorded["steps"])["analyse"]
        raw = sum(file.stat().st_size for file in out.rglob("*") if file.is_file())
        analysed, opened, peaks = [], [], []
        for number in range(ROUNDS):
            copy = Path(folder) / f"copy{number}"
            shutil.copytree(out, copy)
            # what was written before is not to be part of it
            os.sync()
            seconds, peak = _timed(
                [str(INTERPRETER), "-m", "steplens.mindspore_results", "analyse", str(copy), "--keep-raw"], environment
            )
            analysed.append(seconds)
            peaks.append(peak)
            opened.append(_timed([sys.executable, "-c", _OPEN, str(copy)], environment)[0])
            shutil.rmtree(copy)
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; medians of {ROUNDS}; each time is that of a whole process\n")
    print("| launches | steps | raw files | analysis | peak memory | then open, steps and operators | MindSpore's own analysis |")
    print("|---|---|---|---|---|---|---|")
    cells = [f"{recorded['launches']:,}", f"{recorded['steps']:,}", f"{raw / 1e6:.0f} MB"]
    cells.append(f"{statistics.median(analysed):.2f} s ({min(analysed):.2f} to {max(analysed):.2f})")
    cells += [f"{max(peaks) / 1e6:.0f} MB", f"{statistics.median(opened):.2f} s", f"{own:.2f} s"]
    print(f"| {' | '.join(cells)} |")


def _child(environment: dict[str, str], who: str, out: Path, count: int) -> dict[str, Any]:
    done = subprocess.run(
        [str(INTERPRETER), __file__, "--child", who, str(out), str(count)],
        env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True,
    )  # fmt: skip
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


_OPEN = "import sys, steplens; run = steplens.open(sys.argv[1]); run.steps(); run.operators()"


def _timed(command: list[str], environment: dict[str, str]) -> tuple[float, int]:
    """Seconds and peak memory (bytes) of a process, its start included."""
    begin = time.perf_counter()
    process = subprocess.Popen(command, env=environment, stdout=subprocess.DEVNULL)
    _, status, usage = os.wait4(process.pid, 0)
    if status:
        raise SystemExit(f"{command} ended with {status}")
    return time.perf_counter() - begin, usage.ru_maxrss * 1024


if __name__ == "__main__":
    main()
