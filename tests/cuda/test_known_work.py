"""Recording on a GPU: programs whose truth is known from outside of the profiler, and what steplens says of them.

The truth is what the programs do (sleeps of a known length), what their own clock says without a profiler, what CUDA's events
measure, and what PyTorch sums up itself. Left out where there is no GPU, as on the machines that test every change.
"""

from __future__ import annotations

import functools
import os
import statistics
import time
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import steplens
from steplens.run import Run

#: PyTorch is not even imported where there cannot be a GPU
HAS_GPU = any(Path("/dev").glob("nvidia[0-9]*"))
pytestmark = pytest.mark.skipif(not HAS_GPU, reason="there is no NVIDIA GPU: recording on one cannot be tested here")

MS = 1_000_000
WAIT, WARMUP, ACTIVE = 3, 2, 6
#: where to keep the recordings, for a look at them
KEPT = os.environ.get("STEPLENS_CUDA_RESULTS")

Step = Callable[[Any], None]


@pytest.fixture(scope="module")
def torch() -> Any:
    torch = pytest.importorskip("torch")
    if not torch.cuda.is_available():
        pytest.skip("PyTorch sees no CUDA device")
    return torch


def occupy(seconds: float) -> None:
    """Python that runs for a known time and calls no operator."""
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        pass


def bare_step_s(torch: Any, step: Step, batches: Callable[[], Iterable[Any]]) -> float:
    """Seconds that a step takes without a profiler by the host's clock, the device's work included; median of three loops."""
    lengths = []
    for _ in range(3):
        torch.cuda.synchronize()
        begin, count = time.perf_counter(), 0
        for batch in batches():
            step(batch)
            count += 1
            if count == WAIT + ACTIVE:
                break
        torch.cuda.synchronize()
        lengths.append((time.perf_counter() - begin) / count)
    return statistics.median(lengths)


def recorded(folder: Path, name: str, step: Step, batches: Callable[[], Iterable[Any]], **options: Any) -> tuple[Run, Any]:
    """A window of ``ACTIVE`` steps, and the profiler that recorded it."""
    target = Path(KEPT) / name if KEPT else folder / name
    schedule = steplens.schedule(wait=WAIT, warmup=WARMUP, active=ACTIVE, repeat=1)
    handler = steplens.tensorboard_trace_handler(str(target))
    with steplens.profile(schedule=schedule, on_trace_ready=handler, **options) as profiler:
        for number, batch in enumerate(batches()):
            if number == WAIT + WARMUP + ACTIVE:
                break
            step(batch)
            profiler.step()
    return steplens.open(target), profiler


def nothing() -> Iterator[None]:
    while True:
        yield None


def kernels(run: Run) -> pl.DataFrame:
    return run.traces[0].required("kernels").collect()


def parts_add_up(run: Run) -> None:
    """What has to hold for every run: nothing negative, parts that add up to their whole, shares of at most one."""
    steps = run.steps().filter("chosen")
    assert steps.height
    device = ("computing_ns", "exposed_communication_ns", "exposed_copy_ns", "idle_ns")
    host = ("data_wait_ns", "forward_ns", "backward_ns", "optimizer_ns", "device_wait_ns", "between_ns", "python_ns")
    for parts, whole in ((device, "device_period_ns"), (host, "duration_ns")):
        assert steps.select(pl.min_horizontal(parts).min()).item() >= 0
        # phases of the host that nothing was recorded of are not known
        known = steps.filter(pl.all_horizontal(pl.col(parts).is_not_null()))
        assert (known.select(pl.sum_horizontal(parts)).to_series() == known[whole]).all()


def test_a_busy_gpu_is_compute_bound_and_steps_last_as_long_as_without_a_profiler(torch: Any, tmp_path: Path) -> None:
    matrix = torch.randn(4096, 4096, device="cuda")

    def step(_: Any) -> None:
        product = matrix
        for _ in range(12):
            product = torch.relu(product @ matrix) * 1e-2

    bare_ns = bare_step_s(torch, step, nothing) * 1e9
    begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    begin.record()
    step(None)
    end.record()
    torch.cuda.synchronize()
    run, _ = recorded(tmp_path, "compute", step, nothing, record_shapes=True)
    parts_add_up(run)
    verdict = run.verdict()
    assert verdict.kind == "compute"
    assert verdict.busy is not None
    assert 0.95 < verdict.busy <= 1
    assert verdict.summary.step_time_ns == pytest.approx(bare_ns, rel=0.1)
    assert verdict.summary.device["computing_ns"] == pytest.approx(begin.elapsed_time(end) * MS, rel=0.1)


def test_python_that_takes_ten_milliseconds_leaves_the_gpu_idle_for_them(torch: Any, tmp_path: Path) -> None:
    matrix = torch.randn(1024, 1024, device="cuda")

    def step(_: Any) -> None:
        for _ in range(20):
            matrix @ matrix
        occupy(0.010)

    bare_ns = bare_step_s(torch, step, nothing) * 1e9
    run, _ = recorded(tmp_path, "python", step, nothing)
    parts_add_up(run)
    verdict = run.verdict()
    assert verdict.kind == "host"
    assert verdict.cause == "python"
    assert verdict.summary.step_time_ns == pytest.approx(bare_ns, rel=0.2)
    assert verdict.summary.host["python_ns"] == pytest.approx(10 * MS, rel=0.1)
    idle = {row["cause"]: row["idle_ns"] for row in run.idle().group_by("cause").agg(pl.col("idle_ns").median()).to_dicts()}
    assert idle["python"] == pytest.approx(10 * MS, rel=0.25)


def test_a_loader_that_takes_fifteen_milliseconds_is_waited_for(torch: Any, tmp_path: Path) -> None:
    network = torch.nn.Linear(512, 512).cuda()
    optimizer = torch.optim.SGD(network.parameters(), lr=0.01)

    def collate(samples: list[Any]) -> Any:
        occupy(0.015)
        return torch.stack(samples)

    data = [torch.randn(512) for _ in range(16 * 32)]
    batches = functools.partial(torch.utils.data.DataLoader, data, batch_size=16, collate_fn=collate)

    def step(batch: Any) -> None:
        optimizer.zero_grad()
        network(batch.cuda(non_blocking=True)).square().mean().backward()
        optimizer.step()

    run, _ = recorded(tmp_path, "input", step, batches)
    parts_add_up(run)
    verdict = run.verdict()
    assert verdict.kind == "input"
    assert verdict.summary.host["data_wait_ns"] == pytest.approx(15 * MS, rel=0.15)
    assert run.advise()["id"].str.starts_with("loader_without_workers").any()


def test_reading_every_value_makes_the_host_wait_for_the_device(torch: Any, tmp_path: Path) -> None:
    matrix = torch.randn(2048, 2048, device="cuda")

    def step(_: Any) -> None:
        for _ in range(40):
            (matrix @ matrix).sum().item()

    run, _ = recorded(tmp_path, "reads", step, nothing)
    parts_add_up(run)
    summary = run.verdict().summary
    assert summary.host["device_wait_ns"] > 0.5 * summary.host_ns
    # the device does nothing from the end of a sum until the next product comes
    assert summary.device["idle_ns"] > 0.1 * summary.device_ns


def test_copies_from_pageable_memory_are_copies(torch: Any, tmp_path: Path) -> None:
    batch = torch.randn(64, 1024, 1024)  # 256 MiB

    def step(_: Any) -> None:
        (batch.cuda() * 2).sum()

    run, _ = recorded(tmp_path, "copies", step, nothing)
    parts_add_up(run)
    verdict = run.verdict()
    assert verdict.kind == "copy"
    assert kernels(run).filter(pl.col("name").cast(pl.String).str.contains("HtoD")).height == ACTIVE
    # the host waits for as long as the device copies
    assert verdict.summary.host["device_wait_ns"] == pytest.approx(verdict.summary.device["exposed_copy_ns"], rel=0.05)


def test_two_streams_at_once_count_once(torch: Any, tmp_path: Path) -> None:
    """Small kernels on two streams overlap: the sum of their lengths is longer than the step, the computing of it is not."""
    matrices = [torch.randn(512, 512, device="cuda") for _ in range(2)]
    streams = [torch.cuda.Stream() for _ in range(2)]

    def step(_: Any) -> None:
        for _ in range(100):
            for stream, matrix in zip(streams, matrices, strict=True):
                with torch.cuda.stream(stream):
                    matrix @ matrix
        torch.cuda.synchronize()

    run, _ = recorded(tmp_path, "streams", step, nothing)
    parts_add_up(run)
    assert kernels(run)["stream"].n_unique() >= 2


def test_a_replayed_graph_is_work_of_the_step_that_replays_it(torch: Any, tmp_path: Path) -> None:
    matrix = torch.randn(2048, 2048, device="cuda")
    graph, side = torch.cuda.CUDAGraph(), torch.cuda.Stream()
    with torch.cuda.stream(side):
        matrix @ matrix
    torch.cuda.synchronize()
    with torch.cuda.graph(graph):
        product = matrix
        for _ in range(30):
            product = torch.relu(product @ matrix) * 1e-2

    def step(_: Any) -> None:
        graph.replay()

    bare_ns = bare_step_s(torch, step, nothing) * 1e9
    run, _ = recorded(tmp_path, "graph", step, nothing)
    parts_add_up(run)
    verdict = run.verdict()
    assert verdict.kind == "compute"
    assert verdict.summary.step_time_ns == pytest.approx(bare_ns, rel=0.1)
    of_step = kernels(run).group_by("step").len().filter(pl.col("step").is_not_null())
    assert of_step["len"].n_unique() == 1


def test_a_training_agrees_with_what_pytorch_sums_up(torch: Any, tmp_path: Path) -> None:
    """Device time by operator against ``key_averages()`` of the same window, and the peak of memory against the allocator's."""
    network = torch.nn.Sequential(
        torch.nn.Conv2d(3, 64, 3, padding=1), torch.nn.BatchNorm2d(64), torch.nn.ReLU(), torch.nn.Conv2d(64, 64, 3, stride=2),
        torch.nn.ReLU(), torch.nn.AdaptiveAvgPool2d(4), torch.nn.Flatten(), torch.nn.Linear(1024, 10),
    ).cuda()  # fmt: skip
    optimizer = torch.optim.AdamW(network.parameters())
    images = torch.randn(64, 3, 64, 64, device="cuda")

    def step(_: Any) -> None:
        optimizer.zero_grad()
        network(images).logsumexp(1).mean().backward()
        optimizer.step()

    step(None)
    torch.cuda.reset_peak_memory_stats()
    run, profiler = recorded(
        tmp_path, "training", step, nothing, record_shapes=True, profile_memory=True, with_stack=True, with_modules=True
    )
    parts_add_up(run)
    sums = {row.key: row.self_device_time_total for row in profiler.key_averages() if row.self_device_time_total}
    tasks = kernels(run).with_columns(pl.col("name").cast(pl.String), time_ns=pl.col("end_ns") - pl.col("start_ns"))
    for name, time_ns in tasks.group_by("name").agg(pl.col("time_ns").sum()).iter_rows():
        assert time_ns / 1e3 == pytest.approx(sums[name], rel=0.01), name
    operators = run.operators()
    by_name = dict(operators.select("name", "device_self_ns").iter_rows())
    for name, time_us in sums.items():
        if name.startswith("aten::"):
            assert by_name[name] / 1e3 == pytest.approx(time_us, rel=0.01), name
    phases = run.verdict().summary.host
    assert min(phases["forward_ns"], phases["backward_ns"], phases["optimizer_ns"]) > 0
