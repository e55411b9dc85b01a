"""Programs that train with real MindSpore. They know steplens only by their imports."""

from __future__ import annotations

#: a small network, and data whose every sample takes a known time
NETWORK = """
import steplens.mindspore
import json, os, sys, time
import numpy as np
import mindspore as ms
import mindspore.dataset as ds
from mindspore import nn
from mindspore.train import Model

def mode(name):
    ms.set_context(mode=ms.GRAPH_MODE if name == "graph" else ms.PYNATIVE_MODE, device_target="CPU")

class Net(nn.Cell):
    def __init__(self):
        super().__init__()
        self.first, self.relu, self.last = nn.Dense(8, 16), nn.ReLU(), nn.Dense(16, 2)

    def construct(self, x):
        return self.last(self.relu(self.first(x)))

#: when the last sample of every batch was made, seconds
made = []

def pipeline(batches, delay_s=0.0, batch=2):
    def samples():
        for number in range(batches * batch):
            time.sleep(delay_s / batch)
            if number % batch == batch - 1:
                made.append(time.time())
            yield np.full([8], number, np.float32), np.array(number % 2, np.int32)
    return ds.GeneratorDataset(samples, ["data", "label"], shuffle=False, num_parallel_workers=1).batch(batch)

def training():
    net = Net()
    loss = nn.SoftmaxCrossEntropyWithLogits(sparse=True, reduction="mean")
    return net, loss, nn.Momentum(net.trainable_params(), 0.1, 0.9)

def model():
    net, loss, optimizer = training()
    return Model(net, loss, optimizer)

def stepper():
    net, loss, optimizer = training()
    return nn.TrainOneStepCell(nn.WithLossCell(net, loss), optimizer)
"""

#: how a training waits for what those that watch ``dyn_cfg`` have noticed, however long a busy machine takes for that
WAITING = """
import pathlib
from steplens.collect.dynamic.client import find_participants

def wait_for(noticed):
    limit = time.monotonic() + 120
    while not noticed(found := find_participants(pathlib.Path("dyn_cfg").resolve())):
        assert time.monotonic() < limit, found
        time.sleep(0.02)
"""

#: windows of steps 3 to 7 and 10 to 11
RECORDING = """
from steplens.mindspore import Profiler
mode(sys.argv[1])

class Windows(ms.Callback):
    def __init__(self):
        super().__init__()
        self.profiler = Profiler(start_profile=False, output_path="result", profile_memory=True, data_process=True,
                                 data_simplification=False)
    def on_train_step_begin(self, run_context):
        if run_context.original_args().cur_step_num in (3, 10):
            self.profiler.start()
    def on_train_step_end(self, run_context):
        if run_context.original_args().cur_step_num in (7, 11):
            self.profiler.stop()

windows = Windows()
model().train(2, pipeline(6), callbacks=[windows], dataset_sink_mode=False)
windows.profiler.add_metadata("who", "somebody")
windows.profiler.add_metadata_json("numbers", "[1, 2]")
windows.profiler.analyse(pretty=True)
print(windows.profiler.op_analyse(["MatMul", "ReLU"]))
"""
