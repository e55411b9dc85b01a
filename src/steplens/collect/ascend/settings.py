"""What is recorded on the device, and how CANN is told: the data mask, the AI Core metrics and the config values."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from enum import IntEnum, IntFlag

from steplens.collect.common.experimental_config import _ExperimentalConfig
from steplens.common.options import AiCMetrics, HostSystem, ProfilerLevel


class Data(IntFlag):
    """The bits of the mask that ``aclprofCreateConfig`` takes."""

    ACL_API = 0x1
    TASK_TIME = 0x2
    AICORE_METRICS = 0x4
    AICPU = 0x8
    L2CACHE = 0x10
    HCCL_TRACE = 0x20
    TRAINING_TRACE = 0x40
    MSPROFTX = 0x80
    RUNTIME_API = 0x100
    TASK_TIME_L0 = 0x800
    TASK_MEMORY = 0x1000
    OP_ATTR = 0x4000
    AICORE_SHAPE = 0x8_0000_0000


class ConfigType(IntEnum):
    """The first argument of ``aclprofSetConfig``, as far as it is used."""

    SYS_HARDWARE_MEM_FREQ = 3
    SYS_IO_FREQ = 5
    SYS_INTERCONNECTION_FREQ = 6
    HOST_SYS = 8


_NOTHING = Data(0)
_LEVEL0 = Data.TASK_TIME_L0 | Data.ACL_API
_LEVEL1 = Data.TASK_TIME | Data.ACL_API | Data.HCCL_TRACE | Data.AICORE_METRICS

LEVELS: dict[ProfilerLevel, Data] = {
    ProfilerLevel.Level_none: _NOTHING,
    ProfilerLevel.Level0: _LEVEL0,
    ProfilerLevel.Level1: _LEVEL1,
    ProfilerLevel.Level2: _LEVEL1 | Data.RUNTIME_API | Data.AICPU,
}

#: the third argument of ``aclprofCreateConfig``
METRICS: dict[AiCMetrics, int] = {
    AiCMetrics.ArithmeticUtilization: 0,
    AiCMetrics.PipeUtilization: 1,
    AiCMetrics.Memory: 2,
    AiCMetrics.MemoryL0: 3,
    AiCMetrics.ResourceConflictRatio: 4,
    AiCMetrics.MemoryUB: 5,
    AiCMetrics.L2Cache: 6,
    AiCMetrics.MemoryAccess: 8,
    AiCMetrics.AiCoreNone: 0xFF,
}


@dataclass(frozen=True)
class DeviceOptions:
    """What to record on the device, in words that belong to no framework.

    Attributes:
        level: how much; None takes only ``data`` and what the other options add.
        metrics: AI Core counters.
        l2_cache: L2 cache hit rates.
        mstx: marks and ranges.
        memory: memory of operators, and samples of the device's memory.
        shapes: operator shapes at Level0, where the device reports none by itself.
        op_attr: operator attributes.
        sys_io: network card traffic.
        sys_interconnection: HCCS and PCIe traffic.
        host_sys: system data of the host.
        data: further bits of the mask.
        memory_hz: samples of the device's memory per second, 1 to 100.
    """

    level: ProfilerLevel | None = ProfilerLevel.Level0
    metrics: AiCMetrics = AiCMetrics.AiCoreNone
    l2_cache: bool = False
    mstx: bool = False
    memory: bool = False
    shapes: bool = False
    op_attr: bool = False
    sys_io: bool = False
    sys_interconnection: bool = False
    host_sys: tuple[HostSystem, ...] = ()
    data: Data = _NOTHING
    memory_hz: int = 50

    @classmethod
    def of(cls, experimental: _ExperimentalConfig, *, profile_memory: bool, record_shapes: bool) -> DeviceOptions:
        """The options that a profiler object was given."""
        return cls(
            level=experimental.profiler_level,
            metrics=experimental.aic_metrics,
            l2_cache=experimental.l2_cache,
            mstx=experimental.mstx or experimental.msprof_tx,
            memory=profile_memory,
            shapes=record_shapes,
            op_attr=experimental.op_attr,
            sys_io=experimental.sys_io,
            sys_interconnection=experimental.sys_interconnection,
            host_sys=tuple(experimental.host_sys),
        )


@dataclass(frozen=True)
class Plan:
    """What CANN is told.

    Attributes:
        mask: the last argument of ``aclprofCreateConfig``.
        metrics: its third.
        configs: the arguments of every ``aclprofSetConfig``, in order.
        dropped: options that this CANN does not offer, for the user.
    """

    mask: Data
    metrics: int
    configs: tuple[tuple[ConfigType, str], ...]
    dropped: tuple[str, ...]


def plan_recording(options: DeviceOptions, supports: Callable[[str], bool]) -> Plan:
    """Translate options for CANN.

    Args:
        options: what to record.
        supports: whether this CANN has a feature; only asked when an option depends on it.
    """
    dropped: list[str] = []
    mask = options.data if options.level is None else options.data | LEVELS[options.level]
    metrics = options.metrics
    if metrics is not AiCMetrics.AiCoreNone:
        mask |= Data.AICORE_METRICS
    if metrics is AiCMetrics.MemoryAccess and not supports("MemoryAccess"):
        metrics = AiCMetrics.PipeUtilization
        dropped.append("aic_metrics MemoryAccess (PipeUtilization is recorded)")
    for wanted, bit in ((options.l2_cache, Data.L2CACHE), (options.mstx, Data.MSPROFTX), (options.memory, Data.TASK_MEMORY)):
        if wanted:
            mask |= bit
    shapes = options.shapes and options.level is ProfilerLevel.Level0
    for is_asked, feature, bit, text in (
        (options.op_attr, "ATTR", Data.OP_ATTR, "op_attr"),
        (shapes, "AICORE_SHAPE", Data.AICORE_SHAPE, "shapes of device operators at Level0"),
    ):
        if is_asked and supports(feature):
            mask |= bit
        elif is_asked:
            dropped.append(text)
    configs: list[tuple[ConfigType, str]] = []
    if options.memory:
        configs.append((ConfigType.SYS_HARDWARE_MEM_FREQ, str(options.memory_hz)))
    if options.host_sys:
        configs.append((ConfigType.HOST_SYS, ",".join(item.value for item in options.host_sys)))
    if options.sys_io:
        configs.append((ConfigType.SYS_IO_FREQ, "100"))
    if options.sys_interconnection:
        configs.append((ConfigType.SYS_INTERCONNECTION_FREQ, "50"))
    return Plan(mask, METRICS[metrics], tuple(configs), tuple(dropped))
