"""What becomes of windows that end unusually: replaced by later ones, empty, left by ``break``."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from typer.testing import CliRunner

import steplens
from steplens.cli.main import app

from .conftest import Run
from .test_errors import PROBE

pytestmark = pytest.mark.slow


def test_results_say_which_windows_they_lack(run: Run, tmp_path: Path) -> None:
    """By default windows behind an analysis replace its results, which would pass for all that the process recorded."""
    run(
        """
from steplens.mindspore import Profiler
from steplens.mindspore.r2_2 import Profiler as Older
mode("graph")
step = stepper()
def loop(batches):
    for batch in pipeline(batches).create_dict_iterator(num_epochs=1):
        step(batch["data"], batch["label"])
def windows(path, *lengths, moved=False, **more):
    profiler = Profiler(output_path=path, start_profile=False, **more)
    for length in lengths:
        profiler.start()
        loop(length)
        profiler.stop()
        profiler.analyse()
        if moved:
            os.rename(path, path + "_of_" + str(length))
windows("replaced", 2, 3, 4)
windows("kept", 2, 3, 4, data_simplification=False)
windows("away", 2, 3, moved=True)
for length in (2, 3):
    older = Older(output_path="older", data_process=False)
    loop(length)
    older.stop()
older.analyse()
"""
    )
    expected = {"replaced": (4, 2), "kept": (9, 0), "away_of_2": (2, 0), "away_of_3": (3, 0), "older": (3, 1)}
    for name, (steps, lacking) in expected.items():
        opened = steplens.open(tmp_path / name)
        assert opened.steps().height == steps
        lost = opened.health().filter(check="window_lost")
        assert lost["count"].to_list() == ([lacking] if lacking else []), name
        assert all(f"begin with window {lacking + 1} " in message for message in lost["message"])
    shown = CliRunner().invoke(app, ["summary", str(tmp_path / "replaced")])
    assert "they replaced those of the 2 windows before it" in " ".join(shown.output.split())


def test_a_window_with_nothing_in_it_is_named(run: Run, tmp_path: Path) -> None:
    """The reason, the window and the remedy are said; what other windows and ranks recorded is analysed."""
    run(
        PROBE
        + """
from steplens.mindspore import Profiler, analyse
mode("graph")
def launch():
    model().train(1, pipeline(2), dataset_sink_mode=False)
def recorded(path, *work, **more):
    profiler = Profiler(output_path=path, start_profile=False, profile_memory=True, **more)
    for launches in work:
        profiler.start()
        if launches:
            launch()
        profiler.stop()
    return profiler
nothing = recorded("nothing", False)
fails(RuntimeError, "nothing was launched in the window window_0_0 (from ", nothing.analyse)
fails(RuntimeError, "call start() before the steps that are to be recorded", nothing.analyse)
recorded("several", False, True, False).analyse()
recorded("folder/none", False)
recorded("folder/some", True)
fails(RuntimeError, "a part of the analysis of folder failed: folder/none/profiler", Profiler.offline_analyse, "folder")
"""
    )
    assert steplens.open(tmp_path / "folder" / "some").steps().height == 2
    assert (tmp_path / "folder" / "some" / "profiler" / "cpu_op_type_info_0.csv").is_file()
    several = steplens.open(tmp_path / "several")
    assert several.steps().height == 2
    told = several.health().filter(check="not_collected")
    assert told["severity"].to_list() == ["info"] * 2
    assert [name in message for name, message in zip(("window_0_0", "window_0_2"), told["message"], strict=True)] == [True] * 2
    assert not several.health().filter(check="missing_file").height


def test_an_empty_last_window_of_a_schedule_does_not_fail_the_training(run: Run, tmp_path: Path) -> None:
    """The last ``step()`` of a training may open a window that nothing follows."""
    made = run(
        """
from steplens.mindspore import profile, schedule, tensorboard_trace_handler
mode("graph")
step = stepper()
with profile(schedule=schedule(wait=1, active=1), on_trace_ready=tensorboard_trace_handler("result"), data_process=True) as prof:
    for batch in pipeline(5).create_dict_iterator(num_epochs=1):
        step(batch["data"], batch["label"])
        prof.step()
print(prof.run_directory)
with profile(on_trace_ready=tensorboard_trace_handler("result")):
    pass
"""
    )
    there = sorted((tmp_path / "result").iterdir())
    assert made.stdout.splitlines()[-1] == str(there[-1])
    assert [steplens.open(path).steps()["step"].to_list() for path in there] == [[1], [3]]
    assert made.stderr.count("nothing was launched in the last window") == 2


@pytest.mark.parametrize("mode", ["graph", "pynative"])
def test_a_step_does_not_last_over_what_follows_its_loop(run: Run, tmp_path: Path, mode: str) -> None:
    """``break`` leaves an iterator without another turn, whether it lives on or not."""
    made = run(
        """
from steplens.mindspore import Profiler
mode(sys.argv[1])
step = stepper()
def iterator(batches):
    return pipeline(batches).create_dict_iterator(num_epochs=1)
def loop(batches, turns=0):
    for turn, batch in enumerate(batches, 1):
        step(batch["data"], batch["label"]).asnumpy()
        if turn == turns:
            break
    left.append(time.time_ns())
def dropped():
    loop(iterator(5), 3)
    time.sleep(0.3)
def kept():
    there = iterator(5)
    loop(there, 3)
    time.sleep(0.3)
def another_loop():
    there = iterator(5)
    loop(there, 3)
    time.sleep(0.3)
    loop(iterator(2))
def another_loop_behind_one_dropped():
    loop(iterator(5), 3)
    time.sleep(0.3)
    loop(iterator(2))
def evaluated():
    there = iterator(3)
    for turn, batch in enumerate(there, 1):
        step(batch["data"], batch["label"]).asnumpy()
        if turn == 2:
            loop(iterator(2))
def called():
    there = iterator(5)
    for turn in range(3):
        batch = next(there)
        step(batch["data"], batch["label"]).asnumpy()
    time.sleep(0.3)
def model_behind():
    there = iterator(5)
    loop(there, 3)
    time.sleep(0.3)
    model().train(1, pipeline(2), dataset_sink_mode=False)
for work in (dropped, kept, another_loop, another_loop_behind_one_dropped, evaluated, called, model_behind):
    left = []
    profiler = Profiler(output_path=work.__name__)
    work()
    profiler.stop()
    if work is kept:
        # the results have to tell it, too, when the raw data is gone
        profiler.analyse()
    print(json.dumps([work.__name__, left]))
""",
        mode,
    )
    expected = {"dropped": (3, [3]), "kept": (3, [3]), "another_loop": (5, [3]), "another_loop_behind_one_dropped": (5, [3]),
                "evaluated": (3, []), "called": (3, [3]), "model_behind": (5, [3])}  # fmt: skip
    told = [json.loads(line) for line in made.stdout.splitlines() if line.startswith("[")]
    assert [name for name, _ in told] == list(expected)
    for name, left in told:
        opened = steplens.open(tmp_path / name)
        rows = opened.steps().sort("start_ns")
        count, unended = expected[name]
        assert rows.height == count, name
        health = opened.health()
        inside, before = (health.filter(check=check) for check in ("stopped_inside_step", "incomplete_steps"))
        # the last step alone can be left out of the averages
        assert (inside.height, before.height) == ((1, 0) if unended == [count] else (0, len(unended))), name
        if inside.height:
            assert not rows["complete"][-1], name
        for place in unended if left else []:
            row = rows.row(place - 1, named=True)
            assert row["start_ns"] + row["duration_ns"] <= left[0], name
