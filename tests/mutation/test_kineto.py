"""Good Kineto traces, damaged in one way each: the certificate names the damage, and nothing that is not there."""

from __future__ import annotations

import gzip
import random
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from steplens.common.errors import InputError
from steplens.readers.kineto import kineto
from steplens.run import open_run
from steplens.trace.health import ERROR, INFO, WARNING

from .kineto_file import (
    CUDA,
    DEVICE,
    Document,
    capture,
    certificate,
    dumps,
    equal_tables,
    findings,
    is_kernel,
    is_launch,
    is_task,
    load,
    new_findings,
    shift,
    shift_all,
    shuffle,
    text_of,
    without,
    write,
)

#: of each vendor one, and the largest, whose times since 1970 have every digit; the others hold what these hold
FEW = ("cuda_nccl_distributed", "rocm_mi250_minitoy", "cuda_ns_resolution_rank0")
CAPTURES = [pytest.param(name, marks=() if name in FEW else pytest.mark.long) for name in CUDA]
SMALLER = [
    pytest.param(name, marks=() if name in FEW else pytest.mark.long) for name in CUDA if name != "cuda_ns_resolution_rank0"
]
#: more places of the same damage
MORE = pytest.mark.long
WITH_STEPS = ["cuda_nccl_distributed", "cuda_ns_resolution_rank0"]
WITH_FLOWS = ["cuda_alexnet", "cuda_nccl_distributed", "rocm_mi250_minitoy"]


@pytest.mark.parametrize("share", [0, 0.1])
@pytest.mark.parametrize("name", SMALLER)
def test_lost_kernels(name: str, share: float, tmp_path: Path) -> None:
    document = capture(name)
    lost = without(document, is_kernel, share=share, seed=1)
    found = {check: count for check, _, count in new_findings(document, name, tmp_path)}
    assert found.pop("launches_without_kernels", 0) + found.pop("unfinished_launches", 0) == lost
    # the arrows to the lost kernels have lost their tasks, and that is the only other thing to say
    assert set(found) <= {"unmatched_flows"}


@pytest.mark.parametrize("name", SMALLER)
def test_all_device_tasks_lost(name: str, tmp_path: Path) -> None:
    document = capture(name)
    launches = sum(map(is_launch, document["traceEvents"]))
    without(document, is_task, share=1)
    assert ("launches_without_kernels", ERROR, launches) in certificate(document, tmp_path)


@pytest.mark.parametrize("share", [0, 0.1])
@pytest.mark.parametrize("name", SMALLER)
def test_lost_launches(name: str, share: float, tmp_path: Path) -> None:
    document = capture(name)
    lost = without(document, is_launch, share=share, seed=2)
    found = {check: count for check, _, count in new_findings(document, name, tmp_path)}
    assert found.pop("kernels_without_launches", 0) + found.pop("tasks_from_before", 0) == lost
    # where the source says nowhere else which call launched a kernel, that link is lost as well
    assert set(found) <= {"kernels_without_operator"}


@pytest.mark.parametrize("name", CAPTURES)
def test_the_device_clock_is_early(name: str, tmp_path: Path) -> None:
    document = capture(name)
    shift(document, lambda event: event.get("cat") in DEVICE, -5000)
    found = {check: severity for check, severity, _ in new_findings(document, name, tmp_path)}
    assert found.pop("tasks_before_launch") in (WARNING, ERROR)
    assert set(found) <= {"backward_flows"}
    trace = kineto.read(tmp_path / "trace.json")
    (message,) = trace.health.filter(trace.health["check"] == "tasks_before_launch")["message"]
    # the first tasks of an idle device start within some microseconds, so the largest distance is nearly the whole shift
    assert any(f"and {largest} ms at most" in message for largest in ("4.98", "4.99", "5"))


@pytest.mark.parametrize("name", CAPTURES)
def test_the_device_clock_is_late(name: str, tmp_path: Path) -> None:
    document = capture(name)
    shift(document, lambda event: event.get("cat") in DEVICE, 5000)
    assert [check for check, _, _ in new_findings(document, name, tmp_path)] == ["device_clock_late"]


# the largest takes as long as the others together
@pytest.mark.parametrize("name", [*SMALLER, pytest.param("cuda_ns_resolution_rank0", marks=pytest.mark.long)])
def test_order_does_not_matter(name: str, tmp_path: Path) -> None:
    document = capture(name)
    original = kineto.read(write(document, tmp_path / "original.json"))
    for seed in range(2):
        shuffle(document, seed)
        shuffled = kineto.read(write(document, tmp_path / "shuffled.json"))
        assert equal_tables(original, shuffled)
        assert findings(original) == findings(shuffled)


@pytest.mark.parametrize("name", SMALLER)
def test_layout_does_not_matter(name: str, tmp_path: Path) -> None:
    document = capture(name)
    original = kineto.read(write(document, tmp_path / "original.json"))
    dense = tmp_path / "dense.json"
    dense.write_text(dumps(document, separators=(",", ":"), sort_keys=True))
    compressed = tmp_path / "compressed.json.gz"
    compressed.write_bytes(gzip.compress(dumps(document, indent=1).encode(), compresslevel=1))
    for path in (dense, compressed):
        trace = kineto.read(path)
        assert findings(original) == findings(trace)
        for table in ("ops", "kernels", "api", "flows", "steps", "communication"):
            assert (table in original) == (table in trace)
            assert table not in original or original.table(table).equals(trace.table(table))


@pytest.mark.parametrize("name", SMALLER)
def test_events_that_are_there_twice(name: str, tmp_path: Path) -> None:
    document = capture(name)
    for kind in ("cpu_op", "kernel", "cuda_runtime"):
        events = [event for event in document["traceEvents"] if event.get("cat") == kind]
        document["traceEvents"] += random.Random(3).sample(events, 3)
    found = new_findings(document, name, tmp_path)
    assert [one for one in found if one[0] == "duplicated_events"] == [("duplicated_events", ERROR, 3)] * 3
    assert {check for check, _, _ in found} == {"duplicated_events"}


@pytest.mark.parametrize("name", SMALLER)
def test_a_trace_appended_to_itself(name: str, tmp_path: Path) -> None:
    document = capture(name)
    calls = sum(event.get("cat") in ("cpu_op", "user_annotation") for event in document["traceEvents"])
    document["traceEvents"] += document["traceEvents"]
    assert ("duplicated_events", ERROR, calls) in certificate(document, tmp_path)


@pytest.mark.parametrize("name", WITH_STEPS)
def test_a_lost_step(name: str, tmp_path: Path) -> None:
    document = capture(name)
    numbers = sorted({event["name"] for event in document["traceEvents"] if event.get("name", "").startswith("ProfilerStep#")})
    without(document, lambda event: event.get("name") == numbers[1], share=1)
    assert [check for check, _, _ in new_findings(document, name, tmp_path)] == ["missing_steps"]


@pytest.mark.parametrize("name", ["cuda_nccl_distributed", "cuda_sampled_rank0", "cuda_sampled_rank1"])
def test_a_lost_rank(name: str, tmp_path: Path) -> None:
    document = capture(name)
    del document["distributedInfo"]["rank"]
    assert new_findings(document, name, tmp_path) == [("rank_unknown", WARNING, 1)]


@pytest.mark.parametrize("name", WITH_STEPS)
def test_lost_digits(name: str, tmp_path: Path) -> None:
    document = capture(name)
    for event in document["traceEvents"]:
        for key in ("ts", "dur"):
            if key in event:
                event[key] = int(event[key])
    assert ("timestamp_precision", INFO, 1) in new_findings(document, name, tmp_path)


@pytest.mark.parametrize("name", SMALLER)
def test_a_garbled_event(name: str, tmp_path: Path) -> None:
    text = text_of(capture(name))
    lines = text.split("\n")
    row = next(row for row, line in enumerate(lines) if '"cpu_op"' in line)
    for damage in (lines[row].replace(":", ";", 1), lines[row].replace('"name": "', '"name": '), lines[row].replace("}", "]", 1)):
        path = tmp_path / "trace.json"
        path.write_text("\n".join([*lines[:row], damage, *lines[row + 1 :]]))
        try:
            checks = {check for check, _, _ in findings(kineto.read(path))}
        except InputError:
            continue  # the bracket of the first event seems to close the list of events
        assert checks & {"damaged_events", "truncated_file"}


@pytest.mark.parametrize("name", SMALLER)
def test_a_lost_quote_costs_one_event(name: str, tmp_path: Path) -> None:
    """In a file without line breaks a quote that is gone makes all the rest look like one text."""
    document = capture(name)
    path = tmp_path / "trace.json"
    text = dumps(document, separators=(",", ":"))
    path.write_text(text)
    whole = kineto.read(path)
    known = {check for check, _, _ in findings(whole)}
    where = text.index('"cpu_op"')
    path.write_text(text[:where] + text[where + 1 :])
    trace = kineto.read(path)
    assert {"damaged_events"} <= {check for check, _, _ in findings(trace)} <= {"damaged_events", "truncated_file", *known}
    assert trace.ops.height == whole.ops.height - 1
    assert trace.kernels.height == whole.kernels.height


@pytest.mark.parametrize("name", SMALLER)
def test_a_bracket_that_ends_the_events_early(name: str, tmp_path: Path) -> None:
    document = capture(name)
    path = tmp_path / "trace.json"
    text = dumps(document, separators=(",", ":"))
    for whole in (text, text[text.index("[{", text.index("traceEvents")) : text.rindex("}]") + 2]):
        where = whole.index('},{"', len(whole) // 3)
        path.write_text(whole[: where + 1] + "]" + whole[where + 1 :])
        found = findings(kineto.read(path))
        assert {"damaged_events", "truncated_file"} & {check for check, _, _ in found}


@pytest.mark.parametrize("category", ["cpu_op", "kernel", "cuda_runtime"])
def test_a_negative_duration(category: str, tmp_path: Path) -> None:
    name = "cuda_nccl_distributed"
    document = capture(name)
    event = next(event for event in document["traceEvents"] if event.get("cat") == category)
    event["dur"] = -event["dur"]
    assert ("negative_duration", ERROR, 1) in new_findings(document, name, tmp_path)


def test_a_time_far_away(tmp_path: Path) -> None:
    name = "cuda_ns_resolution_rank0"
    document = capture(name)
    next(event for event in document["traceEvents"] if event.get("cat") == "cpu_op")["ts"] = 12
    assert "out_of_range" in {check for check, _, _ in new_findings(document, name, tmp_path)}


@pytest.mark.parametrize("end", ["s", "f"])
@pytest.mark.parametrize("name", WITH_FLOWS)
def test_lost_arrow_ends(name: str, end: str, tmp_path: Path) -> None:
    document = capture(name)
    tasks = {event["args"].get("correlation") for event in document["traceEvents"] if is_task(event)}
    lost = without(document, lambda event: event.get("ph") == end and event["id"] in tasks, share=0.1)
    assert new_findings(document, name, tmp_path) == [("unmatched_flows", WARNING, lost)]


@pytest.mark.parametrize("microseconds", [-5000, 5000])
def test_a_rank_with_another_clock(microseconds: int, tmp_path: Path) -> None:
    write(capture("cuda_sampled_rank0"), tmp_path / "rank0.json")
    other = capture("cuda_sampled_rank1")
    shift_all(other, microseconds)
    write(other, tmp_path / "rank1.json")
    health = open_run(tmp_path).health()
    (message,) = health.filter(health["check"] == "rank_clock_offset")["message"]
    distance = "5.02 ms later" if microseconds > 0 else "4.98 ms earlier"
    assert (
        message.startswith("as far as 4 of 10 collectives tell") and f"which end {distance} on rank 1 than on rank 0" in message
    )
    # of a sample of the collectives some are paired that are not the same
    told = health.filter(health["severity"] != INFO)["check"].to_list()
    assert sorted(told) == ["contradictory_messages", "rank_clock_offset"]


def test_a_rank_that_is_gone(tmp_path: Path) -> None:
    for rank in range(4):
        document = capture("cuda_sampled_rank0")
        document["distributedInfo"] |= {"rank": rank, "world_size": 4}
        write(document, tmp_path / f"rank{rank}.json")
    assert open_run(tmp_path).health()["check"].unique().to_list() == ["timestamp_precision"]
    (tmp_path / "rank2.json").unlink()
    health = open_run(tmp_path).health()
    assert ("missing_ranks", WARNING, 1) in health.select("check", "severity", "count").rows()
    assert health["check"].n_unique() == 2


def test_a_rank_of_another_schema(tmp_path: Path) -> None:
    for rank in range(2):
        document = capture("cuda_sampled_rank0")
        document["distributedInfo"] |= {"rank": rank, "world_size": 2}
        document["schemaVersion"] = 1 + rank
        write(document, tmp_path / f"rank{rank}.json")
    health = open_run(tmp_path).health()
    assert ("mixed_captures", WARNING, 1) in health.select("check", "severity", "count").rows()


def offsets(size: int, seed: int) -> Iterator[int]:
    """Where to cut: everywhere near the ends, and at random between."""
    yield from range(0, min(400, size), 7)
    yield from range(max(size - 170, 0), size - 5, 3)
    yield from range(size - 5, size)
    yield from random.Random(seed).sample(range(size), 40)


@pytest.mark.parametrize("part", [3, pytest.param(1, marks=MORE)])
@pytest.mark.parametrize("compressed", [False, True])
def test_a_cut_file_says_so(compressed: bool, part: int, tmp_path: Path) -> None:
    """Cut anywhere: it cannot be read, or it says that it is cut, or what is gone does not matter."""
    text = text_of(capture("rocm_mi250_minitoy")).encode()
    data = gzip.compress(text, mtime=0) if compressed else text
    path = tmp_path / ("trace.json.gz" if compressed else "trace.json")
    path.write_bytes(data)
    whole = kineto.read(path)
    outcomes = set()
    for offset in [*offsets(len(data), seed=5)][::part]:
        path.write_bytes(data[:offset])
        try:
            trace = kineto.read(path)
        except InputError:
            outcomes.add("refused")
            continue
        if "truncated_file" in {check for check, _, _ in findings(trace)}:
            outcomes.add("reported")
            continue
        assert equal_tables(whole, trace), f"cut at {offset} of {len(data)}"
        outcomes.add("harmless")
    assert outcomes >= {"refused", "reported"}


@pytest.mark.parametrize(("seed", "flips"), [(7, 60), pytest.param(8, 300, marks=MORE)])
def test_a_damaged_archive_says_so(seed: int, flips: int, tmp_path: Path) -> None:
    text = text_of(capture("rocm_mi250_minitoy")).encode()
    data = gzip.compress(text, mtime=0)
    path = tmp_path / "trace.json.gz"
    path.write_bytes(data)
    whole = kineto.read(path)
    random_numbers = random.Random(seed)
    for _ in range(flips):
        damaged = bytearray(data)
        damaged[random_numbers.randrange(12, len(data))] ^= 1 << random_numbers.randrange(8)
        path.write_bytes(damaged)
        try:
            trace = kineto.read(path)
        except InputError:
            continue
        severe = {check for check, severity, _ in findings(trace) if severity != INFO} - {"incomplete_last_step"}
        assert severe or equal_tables(whole, trace)


def record(folder: Path) -> Document:
    """A recorded training whose steps are alike."""
    torch = pytest.importorskip("torch", reason="needs PyTorch")
    network = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
    optimizer = torch.optim.SGD(network.parameters(), lr=1e-3)
    schedule = torch.profiler.schedule(wait=0, warmup=2, active=4, repeat=1)
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities, record_shapes=True, profile_memory=True, schedule=schedule) as profiler:
        for _ in range(6):
            optimizer.zero_grad()
            network(torch.randn(128, 64)).sum().backward()
            optimizer.step()
            # so that the first step does not look like one that warms up where the machine interrupts it
            time.sleep(0.05)
            profiler.step()
    profiler.profiler.kineto_results.save(str(folder / "recorded.json"))
    return load((folder / "recorded.json").read_bytes())


def test_a_cpu_run(tmp_path: Path) -> None:
    document = record(tmp_path)
    original = kineto.read(tmp_path / "recorded.json")
    assert findings(original) == []

    def found(changed: Document) -> set[str]:
        return {check for check, _, _ in certificate(changed, tmp_path)}

    shuffle(document, 1)
    shuffled = kineto.read(write(document, tmp_path / "shuffled.json"))
    assert findings(shuffled) == []
    assert equal_tables(original, shuffled)

    changed = {**document, "traceEvents": list(document["traceEvents"])}
    steps = sorted(event["name"] for event in changed["traceEvents"] if event.get("name", "").startswith("ProfilerStep#"))
    without(changed, lambda event: event.get("name") == steps[2], share=1)
    assert found(changed) == {"missing_steps"}

    changed = {**document, "traceEvents": document["traceEvents"] * 2}
    assert found(changed) >= {"duplicated_events", "repeated_steps"}
    trace = kineto.read(tmp_path / "trace.json")
    copies = trace.health.filter(trace.health["check"] == "duplicated_events")
    assert {"operator calls", "allocator events"} <= {" ".join(text.split()[1:3]) for text in copies["message"]}

    text = (tmp_path / "recorded.json").read_text()
    (tmp_path / "cut.json").write_text(text[: int(len(text) * 0.7)])
    assert "truncated_file" in {check for check, _, _ in findings(kineto.read(tmp_path / "cut.json"))}
