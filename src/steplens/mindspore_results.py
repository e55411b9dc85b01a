"""Makes the results of what MindSpore's interfaces recorded, of raw device logs and of MindSpore's records of the host.

In a process of its own, or later.

python -m steplens.mindspore_results analyse PATH
python -m steplens.mindspore_results operators PATH -- Conv2D MatMul
"""

from __future__ import annotations

import argparse
import contextlib
import json
import multiprocessing
import os
import shutil
import sys
import time
from collections.abc import Sequence
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, TypeGuard

import msgspec

from steplens import mindspore_results_host, rundir
from steplens.analysis.step_trace.step_trace import points_of
from steplens.common import json_text, parent
from steplens.errors import InputError, SteplensError
from steplens.readers.mindspore import mindspore_find
from steplens.readers.mindspore.legacy_files import MADE_FROM_LOGS
from steplens.readers.mindspore.mindspore_find import LEGACY, WINDOWS, MindSporeSource
from steplens.readers.mindspore.windows import mindspore_windows
from steplens.readers.steplens_run.run_directory import read_json
from steplens.trace.cache import own_results
from steplens.trace.health import STEP_PHASES, WARNING
from steplens.trace.trace import Trace
from steplens.writers.common.output import LEVEL0, NothingToWriteError
from steplens.writers.mindspore import mindspore_operators, mindspore_result
from steplens.writers.result import DONE, EXPORT_TYPES, FAILED, TEXT, OutputStatus, Settings, write_result

RUN_SUFFIX = "_ascend_ms"
#: contracts whose results are a ``profiler`` directory of flat files
_FLAT = ("r2.2", "r2.4")
#: of the data pipeline, handed on as MindSpore wrote them
_HANDED_ON = ("pipeline_profiling_{}.json", "dataset_iterator_profiling_{}.txt", "minddata_cpu_utilization_{}.json",
              "device_queue_profiling_{}.txt")  # fmt: skip
#: so many types of operators are named where one was asked for that did not run
_NAMED_TYPES = 20
_TIME_FORMAT = "%Y-%m-%d %H:%M:%S"


@dataclass(frozen=True)
class Options:
    """How results are made.

    Attributes:
        pretty: indent the JSON files.
        step_list: only these of the recorded steps, counted from 1; None for all.
        data_simplification: remove the raw data once the results are there; None as recorded.
        timeline_limit_mb: largest size of a timeline, MB; None for no limit.
        overwrite: of records of the host, write also files that are newer, which MindSpore itself may have written.
    """

    pretty: bool = False
    step_list: tuple[int, ...] | None = None
    data_simplification: bool | None = True
    timeline_limit_mb: int | None = None
    overwrite: bool = True


@dataclass(frozen=True)
class RankResult:
    """What became of one rank or device.

    Attributes:
        source: folder and rank, in words.
        written_to: the directory of its results.
        outputs: file name -> what became of it.
        problem: why there are no results; empty when there are.
    """

    source: str
    written_to: Path | None = None
    outputs: dict[str, OutputStatus] = field(default_factory=dict)
    problem: str = ""

    @property
    def failed(self) -> str:
        """Why it is not complete, in one sentence; empty when it is."""
        if self.problem:
            return self.problem
        broken = [f"{name} ({status.reason})" for name, status in self.outputs.items() if status.status == FAILED]
        return f"{self.source}: not written: {', '.join(broken)}" if broken else ""


def find(path: Path) -> list[MindSporeSource]:
    """Every rank and device below ``path`` that results can be made of.

    Raises:
        InputError: there is none; the message says why, also where the raw data was removed.
    """
    if not path.exists():
        raise InputError(path, "does not exist", "Give the directory above 'profiler', or a run directory")
    candidates = [path, path / rundir.PROFILER_DIRECTORY]
    if path.is_dir():
        children = sorted(child for child in path.iterdir() if child.is_dir() and not child.is_symlink())
        candidates += [folder for child in children for folder in (child, child / rundir.PROFILER_DIRECTORY)]
    folders = [folder for folder in dict.fromkeys(candidates) if folder.is_dir()]
    found = list(dict.fromkeys(source for folder in folders for source in mindspore_find.find(folder)))
    raw = [source for source in found if is_raw(source) or source.host_file is not None]
    if raw:
        return raw
    for source in found:
        info = read_json(source.path / f"{rundir.INFO_PREFIX}_{source.number}.json")
        if info.get("raw_data_removed"):
            why = "holds no raw data any more: data simplification removed it when the results were made"
            raise InputError(source.path, why, "Its results are complete; record with data_simplification=False to keep raw data")
    for folder in folders:
        if folder.name.endswith(RUN_SUFFIX) and any(
            read_json(file).get("raw_data_removed") for file in folder.glob(f"{rundir.INFO_PREFIX}*.json")
        ):
            why = "holds no raw data any more: data simplification removed it when the results were made"
            raise InputError(folder, why, "Its results are complete; record with data_simplification=False to keep raw data")
    raise InputError(path, "holds no data recorded with MindSpore", "Give the directory above 'profiler', or a run directory")


def analyse(path: Path, options: Options, processes: int | None = None) -> list[RankResult]:
    """Write the results of every rank below ``path``; what is wrong with one rank does not keep the others from theirs.

    Raises:
        InputError: there is nothing to analyse.
    """
    sources = find(path)
    workers = min(processes or max((os.cpu_count() or 2) // 2, 1), len(sources))
    if workers <= 1:
        return [analyse_source(source, options) for source in sources]
    # a fork would copy the locks of whatever threads this process has
    with ProcessPoolExecutor(workers, mp_context=multiprocessing.get_context("spawn")) as pool:
        return list(pool.map(analyse_source, sources, [options] * len(sources)))


def analyse_source(source: MindSporeSource, options: Options) -> RankResult:
    """Write the results of one rank or device. Never raises for what is wrong with its data."""
    words = f"{source.path}, {'device' if source.kind == LEGACY else 'rank'} {source.number}"
    try:
        if source.kind == LEGACY:
            made = _analyse_logs(source, options, words)
            _keep_complete(source)
            return made
        if source.kind != WINDOWS:
            return _analyse_host(source, options, words)
        made = _analyse_windows(source, options, words)
        _keep_complete(source)
        return made
    except (Exception, _panic()) as error:  # the boundary between ranks
        text = str(error) if isinstance(error, SteplensError) else f"{words}: {type(error).__name__}: {error}"
        return RankResult(words, problem=" ".join(text.split()))


def is_raw(where: object) -> TypeGuard[MindSporeSource]:
    """Whether results are made of it: it is recorded data, not somebody's results."""
    return isinstance(where, MindSporeSource) and where.kind in (WINDOWS, LEGACY)


def has_host_records(where: object) -> TypeGuard[MindSporeSource]:
    """Whether it is somebody's results with records of the host, which files are made of."""
    return isinstance(where, MindSporeSource) and where.host_file is not None


def is_complete(source: MindSporeSource) -> bool:
    """Whether its results are there, newer than its data, and all of their files are, as this user's steplens made them."""
    files, recorded = _results(source), source.recorded()
    try:
        newest = max(file.stat().st_mtime_ns for file in recorded)
        made = files[0].stat().st_mtime_ns
    except (OSError, ValueError):
        return False
    there = made > newest and len(files) > 1 and all(file.is_file() for file in files)
    return there and own_results.are_ours(source.path, _name(source), [*files, *recorded])


def _keep_complete(source: MindSporeSource) -> None:
    """Remember that its complete results are ours, for ``is_complete``; nothing where they are not complete."""
    files = _results(source)
    if len(files) > 1:
        own_results.keep(source.path, _name(source), [*files, *source.recorded()])


def _name(source: MindSporeSource) -> str:
    return f"results_{source.kind}_{source.number}"


def _results(source: MindSporeSource) -> list[Path]:
    """Its ``profiler_info`` and the files that this names as those of complete results."""
    into = source.path if source.kind == WINDOWS else source.path / rundir.PROFILER_DIRECTORY
    info = into / f"{rundir.INFO_PREFIX}_{source.number}.json"
    written = read_json(info).get("outputs")
    return [info, *(into / name for name in written if isinstance(name, str))] if isinstance(written, list) else [info]


def _analyse_logs(source: MindSporeSource, options: Options, words: str) -> RankResult:
    trace = source.read()
    into = rundir.make_directory(source.path / rundir.PROFILER_DIRECTORY)
    outputs = mindspore_result.write_flat(trace, into, source.number, mindspore_result.DEVICE_FILES, _ignore)
    more = {"source": MADE_FROM_LOGS, "health": _absent_points(trace), **_written(outputs)}
    info = mindspore_result.profiler_info(trace, source.number, outputs, more)
    rundir.write_json(into / f"{rundir.INFO_PREFIX}_{source.number}.json", info, indent=4)
    _prettify(options, into, outputs)
    return RankResult(words, into, outputs)


def _analyse_host(source: MindSporeSource, options: Options, words: str) -> RankResult:
    if options.step_list is not None:
        raise InputError(source.path, "holds records of the host, which belong to no step", "Leave out the list of steps")
    outputs = mindspore_results_host.write(source, overwrite=options.overwrite)
    _prettify(options, source.path, outputs)
    return RankResult(words, source.path, outputs)


def _analyse_windows(source: MindSporeSource, options: Options, words: str) -> RankResult:
    began = time.strftime(_TIME_FORMAT)
    rank, path = source.number, source.path
    trace = mindspore_windows.read_trace(path, rank, options.step_list)
    config = trace.meta_values().get("config")
    config = config if isinstance(config, dict) else {}
    flat = config.get("contract") in _FLAT
    outputs: dict[str, OutputStatus] = {}
    run = _rank_directory(path, rank) if flat else path
    switches = {key: bool(config.get(key, not config)) for key in ("profile_memory", "record_shapes")}
    # both families of files at once: printing is native code outside the interpreter lock
    with ThreadPoolExecutor(1) as beside:
        cpu_files = mindspore_result.cpu_files(options.timeline_limit_mb) if flat else ()
        writing = beside.submit(mindspore_result.write_flat, trace, path, rank, cpu_files, _ignore)
        statuses = write_result(
            trace,
            run,
            Settings(level=LEVEL0, switches=switches),
            export_types=_export_types(config),
            files=mindspore_result.OUTPUT_FILES,
        )
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
    listed = {str(inside / name) if name.startswith(rundir.OUTPUT_DIRECTORY) else name: own for name, own in outputs.items()}
    found = {"health": [*mindspore_windows.recorded_findings(trace), *_absent_points(trace)]}
    more = {**_recorded(path, rank), **times, **found, **(_written(listed) if options.step_list is None else {})}
    info = mindspore_result.profiler_info(trace, rank, outputs, more)
    # a long run has a wait per step: indented by Python itself they would take longer than some of the results
    text = json.dumps(info, ensure_ascii=False).encode()
    # what a damaged window.json holds may be JSON to Python alone
    with contextlib.suppress(msgspec.DecodeError):
        text = msgspec.json.format(text, indent=4)
    for folder in {path, run}:
        rundir.write_bytes(folder / f"{rundir.INFO_PREFIX}_{rank}.json", text)
    if flat and (path / rundir.METADATA_FILE).is_file():
        own = read_json(run / rundir.METADATA_FILE)
        rundir.write_json(run / rundir.METADATA_FILE, {**own, **read_json(path / rundir.METADATA_FILE)}, indent=4)
    if flat:
        _prettify(options, path, outputs)
    _prettify(options, run / rundir.OUTPUT_DIRECTORY, statuses)
    if removes:
        _remove_raw(path, rank)
    return RankResult(words, path, outputs)


def _export_types(config: dict[str, Any]) -> tuple[str, ...]:
    """The families of results that were asked for; text where nothing was."""
    asked = config.get("export_type")
    return tuple(kind for kind in EXPORT_TYPES if isinstance(asked, list) and kind in asked) or (TEXT,)


def _written(outputs: dict[str, OutputStatus]) -> dict[str, Any]:
    """The files of a complete result; nothing where some failed."""
    if any(status.status == FAILED for status in outputs.values()):
        return {}
    return {"outputs": [name for name, status in outputs.items() if status.status == DONE]}


def _absent_points(trace: Trace) -> list[dict[str, Any]]:
    """What the health of the results says of operators that a user names as points of the step trace and that did not run."""
    names = ", ".join(repr(name) for name in points_of(trace).absent)
    message = f"FP_POINT or BP_POINT name operators that ran in no step ({names}); the points are where they are without them"
    finding = {"check": "absent_point", "severity": WARNING, "count": 1, "message": message, "unsafe": STEP_PHASES}
    return [finding] if names else []


def _is_own(path: Path, rank: int) -> bool:
    """Whether steplens recorded the raw data: what another profiler left is not removed."""
    return any((path / mindspore_windows.RAW_DIRECTORY).glob(f"window_{rank}_*/{mindspore_windows.WINDOW_FILE}"))


def _recorded(path: Path, rank: int) -> dict[str, Any]:
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
                rundir.write_bytes(into / name, (folder / name).read_bytes())
                outputs[name] = OutputStatus(DONE, "", (into / name).stat().st_size)
    return outputs


def _rank_directory(path: Path, rank: int) -> Path:
    """``rank-<r>_<time>_ascend_ms`` of a ``profiler`` directory: the one that is there, or a new one."""
    there = sorted(folder for folder in path.glob(f"rank-{rank}_*{RUN_SUFFIX}") if folder.is_dir() and not folder.is_symlink())
    if there:
        return there[-1]
    return rundir.make_directory(path / f"rank-{rank}_{time.strftime('%Y%m%d%H%M%S')}{RUN_SUFFIX}")


def _remove_raw(path: Path, rank: int) -> None:
    raw = path / mindspore_windows.RAW_DIRECTORY
    for kind in ("window", "pipeline"):
        for folder in raw.glob(f"{kind}_{rank}_*"):
            if not folder.is_symlink():
                shutil.rmtree(folder)
    if not any(raw.iterdir()):
        raw.rmdir()


def _prettify(options: Options, folder: Path, outputs: dict[str, OutputStatus]) -> None:
    if not options.pretty:
        return
    for name, status in outputs.items():
        file = folder / name
        if status.status == DONE and name.endswith(".json") and not name.startswith(rundir.OUTPUT_DIRECTORY) and file.is_file():
            rundir.write_json(file, json_text.own(file.read_bytes()), indent=1)


def _ignore(name: str, error: BaseException) -> None:
    """Failures are in the statuses."""


def operators(path: Path, types: Sequence[str], rank: int | None) -> str:
    """The JSON text of ``op_analyse``.

    Args:
        path: the ``profiler`` directory, or one above that.
        types: types of operators.
        rank: which; the first one by default.

    Raises:
        InputError: there is no data of that rank, or a type did not run.
    """
    folders = [folder for folder in (path, path / rundir.PROFILER_DIRECTORY) if folder.is_dir()]
    found = [source for folder in folders for source in mindspore_find.find(folder)]
    chosen = [source for source in found if rank is None or source.number == rank]
    if not chosen:
        raise InputError(path, f"holds no data of rank {rank}" if found else "holds no recorded operators", "Record first")
    trace: Trace = chosen[0].read()
    try:
        return mindspore_operators.operator_times(trace, list(types), chosen[0].number)
    except mindspore_operators.UnknownTypesError as unknown:
        kinds = ", ".join(map(repr, unknown.missing))
        ran = ", ".join(unknown.known[:_NAMED_TYPES]) + (" ..." if len(unknown.known) > _NAMED_TYPES else "")
        raise InputError(path, f"holds no operator of type {kinds}", f"Types that ran: {ran}") from None
    except NothingToWriteError as nothing:
        raise InputError(path, "holds no operators", str(nothing)) from None


def _panic() -> type[BaseException]:
    import polars as pl

    return pl.exceptions.PanicException


def main(arguments: Sequence[str] | None = None) -> int:
    """Command line of ``python -m steplens.mindspore_results``; see the module.

    Returns:
        0 when everything is there, 3 when some ranks or files could not be written, 2 when none could.
    """
    parser = argparse.ArgumentParser(prog="python -m steplens.mindspore_results")
    commands = parser.add_subparsers(dest="command", required=True)
    command = commands.add_parser("analyse", help="write the results of every rank")
    command.add_argument("path", type=Path)
    command.add_argument("--pretty", action="store_true")
    command.add_argument("--steps", type=lambda text: tuple(map(int, text.split(","))), default=None)
    command.add_argument("--keep-raw", action="store_true")
    command.add_argument("--timeline-limit", type=int, default=None)
    command.add_argument("--processes", type=int, default=None)
    command = commands.add_parser("operators", help="times of operators as JSON")
    command.add_argument("path", type=Path)
    command.add_argument("--device", type=int, default=None)
    command.add_argument("types", nargs="+")
    options = parser.parse_args(arguments)
    try:
        if options.command == "operators":
            print(operators(options.path, options.types, options.device))
            return 0
        made = Options(options.pretty, options.steps, not options.keep_raw, options.timeline_limit)
        results = analyse(options.path, made, options.processes)
    # The boundary to the shell, or to the training process that started this one: one line, no traceback.
    except (Exception, _panic()) as error:
        text = str(error) if isinstance(error, SteplensError) else f"{type(error).__name__}: {error}"
        print(f"steplens: {' '.join(text.split())}", file=sys.stderr)
        return 2
    failures = [result.failed for result in results if result.failed]
    if not failures:
        return 0
    print(f"steplens: {'; '.join(failures)}", file=sys.stderr)
    return 2 if len(failures) == len(results) and all(result.problem for result in results) else 3


if __name__ == "__main__":
    # Under its real name: the worker processes exchange objects of classes of this module.
    from steplens import mindspore_results

    parent.end_with_parent()
    code = mindspore_results.main()
    sys.stdout.flush()
    sys.stderr.flush()
    # giving the tables back piece by piece takes as long as writing one of the files; the system takes them at once
    os._exit(code)
