"""What the side files of a run say about it: ``profiler_info[_<rank>].json`` and ``profiler_metadata.json``."""

from __future__ import annotations

import re
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from steplens.common import rundir
from steplens.common.listings import list_folder
from steplens.readers.common.side_files import as_object, read_json
from steplens.trace.health import HOST_AGAINST_DEVICE, RUN_OPTIONS, HealthLog
from steplens.trace.recorded_options import RecordedOptions, options_of

#: of ``profiler_info``, what readers of Ascend's data put into ``meta``
META_KEYS = ("config", "start_info", "end_info", "cann_version", "torch_npu_version")

#: the group is the rank
_INFO_NAME = re.compile(rf"^{rundir.INFO_PREFIX}(?:_(\d+))?\.json$")


@dataclass(frozen=True)
class RunInfo:
    """The content of ``profiler_info``.

    Attributes:
        values: what it holds; empty where it is missing or damaged.
        named_rank: the rank in the name of the file; None where it has none.
    """

    values: Mapping[str, Any] = field(default_factory=dict)
    named_rank: int | None = None

    @property
    def rank(self) -> int | None:
        """The rank that it says, else that in its name; None where both are missing."""
        rank = self.values.get("rank_id")
        return rank if type(rank) is int and rank >= 0 else self.named_rank

    @property
    def options(self) -> RecordedOptions:
        """How the run was recorded."""
        return options_of(self.values.get("config"))

    def select(self, keys: Iterable[str]) -> dict[str, Any]:
        """Those of some values that it has, in the order of the keys."""
        return {key: self.values[key] for key in keys if key in self.values}


def info_files(run_directory: Path) -> list[Path]:
    """Every ``profiler_info*.json`` of a run directory, whatever stands behind that, by name."""
    try:
        paths = list_folder(run_directory).entry_paths
    except OSError:
        return []
    return [path for path in paths if path.name.startswith(rundir.INFO_PREFIX) and path.suffix == ".json"]


def ranked_info_files(run_directory: Path) -> list[Path]:
    """The files ``profiler_info.json`` and ``profiler_info_<rank>.json`` of a run directory, by name."""
    try:
        return [path for path in list_folder(run_directory).entry_paths if _INFO_NAME.match(path.name) and path.is_file()]
    except OSError:
        return []


def side_files(run_directory: Path) -> list[Path]:
    """The files that are read here, as far as a run directory of Ascend's profiler has them."""
    metadata = run_directory / rundir.METADATA_FILE
    return [*([metadata] if metadata.is_file() else []), *ranked_info_files(run_directory)]


def read_info(files: Sequence[Path], health: HealthLog, severity: str, *, with_clock: bool = False) -> RunInfo:
    """The first of some ``profiler_info`` files; a finding where there is none or it is damaged.

    Args:
        files: see ``info_files`` and ``ranked_info_files``.
        health: gets the findings.
        severity: of a file that is missing.
        with_clock: whether it tells the clock of the data as well.
    """
    values = read_json(files[0], health) if files else {}
    if files and not values:
        message = f"nothing can be read from {files[0].name}, so the options of the run are unknown"
        health.add(
            "missing_profiler_info", severity, 1, message, (RUN_OPTIONS, HOST_AGAINST_DEVICE) if with_clock else RUN_OPTIONS
        )
    elif not values and with_clock:
        message = "profiler_info_<rank>.json is missing, which holds the options and the clock of the run"
        health.add("missing_profiler_info", severity, 1, message, (RUN_OPTIONS, HOST_AGAINST_DEVICE))
    elif not values:
        message = "profiler_info.json is missing, so the options of the run are unknown"
        health.add("missing_profiler_info", severity, 1, message, RUN_OPTIONS)
    name = _INFO_NAME.match(files[0].name) if files else None
    return RunInfo(values, int(name[1]) if name and name[1] else None)


def read_metadata(run_directory: Path, health: HealthLog | None = None) -> dict[str, Any]:
    """What ``profiler_metadata.json`` holds; empty where it is missing or damaged, the latter is a finding."""
    return dict(read_json(run_directory / rundir.METADATA_FILE, health))


def world_size_of(metadata: Mapping[str, Any]) -> int | None:
    """The number of ranks of the job, as it was recorded."""
    distributed = metadata.get("distributed_args")
    size = distributed.get("world_size") if isinstance(distributed, dict) else None
    return size if type(size) is int else None


def default_group_size(metadata: Mapping[str, Any]) -> int | None:
    """The number of ranks of the group that all ranks of a job are in."""
    groups = list_groups(metadata.get("parallel_group_info"))
    return next((size for _, name, size in groups if name == "default_group"), None)


def list_groups(groups: Any) -> Iterator[tuple[str, Any, int]]:
    """Id, name and number of ranks of each group of ``parallel_group_info``."""
    for key, group in as_object(groups).items():
        if isinstance(group, dict) and isinstance(group.get("global_ranks"), list):
            yield key, group.get("group_name"), len(group["global_ranks"])
