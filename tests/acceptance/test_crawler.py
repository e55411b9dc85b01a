"""Every table, answer and text about every shared capture holds no figure that cannot be."""

from __future__ import annotations

import itertools
import re
import shutil
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import polars as pl
import pytest
from typer.testing import CliRunner

import steplens
from steplens.analysis.catalogue import ANALYSES
from steplens.cli.main import app
from steplens.common.errors import SteplensError
from steplens.report import answers
from steplens.report.ask import InProcessClient
from steplens.run import Run, Source
from steplens.server.runs import RunLibrary
from steplens.trace.trace import Trace

from ..shared_data import find_shared, shared
from . import crawler

#: questions to one address: what differs by step or operation alone differs little
_QUESTIONS = 2


def captures() -> list[str]:
    """Everything that is opened by itself, by its path in the shared test data."""
    top = find_shared()
    if top is None:
        return []
    found = [*top.glob("kineto/*.json.gz"), *top.glob("tracelens/**/*.json.gz")]
    found += [path for folder in ("ascend_pytorch", "mindspore") for path in top.glob(f"{folder}/*") if path.is_dir()]
    return sorted(str(path.relative_to(top)) for path in found)


@dataclass(frozen=True)
class Opened:
    """A capture in a folder of its own, read once."""

    path: Path
    run: Run
    library: RunLibrary


# a fixture with parameters: the tests of one capture follow each other, and a worker opens it once for all of them
@pytest.fixture(scope="session", params=captures())
def opened(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Opened:
    source = shared(*request.param.split("/"))
    path = tmp_path_factory.mktemp("crawled") / source.name
    if source.is_dir():
        shutil.copytree(source, path, copy_function=shutil.copyfile)
    else:
        shutil.copyfile(source, path)
    library = RunLibrary([path])
    library.runs[0].open()
    return Opened(path, library.runs[0].run, library)


def test_tables(opened: Opened) -> None:
    run = opened.run
    wrong = [
        f"{one.name} by {by}: {problem}"
        for one in ANALYSES
        for by in one.groups or (None,)
        for problem in crawler.of_frame(one(run, by), one.name)
    ]
    assert wrong == []


def questions(asker: InProcessClient, library: RunLibrary) -> Iterator[tuple[str, Any]]:
    """The answers about a run: what was asked, and the answer."""
    values = answers.Values(asker, library.runs[0])
    for path, wanted in answers.address_parameters(asker).items():
        if not path.startswith(answers.RUN) or path in answers.ELSEWHERE or path in answers.SERVER_ONLY:
            continue
        told = path.removeprefix("/api/").replace("{run}", "0")
        within = re.findall(r"\{(\w+)\}", told)
        for query in itertools.islice(answers.parameter_combinations(wanted, values), _QUESTIONS):
            place = told.format(**{name: query.pop(name) for name in within})
            answer = answers.ask_question(asker, place, query, wanted)
            assert answer.status < 500, (place, query, answer.body[:500])
            if answer.ok:
                yield f"{place} {query}", answer.json


def pages(asker: InProcessClient) -> Iterator[tuple[str, Any]]:
    """The first page of every table that has a title of its own."""
    questions = tuple(one.question.lower() for one in ANALYSES)
    for table in asker.get("runs/0/tables").json:
        if not table["recorded"] and not table["title"].lower().startswith(questions):
            page = asker.post(f"runs/0/tables/{table['name']}", {"limit": 500})
            assert page.status < 500, (table["name"], page.body[:500])
            if page.ok:
                yield table["name"], page.json


def test_answers_of_the_server(opened: Opened) -> None:
    library = opened.library
    with InProcessClient(library) as asker:
        found = [list(crawler.of_answer(answer, asked)) for asked, answer in questions(asker, library)]
        found += [list(crawler.of_page(page, table)) for table, page in pages(asker)]
    assert len(found) > 30
    assert list(itertools.chain(*found)) == []


@pytest.mark.parametrize("command", ["summary", "advise", "open"])
def test_texts(command: str, opened: Opened, monkeypatch: pytest.MonkeyPatch) -> None:
    # what is printed is the subject, and the run is open
    monkeypatch.setattr(steplens, "open", lambda _: opened.run)
    shown = CliRunner(env={"COLUMNS": "200"}).invoke(app, [command, str(opened.path)])
    assert shown.exception is None or isinstance(shown.exception, (SystemExit, SteplensError))
    assert shown.output or isinstance(shown.exception, SteplensError)
    assert list(crawler.of_text(shown.output)) == []


def test_what_cannot_be_is_found() -> None:
    """The crawler itself: a share above all, less than nothing, what is no number; and figures that may be."""
    frame = pl.DataFrame(
        {
            "busy_percent": [0.0, 118.8],
            "idle_share": [-0.1, 1.0],
            "hit_ratio": [1.0, 1.0000000000001],
            "duration_ns": [-5, 7],
            "start_ns": [-5, 7],
            "flops_per_second": [float("nan"), float("inf")],
            "device_percent": [250.0, None],
        }
    )
    problems = [problem.partition(":")[0] for problem in crawler.of_frame(frame, "bound")]
    assert problems == ["busy_percent", "idle_share", "duration_ns", "flops_per_second"]
    assert len(list(crawler.of_answer({"parts": [{"share": 1.2, "mean_ns": -3.5, "time_ns": -3.5}], "share": [1, 2]}))) == 3
    page = {"columns": [{"name": "idle", "unit": "percent"}, {"name": "wait_ns", "unit": "ns"}], "rows": [[101.0, -1], [7, None]]}
    assert len(list(crawler.of_page(page, "idle"))) == 2
    assert len(list(crawler.of_page(page, "task_launches"))) == 1
    text = "computing 118.8 %, tail -97.7 %, in 5.0 ms or -3 ms, nan flops; 100 % of 7-9 ms and a nanosecond"
    assert len(list(crawler.of_text(text))) == 4


def test_every_exception_is_there() -> None:
    """What may be beyond its bounds is a column of a table that there is."""
    trace = Trace(Path("run"), {})
    run = Run(Path("run"), [(Source(Path("run")), trace)], [])
    for table, column in crawler.BEYOND:
        frames = [one(run, by) for one in ANALYSES if one.name == table for by in one.groups or (None,)]
        assert any(column in frame.columns for frame in frames), (table, column)
