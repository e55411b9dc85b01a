"""The files of a run directory of the Ascend PyTorch Profiler that decide what its tables hold."""

from __future__ import annotations

import stat
from pathlib import Path

from steplens.common.listings import list_folder
from steplens.formats.ascend_capture import FRAMEWORK_DIRECTORY
from steplens.readers.ascend.prof_directory import find_prof
from steplens.readers.common import run_info

#: what the names of the files in ``FRAMEWORK/`` begin with that are read (``framework_files``)
FRAMEWORK_PREFIXES = (
    "torch.op_range",
    "torch.op_mark",
    "torch.memory_usage",
    "torch.python_tracer_hash",
    "torch.param_tensor_info",
    "torch.python_tracer_func",
    "torch.gc_record",
)


def sources(path: Path) -> list[Path]:
    """Those of the framework, of the device, and what describes both."""
    framework = [file for prefix in FRAMEWORK_PREFIXES for file in find_files(path / FRAMEWORK_DIRECTORY, prefix)]
    device = [file for prof in find_prof(path)[:1] for file in prof.files()]
    return [*framework, *device, *run_info.side_files(path)]


def find_files(folder: Path, prefix: str) -> list[Path]:
    """The regular files of ``folder`` whose names begin with ``prefix``, by name; links are not followed."""
    if folder.is_symlink():
        return []
    try:
        names = [entry.name for entry in list_folder(folder).entries if entry.name.startswith(prefix)]
    except (FileNotFoundError, NotADirectoryError):
        return []
    return [folder / name for name in names if stat.S_ISREG((folder / name).lstat().st_mode)]
