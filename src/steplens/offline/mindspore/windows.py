"""Writes the results of recorded windows: MindSpore's flat files, and the result files of a run directory."""

from __future__ import annotations

import contextlib
import json
import shutil
import time
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import msgspec

from steplens.analysis.step_trace.step_trace import points_of
from steplens.common import rundir
from steplens.common.storage.files import read_bytes
from steplens.offline.mindspore.settings import Options
from steplens.readers.common.side_files import read_json
from steplens.readers.mindspore.mindspore_find import MindSporeSource
from steplens.readers.mindspore.windows import mindspore_windows
from steplens.trace.health import STEP_PHASES, WARNING
from steplens.trace.trace import Trace
from steplens.writers.common.output import LEVEL0
from steplens.writers.mindspore import mindspore_result
from steplens.writers.result import DONE, EXPORT_TYPES, FAILED, TEXT, OutputStatus, Settings, write_result

#: contracts whose results are a ``profiler`` directory of flat files
_FLAT = ("r2.2", "r2.4")
#: of the data pipeline, handed on as MindSpore wrote them
_HANDED_ON = ("pipeline_profiling_{}.json", "dataset_iterator_profiling_{}.txt", "minddata_cpu_utilization_{}.json",
              "device_queue_profiling_{}.txt")  # fmt: skip
_TIME_FORMAT = "%Y-%m-%d %H:%M:%S"


def analyse(source: MindSporeSource, options: Options) -> dict[str, OutputStatus]:
    """Write the results of the windows of one rank, and remove its raw data where that is asked for.

    Returns:
        file below the source's folder -> what became of it.

    Raises:
        InputError: nothing can be read in the windows.
    """
    began = time.strftime(_TIME_FORMAT)
    rank, path = source.number, source.path
    trace = mindspore_windows.read_trace(path, rank, options.step_list)
    config = trace.meta_value("config")
    config = config if isinstance(config, dict) else {}
    flat = config.get("contract") in _FLAT
    outputs: dict[str, OutputStatus] = {}
    run = _rank_directory(path, rank) if flat else path
    switches = {key: bool(config.get(key, not config)) for key in ("profile_memory", "record_shapes")}
    # both families of files at once: printing is native code outside the interpreter lock
    with ThreadPoolExecutor(1) as beside:
        cpu_files = mindspore_result.cpu_files(options.timeline_limit_mb) if flat else ()
        writing = beside.submit(mindspore_result.write_flat, trace, path, rank, cpu_files)
        settings, files = Settings(LEVEL0, switches), mindspore_result.OUTPUT_FILES
        statuses = write_result(trace, run, settings, export_types=_export_types(config), files=files)
        outputs.update(writing.result())
    if flat:
        outputs.update(_hand_on(path, path, rank))
    outputs.update({f"{rundir.OUTPUT_DIRECTORY}/{name}": status for name, status in statuses.items()})
    _hand_on(path, run / rundir.OUTPUT_DIRECTORY, rank)
    complete = not any(status.status == FAILED for status in outputs.values())
    simplifies = options.data_simplification
    if simplifies is None:
        simplifies = config.get("data_simplification") is True
    removes = complete and simplifies and options.step_list is None and _is_own(path, rank)
    times = {"analyse_start_time": began, "analyse_end_time": time.strftime(_TIME_FORMAT), "raw_data_removed": removes}
    inside = run.relative_to(path)
    listed = {
        str(inside / name) if name.startswith(rundir.OUTPUT_DIRECTORY) else name: status for name, status in outputs.items()
    }
    health = {"health": [*mindspore_windows.recorded_findings(trace), *absent_points(trace)]}
    more = {**_recording_times(path, rank), **times, **health, **(written_names(listed) if options.step_list is None else {})}
    info = mindspore_result.profiler_info(trace, rank, outputs, more)
    # a long run has a wait per step: indented by Python itself they would take longer than some of the results
    text = json.dumps(info, ensure_ascii=False).encode()
    # what a damaged window.json holds may be JSON to Python alone
    with contextlib.suppress(msgspec.DecodeError):
        text = msgspec.json.format(text, indent=4)
    for folder in {path, run}:
        rundir.write_bytes(folder / f"{rundir.INFO_PREFIX}_{rank}.json", text)
    if flat and (path / rundir.METADATA_FILE).is_file():
        written = read_json(run / rundir.METADATA_FILE)
        rundir.write_json(run / rundir.METADATA_FILE, {**written, **read_json(path / rundir.METADATA_FILE)}, indent=4)
    if flat:
        options.prettify(path, outputs)
    options.prettify(run / rundir.OUTPUT_DIRECTORY, statuses)
    if removes:
        _remove_raw(path, rank)
    return outputs


def _export_types(config: dict[str, Any]) -> tuple[str, ...]:
    """The families of results that were asked for; text where nothing was."""
    asked = config.get("export_type")
    return tuple(kind for kind in EXPORT_TYPES if isinstance(asked, list) and kind in asked) or (TEXT,)


def written_names(outputs: dict[str, OutputStatus]) -> dict[str, Any]:
    """The files of a complete result; nothing where some failed."""
    if any(status.status == FAILED for status in outputs.values()):
        return {}
    return {"outputs": [name for name, status in outputs.items() if status.status == DONE]}


def absent_points(trace: Trace) -> list[dict[str, Any]]:
    """What the health of the results says of operators that a user names as points of the step trace and that did not run."""
    names = ", ".join(repr(name) for name in points_of(trace).absent)
    message = f"FP_POINT or BP_POINT name operators that ran in no step ({names}); the points are where they are without them"
    finding = {"check": "absent_point", "severity": WARNING, "count": 1, "message": message, "unsafe": STEP_PHASES}
    return [finding] if names else []


def _is_own(path: Path, rank: int) -> bool:
    """Whether steplens recorded the raw data: what another profiler left is not removed."""
    return any((path / mindspore_windows.RAW_DIRECTORY).glob(f"window_{rank}_*/{mindspore_windows.WINDOW_FILE}"))


def _recording_times(path: Path, rank: int) -> dict[str, Any]:
    """When recording began and ended, and the waits for data, which no other file of the results has."""
    begins: list[int] = []
    ends: list[int] = []
    waits: list[Any] = []
    more: dict[str, Any] = {}
    for file in sorted((path / mindspore_windows.RAW_DIRECTORY).glob(f"window_{rank}_*/{mindspore_windows.WINDOW_FILE}")):
        state = read_json(file)
        begins += [state["begin_ns"]] if isinstance(state.get("begin_ns"), int) else []
        ends += [state["end_ns"]] if isinstance(state.get("end_ns"), int) else []
        waits += state["waits"] if isinstance(state.get("waits"), list) else []
        # the thread of the loop, which is none of those that launch
        more = {"tid": state["tid"]} if isinstance(state.get("tid"), int) else more
    if not begins or not ends:
        return {}
    clock = [time.strftime(_TIME_FORMAT, time.localtime(ns // 1_000_000_000)) for ns in (min(begins), max(ends))]
    return {"profiling_start_time": clock[0], "profiling_stop_time": clock[1], "system_time": min(begins), "waits": waits, **more}


def _hand_on(path: Path, into: Path, rank: int) -> dict[str, OutputStatus]:
    """Copy the pipeline's own files; of several recordings the last one, since each stands for itself."""
    outputs: dict[str, OutputStatus] = {}
    if _is_own(path, rank):
        # those of an older result would pass for this one's
        for name in _HANDED_ON:
            (into / name.format(rank)).unlink(missing_ok=True)
    for folder in sorted((path / mindspore_windows.RAW_DIRECTORY).glob(f"pipeline_{rank}_*")):
        for name in (pattern.format(rank) for pattern in _HANDED_ON):
            if (folder / name).is_file():
                rundir.write_bytes(into / name, read_bytes(folder / name))
                outputs[name] = OutputStatus(DONE, "", (into / name).stat().st_size)
    return outputs


def _rank_directory(path: Path, rank: int) -> Path:
    """``rank-<r>_<time>_ascend_ms`` of a ``profiler`` directory: the one that is there, or a new one."""
    folders = path.glob(f"rank-{rank}_*{rundir.MINDSPORE_RUN_SUFFIX}")
    if there := sorted(folder for folder in folders if folder.is_dir() and not folder.is_symlink()):
        return there[-1]
    return rundir.make_directory(path / f"rank-{rank}_{time.strftime('%Y%m%d%H%M%S')}{rundir.MINDSPORE_RUN_SUFFIX}")


def _remove_raw(path: Path, rank: int) -> None:
    raw = path / mindspore_windows.RAW_DIRECTORY
    for kind in ("window", "pipeline"):
        for folder in raw.glob(f"{kind}_{rank}_*"):
            if not folder.is_symlink():
                shutil.rmtree(folder)
    # that of other ranks stays in it
    with contextlib.suppress(OSError):
        raw.rmdir()
