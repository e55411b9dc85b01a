"""The files of a run directory that decide what its tables hold."""

from __future__ import annotations

from pathlib import Path

from steplens.common import rundir
from steplens.readers.ascend.prof_directory import find_prof
from steplens.readers.common.run_info import info_files


def source_files(path: Path) -> list[Path]:
    """Those of the host.

    Args:
        path: the run directory.
    """
    raw = path / rundir.RAW_DIRECTORY
    recorded = [file for file in (rundir.raw_recording(path), rundir.raw_device(path)) if file is not None]
    candidates = [raw / rundir.HOST_EVENTS, raw / rundir.STATE_FILE, path / rundir.METADATA_FILE]
    beside = [*(file for file in candidates if file.is_file()), *host_files(raw), *collectives_files(raw)]
    return [*recorded, *beside, *info_files(path)]


def device_sources(path: Path) -> list[Path]:
    """Those of a device that CANN recorded.

    Args:
        path: the run directory.
    """
    return [file for prof in find_prof(path)[:1] for file in prof.files()]


def host_files(raw: Path) -> list[Path]:
    """What ``host_events`` reads, as far as it exists.

    Args:
        raw: the folder of the raw data.
    """
    names = (rundir.MARKS, rundir.MARK_TEXTS, rundir.HOST_SAMPLES, rundir.SYSTEM_CALLS)
    return [*(path for name in names if (path := raw / name).is_file()), *loader_files(raw)]


def loader_files(raw: Path) -> list[Path]:
    """What ``loaders`` reads, as far as it exists.

    Args:
        raw: the folder of the raw data.
    """
    return [path for name in (rundir.LOADERS, rundir.LOADER_ROWS) if (path := raw / name).is_file()]


def collectives_files(raw: Path) -> list[Path]:
    """What ``flight_recorder`` reads, if it exists.

    Args:
        raw: the folder of the raw data.
    """
    path = raw / rundir.COLLECTIVES
    return [path] if path.is_file() else []
