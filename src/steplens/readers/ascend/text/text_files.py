"""The files of a result folder of the Ascend PyTorch Profiler, or of steplens, that decide what its tables hold."""

from __future__ import annotations

from pathlib import Path

from steplens.formats import ascend_results as results
from steplens.formats.ascend_capture import HANDED_ON
from steplens.formats.ascend_database import ANALYSIS_DATABASE
from steplens.readers.common import run_info
from steplens.readers.common.rank_names import rank_in_name

#: those that hold events; without any of them a folder holds sums and times of another analysis alone
EVENT_FILES = (
    results.TRACE_VIEW,
    results.KERNEL_DETAILS,
    results.MEMORY_RECORD,
    results.OPERATOR_MEMORY,
    results.MODULE_MEMORY_FILE,
)
#: files that are handed on; of the AI CPU there is another one
_HANDED_ON = (*(f"{name}.csv" for name in HANDED_ON if name != "aicpu"), f"{results.DATA_PREPROCESS}.csv", results.STEP_TRACE)
#: any of these makes a folder a result
_FILES = (*EVENT_FILES, results.COMMUNICATION, results.COMMUNICATION_MATRIX, ANALYSIS_DATABASE, *_HANDED_ON)


def detect(output_folder: Path) -> bool:
    """Whether a folder holds result files."""
    return any((output_folder / name).is_file() for name in _FILES)


def sources(output_folder: Path, run_directory: Path) -> list[Path]:
    """The files that decide what the tables of a result folder hold."""
    candidates = (output_folder / name for name in _FILES)
    return [*(file for file in candidates if file.is_file()), *run_info.side_files(run_directory)]


def rank_of_folder(run_directory: Path) -> int | None:
    """The rank in the name of a run directory, else in that of the folder around it; None where neither names one."""
    folder = run_directory.resolve()
    ranks = (rank_in_name(name, distributed=False) for name in (folder.name, folder.parent.name))
    return next((rank for rank in ranks if rank is not None), None)
