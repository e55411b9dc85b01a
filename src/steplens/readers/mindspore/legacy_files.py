"""Raw device logs of the first Ascend generation: which files lie where, and their bytes.

Every kind is cut into slices by size, wherever a record happens to be, so slices are joined before anything is decoded.
"""

from __future__ import annotations

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO

from steplens.common.storage.files import open_file, size_of
from steplens.readers.mindspore.folders import list_children
from steplens.trace.health import ERROR, WARNING, HealthLog

#: kind -> name up to the device number; what ends in .done, .join or .zip is no data
_PREFIXES = {
    "hwts": r"hwts\.log\.data\.45\.dev\.[\w-]+",
    "training_trace": r"training_trace\.46\.dev\.[\w-]+",
    "ts_track": r"ts_track\.data\.\d+\.dev\.[\w-]+",
    "task_desc": r"Framework\.host\.vm\.task_desc_info",
    "graph_desc": r"Framework\.host\.vm\.graph_desc_info",
    "point": r"Framework\.host\.vm\.point",
    "ge_task_desc": r"Framework\.host\.ge\.task_desc_info",
    "ge_graph_desc": r"Framework\.host\.ge\.graph_desc_info",
    "aicpu": r"DATA_PREPROCESS\.dev\.AICPU",
    "aicpu_mi": r"DATA_PREPROCESS\.dev\.AICPUMI",
    "tdt": r"DATA_PREPROCESS\.dev\.TDT",
}
_NAMES = {kind: re.compile(rf"^{prefix}\.(\d{{1,9}})(?:\.slice_(\d{{1,9}}))?$") for kind, prefix in _PREFIXES.items()}

#: folders of a job that hold its logs
LOG_FOLDERS = ("data", "container")

#: how the ``profiler_info`` of results that steplens made of them names what they were made of
MADE_FROM_LOGS = "raw device logs"

_ENTRY_LIMIT = 100_000
#: a log of one device larger than this is read up to here
SIZE_LIMIT_BYTES = 4 << 30

#: counts of the device's 100 MHz clock
TICK_NS = 10
#: later counts and times are damage: their sums would leave 64 bits
LATEST_TICK = (1 << 61) // TICK_NS
LATEST_US = (1 << 61) // 1000


@dataclass(frozen=True)
class LegacyFiles:
    """The raw logs of a job.

    Attributes:
        path: the job's folder.
        slices: (kind, device) -> slices in order.
    """

    path: Path
    slices: Mapping[tuple[str, int], tuple[Path, ...]] = field(default_factory=dict)

    @property
    def devices(self) -> list[int]:
        """Numbers of the devices with any log."""
        return sorted({device for _, device in self.slices})

    def of(self, kind: str, device: int) -> tuple[Path, ...]:
        """The slices of one log; none where there is none."""
        return self.slices.get((kind, device), ())

    def files(self) -> list[Path]:
        """All of them."""
        return [path for slices in self.slices.values() for path in slices]


def find_logs(path: Path) -> LegacyFiles:
    """The raw logs in a job's folder, its ``data`` folder and its ``container/<device>/data`` folders."""
    slices_of: dict[tuple[str, int], list[tuple[int, Path]]] = {}
    containers = list_children(path / LOG_FOLDERS[1], _ENTRY_LIMIT)
    for folder in (path, path / LOG_FOLDERS[0], *(child / LOG_FOLDERS[0] for child in containers)):
        for file in list_children(folder, _ENTRY_LIMIT):
            for kind, pattern in _NAMES.items():
                name = pattern.match(file.name)
                if name and file.is_file():
                    slices_of.setdefault((kind, int(name[1])), []).append((int(name[2] or 0), file))
    ordered = {key: tuple(file for _, file in sorted(slices)) for key, slices in sorted(slices_of.items())}
    return LegacyFiles(path, ordered)


def join_slices(slices: Sequence[Path], health: HealthLog, unsafe: str | Sequence[str]) -> bytes:
    """The bytes of a log. Slices that are missing or unreadable are findings, and so is what exceeds the limit."""
    numbers = [int(number[1]) for path in slices if (number := re.search(r"\.slice_(\d+)$", path.name))]
    missing = len(set(range(max(numbers) + 1)) - set(numbers)) if numbers and max(numbers) < _ENTRY_LIMIT else 0
    if missing:
        message = f"slices of {_log_name(slices[0])} are missing, and with them what they recorded"
        health.add("missing_slices", ERROR, missing, message, unsafe)
    parts: list[bytes] = []
    left = SIZE_LIMIT_BYTES
    for path in slices:
        try:
            with open_file(path) as handle:
                part = read_up_to(handle, left)
                cut = len(part) == left and bool(handle.read(1))
        except OSError as error:
            health.add("unreadable_file", ERROR, 1, f"{path.name} cannot be read ({error.strerror or error})", unsafe)
            continue
        parts.append(part)
        left -= len(part)
        if cut or not left:
            message = f"{_log_name(path)} is larger than {SIZE_LIMIT_BYTES >> 30} GiB; what lies behind that was not read"
            health.add("oversized_file", WARNING, 1, message, unsafe)
            break
    return b"".join(parts)


def read_up_to(handle: IO[bytes], limit: int) -> bytes:
    """What a file holds, up to a limit, for which no room is made before it is needed."""
    return handle.read(min(limit, size_of(handle)))


def text_lines(slices: Sequence[Path], health: HealthLog, unsafe: str | Sequence[str]) -> list[str]:
    """The lines of a log of text that are not blank."""
    text = join_slices(slices, health, unsafe).decode("utf-8", errors="replace")
    return [line for line in text.split("\n") if line.strip()]


def text_records(slices: Sequence[Path], health: HealthLog, unsafe: str | Sequence[str]) -> list[str]:
    """The records of a log of text that NUL bytes (or line ends) separate."""
    text = join_slices(slices, health, unsafe).decode("utf-8", errors="replace")
    return [record for record in map(str.strip, re.split(r"[\0\n]", text)) if record]


def _log_name(path: Path) -> str:
    return re.sub(r"\.slice_\d+$", "", path.name)
