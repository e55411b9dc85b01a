"""Operator sums against torch.profiler's own, on the same Kineto result."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

torch = pytest.importorskip("torch", reason="needs PyTorch")

import steplens.run  # noqa: E402
from steplens.analysis.device.api import api_statistic  # noqa: E402


class Checkpointed(torch.nn.Module):
    """A network whose backward runs on threads of the autograd engine as well as on the caller's."""

    def __init__(self) -> None:
        super().__init__()
        self.convolution = torch.nn.Conv2d(3, 8, 3, padding=1)
        self.attention = torch.nn.MultiheadAttention(16, 2, batch_first=True)
        self.head = torch.nn.Linear(16, 4)

    def forward(self, image, tokens):
        mixed = self.convolution(image).mean(dim=(1, 2, 3)).reshape(-1, 1, 1)
        attended = self.attention(tokens, tokens, tokens, need_weights=False)[0]
        return self.head((attended + mixed).mean(dim=1))


def _record(tmp_path: Path, *, shapes: bool, threads: bool, stack: bool = False):
    import threading

    network = Checkpointed()
    optimizer = torch.optim.Adam(network.parameters(), lr=1e-3)
    profiler = torch.profiler.profile(
        activities=[torch.profiler.ProfilerActivity.CPU],
        record_shapes=shapes,
        profile_memory=True,
        with_stack=stack,
        schedule=torch.profiler.schedule(wait=0, warmup=1, active=3, repeat=1),
        experimental_config=torch._C._profiler._ExperimentalConfig(profile_all_threads=True) if threads else None,
    )
    profiler.start()

    def run_alone() -> None:
        Checkpointed()(torch.randn(4, 3, 8, 8), torch.randn(4, 5, 16)).sum().backward()

    def one_step() -> None:
        optimizer.zero_grad()
        network(torch.randn(4, 3, 8, 8), torch.randn(4, 5, 16)).sum().backward()
        optimizer.step()

    for _ in range(4):
        workers = [threading.Thread(target=run_alone) for _ in range(2)]
        if threads:
            for worker in workers:
                worker.start()
        one_step()
        if threads:
            for worker in workers:
                worker.join()
        profiler.step()
    profiler.stop()
    path = tmp_path / "trace.json"
    profiler.profiler.kineto_results.save(str(path))
    return profiler, path


@pytest.mark.parametrize("shapes", [False, True])
@pytest.mark.parametrize("threads", [False, True])
def test_operator_sums_equal_key_averages(tmp_path: Path, shapes: bool, threads: bool) -> None:
    profiler, path = _record(tmp_path, shapes=shapes, threads=threads)
    frame = steplens.run.open_run(path).operators(by="shape" if shapes else "name", annotations=True)
    ours: dict[tuple[str, ...], tuple[int, float, float]] = {}
    for row in frame.iter_rows(named=True):
        key = (row["name"], row["input_shapes"] or "") if shapes else (row["name"],)
        calls, self_us, total_us = ours.get(key, (0, 0.0, 0.0))
        ours[key] = (calls + row["calls"], self_us + row["self_ns"] / 1000, total_us + row["total_ns"] / 1000)

    theirs: dict[tuple[str, ...], tuple[int, float, float]] = {}
    for event in profiler.key_averages(group_by_input_shape=shapes):
        if event.key == "[memory]":
            continue
        key = (event.key, _shapes(event.input_shapes)) if shapes else (event.key,)
        calls, self_us, total_us = theirs.get(key, (0, 0.0, 0.0))
        theirs[key] = (calls + event.count, self_us + event.self_cpu_time_total, total_us + event.cpu_time_total)

    assert set(ours) == set(theirs)
    assert len(ours) > 20
    for key, (calls, self_us, total_us) in theirs.items():
        assert ours[key][0] == calls, key
        # the sums of PyTorch are sums of float microseconds; half a nanosecond is their rounding
        assert ours[key][1] == pytest.approx(self_us, abs=5e-4), key
        assert ours[key][2] == pytest.approx(total_us, abs=5e-4), key
    threads_seen = steplens.run.open_run(path).trace().ops["tid"].n_unique()
    assert threads_seen == (3 if threads else 1) or threads_seen > 2


def _shapes(value) -> str:
    from steplens.readers.kineto.kineto_tables import shapes_text

    return shapes_text(json.dumps(value)) or ""


def test_stack_recording_leaves_the_sums_alone(tmp_path: Path) -> None:
    profiler, path = _record(tmp_path, shapes=True, threads=False, stack=True)
    run = steplens.run.open_run(path)
    ours = {row["name"]: row for row in run.operators().iter_rows(named=True)}
    names = {event.key for event in profiler.key_averages()}
    assert {name for name in ours if name.startswith("aten::")} <= names
    for event in profiler.key_averages():
        # PyTorch counts Python frames as children of the ranges they run in, so only operators can be compared
        if event.key.startswith("aten::"):
            assert ours[event.key]["calls"] == event.count
            assert ours[event.key]["self_ns"] / 1000 == pytest.approx(event.self_cpu_time_total, abs=5e-4)
    by_stack = run.operators(by="stack")
    assert by_stack["self_ns"].sum() == run.operators()["self_ns"].sum()
    assert by_stack.filter(by_stack["name"] == "aten::addmm")["stack"].str.contains("test_truth.py").all()


def test_calls_of_the_framework_equal_key_averages(tmp_path: Path) -> None:
    profiler, path = _record(tmp_path, shapes=False, threads=False)
    ours = {row["name"]: row for row in api_statistic(steplens.run.open_run(path).trace()).iter_rows(named=True)}
    assert {row["layer"] for row in ours.values()} == {"framework"}
    theirs = {event.key: event for event in profiler.key_averages() if event.key in ours}
    assert set(theirs) == set(ours)
    # what is not there are the ranges of the user, of the steps and of the optimizer
    others = {event.key.partition("#")[0] for event in profiler.key_averages() if event.key not in ours}
    assert others - {"[memory]"} == {"ProfilerStep*", "Optimizer.step", "Optimizer.zero_grad"}
    for name, event in theirs.items():
        assert ours[name]["count"] == event.count, name
        assert ours[name]["total_ns"] / 1000 == pytest.approx(event.cpu_time_total, abs=5e-4), name
        assert ours[name]["min_ns"] <= ours[name]["mean_ns"] <= ours[name]["max_ns"]
