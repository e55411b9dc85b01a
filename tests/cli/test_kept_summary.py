"""A summary that was shown before: the same again without polars, and made anew where anything that it says may have changed."""

from __future__ import annotations

import json
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from steplens.cli.summary import summary as summary_module
from steplens.common import extensions, rundir
from steplens.common.step_points import FORWARD_POINT_VARIABLES

from ..command_line import command_environment


@pytest.fixture
def collected(monkeypatch: pytest.MonkeyPatch) -> list[Path]:
    """The paths of which a summary was made."""
    paths: list[Path] = []
    collect = summary_module.collect_summary
    monkeypatch.setattr(
        summary_module, "collect_summary", lambda run, path, *asked: paths.append(path) or collect(run, path, *asked)
    )
    return paths


@pytest.mark.parametrize("options", [(), ("--json",), ("--by", "module"), ("--top", "2")], ids=" ".join)
def test_is_the_same(recorded: Any, collected: list[Path], options: tuple[str, ...]) -> None:
    texts = [recorded.run("summary", "result", *options).stdout for _ in range(3)]
    assert texts[0] and texts[0] == texts[1] == texts[2]
    assert len(collected) <= 1


def test_of_several_ranks_is_the_same(cli: Any, events: list[dict[str, Any]], collected: list[Path]) -> None:
    for rank in (0, 1):
        cli.trace(f"job/rank{rank}.json", events, distributedInfo={"rank": rank, "world_size": 2})
    texts = [cli.run("summary", "job", "--json").stdout for _ in range(2)]
    assert texts[0] == texts[1] and len(collected) == 1
    cli.trace("job/rank2.json", events, distributedInfo={"rank": 2, "world_size": 3})
    assert cli.json("summary", "job")["recorded_ranks"] == 3
    # of what cannot be read it is said anew each time what is wrong with it
    cli.write("job/rank3.json", '{"traceEvents": [{"ph": "X"')
    assert [len(cli.json("summary", "job", expect=code)["unreadable"]) for code in (0, 0)] == [1, 1]
    assert len(collected) == 4


def test_is_made_anew_where_something_changed(
    cli: Any, events: list[dict[str, Any]], collected: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    trace = cli.trace("trace.json", events)
    cli.run("summary", trace)
    cli.run("summary", trace)
    assert len(collected) == 1
    # another path is shown as it was given
    assert cli.run("summary", "trace.json").stdout.startswith("trace.json\n") and len(collected) == 2
    cli.run("summary", trace, env={FORWARD_POINT_VARIABLES[0]: "aten::mm"})
    assert len(collected) == 3
    with monkeypatch.context() as installed:
        installed.setattr(extensions, "installed_versions", lambda: ("steplens.rules mine mine:rule mine 1.0",))
        cli.run("summary", trace)
    assert len(collected) == 4
    events[1]["dur"] += 1
    cli.trace("trace.json", events)
    cli.run("summary", trace)
    assert len(collected) == 5
    kept = next((cli.folder / rundir.CACHE_DIRECTORY).rglob("summary-*"))
    content = bytearray(kept.read_bytes())
    content[-1] ^= 1
    for path in kept.parent.glob("summary-*"):
        path.write_bytes(content)
    cli.run("summary", trace)
    assert len(collected) == 6


def test_results_are_those_that_are_there(recorded: Any, cli: Any, collected: list[Path]) -> None:
    shutil.copytree(recorded.folder / "result", cli.folder / "result")
    complete = cli.json("summary", "result")
    collected.clear()
    assert cli.json("summary", "result") == complete
    folder = cli.folder / complete["results"][0]
    (folder / rundir.COMPLETION_MARKER).unlink()
    assert cli.json("summary", "result") == {**complete, "results": [], "unfinished": [str(Path(complete["results"][0]).parent)]}
    assert not collected


def test_needs_neither_polars_nor_an_analysis(cli: Any, events: list[dict[str, Any]]) -> None:
    trace = cli.trace("trace.json", events)
    cli.run("summary", trace)
    heavy = ("polars", "numpy", "pydantic", "steplens.run", "steplens.analysis.steps.times", "steplens.advice.advice")
    program = f"""
import sys
from steplens.cli.main import main
code = main(["summary", {json.dumps(str(trace))}])
print(code, [name for name in {heavy} if name in sys.modules], file=sys.stderr)
"""
    done = subprocess.run([sys.executable, "-c", program], env=command_environment(), capture_output=True, text=True, check=True)
    assert done.stderr == "0 []\n" and "aten::mm" in done.stdout
