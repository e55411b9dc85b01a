"""CANN's data of the device beside Kineto's of the host: what steplens itself records on a machine with an NPU."""

from __future__ import annotations

from pathlib import Path

import polars as pl

from steplens.common.errors import InputError
from steplens.readers.ascend.capture import ascend_raw
from steplens.readers.ascend.prof_directory import find_prof
from steplens.trace.health import ERROR, KERNEL_TIMES, OPERATOR_DEVICE_TIMES, STEP_DEVICE_TIMES, HealthLog

#: findings about a host that ``FRAMEWORK/`` would describe, and about files that the reader of the host checks itself
_OF_THE_HOST = frozenset({"no_framework_data", "missing_profiler_info", "damaged_side_file"})
#: what only the device's half says; the rest of ``meta`` is that of the run
_OF_THE_MACHINE = ["hostname", "host_uid", "chip", "device_ids", "device_info", "cann_version", "torch_npu_version"]


def read_device(path: Path, health: HealthLog, *, allow_msprof: bool = False) -> dict[str, pl.DataFrame]:
    """The raw tables of the device; none when there is no device data, or when CANN has not exported it.

    Launch points are as CANN recorded them: nothing tells Kineto's operators how they reached a task queue.

    Args:
        path: the run directory.
        health: gets what is missing or damaged.
        allow_msprof: whether CANN's ``msprof`` may be run on device data that was not exported.
    """
    prof_directories = find_prof(path)
    if not prof_directories:
        return {}
    log = HealthLog()
    try:
        tables = ascend_raw.read(path, log, allow_msprof=allow_msprof)
    except InputError:
        message = (
            f"the device data of {prof_directories[0].path.name} has not been exported, so there are no device tasks; run "
            f"`msprof --export=on --output={prof_directories[0].path}` where CANN is installed, then analyse again"
        )
        log.add("no_device_data", ERROR, 1, message, (KERNEL_TIMES, STEP_DEVICE_TIMES, OPERATOR_DEVICE_TIMES))
        tables = {}
    health.extend(finding for finding in log.findings if finding.check not in _OF_THE_HOST)
    if "meta" in tables:
        tables["meta"] = tables["meta"].filter(pl.col("key").is_in(_OF_THE_MACHINE))
    return tables
