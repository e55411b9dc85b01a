"""JSON that is nested deeper than any profiler writes it: one such event costs one event, one such file that file alone."""

from __future__ import annotations

import ast
import contextlib
import json
import re
import shutil
from collections.abc import Callable
from decimal import Decimal
from pathlib import Path

import polars as pl
import pytest

import steplens
from steplens.cli.main import main
from steplens.collect.dynamic import watched_file
from steplens.collect.dynamic.job import job_folder
from steplens.common import json_text, rundir
from steplens.common.errors import SteplensError
from steplens.readers.common import json_decoder
from steplens.readers.mindspore.results import mindspore_timeline
from steplens.trace.health import HealthLog
from steplens.trace.trace import Trace

from ..shared_data import shared
from . import loader_files
from .ascend_fixture import write_golden
from .timeline_builder import head, task
from .timeline_builder import write as write_timeline

DEEP = "[" * 100_000 + "]" * 100_000
#: deep enough for whoever walks through a value by calling itself, and not for Python's parser
WALKED = "[" * 900 + "]" * 900
FILES = {"deep": f'{{"x":{DEEP}}}', "walked": f'{{"x":{WALKED}}}', "deep list": f"[{DEEP}]", "opened": "[" * 100_000}

EVENTS = [
    {"ph": "X", "cat": "cpu_op", "name": "aten::add", "pid": 1, "tid": 1, "ts": 1000 + 10 * number, "dur": 5, "args": {}}
    for number in range(3)
]
REST = json.dumps(EVENTS)[1:-1]
BAD = '{"ph":"X","cat":"cpu_op","name":"bad","pid":1,"tid":1,"ts":1,"dur":1,"args":{%s}}'


def texts(deep: str) -> dict[str, str]:
    return {
        "args": '{"schemaVersion":1,"traceEvents":[' + BAD % f'"x":{deep}' + f",{REST}]}}",
        "shapes": '{"schemaVersion":1,"traceEvents":[' + BAD % f'"Input Dims":{deep}' + f",{REST}]}}",
        "event": f'{{"schemaVersion":1,"traceEvents":[{deep},{REST}]}}',
        "header": f'{{"schemaVersion":1,"x":{deep},"traceEvents":[{REST}]}}',
        "footer": f'{{"schemaVersion":1,"traceEvents":[{REST}],"x":{deep}}}',
    }


@pytest.mark.parametrize("depth", [1_000, 30_000])
@pytest.mark.parametrize("place", texts(""))
def test_one_event_costs_one_event(place: str, depth: int, tmp_path: Path) -> None:
    (tmp_path / "bad.json").write_text(texts("[" * depth + "]" * depth)[place])
    (tmp_path / "good.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": EVENTS}))
    run = steplens.open(tmp_path)
    assert [trace.required("ops").filter(name="aten::add").collect().height for trace in run.traces] == [3, 3]
    assert place == "footer" or "error" in run.health()["severity"].to_list() or "warning" in run.health()["severity"].to_list()


def test_a_manifest_of_any_depth_is_made_anew(tmp_path: Path) -> None:
    path = tmp_path / "t.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": EVENTS}))
    steplens.open(path)
    (manifest,) = (tmp_path / rundir.CACHE_DIRECTORY).rglob("manifest.json")
    manifest.write_text('{"key":' + DEEP + "}")
    assert steplens.open(path).operators()["calls"].max() == 3


# --- files of events: one event is one event --------------------------------------------------------------------------------


def bad_first(path: Path, event: str) -> None:
    """Put an event in front of the others of a file."""
    text = path.read_text()
    path.chmod(0o640)
    at = text.index("[") + 1
    path.write_text(f"{text[:at]}{event},{text[at:]}")


def damaged(trace: Trace, file: str = "") -> int:
    assert trace.health is not None
    found = trace.health.filter(
        pl.col("check").is_in(["damaged_events", "truncated_file"]) & pl.col("message").str.contains(file)
    )
    return int(found["count"].sum())


def rows(trace: Trace) -> dict[str, int]:
    return {name: frame.height for name in trace if name not in ("health", "meta") and (frame := trace.table(name)) is not None}


def copied(tmp_path: Path, *parts: str) -> Path:
    folder = tmp_path / parts[-1]
    shutil.copytree(shared(*parts), folder, copy_function=shutil.copyfile)
    for path in (folder, *folder.rglob("*")):
        path.chmod(0o750 if path.is_dir() else 0o640)
    return folder


DEEP_EVENTS = {
    "args": f'{{"ph":"X","name":"bad","pid":1,"tid":1,"ts":1,"dur":1,"args":{{"x":{DEEP}}}}}',
    "time": f'{{"ph":"X","name":"bad","pid":1,"tid":1,"ts":{DEEP},"dur":1,"args":{{}}}}',
    "name": f'{{"ph":"X","name":{DEEP},"pid":1,"tid":1,"ts":1,"dur":1,"args":{{}}}}',
    "list": DEEP,
}


@pytest.mark.parametrize("kind", DEEP_EVENTS)
def test_one_event_of_an_ascend_timeline(kind: str, tmp_path: Path) -> None:
    path = write_timeline(tmp_path / "trace_view.json", [*head(), *(task(f"k{number}", 10.0 * number, 5) for number in range(5))])
    whole = rows(steplens.open(path).traces[0])
    bad_first(path, DEEP_EVENTS[kind])
    trace = steplens.open(path).traces[0]
    assert rows(trace) == whole
    assert damaged(trace) == 1


@pytest.mark.parametrize("kind", DEEP_EVENTS)
def test_one_event_of_a_mindspore_timeline(kind: str, tmp_path: Path) -> None:
    path = tmp_path / "ascend_timeline_display_0.json"
    events = [
        {"name": f"Default/k{number}", "ph": "X", "tid": 3, "pid": 0, "ts": 10.0 * number, "dur": 5.0, "args": {"type": "k"}}
        for number in range(5)
    ]
    path.write_text(json.dumps(events))
    bad_first(path, DEEP_EVENTS[kind])
    health = HealthLog()
    assert mindspore_timeline.read_events(path, health)["name"].to_list() == [f"Default/k{number}" for number in range(5)]
    assert [(finding.check, finding.count) for finding in health.findings] == [("damaged_events", 1)]


@pytest.mark.parametrize("kind", DEEP_EVENTS)
@pytest.mark.parametrize("files", ["task_time_*.json", "step_trace_*.json", "hccl_*.json"])
def test_one_event_of_mindspore_device_data(files: str, kind: str, tmp_path: Path) -> None:
    folder = copied(tmp_path, "mindspore", "profiler")
    for path in folder.glob("*"):
        if not path.name.startswith("PROF_"):
            shutil.rmtree(path) if path.is_dir() else path.unlink()
    whole = [rows(trace) for trace in steplens.open(folder).traces]
    bad_first(sorted(folder.rglob(files))[0], DEEP_EVENTS[kind])
    run = steplens.open(folder)
    assert [rows(trace) for trace in run.traces] == whole
    assert sum(damaged(trace) for trace in run.traces) == 1


# --- whole files ------------------------------------------------------------------------------------------------------------


def run_directory(parent: Path) -> Path:
    """A run of steplens with every side file that is JSON."""
    run = parent / "host_1_20260101000000000_ascend_pt"
    raw = run / rundir.RAW_DIRECTORY
    raw.mkdir(parents=True)
    (raw / rundir.RAW_TRACE).write_text(json.dumps({"schemaVersion": 1, "traceEvents": EVENTS}))
    loader_files.write(raw)
    (raw / rundir.MARKS).write_bytes(b"\0" * 48)
    for file in (rundir.HOST_EVENTS, rundir.STATE_FILE, rundir.MARK_TEXTS, rundir.HOST_SAMPLES, rundir.COLLECTIVES):
        (raw / file).write_text("{}")
    for file in (rundir.METADATA_FILE, f"{rundir.INFO_PREFIX}_0.json"):
        (run / file).write_text("{}")
    return run


SIDE_FILES = (
    *(f"KINETO/{name}" for name in ("host_events.json", "state.json", "marks.json", "loaders.json", "host_samples.json")),
    *("KINETO/collectives.json", "profiler_metadata.json", "profiler_info_0.json"),
)


@pytest.mark.parametrize("content", ["deep", "walked"])
@pytest.mark.parametrize("name", SIDE_FILES)
def test_a_side_file_costs_what_it_tells(name: str, content: str, tmp_path: Path) -> None:
    run = run_directory(tmp_path)
    assert (run / name).is_file()
    (run / name).write_text(FILES[content])
    opened = steplens.open(run)
    assert opened.operators()["calls"].max() == 3
    said = "; ".join(opened.health()["message"].to_list())
    # without the recorder sizes of collectives are not known, as in every job that has none
    assert Path(name).name in said or name.endswith(rundir.COLLECTIVES) or content == "walked" or "profiler_info" in said


@pytest.mark.parametrize("content", ["deep", "walked"])
@pytest.mark.parametrize(
    "pattern", ["profiler_info_0.json", "profiler_metadata.json", "info.json*", "communication*.json", "msprof_*.json"]
)
@pytest.mark.parametrize("export", ["text", "db"])
def test_a_file_of_an_ascend_capture(export: str, pattern: str, content: str, tmp_path: Path) -> None:
    run = write_golden(tmp_path / "bad", export=export)
    write_golden(tmp_path / "good", export=export)
    one_file_costs_one(run, pattern, FILES[content], tmp_path)


CAPTURES = [
    (("mindspore", "JOB2"), "*.json"),
    (("mindspore", "run_2"), "*.json"),
    (("mindspore", "parallel_strategy"), "parallel_strategy_*.json"),
    (("mindspore", "minddata_pipeline"), "*.json"),
    (("mindspore", "profiler"), "*.json*"),
    (("ascend_pytorch", "text_level1"), "*.json"),
]


@pytest.mark.slow
# both ways take the same files through the same reader: one of them for every change
@pytest.mark.parametrize("content", [pytest.param("deep", marks=pytest.mark.long), "walked"])
@pytest.mark.parametrize(("capture", "pattern"), CAPTURES, ids=["/".join(parts) for parts, _ in CAPTURES])
def test_files_of_recorded_captures(capture: tuple[str, ...], pattern: str, content: str, tmp_path: Path) -> None:
    folder = copied(tmp_path, *capture)
    (tmp_path / "good.json").write_text(json.dumps({"schemaVersion": 1, "traceEvents": EVENTS}))
    found = sorted({file.name for file in folder.rglob(pattern) if rundir.CACHE_DIRECTORY not in file.parts})
    # the file of another rank is read like the first of its kind
    kinds = {re.sub(r"\d+", "0", name): name for name in reversed(found)}
    for name in found if content == "deep" else kinds.values():
        kept = {file: file.read_bytes() for file in folder.rglob(name)}
        one_file_costs_one(folder, name, FILES[content], tmp_path)
        for file, text in kept.items():
            file.write_bytes(text)


def one_file_costs_one(folder: Path, pattern: str, content: str, top: Path) -> None:
    """What lies beside a folder is opened, whatever a file in it holds; opened alone, it is a run or one sentence."""
    for file in folder.rglob(pattern):
        file.write_text(content)
    everything = steplens.open(top)
    assert any("aten" in name for trace in everything.traces for name in names(trace))
    assert everything.health().height >= 0
    # a run, or one sentence that names a file
    with contextlib.suppress(SteplensError):
        assert steplens.open(folder).health().height >= 0


def names(trace: Trace) -> list[str]:
    return trace.required("ops").select(pl.col("name").cast(pl.String)).collect()["name"].to_list()


@pytest.mark.parametrize("content", ["deep", "walked"])
@pytest.mark.parametrize(
    "command", [["summary"], ["open", "--json"], ["advise"], ["analyse"], ["table", "--csv", "t.csv"]], ids=lambda words: words[0]
)
def test_commands_on_a_run_whose_side_files_are_all_nested(
    command: list[str], content: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    run = run_directory(tmp_path)
    for name in SIDE_FILES:
        (run / name).write_text(FILES[content])
    name, *options = command
    code = main([name, str(run), *(["operators"] if name == "table" else []), *options])
    # without steps a summary ends with 2; an analysis says with 3 which of its outputs it could not make
    assert code in (0, 2, 3)
    assert "Traceback" not in "".join(capsys.readouterr())


# --- other readers ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", FILES)
def test_files_of_jobs_that_are_watched(content: str, tmp_path: Path) -> None:
    path = tmp_path / "profiler_config.json"
    path.write_text(FILES[content])
    path.chmod(0o600)
    assert job_folder.read_json(path) is None
    change = watched_file.WatchedFile(path, settle=False).poll()
    assert change is not None and change.document is None


@pytest.mark.parametrize("depth", [101, 900, 1_000, 100_000])
@pytest.mark.parametrize("bracket", ['{"x":', "["])
@pytest.mark.parametrize("loads", [json_text.loads, json_decoder.decode], ids=["json", "msgspec"])
def test_the_bound(loads: Callable[[str], object], bracket: str, depth: int) -> None:
    end = "}" if "x" in bracket else "]"
    with pytest.raises(json_text.TooDeepError, match="100 levels"):
        loads(bracket * (depth - 1) + "[" + "]" + end * (depth - 1))
    most = json_text.MOST_LEVELS - 1
    loads(bracket * most + "[]" + end * most)


@pytest.mark.parametrize(
    "text", ["", "{", '{"a":1}}', '"\ud800', b"\xff\xfe\xfd", "1" * 5000, "NaN1", '{"a":1e99999999999999999999}']
)
def test_what_is_no_json_is_a_value_error(text: str | bytes) -> None:
    with pytest.raises(json_text.UnreadableJsonError):
        json_text.loads(text, parse_float=lambda digits: Decimal(digits) + 0)


#: where the two ways to read JSON are
GUARDED = {Path("common/json_text.py"), Path("readers/common/json_decoder.py")}
PARSERS = {("json", "loads"), ("json", "load"), ("json", "JSONDecoder"), ("msgspec.json", "decode"), ("msgspec.json", "Decoder")}
MODULES = {module.split(".")[0] for module, _ in PARSERS}


def test_every_json_is_parsed_in_the_guarded_way() -> None:
    source = Path(steplens.__file__).parent
    files = [path for path in source.rglob("*.py") if path.relative_to(source) not in GUARDED]
    found = [f"{path.relative_to(source)}:{place}" for path in files for place in unguarded(path.read_text())]
    assert not found, f"json_text.loads and json_decoder.Decoder are bounded, these are not: {found}"


def unguarded(text: str) -> list[str]:
    """The places of a module that parse JSON by themselves."""
    if not any(f"import {module}" in text or f"from {module}" in text for module in MODULES):
        return []
    found = []
    nodes = list(ast.walk(ast.parse(text)))
    imported = [name for node in nodes if isinstance(node, ast.Import) for name in node.names]
    known = {name.asname or name.name: name.name for name in imported if name.name.split(".")[0] in MODULES}
    for node in nodes:
        if isinstance(node, ast.Attribute) and node.attr in {name for _, name in PARSERS}:
            first, dot, rest = ast.unparse(node.value).partition(".")
            if (known.get(first, first) + dot + rest, node.attr) in PARSERS:
                found.append(f"{node.lineno}: {ast.unparse(node)}")
        elif isinstance(node, ast.ImportFrom):
            names = {(node.module, name.name) for name in node.names}
            if names & (PARSERS | {("msgspec", "json")}):
                found.append(f"{node.lineno}: {ast.unparse(node)}")
    return found


@pytest.mark.parametrize(
    "text",
    [
        "import json\njson.loads(text)",
        "import json as other\nother.load(file)",
        "from json import loads",
        "import msgspec\nmsgspec.json.Decoder(int)",
        "import msgspec.json\nmsgspec.json.decode(text)",
        "from msgspec import json",
    ],
)
def test_a_new_parser_is_noticed(text: str) -> None:
    assert unguarded(text)
    assert not unguarded("import json\nimport msgspec\njson.dumps(1), msgspec.json.encode(1), json_text.loads(text)")
