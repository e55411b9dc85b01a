"""What recording MindSpore on a CPU costs, beside MindSpore's own profiler.

Usage: ``python benchmarks/mindspore_overhead.py [--rounds 9] [--steps 200]``; needs ``.bench/mindspore`` (``make test`` makes it)

MindSpore's profiler works once per process, so processes alternate: one with MindSpore's, one with steplens. Each trains a small
network, first with nothing recorded, then with a window of as many steps, and then analyses that window. Added time is the
difference of the 10th percentiles within a process; what the table shows are medians over the processes.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import tempfile
import time
from pathlib import Path
from typing import Any

ROOT = Path(__file__).resolve().parent.parent
INTERPRETER = ROOT / ".bench" / "mindspore" / "bin" / "python"
WARM_UP = 30
SMALL = 20


def measure(who: str, mode: str, steps: int, out: str) -> dict[str, Any]:
    """Times of one process, in us per step and s."""
    import numpy as np

    import mindspore as ms
    from mindspore import nn

    if who == "MindSpore":
        from mindspore import Profiler
    else:
        from steplens.mindspore import Profiler  # type: ignore[assignment]

    class Net(nn.Cell):  # type: ignore[misc]
        def __init__(self) -> None:
            super().__init__()
            self.first, self.relu, self.last = nn.Dense(64, 128), nn.ReLU(), nn.Dense(128, 10)

        def construct(self, x: Any) -> Any:
            return self.last(self.relu(self.first(x)))

    ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE, device_target="CPU")
    net = Net()
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    train = nn.TrainOneStepCell(nn.WithLossCell(net, loss), nn.Momentum(net.trainable_params(), 0.01, 0.9))
    data, label = ms.Tensor(np.ones([16, 64], np.float32)), ms.Tensor(np.zeros([16], np.int32))

    def block(count: int) -> list[float]:
        times = []
        for _ in range(count):
            begin = time.perf_counter()
            train(data, label).asnumpy()
            times.append((time.perf_counter() - begin) * 1e6)
        return times

    block(WARM_UP)
    bare = block(steps)
    profiler = Profiler(output_path=out, start_profile=False)
    profiler.start()
    recorded = block(steps)
    profiler.stop()
    begin = time.perf_counter()
    profiler.analyse()
    return {"bare": _typical(bare), "recorded": _typical(recorded), "analyse": time.perf_counter() - begin}


def _typical(times: list[float]) -> float:
    """10th percentile: MindSpore's own threads keep two cores busy, and most eager steps wait for one of them."""
    return statistics.quantiles(times, n=10)[0]


def in_a_process(who: str, mode: str, steps: int) -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as folder:
        environment = {**os.environ, "GLOG_v": "3", "PYTHONPATH": str(ROOT / "src")}
        command = [str(INTERPRETER), __file__, "--child", who, mode, str(steps), folder]
        done = subprocess.run(command, env=environment, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL, text=True, check=True)
    found: dict[str, Any] = json.loads(done.stdout.splitlines()[-1])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description="Times recording MindSpore beside its own profiler.")
    parser.add_argument("--rounds", type=int, default=9)
    parser.add_argument("--steps", type=int, default=200)
    parser.add_argument("--child", nargs=4, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.child:
        who, mode, steps, out = options.child
        print(json.dumps(measure(who, mode, int(steps), out)))
        return
    print(f"{os.cpu_count()} cores, load {os.getloadavg()[0]:.1f}; {options.rounds} rounds, windows of {options.steps} steps\n")
    print("| mode | profiler | step, bare | step, recorded | added | analysis of the window | analysis of 20 steps |")
    print("|---|---|---|---|---|---|---|")
    ratios = []
    for mode in ("graph", "pynative"):
        found: dict[str, list[dict[str, Any]]] = {"MindSpore": [], "steplens": []}
        small: dict[str, list[float]] = {"MindSpore": [], "steplens": []}
        for _ in range(options.rounds):
            for who, rounds in found.items():
                rounds.append(in_a_process(who, mode, options.steps))
        for _ in range(3):
            for who, lengths in small.items():
                lengths.append(in_a_process(who, mode, SMALL)["analyse"])
        for who, rounds in found.items():
            bare, recorded, analyse = (statistics.median(one[key] for one in rounds) for key in ("bare", "recorded", "analyse"))
            added = statistics.median(one["recorded"] - one["bare"] for one in rounds)
            cells = [mode, who, f"{bare:.0f} us", f"{recorded:.0f} us", f"{added:.0f} us"]
            cells += [f"{analyse:.2f} s", f"{statistics.median(small[who]):.2f} s"]
            print(f"| {' | '.join(cells)} |", flush=True)
        ours, theirs = ([one["recorded"] / one["bare"] for one in found[who]] for who in ("steplens", "MindSpore"))
        ratios.append(f"{mode} {statistics.median(ours) / statistics.median(theirs):.2f}")
    print(
        "\nA step recorded by steplens to one recorded by MindSpore's profiler, both in units of the bare step: "
        f"{', '.join(ratios)}."
    )


if __name__ == "__main__":
    main()
