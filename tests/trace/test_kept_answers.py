"""Answers about a trace that are kept beside its tables: the same when they are read again, believed only if they are ours."""

from __future__ import annotations

import json
import zlib
from collections import Counter
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import polars as pl
import pytest
from benchmarks.jobs.faults import parse_faults
from benchmarks.jobs.job import write_job
from benchmarks.jobs.layout import Layout
from benchmarks.jobs.program import Model

import steplens
from steplens.advice.finding import Evidence, Finding, Saving
from steplens.advice.prepare import keep_answers, prepare_answers, use_kept_answers
from steplens.advice.questions import asked_names
from steplens.analysis.steps.choice import chosen_steps
from steplens.analysis.steps.times import times_of_steps
from steplens.cli.summary.summary import collect_summary
from steplens.common.step_points import FORWARD_POINT_VARIABLES
from steplens.comparison.comparison import compare_runs
from steplens.run import Run
from steplens.trace.building.extents import Extent
from steplens.trace.cache import kept_answers, store
from steplens.trace.cache.accepted_answers import AcceptedAnswers, SharedAnswers
from steplens.trace.cache.answer_values import decode_answer, encode_answer, estimate_bytes
from steplens.trace.cache.kept_answers import pack_answers, unpack_answers
from steplens.trace.cache.known_answers import NOT_KEPT, KnownAnswers
from steplens.trace.trace import Trace, answer_name


def events(rank: int, length: int) -> dict[str, Any]:
    """Five steps of one rank, each with a few calls and a collective."""
    common = {"ph": "X", "pid": 1, "tid": 1}
    rows: list[dict[str, Any]] = []
    for step in range(5):
        at = 1000 + step * 5000
        rows.append({**common, "cat": "user_annotation", "name": f"ProfilerStep#{step}", "ts": at, "dur": 4900, "args": {}})
        rows += [
            {**common, "cat": "cpu_op", "name": f"aten::op_{place % 3}", "ts": at + 100 * place, "dur": length, "args": {}}
            for place in range(20)
        ]
    return {"schemaVersion": 1, "traceEvents": rows, "distributedInfo": {"backend": "gloo", "rank": rank, "world_size": 40}}


def write_ranks(folder: Path, count: int, length: int = 30) -> Path:
    folder.mkdir(parents=True, exist_ok=True)
    for rank in range(count):
        (folder / f"rank{rank}.json").write_text(json.dumps(events(rank, length)))
    return folder


def kept_run(folder: Path) -> Run:
    """The run, everything that is asked of each trace worked out and kept."""
    run = steplens.open(folder)
    prepare_answers(run)
    run.verdict()
    keep_answers(run)
    assert len([*folder.rglob("answers-*.msgpack")]) == len(run.traces)
    return run


FINDING = Finding(
    "a", 0.5, (Evidence("b", 1.5, "ns", steps=(1, 2), places=("x",)),), saving=Saving(0.0, 1.0, 2.0), values={"n": 3, "t": "x"}
)


@pytest.mark.parametrize(
    "answer",
    [
        None, True, -(1 << 40), 1.5, "text", b"bytes", (1, (2, "x")), [1, 2], {1, 2}, frozenset({"a"}), {1: {"a": (None,)}},
        Extent(3, None, 5), FINDING, {"rule": (FINDING,)},
    ],
)  # fmt: skip
def test_an_answer_comes_back_as_it_was(answer: Any) -> None:
    content = encode_answer(answer)
    assert content is not None
    again = decode_answer(content)
    assert again == answer and type(again) is type(answer)


def test_frames_and_arrays_come_back_as_they_were() -> None:
    frame = pl.DataFrame({"a": [1, None], "b": ["x", "y"], "c": [[1.5], []]}, schema_overrides={"b": pl.Categorical})
    matrix = np.arange(6.0).reshape(2, 3)
    content = encode_answer({"frame": frame, "series": frame["a"], "array": np.array([1, 2], np.int64), "matrix": matrix})
    assert content is not None
    again = decode_answer(content)
    assert again["frame"].equals(frame) and again["frame"].schema == frame.schema and again["series"].equals(frame["a"])
    assert again["array"].dtype == np.int64 and again["array"].tolist() == [1, 2]
    assert again["matrix"].dtype == np.float64 and again["matrix"].tolist() == matrix.tolist()


@pytest.mark.parametrize("answer", [len, {"a": len}, object(), np.array([None]), 1 << 70, np.zeros((2, 2, 2))])
def test_what_is_of_another_kind_is_not_kept(answer: Any) -> None:
    assert encode_answer(answer) is None


@pytest.mark.parametrize(
    "plain",
    [
        ["object", "os", "system", {}], ["object", "steplens.run", "open_run", {}], ["object", "steplens.nothing", "A", {}],
        ["object", "steplens.trace.trace", "KeptTables.folder", {}], ["array", "O", b""], ["else"], ["frame", b"no frame"],
        ["object", "steplens.trace.trace", "KeptTables", {"no": "field"}], [], ["tuple"], {"a": 1} and ["dict", [[1]]],
    ],
)  # fmt: skip
def test_what_is_no_answer_is_refused(plain: Any) -> None:
    with pytest.raises(ValueError, match="no"):
        decode_answer(msgspec.msgpack.encode(plain))


@pytest.mark.parametrize("content", [b"", b"\xc1", b"\x93\x01"])
def test_what_is_damaged_is_refused(content: bytes) -> None:
    with pytest.raises(ValueError, match="no answer that was kept"):
        decode_answer(content)


def test_of_many_answers_the_last_ones_stay_decoded() -> None:
    frames = {f"q{number}": pl.DataFrame({"a": [number] * 100}) for number in range(6)}
    encoded = {name: content for name, frame in frames.items() if (content := encode_answer(frame)) is not None}
    shared = SharedAnswers(decoded_bytes=4 * max(map(len, encoded.values())))
    first, second = AcceptedAnswers(encoded, shared, 0), AcceptedAnswers(encoded, shared, 1)
    assert first.encode_all() == encoded and len(second) == 6 and "q1" in first and first.find_answer("q7") is None
    found = first.find_answer("q0")
    assert found is not None and found[0].equals(frames["q0"]) and first.find_answer("q0")[0] is found[0]  # type: ignore[index]
    for name, frame in frames.items():
        assert second.find_answer(name)[0].equals(frame)  # type: ignore[index]
    assert first.find_answer("q0")[0] is not found[0] and first.find_answer("q0")[0].equals(found[0])  # type: ignore[index]


def test_answers_are_read_with_the_names_that_they_were_packed_with() -> None:
    names = asked_names()
    answers = dict.fromkeys(names, b"answer")
    packed = pack_answers(answers, names)
    assert unpack_answers(packed, names) == answers == unpack_answers(pack_answers(answers))
    assert len(names) > 20 and len(packed) < 0.6 * len(pack_answers(answers))
    for others in ((), names[1:]):
        with pytest.raises(ValueError, match="no answers that were kept"):
            unpack_answers(packed, others)


def test_what_an_answer_takes_is_known_before_it_is_encoded() -> None:
    frame = pl.DataFrame({"value": range(10_000)})
    point = Evidence("a", frame, "")  # type: ignore[arg-type]
    for answer in (frame, frame["value"], frame["value"].to_numpy(), list(range(100_000)), point):
        assert estimate_bytes(answer) >= 80_000
    for answer in (1, None, "text", frame.head(3), {"a": 1}):
        assert estimate_bytes(answer) < 100


@pytest.mark.parametrize("packed", [b"", b"x", pack_answers({})[:-3], zlib.compress(b"\x91\x01")])
def test_answers_that_are_damaged_are_refused(packed: bytes) -> None:
    with pytest.raises(ValueError, match="no answers that were kept"):
        unpack_answers(packed)


def test_kept_answers_are_those_that_were_worked_out(tmp_path: Path) -> None:
    before = kept_run(write_ranks(tmp_path / "run", 3))
    run = steplens.open(tmp_path / "run")
    assert use_kept_answers(run) == []
    for trace, other in zip(run.traces, before.traces, strict=True):
        assert trace.once(times_of_steps).equals(other.once(times_of_steps)) and chosen_steps(trace) == chosen_steps(other)
    assert run.advise().equals(before.advise()) and run.verdict().sentence() == before.verdict().sentence()


def test_a_first_summary_asks_ranks_for_nothing_that_is_not_worked_out_beside_each_other(tmp_path: Path) -> None:
    layout = Layout(2, 2, 2, 4)
    write_job(tmp_path / "job", layout, Model(layers=1, operators_per_layer=1), parse_faults([], layout, 3, 1), steps=3, seed=1)
    run = steplens.open(tmp_path / "job")
    collect_summary(run, tmp_path / "job", "name", 10)
    fresh = Counter(name for trace in run.traces for name in trace.known_answers() if name not in (trace.accepted or ()))
    # of ranks that stand out more may be asked
    assert {name for name, count in fresh.items() if count > 2 and name.rpartition(":")[2] not in NOT_KEPT} == set()


def test_no_query_has_several_inner_joins(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    # polars changes their order, and may join all tasks of a stream with each other
    layout = Layout(2, 1, 1, 4)
    write_job(tmp_path / "job", layout, Model(layers=1, operators_per_layer=1), parse_faults([], layout, 3, 1), steps=3, seed=1)
    collect = pl.LazyFrame.collect
    plans: set[str] = set()

    def collect_noting(frame: pl.LazyFrame, *arguments: Any, **options: Any) -> Any:
        plans.add(frame.explain(optimized=False))
        return collect(frame, *arguments, **options)

    with monkeypatch.context() as noted:
        noted.setattr(pl.LazyFrame, "collect", collect_noting)
        collect_summary(steplens.open(tmp_path / "job"), tmp_path / "job", "name", 10)
    assert sum("INNER JOIN" in plan for plan in plans) > 3
    assert [plan for plan in plans if plan.count("INNER JOIN:") > 1] == []


def forge(file: Path) -> None:
    content = file.read_bytes()
    name, answer = answer_name(times_of_steps), encode_answer(pl.DataFrame({"step": [7]}))
    assert name is not None and answer is not None
    file.write_bytes(content[:32] + pack_answers({**unpack_answers(content[32:], asked_names()), name: answer}, asked_names()))


@pytest.mark.parametrize(
    "spoil", [forge, lambda file: file.write_bytes(b""), lambda file: file.write_bytes(file.read_bytes()[:-9])]
)
def test_answers_that_are_not_ours_are_not_believed(tmp_path: Path, spoil: Callable[[Path], Any]) -> None:
    kept_run(write_ranks(tmp_path / "run", 2))
    for file in (tmp_path / "run").rglob("answers-*.msgpack"):
        spoil(file)
    run = steplens.open(tmp_path / "run")
    assert use_kept_answers(run) == [0, 1]
    assert run.traces[0].once(times_of_steps)["step"].to_list() == [0, 1, 2, 3, 4]


def test_answers_of_other_tables_ranks_or_programs_are_not_taken(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_ranks(tmp_path / "run", 3)
    kept_run(folder)
    (folder / "rank2.json").unlink()
    assert use_kept_answers(steplens.open(folder)) == [0, 1]
    write_ranks(folder, 3, length=40)
    assert use_kept_answers(steplens.open(folder)) == [0, 1, 2]
    kept_run(folder)
    assert use_kept_answers(steplens.open(folder)) == []
    with monkeypatch.context() as named:
        named.setenv(FORWARD_POINT_VARIABLES[0], "a point")
        assert use_kept_answers(steplens.open(folder)) == [0, 1, 2]
    monkeypatch.setattr(kept_answers, "program_digest", lambda: "another")
    assert use_kept_answers(steplens.open(folder)) == [0, 1, 2]


def test_tables_of_many_traces_are_read_when_somebody_asks(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = write_ranks(tmp_path / "run", 40)
    # nor do those that were just built stay in memory
    assert all(callable(table) for trace in steplens.open(folder).traces for table in trace._tables.values())
    kept_run(folder)
    read: list[str] = []
    read_table = store._Files.read_table
    monkeypatch.setattr(store._Files, "read_table", lambda self, name: read.append(name) or read_table(self, name))
    run = steplens.open(folder)
    prepare_answers(run)
    assert read == [] and "ops" in run.traces[0]
    run.verdict()
    assert set(read) <= {"steps", "health"}
    assert run.traces[3].ops is not None and run.traces[3].ops.height == 105
    assert "ops" in read


def test_a_table_that_is_not_as_it_was_written_is_read_from_its_source(tmp_path: Path) -> None:
    folder = write_ranks(tmp_path / "run", 40)
    whole = steplens.open(folder).traces[5].ops
    run = steplens.open(folder)
    small = run.traces[5].kept.folder / "small.arrow"  # type: ignore[union-attr]
    small.write_bytes(small.read_bytes()[:-5])
    ops = run.traces[5].ops
    assert isinstance(run.traces[5], Trace) and ops is not None and whole is not None and ops.equals(whole)


def test_answers_of_a_comparison_are_no_obstacle_to_those_of_advice(tmp_path: Path) -> None:
    folder = write_ranks(tmp_path / "run", 2)
    first = compare_runs(steplens.open(folder), steplens.open(folder))
    run = steplens.open(folder)
    assert compare_runs(run, steplens.open(folder)).operators.equals(first.operators)
    assert all(isinstance(trace.accepted, KnownAnswers) for trace in run.traces)
    prepare_answers(run)
    keep_answers(run)
    again = steplens.open(folder)
    assert use_kept_answers(again) == []
    assert again.steps().equals(run.steps()) and again.operators().equals(run.operators())
