"""How a run was recorded, and whether its results are those of that recording."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from steplens import rundir
from steplens.readers import run_directory
from steplens.writers.output import LEVEL0, LEVEL1, LEVEL2, LEVEL_NONE
from steplens.writers.result import DATABASE, DONE, RESULT_VERSION, TEXT, Settings


def read_settings(path: Path) -> tuple[Settings, list[str]]:
    """How a run was collected, and the export types it was recorded with, from its ``profiler_info*.json``.

    Without that file every output of Level0 is written, and the status says so; of a trace file, every one of Level1.
    """
    if path.is_file():
        return Settings(level=LEVEL1), [TEXT]
    files = sorted(path.glob(f"{rundir.INFO_PREFIX}*.json"))
    info = run_directory.read_json(files[0]) if files else {}
    config = info.get("config")
    common = config.get("common_config") if isinstance(config, dict) else None
    experimental = config.get("experimental_config") if isinstance(config, dict) else None
    common = common if isinstance(common, dict) else {}
    experimental = experimental if isinstance(experimental, dict) else {}
    notes = []
    if not files:
        notes.append(f"{rundir.INFO_PREFIX}.json is missing in {path.name}, {LEVEL0} is assumed")
    level = experimental.get("_profiler_level")
    if level not in (LEVEL_NONE, LEVEL0, LEVEL1, LEVEL2):
        if files:
            notes.append(f"{files[0].name} names no known profiler level, {LEVEL0} is assumed")
        level = LEVEL0
    activities = common.get("activities")
    named = {**{key.removeprefix("_"): value for key, value in experimental.items()}, **common}
    switches = {key: value for key, value in named.items() if isinstance(value, bool)}
    settings = Settings(
        level=level,
        switches=switches,
        activities=tuple(str(item).rpartition(".")[2] for item in activities) if isinstance(activities, list) else (),
        notes=tuple(notes),
    )
    exports = experimental.get("_export_type")
    exports = [exports] if isinstance(exports, str) else exports
    return settings, [item for item in exports if item in (TEXT, DATABASE)] if isinstance(exports, list) else [TEXT]


def is_complete(path: Path, settings: Settings, sources: Sequence[Path], exports: Sequence[str]) -> bool:
    """Whether a run has a complete result that is newer than its raw data and of the same level, version and export types."""
    folder = path / rundir.OUTPUT_DIRECTORY
    try:
        marker_ns = (folder / rundir.COMPLETION_MARKER).stat().st_mtime_ns
        newest_ns = max(source.stat().st_mtime_ns for source in sources)
    except (OSError, ValueError):
        return False
    status = run_directory.read_json(folder / rundir.STATUS_FILE)
    outputs = status.get("outputs")
    if marker_ns < newest_ns or status.get("level") != settings.level or status.get("result_version") != RESULT_VERSION:
        return False
    if not isinstance(outputs, dict) or sorted(status.get("export_types", [])) != sorted(set(exports)):
        return False
    done = [name for name, output in outputs.items() if isinstance(output, dict) and output.get("status") == DONE]
    return bool(done) and all((folder / name).is_file() for name in done)
