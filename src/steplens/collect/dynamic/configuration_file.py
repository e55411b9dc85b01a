"""A new configuration file."""

from __future__ import annotations

import contextlib
import json
import os
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from steplens.collect.dynamic.job import job_folder
from steplens.common import partial, rundir


def create_configuration(directory: Path, content: Mapping[str, Any]) -> None:
    """Write ``profiler_config.json`` into a folder that has none; a file that somebody else makes meanwhile wins.

    Raises:
        OSError: there is no such file and none can be made.
    """
    rundir.make_directory(directory)
    target = directory / job_folder.CONFIGURATION_FILE
    if target.exists():
        return
    temporary = partial.partial_path(target)
    try:
        rundir.write_bytes(temporary, json.dumps(content, indent=4).encode())
        with contextlib.suppress(FileExistsError):
            try:
                os.link(temporary, target)
            except FileExistsError:
                raise
            except OSError:  # a file system without hard links
                descriptor = os.open(target, os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC, rundir.FILE_MODE)
                with os.fdopen(descriptor, "wb") as handle:
                    handle.write(temporary.read_bytes())
    finally:
        temporary.unlink(missing_ok=True)
