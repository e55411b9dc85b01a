"""Folders that hold results of another analysis alone are ranks, with steps and communication as far as they say it."""

from __future__ import annotations

import csv
import itertools
import json
import shutil
from pathlib import Path

import pytest
from typer.testing import CliRunner

import steplens
from steplens.cli.main import app
from steplens.common.errors import InputError
from steplens.readers.ascend.text import ascend_text
from steplens.trace import health

from ..shared_data import shared

OUTPUT = "ASCEND_PROFILER_OUTPUT"
SUMS = ("communication.json", "communication_matrix.json", "step_trace_time.csv")
COMBINATIONS = [names for count in (1, 2, 3) for names in itertools.combinations(SUMS, count)]


def capture(name: str, rank: int = 0) -> Path:
    return shared("ascend_pytorch", name, f"rank{rank}_ascend_pt")


def whole(top: Path, rank: int) -> Path:
    target = top / f"rank{rank}_ascend_pt"
    shutil.copytree(capture("text_level1", rank), target, copy_function=shutil.copyfile)
    return target


def only(top: Path, rank: int, names: tuple[str, ...] = SUMS, *, flat: bool = False, source: str = "text_level1") -> Path:
    """A rank of which nothing but some files are left."""
    folder = top / f"rank{rank}_ascend_pt"
    output = folder if flat else folder / OUTPUT
    output.mkdir(parents=True)
    for name in names:
        shutil.copyfile(capture(source, rank) / OUTPUT / name, output / name)
    return folder


def recorded_steps(rank: int) -> list[dict[str, str]]:
    with (capture("text_level1", rank) / OUTPUT / "step_trace_time.csv").open() as handle:
        return list(csv.DictReader(handle))


@pytest.mark.parametrize("flat", [False, True])
@pytest.mark.parametrize("names", COMBINATIONS, ids="+".join)
def test_every_combination_is_a_rank(tmp_path: Path, names: tuple[str, ...], flat: bool) -> None:
    only(tmp_path, 1, names, flat=flat)
    run = steplens.open(tmp_path)
    (trace,) = run.traces
    assert (trace.rank, trace.is_results_only, trace.kernels, trace.ops) == (1, True, None, None)
    steps, operations = run.steps(), run.communication_operations()
    if "step_trace_time.csv" in names:
        (recorded,) = recorded_steps(1)
        assert steps["step"].to_list() == [50]
        for column, name in (("computing_ns", "Computing"), ("idle_ns", "Free"),
                             ("exposed_communication_ns", "Communication(Not Overlapped)")):  # fmt: skip
            assert steps[column].to_list() == [round(float(recorded[name]) * 1000)]
        assert steps["forward_ns"].to_list() == [None] and steps["start_ns"].to_list() == [None]
    else:
        assert steps.height == 0
    if "communication.json" in names:
        assert operations.height and operations["overlapped_ns"].null_count() == operations.height
    else:
        assert operations.height == 0
    assert run.links().height > 0 if "communication_matrix.json" in names else run.links().height == 0
    assert run.health().filter(check="results_only").height == 1
    assert CliRunner().invoke(app, ["open", str(tmp_path)]).exit_code == 0
    assert CliRunner().invoke(app, ["advise", str(tmp_path)]).exit_code in (0, 2)


def test_a_folder_that_is_renamed_or_copied_is_of_the_rank_that_it_names_now(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = only(tmp_path / "job", 1, ("communication.json", "step_trace_time.csv"))
    assert [trace.rank for trace in steplens.open(folder).traces] == [1]
    folder = folder.rename(folder.with_name("rank3_ascend_pt"))
    assert [trace.rank for trace in steplens.open(folder).traces] == [3]
    shutil.copytree(folder, folder.with_name("rank5_ascend_pt"))
    assert [trace.rank for trace in steplens.open(folder.parent).traces] == [3, 5]
    # moved as it is, nothing that its rank is read from has changed
    moved = folder.parent.rename(tmp_path / "elsewhere")
    monkeypatch.setattr(ascend_text, "read_trace", lambda *_: pytest.fail("it was read again"))
    assert [trace.rank for trace in steplens.open(moved).traces] == [3, 5]


def test_a_rank_of_results_beside_a_full_one(tmp_path: Path) -> None:
    """Everything that compares ranks has both, and nothing says that a given rank is missing."""
    whole(tmp_path, 0)
    only(tmp_path, 1)
    both = steplens.open(tmp_path)
    full = tmp_path / "full"
    full.mkdir()
    for rank in (0, 1):
        whole(full, rank)
    reference = steplens.open(full)
    assert [trace.rank for trace in both.traces] == [0, 1]
    missing = both.health().filter(check="missing_ranks")["message"].to_list()
    assert missing == reference.health().filter(check="missing_ranks")["message"].to_list()
    columns = ["rank", "step", "group", "operation", "kind", "number", "duration_ns", "wait_ns", "last_rank"]
    ours, theirs = (run.communication_operations().select(columns) for run in (both, reference))
    assert ours.drop("wait_ns", "duration_ns").rows() == theirs.drop("wait_ns", "duration_ns").rows()
    # communication.json has lost digits of its starts
    for column in ("wait_ns", "duration_ns"):
        assert all(abs(one - other) < 2_000 for one, other in zip(ours[column], theirs[column], strict=True))
    # two of eight ranks: whom they waited for is not known, and how long is what the library measured
    assert both.waits().is_empty() and reference.waits().is_empty() and ours["wait_ns"].null_count() == 0
    assert both.ranks()["rank"].to_list() == [0, 1]
    own, other = both.ranks().filter(rank=1), reference.ranks().filter(rank=1)
    for part in ("computing_ns", "exposed_communication_ns"):
        assert own[part][0] == pytest.approx(other[part][0], abs=2)
    assert own["forward_ns"].to_list() == [None]
    assert both.cluster_steps().filter(rank=1)["computation_ns"].to_list() == [round(own["computing_ns"][0])]
    assert both.device_time().filter(rank=1)["compute_ns"].to_list() == [round(own["computing_ns"][0])]


def test_both_ranks_of_results_alone(tmp_path: Path) -> None:
    for rank in (0, 1):
        only(tmp_path, rank)
    run = steplens.open(tmp_path)
    assert run.ranks()["rank"].to_list() == [0, 1]
    assert set(run.communication("rank")["rank"]) == {0, 1}
    assert run.communication("rank")["exposed_ns"].to_list() == [None, None]
    assert run.waits().is_empty() and run.communication_costs().height == 2
    for command in ("summary", "open"):
        assert CliRunner().invoke(app, [command, str(tmp_path)]).exit_code in (0, 2)
    for table in ("communication", "communication_operations", "waits", "ranks", "cluster_steps", "device_time", "steps"):
        shown = CliRunner().invoke(app, ["table", str(tmp_path), table])
        assert shown.exit_code in (0, 2), shown.output


def test_an_empty_description_is_not_called_missing(tmp_path: Path) -> None:
    """Only the name of profiler_info counts for the rank, also where it was emptied."""
    folder = only(tmp_path, 0, ("step_trace_time.csv",)).rename(tmp_path / "host_1_2_ascend_pt")
    (folder / "profiler_info_1.json").write_text("{}")
    run = steplens.open(tmp_path)
    assert [trace.rank for trace in run.traces] == [1]
    said = run.health().filter(check="missing_profiler_info")["message"].to_list()
    assert said == ["nothing can be read from profiler_info_1.json, so the options of the run are unknown"]


def test_results_alone_contradict_nothing(tmp_path: Path) -> None:
    """There are no events of which their sums could differ."""
    for rank in (0, 1):
        only(tmp_path, rank)
    run = steplens.open(tmp_path)
    assert "contradicted_figures" not in run.health()["check"].to_list()
    assert run.unsafe(health.STEP_DEVICE_TIMES).is_empty()
    shown = CliRunner().invoke(app, ["summary", str(tmp_path)]).output
    assert "one of them is wrong" not in shown and "mean of 0" not in shown


def test_whom_two_ranks_of_a_job_of_unknown_size_waited_for_is_not_told(tmp_path: Path) -> None:
    """Times of communication alone do not say how many ranks there are: the library counts, with links and without."""
    measured = []
    for names in (SUMS[:1], SUMS):
        for rank in (0, 1):
            only(tmp_path / str(len(names)), rank, names)
        run = steplens.open(tmp_path / str(len(names)))
        assert run.arrivals().is_empty() and run.waits().is_empty()
        measured.append(run.communication("operation").select("duration_ns", "wait_ns", "transfer_ns", "unexplained_ns").row(0))
    assert measured[0] == measured[1]
    totals = json.loads((capture("text_level1") / OUTPUT / SUMS[0]).read_text())["step50"]["collective"]["Total Op Info"]
    assert totals["Communication Time Info"]["Wait Time(ms)"] < measured[0][1] / 1e6


def test_ranks_of_which_nothing_is_known_are_rows_with_the_reason(tmp_path: Path) -> None:
    """Of a job of which one rank has no step times and three cannot be read, all six are there, in the terminal, too."""
    only(tmp_path, 1, ("communication.json",)).rename(tmp_path / "rank2_ascend_pt")
    only(tmp_path, 0)
    only(tmp_path, 1)
    for name, file, text in (
        ("rank3_ascend_pt", "communication.json", '{"a'),
        ("worker_7_8_ascend_pt", "communication_matrix.json", "[]"),
        ("host_8_9_ascend_pt", "step_trace_time.csv", ""),
    ):
        (tmp_path / name / OUTPUT).mkdir(parents=True)
        (tmp_path / name / OUTPUT / file).write_text(text)
    (tmp_path / "worker_7_8_ascend_pt" / "profiler_info_4.json").write_text("{}")
    run = steplens.open(tmp_path)
    table = run.ranks()
    assert table["rank"].to_list() == [0, 1, 2, 3, 4, None]
    assert table["steps"].to_list() == [1, 1, 0, 0, 0, 0] and table["windows"].to_list() == [1, 1, 1, 0, 0, 0]
    none, other, times, cut, empty, unknown = table["reason"].to_list()
    assert none is None and other is None
    assert times == "only results of another analysis are there, and step times are not among them"
    assert cut.startswith("could not be read: holds no event that steplens knows") and "communication.json cannot be read" in cut
    assert empty.startswith("could not be read: ") and unknown.startswith("could not be read: ")
    assert table["step_time_ns"].null_count() == 4
    for command in ("open", "summary"):
        shown = " ".join(CliRunner().invoke(app, [command, str(tmp_path)]).output.split())
        assert "Could not be read: 3 traces" in shown
        assert f"rank 3: {tmp_path / 'rank3_ascend_pt'}: holds no event" in shown
        answer = json.loads(CliRunner().invoke(app, [command, str(tmp_path), "--json"]).output)
        assert sorted(row["rank"] or -1 for row in answer["unreadable"]) == [-1, 3, 4]
    shown = CliRunner().invoke(app, ["table", str(tmp_path), "ranks", "--json"]).output
    assert [row["reason"] for row in json.loads(shown)["rows"]] == table["reason"].to_list()
    shown = CliRunner().invoke(app, ["table", str(tmp_path), "ranks", "--rank", "1", "--json"]).output
    assert [row["rank"] for row in json.loads(shown)["rows"]] == [1, None]


def test_a_rank_without_steps_beside_others(tmp_path: Path) -> None:
    only(tmp_path, 0)
    only(tmp_path, 1, ("communication.json", "communication_matrix.json"))
    table = steplens.open(tmp_path).ranks()
    assert table["rank"].to_list() == [0, 1] and table["slower_percent"].to_list() == [None, None]
    assert table["reason"].null_count() == 1


@pytest.mark.parametrize("flat", [False, True])
def test_analysis_db_alone(tmp_path: Path, flat: bool) -> None:
    only(tmp_path, 0, ("analysis.db",), flat=flat, source="db_level2")
    run = steplens.open(tmp_path)
    (trace,) = run.traces
    assert trace.rank == 0
    assert run.steps().select("step", "computing_ns", "idle_ns").rows() == [(50, 8_900_456, 25_238_587)]
    assert run.communication_operations().height == 4 and run.links().height > 0


def test_analysis_db_beside_text_files_is_read(tmp_path: Path) -> None:
    """It completes them, and what the text files say counts."""
    folder = whole(tmp_path, 0)
    shutil.copyfile(capture("db_level2") / OUTPUT / "analysis.db", folder / OUTPUT / "analysis.db")
    (folder / OUTPUT / "communication.json").unlink()
    run = steplens.open(tmp_path)
    assert run.sources[0].ignored == ()
    trace = run.traces[0]
    assert trace.communication_times is not None and trace.communication_times.height == 4
    # both say how long the steps took, here of two recordings, and each is a check of the other
    assert trace.source_table("StepTraceTime") is not None and trace.source_table("step_trace_time") is not None
    (found,) = (row for row in run.health().to_dicts() if "its analysis.db" in row["message"])
    assert found["severity"] == "warning"


def test_a_rank_that_nothing_tells_is_not_invented(tmp_path: Path) -> None:
    only(tmp_path, 1, ("communication.json",)).rename(tmp_path / "host_1_2_ascend_pt")
    run = steplens.open(tmp_path)
    assert run.traces[0].rank == -1
    assert "rank_unknown" in run.health()["check"].to_list()


def test_other_files_of_these_names_are_refused(tmp_path: Path) -> None:
    (tmp_path / "communication.json").write_text(json.dumps({"settings": 3}))
    with pytest.raises(InputError, match="no steps and no communication"):
        steplens.open(tmp_path)
