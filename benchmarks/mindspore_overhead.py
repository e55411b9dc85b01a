"""What recording MindSpore on a CPU costs: steps with and without it, in alternating blocks of one process.

.bench/mindspore/bin/python benchmarks/mindspore_overhead.py [graph|pynative]

Prints, for a small network, the 10th percentile and the median of the step times (us) with nothing recorded, with operators
and with operators and memory, and how long opening and closing a window takes. Medians hold the noise of the machine.
"""

from __future__ import annotations

import shutil
import statistics
import sys
import tempfile
import time
from pathlib import Path

import numpy as np

import mindspore as ms
from mindspore import nn
from steplens.mindspore import Profiler
from steplens.mindspore.steps import steps

_BLOCKS = 10
_STEPS = 60
_WARM_UP = 20


class Net(nn.Cell):
    def __init__(self, width: int) -> None:
        super().__init__()
        self.first, self.relu, self.last = nn.Dense(64, width), nn.ReLU(), nn.Dense(width, 10)

    def construct(self, x: ms.Tensor) -> ms.Tensor:
        return self.last(self.relu(self.first(x)))


def main() -> None:
    mode = sys.argv[1] if len(sys.argv) > 1 else "graph"
    ms.set_context(mode=ms.GRAPH_MODE if mode == "graph" else ms.PYNATIVE_MODE, device_target="CPU")
    net = Net(128)
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    train = nn.TrainOneStepCell(nn.WithLossCell(net, loss), nn.Momentum(net.trainable_params(), 0.01, 0.9))
    data, label = ms.Tensor(np.ones([16, 64], np.float32)), ms.Tensor(np.zeros([16], np.int32))
    number = 0

    def block(count: int, recorded: bool) -> list[float]:
        nonlocal number
        times = []
        for _ in range(count):
            number += 1
            begin = time.perf_counter()
            train(data, label).asnumpy()
            if recorded:
                steps.manual(number + 1)
            times.append((time.perf_counter() - begin) * 1e6)
        return times

    block(_WARM_UP, False)
    times: dict[str, list[float]] = {"nothing": [], "operators": [], "operators and memory": []}
    windows: list[float] = []
    top = Path(tempfile.mkdtemp(prefix="steplens-bench-"))
    try:
        for _ in range(_BLOCKS):
            times["nothing"] += block(_STEPS, False)
            for name, memory in (("operators", False), ("operators and memory", True)):
                profiler = Profiler(output_path=str(top / name), start_profile=False, profile_memory=memory)
                begin = time.perf_counter()
                profiler.start()
                opened = time.perf_counter() - begin
                times[name] += block(_STEPS, True)
                begin = time.perf_counter()
                profiler.stop()
                windows.append(opened + time.perf_counter() - begin)
    finally:
        shutil.rmtree(top)
    print(f"{mode} mode, MindSpore {ms.__version__}, {_BLOCKS} blocks of {_STEPS} steps")
    for name, values in times.items():
        tenth = statistics.quantiles(values, n=10)[0]
        print(f"{name:>22}: p10 {tenth:8.0f} us, median {statistics.median(values):8.0f} us")
    print(f"window of {_STEPS} steps, open and close: median {statistics.median(windows) * 1e3:.0f} ms")


if __name__ == "__main__":
    main()
