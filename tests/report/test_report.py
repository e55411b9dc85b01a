"""What a report holds: the answers of the server, within limits that it tells."""

from __future__ import annotations

import base64
import errno
import hashlib
import html
import json
import os
import re
import shutil
import subprocess
import sys
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from steplens.cli.main import main
from steplens.common import rundir
from steplens.common.errors import InputError, SteplensError
from steplens.report import answers, page, window
from steplens.report.ask import InProcessClient
from steplens.server.runs import RunLibrary
from steplens.server.timeline import tiles

from ..shared_data import shared
from .conftest import Held, Make


@pytest.fixture(scope="module")
def sampled(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of a GPU with launches, tasks and arrows, of two ranks."""
    folder = tmp_path_factory.mktemp("sampled")
    for rank in (0, 1):
        shutil.copy(shared("kineto", f"cuda_sampled_rank{rank}.json.gz"), folder / f"rank{rank}.json.gz")
    return folder


@pytest.fixture(scope="module")
def small(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A trace of three calls, for what does not depend on what is reported."""
    calls = [
        {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1000 + 10 * number, "dur": 5, "args": {}}
        for number in range(3)
    ]
    path = tmp_path_factory.mktemp("small") / "small.pt.trace.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": calls}))
    return path


@pytest.fixture(scope="module")
def held(make: Make, sampled: Path) -> Held:
    return make(sampled)


@pytest.fixture(scope="module")
def library(sampled: Path) -> RunLibrary:
    found = RunLibrary([sampled])
    found.runs[0].open()
    return found


def test_answers_are_those_of_the_server(held: Held, library: RunLibrary) -> None:
    questions = held.answers()
    assert len(questions) > 30
    with InProcessClient(library) as asker:
        asker.get("runs/0/advice")
        for question, (status, answer) in questions.items():
            path, _, query = question.partition("?")
            told: dict[str, Any] = dict(one.split("=") for one in query.split("&")) if query else {}
            if path in ("runs/0", "runs/0/overview"):
                continue  # how long the opening took; what was judged in time
            found = asker.get(path, {**told, **({"points": 1000} if "queue" in path or "batches" in path else {})})
            assert found.status == status, question
            if not {"limit", "buckets"} & set(held.json("answers/0")["how_much"]) or "links" not in path:
                assert found.json == answer or path.endswith(("cluster/steps", "operators", "processors")), question


def test_every_address_is_answered_or_known_to_need_a_server(library: RunLibrary) -> None:
    with InProcessClient(library) as asker:
        parameters, values = answers.address_parameters(asker), answers.Values(asker, library.runs[0])
        untold = [
            path
            for path in answers.answerable_addresses(asker)
            if any(one.required and not one.choices and values.of(one.name, 0) is None for one in parameters[path])
        ]
        known = set(parameters)
    assert untold == [], "say in report/answers.py where its parameters get their values, or that only a server answers"
    gone = [path for path in (*answers.ELSEWHERE, *answers.SERVER_ONLY) if path not in known]
    assert gone == [f"{answers.RUN}/tables/{{table}}"], "that one is asked with POST"


def test_details_are_those_of_the_server(held: Held, library: RunLibrary) -> None:
    seen = 0
    with InProcessClient(library) as asker:
        for trace in (0, 1):
            told = held.json(f"details/0/{trace}")
            briefs = told["briefs"]
            place = {event: at for at, event in enumerate(briefs["event"])}

            def brief(event: int, briefs: Any = briefs, place: Any = place) -> dict[str, Any]:
                at = place[event]
                rest = {name: briefs[name][at] for name in ("lane", "depth", "start_ns", "end_ns")}
                return {"event": event, "name": briefs["names"][briefs["name"][at]], **rest}

            for table, rows in told["tables"].items():
                links = {
                    link["kind"]: dict(zip(link["row"], zip(link["count"], link["event"], strict=True), strict=True))
                    for link in rows["links"]
                }
                chosen = range(0, len(rows["events"]), max(len(rows["events"]) // 25, 1))
                for at in chosen:
                    event, row = rows["events"][at], rows["rows"][at]
                    answer = asker.get(f"runs/0/timeline/events/{event}", {"trace": trace}).json
                    columns = {name: one["values"][one["places"][at]] for name, one in rows["columns"].items()}
                    assert {name: value for name, value in columns.items() if value is not None} == answer["columns"]
                    assert answer["table"] == table
                    found = [
                        {"kind": kind, "count": known[row][0], "events": [brief(one) for one in known[row][1]]}
                        for kind, known in links.items()
                        if row in known
                    ]
                    assert found == answer["links"], (table, event)
                    assert {name: answer[name] for name in brief(event)} == brief(event)
                    seen += len(answer["links"])
    assert seen > 50, "some events are tied to others"


def test_the_finest_level_has_every_event_of_the_window(held: Held, library: RunLibrary) -> None:
    span = held.json("report")["windows"][0]
    for trace in (0, 1):
        timeline = library.runs[0].timeline(trace).timeline
        told = held.json(f"timeline/0/{trace}")
        low, high = timeline.bounds
        assert told["start_ns"] <= max(span["start_ns"], low) and min(span["end_ns"], high) <= told["end_ns"]
        inside = np.flatnonzero((timeline.start >= told["start_ns"]) & (timeline.start < told["end_ns"]))
        header = header_of(held.parts[f"level/0/{trace}/{told['levels'] - 1}"])
        assert told["exact"] and header["events"] == header["items"] == len(inside)
        whole = header_of(held.parts[f"level/0/{trace}/0"])
        assert whole["events"] == len(timeline.start)
        # buckets of the whole run end where the window begins
        assert told["start_ns"] % whole["bucket_ns"] == told["end_ns"] % whole["bucket_ns"] == 0


def header_of(data: bytes) -> Any:
    assert data[:4] == b"SLT1"
    return json.loads(data[8 : 8 + int.from_bytes(data[4:8], "little")])


def test_tables_are_cut_and_say_so(make: Make, sampled: Path, library: RunLibrary) -> None:
    short = make(sampled, rows=20)
    told = {(one["name"], one["trace"]): one for one in short.json("report")["left_out"] if one["what"] == "table"}
    with InProcessClient(library) as asker:
        for name in [key for key in short.parts if key.startswith("table/")]:
            body = short.json(name)
            if "rows" not in body:
                continue
            _, _, table, which = name.split("/")
            trace = None if which == "all" else int(which)
            real = asker.post(f"runs/0/tables/{table}", {"trace": trace, "limit": 1}).json["total"]
            assert body["total"] == real
            assert len(body["rows"]) <= 20
            if len(body["rows"]) < real:
                assert body["kept"] in ("window", "first")
                assert told[table, trace]["shown"] == len(body["rows"]) and told[table, trace]["of"] == real
            else:
                assert body["kept"] == "all" and (table, trace) not in told
    assert any(body["why"] == "rows" for body in told.values())


def test_what_does_not_fit_is_left_out_and_named(make: Make, sampled: Path, small: Path, held: Held) -> None:
    size = sum(len(base64.b64decode(data)) for _, data in parts_of(held))
    half = make(sampled, limit_bytes=size // 2)
    assert sum(len(base64.b64decode(data)) for name, data in parts_of(half) if name != b"report") <= size // 2
    told = half.json("report")["left_out"]
    assert any(one["why"] == "size" for one in told)
    missing = set(held.parts) - set(half.parts)
    tables = {name.split("/")[2] for name in missing if name.startswith("table/")}
    assert tables <= {one["name"] for one in told if one["what"] == "table"}
    with pytest.raises(SteplensError, match="--limit"):
        make(small, limit_bytes=1000)


def parts_of(one: Held) -> list[tuple[bytes, bytes]]:
    from .conftest import PART

    return PART.findall(one.text)


def test_the_policy_names_the_only_script(held: Held) -> None:
    text = held.text.decode()
    policy = html.unescape(re.search(r'Content-Security-Policy" content="([^"]+)"', text)[1])  # type: ignore[index]
    script = re.search(r'<script type="module">(.*?)</script>', text, re.DOTALL)
    styles = re.search(r"<style>(.*?)</style>", text, re.DOTALL)
    assert script is not None and styles is not None
    for directive, content in (("script-src", script[1]), ("style-src", styles[1])):
        digest = base64.b64encode(hashlib.sha256(content.encode()).digest()).decode()
        assert f"{directive} 'sha256-{digest}'" in policy
    assert "default-src 'none'" in policy and "unsafe-eval" not in policy and "http" not in policy and "connect-src" not in policy
    assert script[1] == "document.title = '\\x3C/script>\\x3C!--';"
    assert not re.search(r'\b(src|href)="(?!data:)', text)


def test_the_default_window_is_the_step_of_median_length(secret_run: Path, plain: Held) -> None:
    chosen = plain.json("report")["windows"][0]
    steps = [one for one in plain.answers()["runs/0/steps"][1]["steps"] if one["complete"]]
    lengths = sorted(one["duration_ns"] for one in steps)
    step = next(one for one in steps if one["step"] == chosen["step"])
    assert chosen["median"] and step["duration_ns"] == lengths[(len(lengths) - 1) // 2]
    assert chosen["start_ns"] < step["start_ns"] and chosen["end_ns"] > step["start_ns"] + step["duration_ns"]


def test_a_step_or_a_span_can_be_chosen(make: Make, secret_run: Path, small: Path, redacted_again: Held) -> None:
    step = redacted_again.json("report")["windows"][0]
    assert step["step"] == 3 and not step["median"]
    span = make(small, span_ns=(1_000_000, 2_500_000)).json("report")["windows"][0]
    assert (span["start_ns"], span["end_ns"], span["step"]) == (1_000_000, 2_500_000, None)
    with pytest.raises(InputError, match="no complete step 99"):
        make(secret_run, step=99)


def test_a_window_outside_the_run_shows_boxes_only(make: Make, sampled: Path) -> None:
    far = make(sampled / "rank0.json.gz", span_ns=(1 << 60, (1 << 60) + 1000))
    assert far.json("timeline/0/0")["levels"] == 1
    assert far.json("details/0/0")["tables"] == {}


@pytest.mark.parametrize("text", ["", "1", "5:1", "a:b", "1:nan", "inf:inf", "0:1e400", "1:2:3"])
def test_a_wrong_window_is_told(text: str) -> None:
    with pytest.raises(SteplensError, match="START:END"):
        window.parse_window(text)


def test_windows_are_milliseconds() -> None:
    assert window.parse_window("1.5:20") == (1_500_000, 20_000_000)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["missing"], "does not exist"),
        (["RUN", "--step", "1", "--window", "1:2"], "give one of them"),
        (["RUN", "-o", "."], "is a folder"),
        (["RUN", "-o", "no/such/folder/report.html"], "is not a folder that is there"),
        (["RUN", "--window", "5"], "START:END"),
    ],
)
def test_wrong_command_lines_are_told(
    arguments: list[str],
    says: str,
    small: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    path, *rest = arguments
    assert main(["report", str(small) if path == "RUN" else path, *rest]) == 2
    told = capsys.readouterr().err
    assert says in told and "Traceback" not in told


def test_a_file_that_cannot_be_written_is_told(make: Make, small: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def full(path: Path, data: bytes) -> None:
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

    monkeypatch.setattr(rundir, "write_bytes", full)
    with pytest.raises(InputError, match="cannot be written: No space left on device"):
        make(small)


def test_pages_that_are_not_built_are_told(tmp_path: Path, static: Path) -> None:
    with pytest.raises(InputError, match="make web"):
        page.front_end(tmp_path)
    shutil.copytree(static, tmp_path / "two")
    (tmp_path / "two" / "b.js").write_text("")
    with pytest.raises(InputError, match="one script"):
        page.front_end(tmp_path / "two")


def test_an_unreadable_run_is_told(make: Make, tmp_path: Path) -> None:
    (tmp_path / "broken.json").write_text('{"schemaVersion": 1, "traceEvents": 5}')
    with pytest.raises(InputError, match=r"broken\.json"):
        make(tmp_path / "broken.json")


def test_several_runs_are_compared(make: Make, sampled: Path, small: Path) -> None:
    both = make(sampled / "rank0.json.gz", small, rows=5)
    assert [run["run"] for run in both.json("session")["runs"]] == [0, 1]
    held = both.json("compare")
    pairs = ("after=1&before=0", "after=0&before=1")
    calls = {f"compare/calls?{pair}&of={of}" for pair in pairs for of in held[f"compare?{pair}"][1]["calls_of"]}
    assert len(calls) >= len(pairs)
    assert set(held) == {f"{path}?{pair}" for path in ("compare", "compare/findings") for pair in pairs} | calls
    assert {status for status, _ in held.values()} == {200}
    assert len(both.json("report")["windows"]) == 2


def test_items_of_a_window_are_cut_at_buckets(library: RunLibrary) -> None:
    from steplens.report.timeline import _items_in_window

    pyramid = library.runs[0].timeline(0)
    low, high = pyramid.timeline.bounds
    rows = range(len(pyramid.timeline.offsets) - 1)
    middle = (low + high) // 2 >> 10 << 10
    parts = [
        _items_in_window(tiles.build_tile(pyramid, rows, start, end, max((end - start) >> 10, 1)), start, end)
        for start, end in ((low >> 10 << 10, middle), (middle, (high >> 10) + 1 << 10))
    ]
    assert sum(int(part.items.count.sum()) for part in parts) == len(pyramid.timeline.start)


INTERRUPTED = """
import os, signal, time
import anyio.to_thread
from steplens.report.ask import InProcessClient
from steplens.server.runs import RunLibrary


def work():
    # Ctrl-C, while the loop waits for this thread
    time.sleep(0.2)
    os.kill(os.getpid(), signal.SIGINT)
    time.sleep(0.2)


async def interrupted(scope, receive, send):
    await anyio.to_thread.run_sync(work)


signal.signal(signal.SIGINT, signal.default_int_handler)
with InProcessClient(RunLibrary([])) as asker:
    asker.app = interrupted
    asker.get("session")
"""


def test_a_question_that_is_interrupted_leaves_no_thread_for_which_the_process_waits() -> None:
    done = subprocess.run([sys.executable, "-c", INTERRUPTED], capture_output=True, text=True, timeout=120)
    assert done.returncode != 0
    assert done.stderr.rstrip().endswith("KeyboardInterrupt")
