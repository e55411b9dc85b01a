"""A small training on the CPU, recorded here."""

from __future__ import annotations

from pathlib import Path

import pytest

import steplens
from steplens.run import open_run
from steplens.trace.trace import Trace


def recorded_on_the_cpu(folder: Path, steps: int) -> Trace:
    """The trace of so many steps, at Level1, with shapes, memory and stacks."""
    torch = pytest.importorskip("torch")
    model = torch.nn.Sequential(torch.nn.Linear(16, 32), torch.nn.ReLU(), torch.nn.Linear(32, 4))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    with steplens.profile(
        schedule=steplens.schedule(wait=0, warmup=1, active=steps, repeat=1),
        on_trace_ready=steplens.tensorboard_trace_handler(str(folder), analyse_flag=False),
        record_shapes=True,
        profile_memory=True,
        with_stack=True,
        experimental_config=steplens._ExperimentalConfig(profiler_level=steplens.ProfilerLevel.Level1),
    ) as profiler:
        for _ in range(steps + 1):
            loss = torch.nn.functional.cross_entropy(model(torch.randn(8, 16)), torch.randint(0, 4, (8,)))
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            profiler.step()
    return open_run(folder).trace()
