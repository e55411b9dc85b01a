"""Python python_hotspots against sums over whole stacks, one by one."""

from __future__ import annotations

import random
from collections import Counter
from typing import Any

import pytest

from steplens.analysis.operators.python_hotspots import python_hotspots

from ..writers.builder import build

NAMES = [f"train.py({line}): function{line}" for line in range(6)] + ["nn.Module: Linear_0"]


def random_samples(chance: random.Random) -> tuple[list[dict[str, Any]], list[dict[str, Any]]]:
    stacks: list[dict[str, Any]] = []
    for number in range(chance.randint(1, 80)):
        parent = chance.choice([None, *range(number)]) if chance.random() < 0.9 else None
        depth = 0 if parent is None else stacks[parent]["depth"] + 1
        name = chance.choice(NAMES)
        line = 0 if name.startswith("nn.") else chance.randint(1, 3)
        stacks.append({"id": number, "parent": parent, "depth": depth, "name": name, "line": line})
    samples = [
        {
            "time_ns": number,
            "wanted_ns": number,
            "pid": 1,
            "tid": chance.randint(1, 3),
            "stack": chance.choice([None, *range(len(stacks))]),
            "samples": chance.randint(1, 4),
            "processor_ns": chance.choice([None, 0, 1000, 7000]),
        }
        for number in range(chance.randint(1, 150))
    ]
    return stacks, samples


def label(stack: dict[str, Any], by: str) -> str:
    name = str(stack["name"])
    return (
        name.replace("(", "(#", 1).partition("(#")[0] + f"({stack['line']}){name.partition(')')[2]}"
        if (by == "line" and stack["line"])
        else name
    )


@pytest.mark.parametrize("by", ["function", "line"])
@pytest.mark.parametrize("seed", range(30))
def test_sums_are_those_of_the_stacks(seed: int, by: str) -> None:
    stacks, samples = random_samples(random.Random(seed))
    own: Counter[Any] = Counter()
    total: Counter[Any] = Counter()
    processor: Counter[Any] = Counter()
    of_thread: Counter[Any] = Counter()
    for sample in samples:
        thread = f"thread {sample['tid']}"
        of_thread[thread] += sample["samples"]
        frames: list[str | None] = []
        stack = sample["stack"]
        while stack is not None:
            frames.append(label(stacks[stack], by))
            stack = stacks[stack]["parent"]
        frames = frames or [None]
        own[thread, frames[0]] += sample["samples"]
        processor[thread, frames[0]] += sample["processor_ns"] or 0
        for name in set(frames):
            total[thread, name] += sample["samples"]
    frame = python_hotspots(build(python_stacks=stacks, python_samples=samples, meta={"stack_sampling_hz": 50.0}), by)
    rows = list(frame.rows(named=True))
    found = {(row["thread"], row["line" if by == "line" else "name"]): row for row in rows}
    assert len(found) == len(rows) and found.keys() == total.keys()
    for key, row in found.items():
        assert (row["self_samples"], row["total_samples"], row["cpu_ns"]) == (own[key], total[key], processor[key])
        assert row["self_percent"] == pytest.approx(100 * own[key] / of_thread[key[0]])
        assert row["total_percent"] == pytest.approx(100 * total[key] / of_thread[key[0]])
        assert row["self_ns"] == own[key] * 20_000_000
        assert 0 <= row["self_low_ns"] <= row["self_ns"] <= row["self_high_ns"] <= of_thread[key[0]] * 20_000_000
    threads = frame["thread"].to_list()
    used = {thread: sum(ns for (of, _), ns in processor.items() if of == thread) for thread in of_thread}
    assert list(dict.fromkeys(threads)) == sorted(of_thread, key=lambda thread: (-used[thread], -of_thread[thread], thread))


def test_intervals_hold_the_true_share_as_often_as_they_say() -> None:
    chance = random.Random(5)
    stacks = [{"id": number, "parent": None, "depth": 0, "name": NAMES[number], "line": 1} for number in range(2)]
    held = 0
    for _ in range(200):
        drawn = sum(chance.random() < 0.1 for _ in range(300))
        counts = {0: drawn, 1: 300 - drawn}
        samples = [
            {"time_ns": 1, "wanted_ns": 1, "pid": 1, "tid": 1, "stack": stack, "samples": count, "processor_ns": 0}
            for stack, count in counts.items()
            if count
        ]
        trace = build(python_stacks=stacks, python_samples=samples, meta={"stack_sampling_hz": 100.0})
        row = next(row for row in python_hotspots(trace).rows(named=True) if row["name"] == NAMES[0])
        held += row["self_low_ns"] <= 0.3e9 <= row["self_high_ns"]
    assert 180 <= held <= 198


def test_without_a_rate_there_are_no_times() -> None:
    stacks, samples = random_samples(random.Random(1))
    trace = build(python_stacks=stacks, python_samples=samples)
    assert python_hotspots(trace)["self_ns"].null_count() == python_hotspots(trace).height > 0
    assert python_hotspots(trace, "thread")["time_ns"].null_count() == python_hotspots(trace, "thread").height
