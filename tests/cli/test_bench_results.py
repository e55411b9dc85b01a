"""What is left of a ``steplens bench``, whatever becomes of it: programs whose times and recordings are made up."""

from __future__ import annotations

import dataclasses
import json
import random
import re
import types
from collections.abc import Callable
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from steplens.bench import rounds
from steplens.bench.checkouts import ProgramError, Version
from steplens.bench.program import Plan, TimedRun
from steplens.cli.comparing.bench_results import provide_folder
from steplens.cli.text.bench_text import estimate_time

from .test_compare import program

COMMANDS = ("bench", "--base-command", "one", "--head-command", "two")
REPORTS = ("--markdown", "report.md", "--junit", "junit.xml")
#: what runs of a version differ by, in turn
_NOISE = (0.3, -0.8, 1.0, -0.5, 0.7, -1.0, 0.1, 0.9, -0.2, -0.6)


class Programs:
    """Stands for the programs of both versions: how long their steps are, and what is recorded of them.

    Attributes:
        slower: by which share the later one's steps are longer.
        noise: how far runs differ.
        waited_share: of their time, for a processor.
        write: records a run: gets the folder of its side, the name of the side and the number of the run.
        fails_in: the number of the run that fails; -1 for none.
        failure: how it does; None for a program that does.
        runs: how many there were.
    """

    def __init__(self) -> None:
        self.slower, self.noise, self.waited_share = 0.2, 0.001, 0.0
        self.write: Callable[[Path, str, int], None] = write_recording
        self.fails_in = -1
        self.failure: BaseException | None = None
        self.runs = 0

    def run(self, version: Version, command: Any, plan: Plan, out: Path) -> TimedRun:
        if self.runs == self.fails_in and self.failure is not None:
            # it had recorded something when the signal came
            out.mkdir(parents=True, exist_ok=True)
            self.write(out, out.name, self.runs)
            raise self.failure
        if self.runs == self.fails_in:
            raise ProgramError(f"{version.full_name}: the command ended with exit code 1", ["no memory is left"])
        if plan.recorded:
            out.mkdir(parents=True, exist_ok=True)
            self.write(out, out.name, self.runs)
        slower = self.slower if out.name == "head" else 0.0
        step_ns = 1e7 * (1.0 + slower + self.noise * _NOISE[self.runs * 7 % len(_NOISE)])
        self.runs += 1
        return TimedRun(step_ns, 30, ((10_000_000,) * 30,), self.waited_share, ())


def write_recording(folder: Path, side: str, number: int, end: int | None = None, steps: int = 6) -> None:
    events = program(4000 if side == "base" else 5000, steps=steps, first_us=1000 + number)
    (folder / f"{number}.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events})[:end])


@pytest.fixture
def programs(monkeypatch: pytest.MonkeyPatch) -> Programs:
    made = Programs()
    monkeypatch.setattr(rounds, "run_program", made.run)
    monkeypatch.setattr(rounds, "random", types.SimpleNamespace(SystemRandom=lambda: random.Random(1)))
    return made


def read_results(cli: Any) -> dict[str, Any]:
    """``bench.json`` of the one bench there was."""
    [path] = (cli.folder / "bench").glob("*/bench.json")
    return json.loads(path.read_text("utf-8"))


def read_reports(cli: Any) -> tuple[str, str]:
    texts = [(cli.folder / name).read_text("utf-8") for name in ("report.md", "junit.xml")]
    ElementTree.fromstring(texts[1])
    return texts[0], texts[1]


def test_a_bench_that_records_nothing_comes_to_its_end(cli: Any, programs: Programs) -> None:
    found = cli.json(*COMMANDS, "--record", "0", "--fail-on", "step>2%", expect=1)
    assert found["step"]["verdict"] == "slower" and found["recorded"] is None
    assert [limit["verdict"] for limit in found["limits"]] == ["exceeded"]
    assert read_results(cli) == found
    assert "A step is " in cli.run(*COMMANDS, "--record", "0").stdout


@pytest.mark.parametrize("side", ["base", "head"])
def test_a_version_of_which_nothing_is_recorded_ends_it_after_a_round(cli: Any, programs: Programs, side: str) -> None:
    programs.write = lambda folder, name, number: write_recording(folder, name, number) if name != side else None
    done = cli.run(*COMMANDS, "--json", *REPORTS, expect=2)
    sentence = f"{side}: its steps were timed, and nothing was recorded: it ended before the 42 steps"
    assert sentence in done.stderr and "Traceback" not in done.stderr and programs.runs == 2
    assert sentence in json.loads(done.stdout)["problem"]
    assert all(sentence in text for text in read_reports(cli))


def test_a_limit_that_names_nothing_ends_it_after_a_round(cli: Any, programs: Programs) -> None:
    done = cli.run(*COMMANDS, "--fail-on", "operators.mm>5%", *REPORTS, expect=2)
    sentence = "neither side has an operator 'mm'; perhaps aten::mm"
    assert sentence in done.stderr and programs.runs == 2
    assert sentence in read_reports(cli)[1]
    found = cli.json(*COMMANDS, "--fail-on", "operators.aten::mm>5%", "--fail-on", "step>50%", expect=1)
    assert [limit["verdict"] for limit in found["limits"]] == ["exceeded", "kept"]


def test_a_limit_that_too_few_recorded_steps_can_tell_nothing_of_ends_it_after_a_round(cli: Any, programs: Programs) -> None:
    programs.write = lambda folder, side, number: write_recording(folder, side, number, steps=2 if side == "head" else 6)
    done = cli.run(*COMMANDS, "--fail-on", "forward>5%", *REPORTS, expect=2)
    sentence = "head: 2 steps were recorded, and limits on what is recorded need 3 of a run; let it run for 42 steps or more"
    assert sentence in done.stderr and programs.runs == 2 and sentence in read_reports(cli)[0]
    # a limit on what is timed needs none of them
    cli.run(*COMMANDS, "--fail-on", "step>50%")


def test_what_was_timed_is_kept_where_recordings_cannot_be_compared(cli: Any, programs: Programs) -> None:
    def write(folder: Path, side: str, number: int) -> None:
        write_recording(folder, side, number)
        if number > 3:
            # after the first round somebody empties the folder
            for path in folder.glob("*"):
                path.unlink() if path.is_file() else path.rename(folder.parent / f"gone{number}")

    programs.write = write
    done = cli.run(*COMMANDS, *REPORTS, expect=2)
    found = read_results(cli)
    assert found["step"]["verdict"] == "slower" and len(found["rounds"]) == 8 and found["problem"]
    assert "Of the steps at full speed: A step is " in done.stderr
    assert all("Of the steps at full speed: A step is " in text for text in read_reports(cli))


def test_rounds_before_a_failure_are_kept(cli: Any, programs: Programs) -> None:
    programs.slower, programs.noise, programs.fails_in = 0.02, 0.3, 2 * 20
    done = cli.run(*COMMANDS, *REPORTS, expect=2)
    assert "  | no memory is left" in done.stderr
    sentence = "the command ended with exit code 1. 20 rounds were complete before that; after 13 of them: Cannot tell"
    assert sentence in done.stderr and all(sentence in text for text in read_reports(cli))
    found = read_results(cli)
    assert len(found["rounds"]) == 20 and found["looked_after"] == 13
    assert found["step"]["verdict"] == "cannot tell" and found["problem"].endswith("exit code 1")


@pytest.mark.parametrize(("failure", "code"), [(KeyboardInterrupt(), 130), (SystemExit(143), 143)])
def test_a_signal_ends_it_as_the_end_of_time_does(cli: Any, programs: Programs, failure: BaseException, code: int) -> None:
    programs.slower, programs.noise, programs.fails_in, programs.failure = 0.02, 0.3, 2 * 9 + 1, failure
    done = cli.run(*COMMANDS, "--fail-on", "step>5%", *REPORTS, expect=code)
    found = read_results(cli)
    assert len(found["rounds"]) == 9 and [limit["verdict"] for limit in found["limits"]] == ["cannot tell"]
    assert found["recorded"]["before"]["recordings"] == found["recorded"]["after"]["recordings"] == 9
    for text in (done.stdout, *read_reports(cli), *found["doubts"]):
        assert "interrupted after 9 of 60 rounds" in text
    assert "Cannot tell whether a step became longer" in done.stdout


def test_a_signal_before_anything_can_be_told_says_so(cli: Any, programs: Programs) -> None:
    programs.fails_in, programs.failure = 2 * 3, KeyboardInterrupt()
    done = cli.run(*COMMANDS, *REPORTS, expect=130)
    sentence = "interrupted in round 4, and 8 rounds are the least that tell anything. 3 rounds were complete before that"
    assert sentence in done.stderr and "kept in" in done.stderr and all(sentence in text for text in read_reports(cli))
    assert len(read_results(cli)["rounds"]) == 3


def test_a_signal_in_the_first_round_leaves_nothing(cli: Any, programs: Programs) -> None:
    programs.fails_in, programs.failure = 1, SystemExit(143)
    assert "interrupted in round 1" in cli.run(*COMMANDS, expect=143).stderr
    assert not (cli.folder / "bench").exists()


def test_a_second_signal_leaves_at_once(cli: Any, programs: Programs) -> None:
    second = KeyboardInterrupt()
    second.__context__ = KeyboardInterrupt()
    programs.slower, programs.noise, programs.fails_in, programs.failure = 0.02, 0.3, 2 * 9, second
    assert not cli.run(*COMMANDS, expect=130).stdout and not list((cli.folder / "bench").glob("*/bench.json"))


def test_a_failure_before_a_round_is_complete_leaves_nothing(cli: Any, programs: Programs) -> None:
    programs.fails_in = 0
    assert "the command ended with exit code 1\n" in cli.run(*COMMANDS, expect=2).stderr
    assert not (cli.folder / "bench").exists()


def test_reports_say_what_makes_a_bench_doubtful(cli: Any, programs: Programs, monkeypatch: pytest.MonkeyPatch) -> None:
    programs.slower, programs.noise, programs.waited_share = 0.02, 0.3, 0.4
    seconds = iter(range(1000))
    monkeypatch.setattr(rounds, "time", types.SimpleNamespace(monotonic=lambda: float(next(seconds))))
    limit = ("--minutes", "0.15")
    doubts = ("the programs waited 40 % of their time for a processor", "time was up after 9 of 60 rounds")
    recorded = "hat explains it, of recorded steps, which take longer: 10.00 ms a step"
    printed = cli.run(*COMMANDS, *limit, *REPORTS).stdout
    for text in (printed, *read_reports(cli)):
        assert all(doubt in text for doubt in doubts) and recorded in text
    assert len(read_results(cli)["doubts"]) == 2


def test_the_first_round_tells_how_long_all_may_take(cli: Any, programs: Programs) -> None:
    lines = cli.run(*COMMANDS, "--record", "0", "--rounds", "6").stderr.splitlines()
    assert re.fullmatch(r"steplens: round 1 of 6 at most: about [\d.]+ [um]?s a round, 6 rounds at most: [\d.]+ [um]?s", lines[0])
    assert lines[1] == "steplens: round 2 of 6 at most"
    assert estimate_time(4.2, 60) == "about 4.2 s a round, 60 rounds at most: 4 minutes"


def test_the_help_says_how_few_are_allowed(cli: Any, programs: Programs) -> None:
    text = " ".join(cli.run("bench", "--help").stdout.split())
    assert "Rounds at most, 6 or more" in text and "3 or more, or 0 for none" in text
    said = cli.refused(*COMMANDS, "--rounds", "5")
    # in the words of the version of the library that reads the command line
    assert ("at least 6" in said or "range 6<=" in said) and not programs.runs
    assert "or 0 for none" in cli.refused(*COMMANDS, "--record", "2") and not programs.runs


def test_what_tells_is_said_of_the_limit_that_was_asked_for(cli: Any, programs: Programs) -> None:
    programs.slower, programs.noise = 0.02, 0.3
    text = cli.run(*COMMANDS, "--rounds", "8", "--fail-on", "step>5%", expect=3).stdout
    assert "To tell a change of 5.0 % takes about " in text
    programs.runs = 0
    assert "To tell a change of 2.0 % takes about " in cli.run(*COMMANDS, "--rounds", "8").stdout


def test_step_times_that_do_not_say_the_change_are_said_not_to(
    cli: Any, programs: Programs, monkeypatch: pytest.MonkeyPatch
) -> None:
    sentence = "the two runs of a round, which the machine slows down alike, not that of these two step times, which differ by "
    assert sentence not in cli.run(*COMMANDS).stdout
    run = programs.run

    def run_slowed(version: Version, command: Any, plan: Plan, out: Path) -> TimedRun:
        timed = run(version, command, plan, out)
        # half of the rounds are of a slow hour; in one of them the later version was disturbed besides
        round_number = (programs.runs - 1) // 2
        slowed = (2.0 if round_number % 2 else 1.0) * (3.0 if round_number == 2 and out.name == "head" else 1.0)
        return dataclasses.replace(timed, step_ns=timed.step_ns * slowed)

    programs.runs = 0
    monkeypatch.setattr(rounds, "run_program", run_slowed)
    printed = cli.run(*COMMANDS, "--rounds", "8", *REPORTS).stdout
    assert f"{sentence}+" in printed and f"{sentence}+" in read_reports(cli)[0]


def test_what_versions_and_their_runs_differ_in_is_no_doubt(cli: Any, programs: Programs) -> None:
    def write(folder: Path, side: str, number: int) -> None:
        # runs that differ by more than a half, the earlier version's last one behind all of the later one, of other operators
        events = program(4000 + 1500 * (number % 5), steps=6, first_us=1000 + number + (10**9 if side == "base" else 0))
        for happened in events if side == "head" else ():
            happened["name"] = happened["name"].replace("aten::", "mine::")
        (folder / f"{number}.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": events}))

    programs.write = write
    found = cli.json(*COMMANDS)
    assert found["doubts"] == found["recorded"]["doubts"] == []


def cut_off(folder: Path, side: str, number: int) -> None:
    write_recording(folder, side, number, end=-200 if side == "head" else None)


def test_a_limit_does_not_rest_on_recordings_that_were_cut_short(cli: Any, programs: Programs) -> None:
    programs.write = cut_off
    done = cli.run(*COMMANDS, "--fail-on", "forward>50%", *REPORTS, expect=2)
    assert "the data is truncated" in done.stderr and "A step is " in done.stdout
    markdown, junit = read_reports(cli)
    assert "> [!CAUTION]" in markdown and "the data is truncated" in markdown and "<error" in junit


def test_cut_recordings_make_a_bench_of_the_step_doubtful(cli: Any, programs: Programs) -> None:
    programs.write = cut_off
    printed = cli.run(*COMMANDS, "--fail-on", "step>50%", *REPORTS).stdout
    markdown, junit = read_reports(cli)
    assert all("the data is truncated" in text for text in (printed, markdown, junit))
    assert "<error" not in junit and "CAUTION" not in markdown


@pytest.mark.parametrize("options", [("--setup", "make"), ("--link", "data"), ("--head", "v2"), ("--setup", "x", "--head", "y")])
def test_what_only_a_checkout_has_is_refused_for_two_commands(cli: Any, programs: Programs, options: tuple[str, ...]) -> None:
    line = cli.refused(*COMMANDS, *options)
    assert "where nothing is checked out" in line and all(name in line for name in options[::2])
    assert programs.runs == 0


@pytest.mark.parametrize("out", ["train.py", "/proc/nope", "train.py/below"])
def test_a_folder_that_cannot_be_made_is_said_before_anything_runs(cli: Any, programs: Programs, out: str) -> None:
    cli.write("train.py", "")
    # before git is asked for versions
    line = cli.refused("bench", "--base", "nosuch", "--out", out, *REPORTS, "--", "train.py")
    assert "cannot be written: " in line and "--out" in line
    assert "cannot be written" in read_reports(cli)[0]


def test_two_benches_may_begin_in_one_second(tmp_path: Path) -> None:
    with provide_folder(tmp_path, ["main", "."]) as first, provide_folder(tmp_path, ["main", "."]) as second:
        assert first != second and second.is_dir() and first.parent == second.parent == tmp_path


def test_a_summary_that_cannot_be_written_is_said(cli: Any, programs: Programs) -> None:
    def write(folder: Path, side: str, number: int) -> None:
        write_recording(folder, side, number)
        (folder.parent / "bench.json").mkdir(exist_ok=True)

    programs.write = write
    done = cli.run(*COMMANDS, expect=2)
    assert "bench.json: cannot be written: " in done.stderr and "Traceback" not in done.stderr


def test_a_limit_that_is_none_is_in_the_reports(cli: Any, programs: Programs) -> None:
    cli.refused(*COMMANDS, "--fail-on", "stp>2%", *REPORTS)
    assert all("did you mean step?" in text for text in read_reports(cli))
