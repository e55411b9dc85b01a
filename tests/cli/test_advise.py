from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from .conftest import event

FETCH = "enumerate(DataLoader)#_SingleProcessDataLoaderIter.__next__"


def slow_loader(cli: Any, name: str, loading_us: float) -> Path:
    """A trace of six steps that load for a while and then work for 4 ms."""
    events = []
    for step in range(6):
        begin = 1000 + step * (loading_us + 4000)
        length = loading_us + 4000
        events.append(event(f"ProfilerStep#{step}", begin, length - 1, "user_annotation"))
        events.append(event(FETCH, begin + 10, loading_us, "user_annotation"))
        events.append(event("aten::mm", begin + loading_us + 100, 3000))
    return cli.trace(name, events)


def test_says_what_to_change(cli: Any) -> None:
    text = cli.run("advise", slow_loader(cli, "before.json", 6000)).stdout
    lines = [line for line in text.splitlines() if line]
    assert lines[0] == "Input bound: 60 % of the step the loop loads its data itself, without loader workers."
    assert lines[1] == "median of steps 0-5; figures per step below are medians too, but for those of the mean step"
    assert lines[2] == "1 finding; a step takes 10.00 ms"
    assert lines[3] == "Confidence: how sure the cause is. Impact: what its cure is likely to save."
    assert lines[4] == "1. [High impact] The training loop loads the data itself"
    assert lines[5] == "   saves 2.9 ms to 6 ms of a step, likely 5.8 ms (58 %) if workers load beside the training and only"
    assert "evidence: loading in the loop 6.00 ms a step · steps 0-5 · _SingleProcessDataLoaderIter.__next__" in text
    ends = "2.9 ms: if workers hide half as much; 6 ms: if handing batches over takes no time either"
    assert f"evidence: range of the saving: {ends}" in " ".join(text.split())
    assert "     +DataLoader(dataset, ..., num_workers=3, persistent_workers=True)" in lines
    assert max(map(len, lines)) <= 100


def test_says_it_in_chinese(cli: Any) -> None:
    text = cli.run("advise", slow_loader(cli, "before.json", 6000), "--language", "zh").stdout
    assert text.startswith("输入受限：迭代内 60 % 的时间训练循环在自己加载数据，没有加载工作进程。\n6 步的中位数；下列每步的")
    # without the breaks of lines
    assert "训练循环自己加载数据" in text and "每步可节省2.9ms至6ms，可能5.8ms（58%）" in "".join(text.split())


def test_says_whether_it_helped(cli: Any) -> None:
    before, after = slow_loader(cli, "before.json", 6000), slow_loader(cli, "after.json", 10)
    text = cli.run("advise", after, "--since", before).stdout
    verdict, advice = text.split("\n\n")[:2]
    assert verdict.startswith("Host bound: Python runs and no operator does for 25 % of the step; 98 % of that time passes after")
    assert ", until the next operator.\nmedian of steps 0-5; figures per step below are medians too" in verdict
    assert advice.splitlines()[0] == "1 finding; a step takes 4.01 ms"
    assert "a step took 10.00 ms, now 4.01 ms: 5.99 ms less (5.80 ms were expected of what was cured)" in text
    assert "  cured: The training loop loads the data itself" in text
    found = cli.json("advise", after, "--since", before)["since"]
    assert (found["cured"], found["remaining"], found["new"]) == (["loader_without_workers"], [], [])
    assert cli.json("advise", before, "--since", after)["since"]["new"] == ["loader_without_workers"]


def test_says_that_it_became_longer(cli: Any) -> None:
    before, after = slow_loader(cli, "before.json", 10), slow_loader(cli, "after.json", 6000)
    text = cli.run("advise", after, "--since", before).stdout
    assert "a step took 4.01 ms, now 10.00 ms: 5.99 ms more\n" in text and "expected" not in text


def test_of_two_programs_nothing_is_expected(cli: Any) -> None:
    before = slow_loader(cli, "before.json", 6000)
    steps = [event(f"ProfilerStep#{step}", 1000 + step * 10_000, 9999, "user_annotation") for step in range(6)]
    calls = [event(f"aten::other{number}", 1000 + step * 10_000 + 900 * number, 800) for step in range(6) for number in range(9)]
    another = cli.trace("another.json", [*steps, *calls])
    text = " ".join(cli.run("advise", another, "--since", before).stdout.split())
    assert "a step took 10.00 ms, now 10.00 ms" in text and "were expected" not in text
    assert "The two runs have only 0 % of their operator calls in common" in text
    since = cli.json("advise", another, "--since", before)["since"]
    assert (since["promised_ns"], since["common_share"], since["unlike"]) == (0, 0, True)
    assert cli.json("advise", before, "--since", before)["since"]["unlike"] is False


def test_without_steps_nothing_is_cured(cli: Any) -> None:
    before, without = slow_loader(cli, "before.json", 6000), cli.trace("without.json", [event("aten::mm", 1000, 3000)])
    text = cli.run("advise", without, "--since", before).stdout
    assert text.splitlines()[:2] == ["No verdict: the run has no steps.", "no steps"]
    assert text.splitlines()[3] == "Nothing to change was found; without complete steps most causes cannot be judged"
    assert "one of the two runs has no complete steps" in text
    assert "cured:" not in text and "0 ns" not in text
    since = cli.json("advise", without, "--since", before)["since"]
    assert (since["cured"], since["new"], since["saved_ns"]) == ([], [], 0)


def test_json_is_one_document(cli: Any) -> None:
    path = slow_loader(cli, "before.json", 6000)
    document, summary = cli.json("advise", path), cli.json("summary", path)
    assert (document["verdict"], document["of"]) == (summary["verdict"], summary["step"]["of"])
    (finding,) = document["findings"]
    assert (finding["id"], finding["level"], finding["confidence"]) == ("loader_without_workers", "high", 0.95)
    assert finding["saving"]["likely_ns"] == pytest.approx(5.8e6, rel=0.01)
    assert finding["evidence"][0]["steps"] == [0, 1, 2, 3, 4, 5]
    assert finding["title"] == "The training loop loads the data itself"


def test_bad_input(cli: Any) -> None:
    assert "missing.json: does not exist" in cli.refused("advise", "missing.json")
    trace = slow_loader(cli, "before.json", 6000)
    assert "does not exist" in cli.refused("advise", trace, "--since", "missing.json")
    assert "is no folder of rules" in cli.refused("advise", trace, "--rules", "rules")
    cli.write("rules/broken.py", "import nothing_of_that_name")
    assert "broken.py: cannot be loaded as a rule (ModuleNotFoundError" in cli.refused("advise", trace, "--rules", "rules")


def test_names_from_a_trace_stay_text(cli: Any) -> None:
    steps = [event(f"ProfilerStep#{step}", 1000 + step * 10_000, 9999, "user_annotation") for step in range(6)]
    hostile = "\x1b[31maten::evil\u202e"
    storm = [event(hostile, 1000 + step * 10_000 + 100 + 10 * number, 5) for step in range(6) for number in range(300)]
    text = cli.run("advise", cli.trace("hostile.json", steps + storm)).stdout
    assert "tiny operators" in text
    assert "\x1b" not in text and "\u202e" not in text


def test_the_summary_shows_the_first_findings(cli: Any) -> None:
    trace = slow_loader(cli, "before.json", 6000)
    text = cli.run("summary", trace).stdout
    assert "Advice" in text
    assert (
        "High impact: The training loop loads the data itself, saves 2.9 ms to 6 ms of a step, likely 5.8 ms (58 %)"
        in " ".join(text.split())
    )
    assert "next: steplens advise" in text
    assert [one["id"] for one in cli.json("summary", trace)["advice"]] == ["loader_without_workers"]
    # no rule sees a cause, and a verdict has a next action all the same
    held_up = cli.json("summary", slow_loader(cli, "after.json", 10))["advice"]
    assert [one["id"] for one in held_up] == ["next_host_bound"] and "saves 0 to 999 us of a step" in held_up[0]["text"]
