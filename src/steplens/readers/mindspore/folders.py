"""What the folders of MindSpore hold, and which of their ranks or devices is read."""

from __future__ import annotations

import re
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from steplens.common.errors import InputError
from steplens.common.listings import entry_names, list_folder

if TYPE_CHECKING:
    from steplens.trace.health import HealthLog

#: names that make a closer look worth its time; most folders of a disk have none. The description of a recording, which the
#: Ascend PyTorch Profiler leaves under the same name, says nothing alone
_PROMISING = re.compile(
    r"^(?:PROF_\d|FRAMEWORK$|data$|container$|host_info$|training_trace\.|hwts\.|ts_track\.|Framework\.host|DATA_PREPROCESS\.)"
    r"|^(?!profiler_info_).*_\d{1,9}(?:_detail_time|_detail|_type)?\.(?:csv|json|txt|pb)$|^step_trace_point_info\.json$"
)


def is_promising(path: Path) -> bool:
    """Whether the names in a folder make a closer look worth its time: without any of these it holds nothing of MindSpore."""
    try:
        names = entry_names(path)
        return bool(_PROMISING.search(path.name)) or any(map(_PROMISING.search, names))
    except OSError:
        return False


def list_children(folder: Path, limit: int | None = None) -> list[Path]:
    """The entries of a folder by name, or so many first ones of them; none where it cannot be listed."""
    try:
        return [*list_folder(folder).entry_paths[:limit]]
    except OSError:
        return []


def choose_number(
    path: Path, number: int | None, numbers: Sequence[int], *, several: str, none: str, remedies: tuple[str, str]
) -> int:
    """The rank or device to read: the one that was named, or the only one.

    Args:
        path: the folder.
        number: the one that was named, None for the only one.
        numbers: those that the folder has data of.
        several: what the folder holds, in front of its numbers.
        none: what is wrong where there are none.
        remedies: what to do where there are others, and where there are none.

    Raises:
        InputError: there is no such number, or several and none was named.
    """
    if number is None and len(numbers) == 1:
        return numbers[0]
    if number is None or number not in numbers:
        problem = f"{several} {', '.join(map(str, numbers))}" if numbers else none
        raise InputError(path, problem, remedies[0] if numbers else remedies[1])
    return number


def nothing_to_read(path: Path, what: str, health: HealthLog) -> InputError:
    """The error of data in which nothing can be read, with all reasons."""
    reasons = "; ".join(dict.fromkeys(finding.message for finding in health.findings))
    return InputError(path, f"holds {what} in which nothing can be read", reasons)
