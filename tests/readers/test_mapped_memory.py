"""Totals of the CPU's memory where PyTorch maps some of it."""

from __future__ import annotations

import json
import os
import random
import subprocess
import sys
from pathlib import Path

import polars as pl
import pytest

import steplens
from steplens.readers.kineto.kineto_mapped_memory import with_mapped_memory

TRAIN = """
import sys, torch, steplens
from torch.utils.data import DataLoader

class Source(torch.utils.data.Dataset):
    def __len__(self):
        return 80
    def __getitem__(self, index):
        return torch.ones(1000) * index

if __name__ == "__main__":
    network = torch.nn.Linear(1000, 10)
    with steplens.profile(
        schedule=steplens.schedule(wait=1, warmup=1, active=4, repeat=1), profile_memory=True,
        on_trace_ready=steplens.tensorboard_trace_handler(sys.argv[1], analyse_flag=False),
    ) as prof:
        for number, batch in enumerate(DataLoader(Source(), batch_size=8, num_workers=1)):
            network(batch).sum().backward()
            prof.step()
            if number == 7:
                break
"""


def frame(rows: list[tuple[int, int, int, str]]) -> pl.DataFrame:
    """Events of (address, bytes, allocated, device type), a ns apart; what is mapped is reserved, as PyTorch has it."""
    table = pl.DataFrame(rows, schema=["address", "bytes", "allocated", "device_type"], orient="row")
    mapped = (pl.col("allocated") == 0) & (pl.col("bytes") > 0)
    return table.with_columns(time_ns=pl.int_range(pl.len()), reserved=pl.when(mapped).then("bytes").otherwise(0))


def test_what_is_mapped_is_part_of_the_total() -> None:
    told = with_mapped_memory(
        frame([
            (1, 100, 100, "CPU"),
            (9, 5, 70, "CUDA"),
            (2, 40, 0, "CPU"),  # mapped
            (3, 10, 110, "CPU"),
            (4, -7, 0, "CPU"),  # mapped before the first event: the allocator holds 110
            (2, -40, 0, "CPU"),
            (3, -10, 100, "CPU"),
            (1, -100, 0, "CPU"),  # the allocator's own last one
        ])
    )  # fmt: skip
    assert told["allocated"].to_list() == [107, 70, 147, 157, 150, 110, 100, 0]
    assert told["reserved"].to_list() == [0] * 8
    assert told["bytes"].to_list() == [100, 5, 40, 10, -7, -40, -10, -100]


@pytest.mark.parametrize(
    "rows",
    [
        [(1, 100, 100, "CPU"), (1, -100, 0, "CPU"), (2, 30, 30, "CPU"), (2, -30, 0, "CPU")],  # nothing is mapped
        [(1, 100, 0, "CPU"), (1, -100, 0, "CPU")],  # no totals at all
        [(1, 100, 0, "CUDA"), (2, 30, 30, "CUDA")],  # not the CPU's
        [],
    ],
)
def test_other_totals_stay(rows: list[tuple[int, int, int, str]]) -> None:
    table = frame(rows) if rows else frame([(1, 1, 1, "CPU")]).clear()
    assert with_mapped_memory(table).equals(table)


@pytest.mark.parametrize("seed", range(20))
def test_any_order_against_two_counters(seed: int) -> None:
    """The totals are those of an allocator and of mapped memory that are counted apart, whatever is released when."""
    generator = random.Random(seed)
    alive = {mapped: {generator.randrange(1 << 40): generator.randrange(1, 999) for _ in range(3)} for mapped in (False, True)}
    # the allocator's are known to it, but are not released here; of what was mapped before, all of it is
    kept = sum(alive[False].values())
    alive[False] = {}
    rows, expected = [(1, 8, kept + 8, "CPU"), (1, -8, kept, "CPU")], []
    held = {False: kept, True: sum(alive[True].values())}
    expected = [sum(held.values()) + 8, sum(held.values())]
    for number in range(200 + len(alive[True])):
        mapped = generator.random() < 0.3
        if number >= 200 or (alive[mapped] and generator.random() < 0.5):
            mapped = mapped if number < 200 else bool(alive[True])
            if not alive[mapped]:
                continue
            address = generator.choice(list(alive[mapped]))
            change = -alive[mapped].pop(address)
        else:
            address, change = generator.randrange(1 << 40), generator.randrange(1, 999)
            alive[mapped][address] = change
        held[mapped] += change
        rows.append((address, change, 0 if mapped else held[False], "CPU"))
        expected.append(sum(held.values()))
    while alive[True]:
        address, change = alive[True].popitem()
        held[True] -= change
        rows.append((address, -change, 0, "CPU"))
        expected.append(sum(held.values()))
    assert with_mapped_memory(frame(rows))["allocated"].to_list() == expected


@pytest.mark.slow
def test_batches_of_a_worker(tmp_path: Path) -> None:
    pytest.importorskip("torch")
    script = tmp_path / "train.py"
    script.write_text(TRAIN)
    # the recorder sees what PyTorch allocates, and no mapping
    environment = {**os.environ, "STEPLENS_RECORDER": "off"}
    subprocess.run([sys.executable, script, tmp_path / "out"], check=True, timeout=240, env=environment)
    (trace,) = steplens.open(tmp_path / "out").traces
    memory = trace.required("memory").collect()
    # the raw file says 0 where a batch arrives
    (raw,) = (tmp_path / "out").rglob("trace.json")
    events = [event["args"] for event in json.loads(raw.read_bytes())["traceEvents"] if event["name"] == "[memory]"]
    assert any(event["Total Allocated"] == 0 and event["Bytes"] > 0 for event in events)
    # every event changes the total by its own bytes, and a batch is alive at every moment
    assert memory["allocated"].diff().drop_nulls().equals(memory["bytes"][1:], check_names=False)
    assert memory["allocated"].min() >= 8 * 1000 * 4
