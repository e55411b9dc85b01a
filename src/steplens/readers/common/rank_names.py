"""Ranks in the names of files and folders."""

from __future__ import annotations

import re
from pathlib import Path

from steplens.common import rundir
from steplens.common.listings import entry_names

#: what describes a run directory has its rank in its name
_INFO_NAME = re.compile(rf"^{rundir.INFO_PREFIX}_(\d{{1,6}})\.json$")
#: names that users and launchers give to the traces of a job: rank0.json, trace_rank_3.json.gz
_RANK_IN_NAME = re.compile(r"(?i)(?:^|[^a-z])rank[_-]?(\d{1,6})(?!\d)")
#: trace.3.pt.trace.json; any number could stand there, so it counts only where the trace is known to be of a job
_NUMBER_IN_NAME = re.compile(r"^[^.]+\.(\d{1,6})(?:\.pt)?(?:\.trace)?\.json(?:\.gz)?$")


def rank_of_path(path: Path) -> int | None:
    """The rank that the names of a capture say, or those of its files; None where they say none. Nothing of it is read."""
    try:
        infos = [matched for name in entry_names(path) if (matched := _INFO_NAME.match(name))]
    except OSError:  # a file, or a folder that is closed
        infos = []
    if len(infos) == 1:
        return int(infos[0][1])
    ranks = (rank_in_name(name, distributed=False) for name in (path.name, path.parent.name))
    return next((rank for rank in ranks if rank is not None), None)


def rank_in_name(name: str, *, distributed: bool) -> int | None:
    """The rank in the name of a trace file, None where it names none.

    Args:
        name: of the file.
        distributed: whether the trace is of a distributed job; then a lone number between dots is the rank, too.
    """
    matched = _RANK_IN_NAME.search(name) or (_NUMBER_IN_NAME.match(name) if distributed else None)
    return int(matched[1]) if matched else None
