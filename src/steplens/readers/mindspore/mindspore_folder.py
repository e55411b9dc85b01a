"""A flat ``profiler/`` directory of MindSpore r2.x or older: which files of which rank it holds.

All ranks of a host may share one directory; the number in a file's name tells them apart.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path

from steplens.readers.mindspore import minddata, mindspore_host
from steplens.readers.mindspore.folders import children

_NUMBER = r"(?P<rank>\d{1,9})"
_FAMILIES = {
    "profiler_info": rf"profiler_info_{_NUMBER}\.json",
    "step_trace": rf"step_trace_raw_{_NUMBER}_detail_time\.csv",
    "step_points": rf"step_trace_point_info(?:_{_NUMBER})?\.json",
    "operator_types": rf"aicore_intermediate_{_NUMBER}_type\.csv",
    "operator_details": rf"aicore_intermediate_{_NUMBER}_detail\.csv",
    "aicpu": rf"aicpu_intermediate_{_NUMBER}\.csv",
    "framework": rf"framework_raw_{_NUMBER}\.csv",
    "timeline_data": rf"output_timeline_data_{_NUMBER}\.txt",
    "scheduler_text": rf"output_format_data_hwts_{_NUMBER}\.txt",
    "aicpu_text": rf"output_data_preprocess_aicpu_{_NUMBER}\.txt",
    "flops": rf"flops_{_NUMBER}\.txt",
    "flops_summary": rf"flops_summary_{_NUMBER}\.json",
    "cluster": rf"ascend_cluster_analyse_(?P<mode>.+)_(?P<stages>\d{{1,6}})_(?P<size>\d{{1,9}})_{_NUMBER}\.csv",
    "collectives": rf"hccl_raw_{_NUMBER}\.csv",
    "strategy": rf"parallel_strategy_{_NUMBER}\.json",
    "dynamic_shape": rf"dynamic_shape_info_{_NUMBER}\.json",
    "operator_memory": rf"operator_memory_{_NUMBER}\.csv",
    "memory_plan": rf"memory_usage_{_NUMBER}\.pb",
    "ascend_timeline": rf"ascend_timeline_display_{_NUMBER}\.json",
    "gpu_timeline": rf"gpu_timeline_display_{_NUMBER}\.json",
    "cpu_timeline": rf"cpu_timeline_display_{_NUMBER}\.json",
    "cpu_operators": rf"cpu_op_execute_timestamp_{_NUMBER}\.txt",
    "cpu_framework": rf"cpu_framework_{_NUMBER}\.txt",
    "cpu_memory": rf"cpu_ms_memory_record_{_NUMBER}\.txt",
    "cpu_details": rf"cpu_op_detail_info_{_NUMBER}\.csv",
    "cpu_types": rf"cpu_op_type_info_{_NUMBER}\.csv",
    "gpu_operators": rf"gpu_op_execute_timestamp_{_NUMBER}\.txt",
    "gpu_activity": rf"activity_execute_timestamp_{_NUMBER}\.txt",
    "gpu_details": rf"gpu_op_detail_info_{_NUMBER}\.csv",
    "gpu_types": rf"gpu_op_type_info_{_NUMBER}\.csv",
    "gpu_activity_details": rf"gpu_activity_data_{_NUMBER}\.csv",
    "gpu_start": rf"start_time_{_NUMBER}\.txt",
    "gpu_steps": rf"step_trace_profiling_{_NUMBER}\.txt",
    "dataset": rf"dataset_{_NUMBER}\.csv",
    "host_info": rf"host_info_{_NUMBER}\.csv",
}
_NAMES = {family: re.compile(f"^{pattern}$") for family, pattern in _FAMILIES.items()}

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
        own = [file for (_, number), file in self.files.items() if rank in (None, number)]
        data = minddata.sources(self.path, rank) if self.data_ranks else []
        return sorted({*own, *self.whole.values(), *data})


def open_folder(path: Path) -> MindSporeFolder:
    """List a directory; false ``ranks`` where it is no ``profiler/`` directory."""
    entries = [*children(path, _ENTRY_LIMIT), *children(path / HOST_INFO, _ENTRY_LIMIT)]
    files: dict[tuple[str, int], Path] = {}
    whole: dict[str, Path] = {}
    parallel: dict[int, tuple[str, int, int]] = {}
    for entry in entries:
        for family, pattern in _NAMES.items():
            name = pattern.match(entry.name)
            if name is None or not entry.is_file():
                continue
            if name["rank"] is None:
                whole[family] = entry
                continue
            rank = int(name["rank"])
            files[family, rank] = entry
            if family == "cluster":
                parallel[rank] = (name["mode"], int(name["stages"]), int(name["size"]))
    hosts = tuple(rank for (family, rank), file in files.items() if family == HOST_INFO and mindspore_host.is_host_file(file))
    return MindSporeFolder(path, files, whole, tuple(minddata.ranks(path)), parallel, hosts)
