"""The peak explained, churn, growth and fragmentation: against replays of the events and in real runs."""

from __future__ import annotations

import json
import random
from collections import defaultdict
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import steplens
from steplens.analysis.memory.fragmentation import fragmentation
from steplens.analysis.memory.memory_churn import memory_churn
from steplens.analysis.memory.memory_growth import memory_growth
from steplens.analysis.memory.memory_peak import ALLOCATED, BEFORE, MISSING, memory_peak
from steplens.run import Run, Source
from steplens.trace.schema import SCOPE_BACKWARD, SCOPE_USER
from steplens.trace.trace import Trace

from ..warm_python import run_warm
from ..writers.builder import BASE_NS, MAIN, PID, build, memory, op

EVENTS = st.lists(st.tuples(st.integers(0, 30), st.integers(0, 4), st.sampled_from(["CPU", "CUDA"])), max_size=40)


def allocator(events: list[tuple[int, int, str]], counted: dict[str, int]) -> list[dict[str, Any]]:
    """What an allocator records that hands out address n with 10 ** n bytes, or takes it back where it is in use.

    Addresses 3 and 4 are in use before the first event.
    """
    in_use = {device: {3, 4} for device in ("CPU", "CUDA")}
    total = dict(counted)
    rows = []
    for time, address, device in sorted(events, key=lambda event: event[0]):
        held = in_use[device]
        size = -(10**address) if address in held else 10**address
        held ^= {address}
        total[device] += size
        rows.append(memory(time, address, size, device_type=device, allocated=total[device], op=address))
    return rows


def replayed(rows: list[dict[str, Any]], device: str, counted: int) -> tuple[int, int, dict[int, int], int] | None:
    """(peak, its time, bytes of each block of the window alive then, bytes of what was there before)."""
    blocks: dict[int, int] = {}
    before, total = counted, counted
    best: tuple[int, int, dict[int, int], int] | None = None
    for row in rows:
        if row["device_type"] != device:
            continue
        total += row["bytes"]
        if row["bytes"] > 0:
            blocks[row["address"]] = row["bytes"]
        elif row["address"] in blocks:
            del blocks[row["address"]]
        else:
            before += row["bytes"]
        if best is None or total > best[0]:
            best = (total, row["time_ns"], dict(blocks), before)
    return best


@given(EVENTS, st.integers(0, 5))
def test_the_peak_like_a_replay(events: list[tuple[int, int, str]], more: int) -> None:
    counted = {"CPU": 11_000 + more, "CUDA": 11_000}
    rows = allocator(events, counted)
    ops = [op(f"op{number}", 0, 100) for number in range(5)]
    found = memory_peak(build(memory=rows, ops=ops))
    for device in ("CPU", "CUDA"):
        expected = replayed(rows, device, counted[device])
        own = found.filter(pl.col("device_type") == device)
        if expected is None:
            assert own.is_empty()
            continue
        peak, time, blocks, before = expected
        assert set(own["peak_ns"]) == {time}
        assert own["bytes"].sum() == peak
        assert own["percent"].sum() == pytest.approx(100)
        alive = own.filter(pl.col("kind") == ALLOCATED).select("name", "bytes", "blocks").rows()
        assert sorted(alive) == sorted((f"op{address}", size, 1) for address, size in blocks.items())
        assert own.filter(pl.col("kind") == BEFORE)["bytes"].to_list() == ([before] if before else [])
        assert own.filter(pl.col("kind") == MISSING).is_empty()


def test_lost_events_show_as_a_rest() -> None:
    rows = [
        memory(1, 1, 100, allocated=100),
        # an allocation of 50 bytes was lost here
        memory(2, 2, 10, allocated=160),
    ]
    found = memory_peak(build(memory=rows)).select("kind", "bytes", "blocks").rows()
    assert found == [(ALLOCATED, 110, 2), (MISSING, 50, None)]
    # totals without addresses, as in result files
    totals = [{**row, "address": None, "bytes": None} for row in rows]
    assert memory_peak(build(memory=totals)).select("kind", "bytes").rows() == [(MISSING, 160)]
    assert memory_peak(build(memory=[memory(1, 1, 100)])).is_empty()


def test_blocks_that_exceed_the_peak_have_no_share_of_it() -> None:
    """A release of 100 bytes was lost, so that what was allocated is more than the allocator ever held."""
    rows = [memory(1, 1, 100, allocated=100), memory(2, 2, 100, allocated=100), memory(3, 3, 20, allocated=120)]
    found = memory_peak(build(memory=rows)).select("kind", "bytes", "percent").rows()
    assert found == [(ALLOCATED, 220, None), (MISSING, -100, None)]


def test_pairs_of_the_source() -> None:
    pair = {"component": "GE", "device_type": "NPU", "device": 0, "bytes": 64}
    pairs = [
        {**pair, "allocation_ns": BASE_NS + 1000, "release_ns": BASE_NS + 9000},
        {**pair, "allocation_ns": BASE_NS + 1000, "release_ns": BASE_NS + 2000},
        {**pair, "allocation_ns": BASE_NS + 3000},
    ]
    totals = [memory(5, 1, 1, device_type="NPU", component="GE", allocated=200)]
    totals = [{**row, "address": None, "bytes": None} for row in totals]
    found = memory_peak(build(memory=totals, allocations=pairs)).select("kind", "bytes", "blocks").rows()
    # two of the pairs are open at 5 us
    assert found == [(ALLOCATED, 128, 2), (MISSING, 72, None)]


def training() -> Trace:
    """An activation, a gradient, state of the optimizer, and scratch memory of one call."""
    ops = [
        op("aten::linear", 0, 10, module="Net.head", stack="model.py(3): forward"),
        op("aten::empty", 1, 2, parent=0, depth=1, module="Net.head", stack="model.py(3): forward"),
        op("AddmmBackward0", 20, 30, scope=SCOPE_BACKWARD),
        op("aten::mm", 21, 29, parent=2, depth=1),
        op("Optimizer.step#Adam.step", 40, 60, scope=SCOPE_USER),
        op("aten::zeros_like", 41, 50, parent=4, depth=1),
    ]
    rows = [
        memory(1.5, 1, 1000, op=1, allocated=1000),
        memory(22, 2, 200, op=3, allocated=1200),
        memory(23, 3, 5000, op=3, allocated=6200),
        memory(28, 3, -5000, op=3, allocated=1200),
        memory(29.5, 1, -1000, op=2, allocated=200),
        memory(42, 4, 30, op=5, allocated=230),
        memory(43, 5, 9000, op=5, allocated=9230),
        memory(70, 2, -200, allocated=9030),
    ]
    steps = [{"id": 1, "start_ns": BASE_NS, "end_ns": BASE_NS + 65_000, "pid": PID, "tid": MAIN}]
    return build(ops=ops, memory=rows, steps=steps)


def test_the_peak_by_module_line_and_phase() -> None:
    trace = training()
    assert memory_peak(trace, "phase").select("allocated_in", "released_in", "bytes").rows() == [
        ("optimizer", None, 9030), ("backward", None, 200),
    ]  # fmt: skip
    cut = Trace(trace.source, {**{name: trace.table(name) for name in trace}, "memory": trace.memory.head(5)})  # type: ignore[union-attr]
    phases = memory_peak(cut, "phase").select("allocated_in", "released_in", "bytes", "blocks").rows()
    assert phases == [("backward", "backward", 5000, 1), ("forward", "backward", 1000, 1), ("backward", None, 200, 1)]
    assert memory_peak(cut, "module").select("module", "bytes").rows() == [(None, 5200), ("Net.head", 1000)]
    assert memory_peak(cut, "line").select("line", "bytes").rows() == [(None, 5200), ("model.py(3): forward", 1000)]
    # the one who wanted the memory, not the call that only allocates
    assert memory_peak(cut).select("name", "bytes").rows() == [("aten::mm", 5200), ("aten::linear", 1000)]
    assert memory_peak(cut, "block").select("address", "bytes", "release_ns").row(0) == (3, 5000, BASE_NS + 28_000)


def test_churn_by_hand() -> None:
    step = memory_churn(training()).row(0, named=True)
    assert (step["step"], step["allocations"], step["allocated_bytes"]) == (1, 5, 15_230)
    assert (step["within_call"], step["within_call_bytes"]) == (1, 5000)
    assert (step["within_step"], step["within_step_bytes"]) == (2, 6000)
    # what is given back behind the step does not count
    assert (step["releases"], step["released_bytes"]) == (2, 6000)
    assert step["median_life_ns"] == 28_000
    by_operator = {row["name"]: row for row in memory_churn(training(), "operator").to_dicts()}
    assert (by_operator["aten::mm"]["allocations"], by_operator["aten::mm"]["within_call_bytes"]) == (2, 5000)
    assert list(by_operator) == ["aten::zeros_like", "aten::mm", "aten::linear"]


def series(sizes: list[int], *, first: int = 1, device: str = "CUDA", rank: int = 0) -> Trace:
    """A window of steps of 10 us, each of which holds ``sizes`` bytes at least and more in between."""
    rows, steps = [], []
    for number, size in enumerate(sizes):
        begin = 10 * number
        steps.append({"id": first + number, "start_ns": BASE_NS + begin * 1000, "end_ns": BASE_NS + (begin + 10) * 1000})
        for time, total in ((1, size + 500), (5, size), (8, size + 900)):
            rows.append(memory(begin + time, 1, 1, allocated=total, device_type=device))
    return build(meta={"rank": rank}, memory=rows, steps=[{**row, "pid": PID, "tid": MAIN} for row in steps])


def test_growth_is_found_through_noise_and_outliers() -> None:
    numbers = random.Random(1)
    sizes = [10_000 + 70 * step + numbers.randrange(20) for step in range(40)]
    sizes[7], sizes[20] = 90_000, 0
    row = memory_growth([series(sizes)]).row(0, named=True)
    assert row["bytes_per_step"] == pytest.approx(70, abs=2)
    assert 65 < row["bytes_per_step_low"] <= 70 <= row["bytes_per_step_high"] < 75
    assert row["grows"] and row["chance"] < 1e-6
    # the first step of a window is left out
    assert row["steps"] == 39


@pytest.mark.parametrize("seed", range(30))
def test_noise_does_not_grow(seed: int) -> None:
    numbers = random.Random(seed)
    row = memory_growth([series([10_000 + numbers.randrange(1000) for _ in range(12)])]).row(0, named=True)
    assert row["bytes_per_step_low"] <= 0 <= row["bytes_per_step_high"] or row["chance"] > 0.001
    level = memory_growth([series([10_000] * 12)]).row(0, named=True)
    assert (level["bytes_per_step"], level["grows"], level["chance"]) == (0.0, False, 1.0)
    falling = memory_growth([series([10_000 - 100 * step for step in range(12)])]).row(0, named=True)
    assert falling["bytes_per_step"] == -100 and not falling["grows"]


def test_the_confidence_covers_the_truth() -> None:
    """Of 200 noisy series, the 95 % interval holds the true slope in 90 % at least."""
    numbers = random.Random(0)
    hits = 0
    for _ in range(200):
        sizes = [round(1e6 + 50 * step + numbers.gauss(0, 300)) for step in range(20)]
        row = memory_growth([series(sizes)]).row(0, named=True)
        hits += row["bytes_per_step_low"] <= 50 <= row["bytes_per_step_high"]
    assert hits >= 180


def test_growth_across_windows_but_not_on_a_cpu() -> None:
    """Each window is level; the next one begins higher."""
    windows = [series([1000 * number] * 4, first=10 * number) for number in range(1, 6)]
    row = memory_growth(windows).row(0, named=True)
    assert row["across_windows"] and row["grows"] and row["windows"] == 5
    assert row["bytes_per_step"] == pytest.approx(100, rel=0.1)
    windows = [series([1000 * number] * 4, first=10 * number, device="CPU") for number in range(1, 6)]
    row = memory_growth(windows).row(0, named=True)
    assert not row["across_windows"] and not row["grows"] and row["bytes_per_step"] == 0


def test_too_few_steps() -> None:
    assert memory_growth([series([1, 2])]).is_empty()
    assert memory_growth([]).is_empty()
    row = memory_growth([series([0, 1, 2, 3])]).row(0, named=True)
    assert row["bytes_per_step"] == 1 and row["bytes_per_step_low"] is None and not row["grows"]


def test_fragmentation_by_hand() -> None:
    totals = [(1, 100, 80), (2, 200, 150), (4, 200, 190), (8, 200, 20), (12, 150, 150)]
    rows = [memory(time, 1, 1, reserved=reserved, allocated=used, device_type="CUDA") for time, reserved, used in totals]
    rows += [memory(3, 1, 1, reserved=0, allocated=5)]
    steps = [{"id": 5, "start_ns": BASE_NS, "end_ns": BASE_NS + 9000, "pid": PID, "tid": MAIN}]
    whole, step = fragmentation(build(memory=rows, steps=steps)).to_dicts()
    assert (whole["step"], step["step"]) == (None, 5)
    assert (whole["reserved_bytes"], whole["allocated_bytes"], whole["unused_bytes"], whole["unused_percent"]) == (
        200,
        190,
        10,
        5,
    )
    assert whole["most_unused_bytes"] == 180
    # 20 for 1 us, 50 for 2, 10 for 4, 180 for 4
    assert whole["mean_unused_bytes"] == pytest.approx((20 + 100 + 40 + 720) / 11)
    assert step["most_unused_bytes"] == 180


def test_nothing_recorded() -> None:
    found = [fragmentation(build()), memory_churn(build()), memory_churn(build(), "line"), memory_peak(build(), "block")]
    assert all(frame.is_empty() and frame.width > 8 for frame in found)
    for wrong in (memory_peak, memory_churn):
        with pytest.raises(ValueError, match="must be one of"):
            wrong(build(), "colour")


TRAIN = """
import sys, torch, steplens
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Conv2d(3, 8, 3), torch.nn.ReLU(), torch.nn.Flatten(), torch.nn.Linear(8 * 36, 5))
optimizer = torch.optim.Adam(model.parameters())
kept = []
with steplens.profile(
    profile_memory=True, with_modules=True, record_shapes=True, with_stack=True,
    schedule=steplens.schedule(wait=2, warmup=1, active=5, repeat=3),
    on_trace_ready=steplens.tensorboard_trace_handler("out", analyse_flag=False),
) as prof:
    for _ in range(25):
        optimizer.zero_grad()
        model(torch.randn(4, 3, 8, 8)).square().mean().backward()
        optimizer.step()
        if sys.argv[1] == "leak":
            kept.append(torch.randn(1000))
        prof.step()
"""


@pytest.mark.parametrize("leak", [True, False])
def test_a_real_run_of_three_windows(tmp_path: Path, leak: bool) -> None:
    """The peak adds up to the byte, the leak of 4000 bytes a step is found, and a healthy run does not grow."""
    pytest.importorskip("torch")
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    done = run_warm(script, "leak" if leak else "healthy", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    run = steplens.open(tmp_path / "out")
    assert len(run.traces) == 3
    for trace in run.traces:
        events = trace.memory
        assert events is not None
        peak = events["allocated"].max()
        rows = events.sort("time_ns", maintain_order=True).to_dicts()
        expected = replayed(rows, "CPU", rows[0]["allocated"] - rows[0]["bytes"])
        assert expected is not None and expected[0] == peak
        for by in ("operator", "module", "line", "phase", "block"):
            found = memory_peak(trace, by)
            assert found["bytes"].sum() == peak
            assert found.filter(pl.col("kind") == MISSING).is_empty()
            assert found.filter(pl.col("kind") == BEFORE)["bytes"].sum() == expected[3]
        blocks = memory_peak(trace, "block").filter(pl.col("kind") == ALLOCATED)
        assert dict(blocks.select("address", "bytes").rows()) == expected[2]
        # the batch, float32 of (4, 3, 8, 8), is made before the model is called, and backward of the first layer lets it go
        alive: dict[tuple[str, str | None], int] = defaultdict(int)
        for row in memory_peak(trace, "phase").to_dicts():
            alive[row["allocated_in"], row["released_in"]] += row["bytes"]
        assert alive["between", "backward"] == 4 * 3 * 8 * 8 * 4
        churn = memory_churn(trace)
        inside = events.filter(pl.col("op").is_not_null())
        assert churn["allocated_bytes"].sum() <= inside.filter(pl.col("bytes") > 0)["bytes"].sum()
        assert churn["allocated_bytes"].n_unique() == 1
    row = memory_growth(run.traces).row(0, named=True)
    assert row["windows"] == 3
    assert (row["bytes_per_step"], row["grows"]) == ((4000, True) if leak else (0, False))


CATEGORISED = """
import torch, steplens
torch.set_num_threads(1)
model = torch.nn.Sequential(torch.nn.Linear(64, 128), torch.nn.ReLU(), torch.nn.Linear(128, 8))
optimizer = torch.optim.Adam(model.parameters())
def step():
    model(torch.randn(32, 64)).square().mean().backward()
    optimizer.step()
    optimizer.zero_grad()
step()
handler = steplens.tensorboard_trace_handler("out", analyse_flag=False)
with steplens.profile(profile_memory=True, record_shapes=True, with_stack=True, on_trace_ready=handler) as prof:
    step()
prof.export_memory_timeline("points.json", device="cpu")
"""


def test_categories_at_the_peak_like_the_points_of_the_timeline(tmp_path: Path) -> None:
    """The exported points end every microsecond, so their highest is at most the peak, and the same categories are there."""
    pytest.importorskip("torch")
    (tmp_path / "train.py").write_text(CATEGORISED)
    done = run_warm("train.py", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    found = steplens.open(tmp_path / "out").memory_categories()
    _, sizes = json.loads((tmp_path / "points.json").read_text())
    highest = max(sizes, key=sum)
    assert found["bytes"].sum() >= sum(highest)
    assert found["bytes"].sum() == pytest.approx(sum(highest), rel=0.05)
    assert found["percent"].sum() == pytest.approx(100)
    by_category = dict(found.select("category", "bytes").rows())
    # (64 + 1) * 128 + (128 + 1) * 8 numbers of 4 bytes, and two of each for Adam besides the gradients
    parameters = 4 * ((64 + 1) * 128 + (128 + 1) * 8)
    assert by_category["PARAMETER"] == parameters
    assert by_category["OPTIMIZER_STATE"] >= 2 * parameters
    assert by_category.get("GRADIENT", 0) <= parameters
    assert memory_categories_of_nothing().is_empty()


def memory_categories_of_nothing() -> pl.DataFrame:
    return Run(Path("run"), [(Source(Path("run")), build())], []).memory_categories()
