"""A flat ``profiler/`` directory of MindSpore r2.x or older: which files of which rank it holds.

All ranks of a host may share one directory; the number in a file's name tells them apart.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from steplens.common.listings import remember_once
from steplens.formats.mindspore import FILES, pattern
from steplens.readers.mindspore import minddata, mindspore_host
from steplens.readers.mindspore.folders import list_children

_NAMES = {family: pattern(name) for family, name in FILES.items()}

#: files that other tools write under such names, or that say nothing without others
_WEAK = {"profiler_info", "gpu_start", "step_points", "dataset", "host_info"}
#: the records of the host, and the folder of r2.2 that they lie in
HOST_INFO = "host_info"

_ENTRY_LIMIT = 200_000


@dataclass(frozen=True)
class MindSporeFolder:
    """The files of a flat ``profiler/`` directory.

    Attributes:
        path: the directory.
        files: (family, rank) -> file.
        whole: family -> file of all ranks.
        data_ranks: ranks with files of a data pipeline.
        parallel: rank -> mode, stages and number of ranks, from the names of the cluster files.
        host_ranks: ranks with records of the host that have MindSpore's titles.
    """

    path: Path
    files: Mapping[tuple[str, int], Path] = field(default_factory=dict)
    whole: Mapping[str, Path] = field(default_factory=dict)
    data_ranks: tuple[int, ...] = ()
    parallel: Mapping[int, tuple[str, int, int]] = field(default_factory=dict)
    host_ranks: tuple[int, ...] = ()

    @property
    def ranks(self) -> list[int]:
        """Every rank with a file of its own."""
        return sorted({*self.result_ranks, *self.host_ranks})

    @property
    def result_ranks(self) -> list[int]:
        """The ranks with more than records of the host."""
        return sorted({rank for family, rank in self.files if family not in _WEAK} | set(self.data_ranks))

    def file(self, family: str, rank: int) -> Path | None:
        """One rank's file of a family, else that of all ranks; None where there is none."""
        return self.files.get((family, rank)) or self.whole.get(family)

    def of_rank(self, rank: int | None) -> list[Path]:
        """Every file that decides what is read of a rank (of all ranks when None)."""
        files = [file for (_, number), file in self.files.items() if rank in (None, number)]
        data = minddata.sources(self.path, rank) if self.data_ranks else []
        return sorted({*files, *self.whole.values(), *data})


def open_folder(path: Path) -> MindSporeFolder:
    """List a directory; false ``ranks`` where it is no ``profiler/`` directory."""
    # each of its ranks asks for it
    return remember_once(("profiler/", path), lambda: _sort_files(path))


def _sort_files(path: Path) -> MindSporeFolder:
    entries = [*list_children(path, _ENTRY_LIMIT), *list_children(path / HOST_INFO, _ENTRY_LIMIT)]
    files: dict[tuple[str, int], Path] = {}
    whole_files: dict[str, Path] = {}
    parallel: dict[int, tuple[str, int, int]] = {}
    for entry in entries:
        for family, expression in _NAMES.items():
            name = expression.match(entry.name)
            if name is None or not entry.is_file():
                continue
            if name["rank"] is None:
                whole_files[family] = entry
                continue
            rank = int(name["rank"])
            files[family, rank] = entry
            if family == "cluster":
                parallel[rank] = (name["mode"], int(name["stages"]), int(name["size"]))
    hosts = tuple(rank for (family, rank), file in files.items() if family == HOST_INFO and mindspore_host.is_host_file(file))
    return MindSporeFolder(path, files, whole_files, tuple(minddata.ranks(path)), parallel, hosts)
