"""The files beside a database of the Ascend PyTorch Profiler that decide what its tables hold."""

from __future__ import annotations

from pathlib import Path

from steplens.common.listings import list_folder
from steplens.formats.ascend_database import ANALYSIS_DATABASE, PROFILER_DATABASE
from steplens.readers.common.run_info import side_files


def sources(output_folder: Path, run_directory: Path) -> list[Path]:
    """The files that decide what the tables of a result folder hold."""
    candidates = [*profiler_databases(output_folder)[:1], output_folder / ANALYSIS_DATABASE]
    return [*(file for file in candidates if file.is_file()), *side_files(run_directory)]


def profiler_databases(folder: Path) -> list[Path]:
    """The profiler databases of a folder, the first one is read: without rank, then by rank."""
    try:
        paths = list_folder(folder).entry_paths
    except OSError:
        return []
    matches = [(match, path) for path in paths if (match := PROFILER_DATABASE.match(path.name)) and path.is_file()]
    return [path for match, path in sorted(matches, key=lambda item: (int(item[0][1] or -1), item[1].name))]
