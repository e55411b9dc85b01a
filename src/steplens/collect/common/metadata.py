"""The JSON files beside the raw data: configuration, clocks, user metadata, process groups."""

from __future__ import annotations

import os
import platform
import re
import sys
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any

from steplens.collect.common import log
from steplens.collect.common.exception_text import plain_text
from steplens.common import json_text

#: Every text time of a result counts from a multiple of this many ns (about three months). It is Kineto's own
#: unit, so a base that we choose and one that Kineto chooses agree, and microseconds stay exact in a double.
BASE_UNIT_NS = 7_889_238 * 1_000_000_000

ENVIRONMENT_VARIABLES = (
    "ASCEND_GLOBAL_LOG_LEVEL",
    "HCCL_RDMA_TC",
    "HCCL_RDMA_SL",
    "ACLNN_CACHE_LIMIT",
    "HOST_CACHE_CAPACITY",
    "ASCEND_ENHANCE_ENABLE",
    "PYTORCH_NPU_ALLOC_CONF",
    "ASCEND_LAUNCH_BLOCKING",
    "HCCL_ALGO",
)

_CPUFREQ, _CPUFREQ_FILES = Path("/sys/devices/system/cpu"), "cpu[0-9]*/cpufreq/scaling_cur_freq"
_CPUINFO = Path("/proc/cpuinfo")
_CPUINFO_MHZ = re.compile(r"^cpu MHz\s*:\s*(\d+(?:\.\d+)?)\s*$", re.MULTILINE)

_TEXT_LIMIT = 4096
#: what processes are known by, by their numbers: whatever this one was forked from had another
_identities: dict[int, str] = {}
_TOTAL_LIMIT = 50 * 1024
_TRACE_ID_LIMIT = 1024


class UserMetadata:
    """What the user adds to a run: key and JSON value, within limits. A refused entry warns and is skipped."""

    def __init__(self) -> None:
        self.entries: dict[str, Any] = {}
        self._size = 0

    def add(self, key: Any, value: Any, *, is_json: bool = False) -> None:
        """Add an entry.

        Args:
            key: a string of at most 4096 characters.
            value: likewise; all entries together must stay below 50 KiB.
            is_json: the value is JSON text and is stored as what it means.
        """
        key, value = plain_text(key), plain_text(value)
        if key is None or value is None:
            log.warning("The key and the value of metadata must be strings, this metadata is skipped.")
            return
        if len(key) > _TEXT_LIMIT or len(value) > _TEXT_LIMIT:
            log.warning(f"The key and the value of metadata must not be longer than {_TEXT_LIMIT}, this metadata is skipped.")
            return
        size = sys.getsizeof(key) + sys.getsizeof(value)
        if self._size + size >= _TOTAL_LIMIT:
            log.warning(f"All metadata together must be smaller than {_TOTAL_LIMIT // 1024} KiB, metadata {key} is skipped.")
            return
        stored: Any = value
        if is_json:
            try:
                stored = json_text.loads(value)
            except ValueError as error:
                log.warning(f"The value of metadata {key} is not JSON ({error}), this metadata is skipped.")
                return
        if key in self.entries:
            log.warning(f"Metadata {key} is overwritten.")
        self.entries[key] = stored
        self._size += size


def trace_id(callback: Callable[[], str] | None) -> str:
    """The id of a window: what ``callback`` returns if that is a string of at most 1024 characters, else a new UUID."""
    if callback is not None:
        try:
            value = plain_text(callback())
            if value is not None and len(value) <= _TRACE_ID_LIMIT:
                return value
            log.warning(f"The trace id callback must return a string of at most {_TRACE_ID_LIMIT} characters, a UUID is used.")
        except Exception as exception:  # the boundary to the program's callback
            log.report_failure("custom_trace_id_callback", exception)
    return uuid.uuid4().hex.upper()


def base_time_ns(start_ns: int) -> int:
    """The time from which the text files of a window that starts at ``start_ns`` count."""
    return start_ns // BASE_UNIT_NS * BASE_UNIT_NS


def _distributed_module() -> Any:
    """``torch.distributed`` if the program uses it; never imported for its own sake."""
    distributed = sys.modules.get("torch.distributed")
    if distributed is None or not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed


def process_identity() -> str:
    """Stands for this process and no other one: its number comes again, in containers with every run."""
    return _identities.setdefault(os.getpid(), os.urandom(8).hex())


def process_rank() -> int:
    """The rank of this process: environment variable RANK, else the one of ``torch.distributed``, else -1."""
    text = os.environ.get("RANK", "")
    if text.isdecimal():
        return int(text)
    distributed = _distributed_module()
    return int(distributed.get_rank()) if distributed else -1


def world_size() -> int | None:
    """The number of ranks, if this process is one of several."""
    distributed = _distributed_module()
    if distributed:
        return int(distributed.get_world_size())
    text = os.environ.get("WORLD_SIZE", "")
    return int(text) if text.isdecimal() else None


def parallel_groups() -> dict[str, Any] | None:
    """The process groups of this rank by communicator name; None if the run is not distributed."""
    distributed = _distributed_module()
    if not distributed:
        return None
    c10d = distributed.distributed_c10d
    default = c10d._get_default_group()
    groups: dict[str, Any] = {}
    for group in list(c10d._world.pg_map):
        ranks = sorted(int(item) for item in distributed.get_process_group_ranks(group))
        description = getattr(group, "group_desc", "")
        named = description if description and description != "undefined" else str(group.group_name)
        groups[str(group.group_name)] = {
            "group_name": "default_group" if group is default else named,
            "group_rank": int(distributed.get_rank(group)),
            "global_ranks": ranks,
        }
    return groups


def distributed_info() -> dict[str, Any] | None:
    """What ``torch.profiler`` writes as ``distributedInfo`` into a trace, so that tools that look for it find it."""
    distributed = _distributed_module()
    if not distributed:
        return None
    info = {"backend": distributed.get_backend(), "rank": distributed.get_rank(), "world_size": distributed.get_world_size()}
    c10d = distributed.distributed_c10d
    if hasattr(distributed, "get_pg_count"):
        info["pg_count"] = distributed.get_pg_count()
    if hasattr(c10d, "_get_all_pg_configs"):
        info["pg_config"] = c10d._get_all_pg_configs()
    return info


def window_metadata(user: UserMetadata, *, window_trace_id: str, start_ns: int) -> dict[str, Any]:
    """Content of ``profiler_metadata.json``."""
    content: dict[str, Any] = dict(user.entries)
    content["ENV_VARIABLES"] = {name: os.environ.get(name, "") for name in ENVIRONMENT_VARIABLES}
    groups = parallel_groups()
    if groups is not None:
        content["parallel_group_info"] = groups
    content["trace_id"] = window_trace_id
    content["base_time_ns"] = base_time_ns(start_ns)
    return content


def software_versions(cann_version: str) -> dict[str, str]:
    """Versions of everything a result may depend on, beside that of CANN; empty where something is not there."""
    # Not `import steplens`: its lazy names point at packages the collector must not depend on.
    version = sys.modules["steplens"].__version__
    torch = sys.modules.get("torch")
    torch_npu = sys.modules.get("torch_npu")
    return {
        "torch_npu_version": str(getattr(torch_npu, "__version__", "")),
        "cann_version": cann_version,
        "steplens_version": str(version),
        "torch_version": str(getattr(torch, "__version__", "")),
        "python_version": platform.python_version(),
    }


#: functions of ``torch.cpu`` -> instructions for which they answer
_FEATURES = {"_is_avx512_bf16_supported": "avx512_bf16", "_is_amx_tile_supported": "amx_bf16"}


def processor_info() -> dict[str, Any]:
    """The CPU as far as its speed depends on it: number of processors for this process, and special instructions."""
    count = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count()
    answers = getattr(sys.modules.get("torch"), "cpu", None)
    features = [feature for function, feature in _FEATURES.items() if _is_instruction_supported(getattr(answers, function, None))]
    return {"count": count, "features": features}


def clock_rates() -> dict[str, float]:
    """The present clock rates in MHz: of the fastest of the host's processors, which is one that works, and of the GPU in use.

    Source: cpufreq, else ``/proc/cpuinfo``, which on virtual machines says what the processor is rated at; for a GPU
    ``torch.cuda.clock_rate``, which needs NVIDIA's or AMD's library for Python. What cannot be read is left out.
    """
    rates = {}
    if processor_khz := [khz for path in _CPUFREQ.glob(_CPUFREQ_FILES) if (khz := _read_khz(path))]:
        rates["processor"] = max(processor_khz) / 1000
    elif processor_mhz := _CPUINFO_MHZ.findall(_read_text(_CPUINFO)):
        rates["processor"] = max(map(float, processor_mhz))
    cuda = getattr(sys.modules.get("torch"), "cuda", None)
    try:
        if cuda is not None and cuda.is_initialized():
            rates["ROCM" if sys.modules["torch"].version.hip else "CUDA"] = float(cuda.clock_rate())
    except Exception:  # the boundary to PyTorch: the library for Python is missing, or the driver says nothing
        return rates
    return rates


def _read_khz(path: Path) -> int:
    text = _read_text(path).strip()
    return int(text) if text.isdecimal() else 0


def _read_text(path: Path) -> str:
    try:
        return path.read_text()
    except (OSError, UnicodeDecodeError):
        return ""


def allocator_info() -> dict[str, str]:
    """What decides over the CPU's memory in this process: an allocator loaded before the C library's, and its threshold."""
    preloaded = [name for name in ("jemalloc", "tcmalloc", "mimalloc") if name in os.environ.get("LD_PRELOAD", "")]
    return {"preloaded": ",".join(preloaded), "mmap_threshold": os.environ.get("MALLOC_MMAP_THRESHOLD_", "")[:32]}


def _is_instruction_supported(function: Any) -> bool:
    try:
        return callable(function) and bool(function())
    except Exception:  # the boundary to PyTorch
        return False
