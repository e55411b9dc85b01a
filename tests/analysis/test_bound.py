"""Host against device, storms of small tasks, and changing shapes: by hand and against loops."""

from __future__ import annotations

import itertools
from typing import Any

import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

from steplens.analysis.device.bound import bound
from steplens.analysis.device.storms import storms
from steplens.analysis.operators.shapes import shapes

from ..writers.builder import BASE_NS, MAIN, PID, build, kernel, op


def steps(*edges_us: int) -> list[dict[str, Any]]:
    return [
        {"id": number, "start_ns": BASE_NS + begin * 1000, "end_ns": BASE_NS + end * 1000, "pid": PID, "tid": MAIN}
        for number, (begin, end) in enumerate(itertools.pairwise(edges_us))
    ]


def launch(name: str, start_us: float, end_us: float, correlation: int) -> dict[str, Any]:
    times = {"start_ns": BASE_NS + round(start_us * 1000), "end_ns": BASE_NS + round(end_us * 1000)}
    return {"name": name, "layer": "cuda_runtime", **times, "pid": PID, "tid": MAIN, "correlation": correlation}


def test_steps_by_hand() -> None:
    gpu: dict[str, Any] = {"core": "CUDA", "stream": 7}
    trace = build(
        steps=steps(0, 100, 200),
        kernels=[
            kernel("a", 10, 60, step=0, correlation=1, **gpu),
            kernel("b", 50, 95, step=0, correlation=2, **{**gpu, "stream": 8}),
            kernel("wait", 0, 100, step=0, kind="other", **gpu),
            # runs on into the next step, and belongs to the one it started in
            kernel("c", 98, 120, step=0, correlation=3, **gpu),
            kernel("d", 150, 160, step=1, correlation=4, **gpu),
        ],
        api=[
            launch("cudaLaunchKernel", 1, 5, 1),
            launch("cudaLaunchKernel", 4, 9, 2),
            launch("cudaLaunchKernel", 96, 104, 3),
            launch("cudaLaunchKernel", 140, 141, 4),
            launch("cudaStreamSynchronize", 161, 199, 99),
        ],
    )
    first, second = bound(trace).to_dicts()
    assert (first["busy_ns"], first["busy_percent"], first["bound"]) == (87_000, 87.0, "device")
    assert (first["tasks"], first["mean_task_ns"]) == (3, pytest.approx((50 + 45 + 22) * 1000 / 3))
    assert (first["launches"], first["launching_ns"], first["launching_percent"]) == (3, 12_000, 12.0)
    assert (second["busy_ns"], second["bound"], second["launches"], second["launching_ns"]) == (30_000, "host", 1, 5_000)


def test_operators_of_an_accelerator_and_of_a_cpu() -> None:
    calls = [op("long", 0, 10, device_total_ns=30_000), op("short", 20, 40, device_total_ns=5_000), op("none", 50, 60)]
    calls = [{**call, "counted_as": number} for number, call in enumerate(calls)]
    gpu = bound(build(ops=calls, kernels=[kernel("a", 0, 1, core="CUDA")]), "operator")
    assert gpu.select("name", "calls", "host_ns", "device_ns", "device_percent", "bound").rows() == [
        ("long", 1, 10_000, 30_000, 300.0, "device"),
        ("short", 1, 20_000, 5_000, 25.0, "host"),
    ]
    calls = [
        {**op("aten::mm", 0, 10, device_total_ns=8_000), "counted_as": 0},
        {**op("aten::view", 0, 10, device_total_ns=4_000), "counted_as": 1},
    ]
    assert bound(build(ops=calls, kernels=[kernel("a", 0, 1)]), "operator")["bound"].to_list() == ["device", "host"]


TASKS = st.lists(
    st.tuples(
        st.integers(0, 1),  # stream
        st.integers(0, 2),  # step
        st.integers(0, 30),  # time since the last one, us
        st.integers(0, 20),  # duration, us
        st.sampled_from(["a", "b"]),
    ),
    max_size=30,
)


def naive_storms(rows: list[dict[str, Any]], *, gpu: bool, least: int, longest: int) -> list[tuple[int, ...]]:
    """(stream, step, tasks, duration, running, issuing) of every storm."""
    found = []
    key = "launch_ns" if gpu else "start_ns"
    for stream in (0, 1):
        own = [row for row in rows if row["stream"] == stream]
        states = []
        for number, row in enumerate(own):
            running = row["end_ns"] - row["start_ns"]
            interval = own[number + 1][key] - row[key] if number + 1 < len(own) else longest + 1
            issuing = interval if gpu else interval - running
            state = "pause" if interval > longest else "small" if running < issuing else "large"
            states.append((row["step"], state, interval, running, issuing))
        # cut the list where a pause, another step, or three large ones in a row are
        pieces: list[list[tuple[Any, ...]]] = [[]]
        for (_, state), group in itertools.groupby(states, key=lambda row: row[:2]):
            run = list(group)
            if state == "pause" or (state == "large" and len(run) > 2):
                pieces.append([])
                continue
            if pieces[-1] and pieces[-1][-1][0] != run[0][0]:
                pieces.append([])
            pieces[-1] += run
        for piece in pieces:
            while piece and piece[0][1] == "large":
                piece.pop(0)
            while piece and piece[-1][1] == "large":
                piece.pop()
            sums = [sum(row[place] for row in piece) for place in (2, 3, 4)]
            if len(piece) >= least and sums[1] < sums[2]:
                found.append((stream, piece[0][0], len(piece), *sums))
    return sorted(found)


@given(TASKS, st.booleans())
def test_storms_like_a_loop(drawn: list[tuple[int, int, int, int, str]], gpu: bool) -> None:
    rows, time = [], 0
    step = 0
    for stream, advance, pause, duration, name in drawn:
        step += advance == 2
        time += pause
        row = kernel(name, time, time + duration, stream=stream, step=step, core="CUDA" if gpu else "CPU")
        rows.append({**row, "launch_ns": row["start_ns"] - 3000})
        # tasks of one thread of a CPU do not overlap
        time += 0 if gpu else duration
    found = storms(build(kernels=rows), least_tasks=2, longest_interval_ns=25_000)
    columns = ["stream", "step", "tasks", "duration_ns", "running_ns", "issuing_ns"]
    assert sorted(found.select(columns).rows()) == naive_storms(rows, gpu=gpu, least=2, longest=25_000)


def test_a_storm_says_where() -> None:
    stack = "torch/nn/functional.py(1): f;model.py(3): forward;train.py(9): <module>"
    calls = [op("aten::add", 10 * n, 10 * n + 2, module="Net.head", stack=stack) for n in range(30)]
    tasks = [kernel("aten::add" if n else "aten::mul", 10 * n, 10 * n + 2, op=n, step=4) for n in range(30)]
    row = storms(build(ops=calls, kernels=tasks)).row(0, named=True)
    assert (row["tasks"], row["duration_ns"], row["running_ns"], row["issuing_ns"]) == (29, 290_000, 58_000, 232_000)
    assert (row["running_percent"], row["step"], row["start_ns"]) == (20.0, 4, BASE_NS)
    assert (row["name"], row["module"], row["line"]) == ("aten::add", "Net.head", "model.py(3): forward")
    # large tasks are no storm, however many
    tasks = [kernel("aten::mm", 10 * n, 10 * n + 8, op=n) for n in range(30)]
    assert storms(build(ops=calls, kernels=tasks)).is_empty()
    assert storms(build()).schema == storms(build(ops=calls, kernels=tasks)).schema


CALLS = st.lists(st.tuples(st.sampled_from("ab"), st.integers(0, 3), st.integers(0, 3), st.integers(1, 9)), max_size=40)


@given(CALLS)
def test_shapes_like_a_loop(drawn: list[tuple[str, int, int, int]]) -> None:
    drawn = sorted(drawn, key=lambda row: row[1])
    calls = [
        op(name, 10 * number, 10 * number + length, step=step, input_shapes=f"{shape},2", counted_as=number)
        for number, (name, step, shape, length) in enumerate(drawn)
    ]
    trace = build(ops=calls, steps=steps(0, 1, 2, 3, 4))
    per_step = {(row["name"], row["step"]): row for row in shapes(trace, "step").to_dicts()}
    first_step = min((step for _, step, _, _ in drawn), default=0)
    for name in {row[0] for row in drawn}:
        seen: set[int] = set()
        new_firsts, repeated, new_calls, later = [], [], 0, 0
        for step in range(4):
            own = [(shape, length) for called, at, shape, length in drawn if (called, at) == (name, step)]
            if not own:
                assert (name, step) not in per_step
                continue
            new = {shape for shape, _ in own} - seen if step > first_step else set()
            row = per_step[name, step]
            assert row["calls"] == len(own)
            assert row["shapes"] == len({shape for shape, _ in own})
            assert row["new_shapes"] == len(new)
            assert row["new_calls"] == sum(shape in new for shape, _ in own)
            assert row["total_ns"] == 1000 * sum(length for _, length in own)
            assert row["new_ns"] == 1000 * sum(length for shape, length in own if shape in new)
            if step > first_step:
                firsts = {shape: next(length for other, length in own if other == shape) for shape in new}
                new_firsts += firsts.values()
                left = [length for shape, length in own]
                for length in firsts.values():
                    left.remove(length)
                repeated += left
                new_calls += row["new_calls"]
                later += len(own)
            seen |= {shape for shape, _ in own}
        row = shapes(trace).filter(pl.col("name") == name).row(0, named=True)
        assert row["shapes"] == len(seen)
        assert row["dynamic"] == bool(new_firsts) == (row["steps_with_new"] > 0)
        assert row["new_shapes"] == len(new_firsts)
        mean = 1000 * sum(new_firsts) / len(new_firsts) if new_firsts else None
        assert row["mean_first_ns"] == (None if mean is None else pytest.approx(mean))
        mean = 1000 * sum(repeated) / len(repeated) if repeated else None
        assert row["mean_repeated_ns"] == (None if mean is None else pytest.approx(mean))
        assert row["new_percent"] == (pytest.approx(100 * new_calls / later) if later else None)


def test_many_shapes_that_stay_are_not_dynamic() -> None:
    calls = [op("aten::mm", n, n + 0.5, step=n // 3, input_shapes=f"{n % 3},2", counted_as=n) for n in range(12)]
    row = shapes(build(ops=calls, steps=steps(0, 3, 6, 9, 12))).row(0, named=True)
    assert (row["shapes"], row["most_shapes_in_step"], row["dynamic"], row["new_percent"]) == (3, 3, False, 0.0)


def test_nothing_recorded() -> None:
    for found in (bound(build()), bound(build(), "operator"), shapes(build()), shapes(build(), "step"), storms(build())):
        assert found.is_empty()
    for wrong in (lambda: bound(build(), "x"), lambda: shapes(build(), "x")):
        with pytest.raises(ValueError, match="must be"):
            wrong()
