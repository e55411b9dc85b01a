"""Times of operators by type as JSON text: MindSpore's ``op_analyse``."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path

from steplens.common import rundir
from steplens.common.errors import InputError
from steplens.readers.mindspore import mindspore_find
from steplens.writers.common.output import NothingToWriteError
from steplens.writers.mindspore import mindspore_operators

#: so many types of operators are named where one was asked for that did not run
_NAMED_TYPES = 20


def operators_json(path: Path, types: Sequence[str], rank: int | None) -> str:
    """The JSON text of ``op_analyse``, of the first rank by default; the path is the ``profiler`` directory or one above that.

    Raises:
        InputError: there is no data of that rank, or a type did not run.
    """
    folders = [folder for folder in (path, path / rundir.PROFILER_DIRECTORY) if folder.is_dir()]
    sources = [source for folder in folders for source in mindspore_find.find_sources(folder)]
    of_rank = [source for source in sources if rank is None or source.number == rank]
    if not of_rank:
        raise InputError(path, f"holds no data of rank {rank}" if sources else "holds no recorded operators", "Record first")
    trace = of_rank[0].read()
    try:
        launched = mindspore_operators.launched_types(trace)
        if missing := [kind for kind in types if kind not in launched]:
            ran = ", ".join(launched[:_NAMED_TYPES]) + (" ..." if len(launched) > _NAMED_TYPES else "")
            kinds = ", ".join(map(repr, missing))
            raise InputError(path, f"holds no operator of type {kinds}", f"Types that ran: {ran}")
        return mindspore_operators.operator_times(trace, types, of_rank[0].number)
    except NothingToWriteError as nothing:
        raise InputError(path, "holds no operators", str(nothing)) from None
