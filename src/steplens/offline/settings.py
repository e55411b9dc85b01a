"""How a run was recorded, and whether its results are those of that recording."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from steplens.common import rundir
from steplens.readers.common.run_info import info_files
from steplens.readers.common.side_files import read_json
from steplens.trace.cache import own_results
from steplens.trace.recorded_options import options_of
from steplens.writers.common.output import LEVEL0, LEVEL1, LEVEL2, LEVEL_NONE
from steplens.writers.result import DATABASE, DONE, RESULT_VERSION, TEXT, Settings

#: of the seal of a run's results
_NAME = "results"


def read_settings(path: Path) -> tuple[Settings, list[str]]:
    """How a run was collected, and the export types it was recorded with, from its ``profiler_info*.json``.

    Without that file every output of Level0 is written, and the status says so; of a trace file, every one of Level1.
    """
    if path.is_file():
        return Settings(level=LEVEL1), [TEXT]
    files = info_files(path)
    options = options_of(read_json(files[0]).get("config") if files else None)
    notes = []
    if not files:
        notes.append(f"{rundir.INFO_PREFIX}.json is missing in {path.name}, {LEVEL0} is assumed")
    level = options.level
    if level not in (LEVEL_NONE, LEVEL0, LEVEL1, LEVEL2):
        if files:
            notes.append(f"{files[0].name} names no known profiler level, {LEVEL0} is assumed")
        level = LEVEL0
    recorded = {**{key.removeprefix("_"): value for key, value in options.experimental.items()}, **options.common}
    switches = {key: value for key, value in recorded.items() if isinstance(value, bool)}
    settings = Settings(level, switches, tuple(options.activities), tuple(notes))
    exports = options.export_types
    return settings, [TEXT] if exports is None else [item for item in exports if item in (TEXT, DATABASE)]


def is_complete(path: Path, settings: Settings, sources: Sequence[Path], exports: Sequence[str]) -> bool:
    """Whether a run has a complete result of ours, newer than its raw data and of the same level, version and export types."""
    files = [*_result_files(path), *sources]
    return seems_complete(path, settings, sources, exports) and own_results.are_ours(path, _NAME, files)


def seems_complete(path: Path, settings: Settings, sources: Sequence[Path], exports: Sequence[str]) -> bool:
    """Like ``is_complete``, whoever made the result: what came with a capture may say anything of itself."""
    folder = path / rundir.OUTPUT_DIRECTORY
    try:
        marker_ns = (folder / rundir.COMPLETION_MARKER).stat().st_mtime_ns
        newest_ns = max(source.stat().st_mtime_ns for source in sources)
    except (OSError, ValueError):
        return False
    status = read_json(folder / rundir.STATUS_FILE)
    if marker_ns < newest_ns or status.get("level") != settings.level or status.get("result_version") != RESULT_VERSION:
        return False
    there = status.get("export_types")
    if not isinstance(there, list) or sorted(map(str, there)) != sorted(set(exports)):
        return False
    done = _result_files(path)[1:]
    return bool(done) and all(file.is_file() for file in done)


def keep_complete(path: Path, sources: Sequence[Path]) -> None:
    """Remember that the complete result of a run is ours and what it was made of, for ``is_complete``."""
    own_results.remember_results(path, _NAME, [*_result_files(path), *sources])


def _result_files(path: Path) -> list[Path]:
    """The files of a result: its status, and what was written as that says."""
    folder = path / rundir.OUTPUT_DIRECTORY
    outputs = read_json(folder / rundir.STATUS_FILE).get("outputs")
    outputs = outputs if isinstance(outputs, dict) else {}
    done = [name for name, output in outputs.items() if isinstance(output, dict) and output.get("status") == DONE]
    return [folder / rundir.STATUS_FILE, *(folder / name for name in done)]
