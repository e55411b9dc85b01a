"""``steplens compare``: programs whose slowdown is known, what it says of them, and how it ends."""

from __future__ import annotations

import json
from typing import Any

import pytest

import steplens
from steplens.analysis.operators import operators
from steplens.analysis.steps import times
from steplens.comparison import limits, recordings
from steplens.comparison.limits import parse_limit

from .conftest import event

#: lengths of steps vary by so much, in turn, us
_JITTER = (0, 4, -3, 2, -5, 1, 3, -2)


def program(mm_us: float, steps: int = 24, first: int = 0, first_us: float = 1000) -> list[dict[str, Any]]:
    """Steps of 10 ms, of which 4 ms are aten::mm, in forward; it takes ``mm_us`` here, and with it the step."""
    events = []
    begin = first_us
    for step in range(steps):
        length = 6000 + mm_us + _JITTER[step % len(_JITTER)]
        events.append(event(f"ProfilerStep#{first + step}", begin, length - 1, "user_annotation"))
        events.append(event("aten::mm", begin + 100, mm_us - 1))
        events.append(event("autograd::engine::evaluate_function: MmBackward0", begin + 200 + mm_us, 3000))
        events.append(event("Optimizer.step#SGD.step", begin + 3400 + mm_us, 1000, "user_annotation"))
        events.append(event("aten::add_", begin + 3450 + mm_us, 900))
        begin += length
    return events


def almost(found: Any, expected: Any) -> None:
    """The same values, numbers to their eighth digit."""
    if isinstance(expected, dict):
        assert list(found) == list(expected)
        for key in expected:
            almost(found[key], expected[key])
    elif isinstance(expected, list):
        assert len(found) == len(expected)
        for value, other in zip(found, expected, strict=True):
            almost(value, other)
    elif isinstance(expected, float):
        assert found == pytest.approx(expected, rel=1e-7, abs=1e-4)
    else:
        assert found == expected


@pytest.fixture
def versions(cli: Any) -> Any:
    cli.trace("before.json", program(4000))
    cli.trace("after.json", program(5000))
    cli.trace("same.json", program(4001, first_us=1007))
    return cli


def test_a_slowdown_and_where_it_is(versions: Any) -> None:
    text = versions.run("compare", "before.json", "after.json").stdout
    assert "A step is 10.0 % slower; the interval of 95 % is +7." in text.replace("\n", " ")
    forward = next(line for line in text.splitlines() if line.lstrip().startswith("forward"))
    assert "+1.00 ms" in forward and "100 % of the change" in forward and "chance" not in forward
    mm = next(line for line in text.splitlines() if line.lstrip().startswith("aten::mm"))
    assert "+25.0 %" in mm and "1 call" in mm and "chance" not in mm and "doubtful" not in text
    assert "next: steplens advise after.json --since before.json" in text

    found = versions.json("compare", "before.json", "after.json")["comparisons"][0]
    assert found["step"]["verdict"] == "slower" and found["step"]["ratio"] == pytest.approx(0.1, abs=0.001)
    # the parts add up to what the step became longer by
    assert sum(part["difference_ns"] for part in found["parts"]) == pytest.approx(1e6, rel=0.001)
    assert found["parts"][0]["part"] == "forward_ns" and found["parts"][0]["share"] == pytest.approx(1.0, abs=0.001)
    assert (found["operators"][0]["name"], found["operators"][0]["difference_ns"]) == ("aten::mm", pytest.approx(1e6, rel=0.001))
    assert "100 %  aten::mm in forward takes 25 % longer in as many calls (shapes of inputs were not recorded)" in text
    causes = found["causes"]
    assert causes["explained"] == pytest.approx(1.0, abs=0.01) and causes["causes"][0]["kind"] == "speed"
    assert sum(cause["difference_ns"] for cause in causes["causes"]) == pytest.approx(causes["change_ns"], abs=1)
    quicker = versions.json("compare", "after.json", "before.json")["comparisons"][0]["step"]
    assert quicker["verdict"] == "faster" and quicker["high"] < 0


def test_sides_that_are_alike_and_what_cannot_be_told(versions: Any) -> None:
    assert "A step is as long as before, within 2 %" in versions.run("compare", "before.json", "same.json").stdout
    lengths = (4000, 4900, 3500, 4400)
    restless: list[dict[str, Any]] = []
    for number, length in enumerate(lengths):
        restless += program(length, 6, first=6 * number, first_us=70_000 * number)
    versions.trace("restless.json", restless)
    text = versions.run("compare", "before.json", "restless.json").stdout.replace("\n", " ")
    assert "Cannot tell whether a step became longer" in text and "To tell a change of 2.0 % takes about" in text
    assert "next: steplens run --active 100 --out FOLDER train.py, five times for each version" in text
    assert "next: steplens run" not in versions.run("compare", "before.json", "same.json").stdout
    # of what was asked for, and not of the change that was found, which is as uncertain
    text = versions.run(
        "compare", "before.json", "restless.json", "--fail-on", "step>5%", "--fail-on", "step>20%", expect=3
    ).stdout
    assert "To tell a change of 5.0 % takes about" in text.replace("\n", " ")
    document = versions.json("compare", "before.json", "same.json", "after.json")
    assert [found["step"]["verdict"] for found in document["comparisons"]] == ["alike", "slower"]


def test_a_folder_of_recordings_is_so_many(versions: Any) -> None:
    """Traces of several processes are recordings of their own; windows of one are one."""
    for side, lengths in (("old", (4000, 4060, 3950)), ("new", (5000, 5080, 4930))):
        for number, length in enumerate(lengths):
            events = program(length, 12, first_us=1000 + 900_000 * number)
            versions.write(f"{side}/{number}.json", "")
            versions.trace(f"{side}/{number}.json", events, pid=100 + number)
    found = versions.json("compare", "old", "new")["comparisons"][0]
    assert (found["before"]["recordings"], found["before"]["steps"]) == (3, 36)
    sides = [line for line in versions.run("compare", "old", "new").stdout.splitlines() if line.startswith("before: ")]
    assert sides[0].endswith(" a step (typical: geometric mean of the recordings' medians), 36 steps, 3 recordings")
    assert found["step"]["verdict"] == "slower"
    run = steplens.compare(versions.folder / "old", steplens.open(versions.folder / "new"))
    assert run.step.ratio == found["step"]["ratio"] and run.operators["name"][0] == "aten::mm"


def test_files_of_the_own_profiler_of_pytorch_are_as_many_recordings(versions: Any) -> None:
    """They do not say which process they are of, and in containers it has the same number each time."""
    for number in range(3):
        versions.write(f"plain/{number}.json", "")
        versions.trace(f"plain/{number}.json", program(4000, 12, first_us=1000 + 900_000 * number))
    side = versions.json("compare", "plain", "before.json")["comparisons"][0]["before"]
    assert (side["recordings"], side["steps"]) == (3, 36)
    # windows of one process go on counting
    for number in range(3):
        versions.write(f"windows/{number}.json", "")
        versions.trace(f"windows/{number}.json", program(4000, 12, first=20 * number, first_us=1000 + 900_000 * number))
    side = versions.json("compare", "windows", "before.json")["comparisons"][0]["before"]
    assert (side["recordings"], side["steps"]) == (1, 36)


def test_what_else_differs_is_said(versions: Any) -> None:
    shaped = [{**item, "args": {"Input Dims": [[8, 8]]}} if item["name"].startswith("aten") else item for item in program(4000)]
    other = [{**item, "args": {"Input Dims": [[16, 8]]}} if item["name"].startswith("aten") else item for item in program(5000)]
    versions.trace("small.json", shaped, torch_version="2.4")
    versions.trace("large.json", other, torch_version="2.13")
    doubts = versions.json("compare", "small.json", "large.json")["comparisons"][0]["doubts"]
    assert any("inputs have other shapes" in doubt for doubt in doubts)
    assert "PyTorch differ: 2.4 before, 2.13 after" in doubts
    waiting = {"ran_ns": 700_000, "waited_ns": 300_000}
    versions.trace("crowded.json", program(4000), processor_time=waiting)
    crowded = versions.json("compare", "crowded.json", "after.json")["comparisons"][0]
    assert any("waited 30 % of their time for a processor" in doubt for doubt in crowded["doubts"])
    # whoever waits so much may wait less the next time
    assert crowded["step"]["verdict"] == "cannot tell"
    unlike = [{**item, "name": item["name"].replace("aten::", "mine::")} for item in program(4000)]
    versions.trace("unlike.json", unlike)
    assert "these are two programs" in versions.run("compare", "before.json", "unlike.json").stdout
    assert "both sides hold the same 1 recording" in versions.run("compare", "before.json", "before.json").stdout.replace(
        "\n", " "
    )


def test_sides_that_hold_copies_or_several_programs_are_doubted(versions: Any) -> None:
    versions.trace("mixed/0.json", program(4000), pid=1, trace_id="A")
    versions.trace("mixed/1.json", program(4000), pid=1, trace_id="A")
    versions.trace("mixed/2.json", program(6500, first_us=900_000), pid=2, trace_id="B")
    versions.trace("one.json", program(6500, first_us=900_000), pid=2, trace_id="B")
    doubts = versions.json("compare", "mixed", "one.json")["comparisons"][0]["doubts"]
    assert "the earlier side holds 1 recording twice, which count twice" in doubts
    assert "both sides hold the same 1 recording" in doubts
    assert "recordings of the earlier side have steps of 9.999 ms to 12.5 ms: are they of one program?" in doubts
    doubts = versions.json("compare", "one.json", "before.json")["comparisons"][0]["doubts"]
    assert "the earlier side was recorded after the later one" in doubts


def test_an_operator_that_chance_moves_is_said_to_be(versions: Any) -> None:
    events = program(4000)
    for place, item in enumerate(item for item in events if item["name"] == "aten::add_"):
        item["dur"] = 500 + 37 * (place * 7 % 11)
    versions.trace("moved.json", events)
    line = next(line for line in versions.run("compare", "before.json", "moved.json").stdout.splitlines() if "aten::add_" in line)
    assert "(chance may explain it)" in line
    rows = versions.json("compare", "before.json", "moved.json")["comparisons"][0]["operators"]
    assert [(row["name"], row["is_certain"]) for row in rows[:1]] == [("aten::add_", False)]


def test_limits_and_exit_codes(versions: Any) -> None:
    kept = versions.run("compare", "before.json", "same.json", "--fail-on", "step>2%", "--fail-on", "operators.aten::mm>5%")
    assert kept.stdout.count(": kept: ") == 2
    versions.run("compare", "before.json", "after.json", "--fail-on", "step>2%", expect=1)
    versions.run("compare", "before.json", "after.json", "--fail-on", "step>9.9%", expect=3)
    text = versions.run("compare", "before.json", "after.json", "--fail-on", "operators.aten::mm > 5 %", expect=1).stdout
    assert "limit operators.aten::mm>5%: exceeded: +25." in text
    assert "limit forward>30%: kept" in versions.run("compare", "before.json", "after.json", "--fail-on", "forward>30%").stdout
    text = versions.run("compare", "before.json", "after.json", "--fail-on", "memory_peak>1%", expect=3).stdout
    assert "cannot tell: it was not recorded on either side" in text
    document = json.loads(versions.run("compare", "before.json", "after.json", "--fail-on", "step>2%", "--json", expect=1).stdout)
    assert document["comparisons"][0]["limits"][0]["verdict"] == "exceeded"
    # an operator that nobody has is a misspelt one
    assert "neither side has an operator 'mm'; perhaps aten::mm" in versions.refused(
        "compare", "before.json", "after.json", "--fail-on", "operators.mm>5%"
    )


def test_limits_of_kernels_and_communication(versions: Any) -> None:
    """Two ranks whose collectives take half as long again: the kernel and the communication of a step do, in every step."""
    from benchmarks.jobs.job import write_job
    from benchmarks.jobs.layout import Layout
    from benchmarks.jobs.program import Model

    write_job(versions.folder / "job", Layout(2, 1, 1), Model(layers=1), [], steps=8, seed=1)
    (versions.folder / "longer").mkdir()
    for path in (versions.folder / "job").glob("*.pt.trace.json"):
        trace = json.loads(path.read_text())
        kernels = [item for item in trace["traceEvents"] if item.get("cat") == "kernel" and item["name"].startswith("nccl")]
        name = kernels[0]["name"]
        for item in kernels:
            item["dur"] *= 1.5
        (versions.folder / "longer" / path.name).write_text(json.dumps(trace))
    limits = ("--fail-on", "communication>10%", "--fail-on", f"kernels.{name}>10%", "--fail-on", "computing>300%")
    limits += ("--fail-on", "operators.record_param_comms>10%")
    found = json.loads(versions.run("compare", "job", "longer", *limits, "--json", expect=3).stdout)["comparisons"][0]
    ratios = [judged["ratio"] for judged in found["limits"]]
    assert ratios == [
        pytest.approx(0.5, abs=0.05),
        pytest.approx(0.5, abs=0.01),
        pytest.approx(0.0, abs=0.05),
        pytest.approx(0.5, abs=0.01),
    ]
    assert found["limits"][2]["verdict"] == "kept"
    assert f"neither side has a device task 'nccl'; perhaps {name}" in versions.refused(
        "compare", "job", "longer", "--fail-on", "kernels.nccl>5%"
    )
    versions.run("baseline", "save", "job", "job")
    kept = versions.json("compare", "baseline:job", "longer", *limits, expect=3)["comparisons"][0]
    for part in ("limits", "device_time", "tasks", "parts"):
        almost(kept[part], found[part])
    # what nobody recorded
    text = versions.run("compare", "before.json", "same.json", "--fail-on", "communication>5%").stdout
    assert "limit communication>5%: kept: neither side has any of it" in text
    assert "neither side has a device task 'aten::mm'" in versions.refused(
        "compare", "before.json", "same.json", "--fail-on", "kernels.aten::mm>5%"
    )


def test_memory_of_two_processes_is_compared_exactly(recorded: Any) -> None:
    text = recorded.run("compare", "result", "result", "--fail-on", "memory_peak>0.1%").stdout
    assert "limit memory_peak>0.1%: kept: +0.0 %, +0.0 % to +0.0 %" in text


def test_bad_input_is_one_sentence(versions: Any) -> None:
    versions.trace("none.json", [event("aten::mm", 0, 10)])
    versions.trace("one.json", program(4000, 1))
    done = versions.run("compare", "before.json", "none.json", expect=2)
    assert "none.json: has no steps, and 3 are the least that tell whether a step became longer" in done.stderr
    # what can be compared is shown
    done = versions.run("compare", "one.json", "after.json", "--fail-on", "step>2%", expect=2)
    assert "one.json: has one step" in done.stderr and len(done.stderr.splitlines()) == 1
    assert "Cannot tell whether a step became longer: there are 1 step before and 24 steps after" in done.stdout
    assert "+1.00 ms  100 % of the change" in done.stdout and "slower" not in done.stdout and "chance" not in done.stdout
    assert versions.json("compare", "one.json", "after.json", expect=2)["comparisons"][0]["step"] is None
    assert "does not exist" in versions.refused("compare", "before.json", "missing")
    assert "did you mean step?" in versions.refused("compare", "before.json", "after.json", "--fail-on", "stp>2%")
    assert "is no limit" in versions.refused("compare", "before.json", "after.json", "--fail-on", "step")
    assert str(parse_limit(" forward > 5 % ")) == "forward>5%"
    # known without what reads
    assert tuple(part + limits.SUFFIX for part in limits.PARTS) == recordings.PARTS


def test_a_side_that_was_cut_short_is_compared_and_said_to_be(versions: Any) -> None:
    whole = (versions.folder / "after.json").read_text()
    versions.write("cut.json", whole[: len(whole) // 2])
    done = versions.run("compare", "before.json", "cut.json", "--fail-on", "step>2%", expect=2)
    assert "10.0 % slower" in done.stdout and "doubtful: step times of the later side are doubtful" in done.stdout
    assert len(done.stderr.splitlines()) == 1 and "cut.json: the data is truncated" in done.stderr


def test_other_ranks_are_refused_and_one_of_each_is_compared(versions: Any) -> None:
    for side, ranks in (("two", 2), ("three", 3)):
        for rank in range(ranks):
            versions.write(f"{side}/{rank}.json", "")
            info = {"rank": rank, "world_size": ranks, "backend": "gloo"}
            versions.trace(f"{side}/{rank}.json", program(4000 + 500 * (ranks == 3)), distributedInfo=info)
    refusal = versions.refused("compare", "two", "three")
    assert refusal.startswith("steplens: three: holds ranks 0-2, and what it is compared with ranks 0, 1. Compare")
    found = versions.json("compare", "two", "three", "--rank", "1")["comparisons"][0]
    assert found["step"]["ratio"] == pytest.approx(0.05, abs=0.001)
    # of several ranks a step is the mean over them, and counts once
    assert versions.json("compare", "two", "two")["comparisons"][0]["before"]["steps"] == 24


def test_a_second_comparison_reads_no_calls_and_says_the_same(recorded: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Whatever its sides were compared with before; and what was kept is of these very tables."""
    kept = [*(recorded.folder / "result").rglob("measured-*")]
    for path in kept:
        path.unlink()
    texts = [recorded.run("compare", "result", "result", "--json").stdout]
    with monkeypatch.context() as forbidden:
        forbidden.setattr(times, "host_phases", None)
        forbidden.setattr(operators, "_group_calls", None)
        texts += [recorded.run("compare", "result", "result", "--json").stdout for _ in range(2)]
    assert texts[0] == texts[1] == texts[2] and json.loads(texts[0])["comparisons"][0]["operators"]
    for path in (recorded.folder / "result").rglob("measured-*"):
        content = bytearray(path.read_bytes())
        content[-1] ^= 1
        path.write_bytes(content)
    assert recorded.run("compare", "result", "result", "--json").stdout == texts[0]
