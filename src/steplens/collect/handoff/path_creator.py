"""Where run directories go when the program's own handler does not say it: set once for the process."""

from __future__ import annotations

import os
from pathlib import Path

from steplens.collect.common import paths
from steplens.common import rundir


class ProfPathCreator:
    """Sets folder and worker name of the run directories of every profiler whose handler has none of its own.

    The name is the Ascend PyTorch Profiler's; all its objects share what is set. Scripts with a handler of their own use it.
    """

    #: what was set; None where nothing was
    folder: Path | None = None
    worker_name: str | None = None

    def init(self, worker_name: str | None = None, dir_name: str | os.PathLike[str] | None = None) -> None:
        """Set the names.

        Args:
            worker_name: first part of a run directory's name; the host name by default. What does not fit is cut off.
            dir_name: folder for run directories; else ``$ASCEND_WORK_PATH/profiling_data``, else the current directory.
        """
        if dir_name is not None:
            paths.warn_if_unusual(dir_name, "dir_name of ProfPathCreator")
        ProfPathCreator.folder = None if dir_name is None else rundir.absolute_path(dir_name)
        ProfPathCreator.worker_name = rundir.worker_part(worker_name) if worker_name else None
