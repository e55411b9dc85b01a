from __future__ import annotations

import shutil
from typing import Any


def test_writes_results_once_and_again_with_force(cli: Any, recorded: Any) -> None:
    shutil.copytree(recorded.run_directories()[0], cli.folder / "result" / "a_ascend_pt")
    results = cli.folder / "result/a_ascend_pt/ASCEND_PROFILER_OUTPUT"
    shutil.rmtree(results)
    cli.run("analyse", "result")
    assert (results / "analyse.done").exists()
    first = (results / "trace_view.json").stat().st_mtime_ns
    cli.run("analyse", "result")
    assert (results / "trace_view.json").stat().st_mtime_ns == first
    cli.run("analyse", "result", "--force", "--max-process-number", "1")
    assert (results / "trace_view.json").stat().st_mtime_ns > first


def test_names_the_window_that_was_open_when_the_process_died(cli: Any, recorded: Any) -> None:
    shutil.copytree(recorded.run_directories()[0], cli.folder / "result" / "whole_ascend_pt")
    lost = cli.write("result/lost_ascend_pt/KINETO/state.json", '{"state": "recording", "pid": 1, "first_step": 8}')
    done = cli.run("analyse", "result", expect=3)
    assert "lost" in done.stderr
    assert lost.parent.parent.name in done.stderr
    assert (cli.folder / "result/whole_ascend_pt/ASCEND_PROFILER_OUTPUT/analyse.done").exists()
