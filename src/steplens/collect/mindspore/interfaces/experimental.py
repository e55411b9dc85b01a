"""``mindspore.profiler._ExperimentalConfig``: what is asked of an Ascend device, checked."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from steplens.collect.common import log
from steplens.collect.mindspore.interfaces.names import AicoreMetrics, ExportType, HostSystem, ProfilerLevel


class _ExperimentalConfig:
    """Options of the newer profiler. A wrong value is reset to its default with a warning.

    Args:
        profiler_level: how much a device records.
        aic_metrics: which counters of an AI Core are read.
        l2_cache: record the L2 cache.
        mstx: record marks of ``steplens.mindspore.mstx``.
        data_simplification: remove raw data once the results are there.
        export_type: families of results; text by default.
        mstx_domain_include: only marks of these domains.
        mstx_domain_exclude: no marks of these domains; without effect beside the former.
        sys_io: record network cards.
        sys_interconnection: record links between devices.
        host_sys: what to sample of the host.
    """

    def __init__(
        self,
        profiler_level: ProfilerLevel = ProfilerLevel.Level0,
        aic_metrics: AicoreMetrics = AicoreMetrics.AiCoreNone,
        l2_cache: bool = False,
        mstx: bool = False,
        data_simplification: bool = True,
        export_type: Sequence[ExportType] | None = None,
        mstx_domain_include: Sequence[str] | None = None,
        mstx_domain_exclude: Sequence[str] | None = None,
        sys_io: bool = False,
        sys_interconnection: bool = False,
        host_sys: Sequence[HostSystem] | None = None,
    ) -> None:
        self.profiler_level = _member_or_default("profiler_level", profiler_level, ProfilerLevel, ProfilerLevel.Level0)
        self.aic_metrics = _member_or_default("aic_metrics", aic_metrics, AicoreMetrics, AicoreMetrics.AiCoreNone)
        self.l2_cache = boolean_or_default("l2_cache", l2_cache, False)
        self.mstx = boolean_or_default("mstx", mstx, False)
        self.data_simplification = boolean_or_default("data_simplification", data_simplification, True)
        self.export_type = _member_list("export_type", export_type, ExportType) or [ExportType.Text]
        self.mstx_domain_include = _member_list("mstx_domain_include", mstx_domain_include, str)
        self.mstx_domain_exclude = _member_list("mstx_domain_exclude", mstx_domain_exclude, str)
        self.sys_io = boolean_or_default("sys_io", sys_io, False)
        self.sys_interconnection = boolean_or_default("sys_interconnection", sys_interconnection, False)
        self.host_sys = _member_list("host_sys", host_sys, HostSystem)
        self._adjust_options()

    def _adjust_options(self) -> None:
        if self.profiler_level is ProfilerLevel.LevelNone and not self.mstx:
            log.warning("profiler_level LevelNone needs mstx=True; Level0 is used.")
            self.profiler_level = ProfilerLevel.Level0
        if self.profiler_level in (ProfilerLevel.LevelNone, ProfilerLevel.Level0):
            if self.aic_metrics is not AicoreMetrics.AiCoreNone:
                log.warning(f"aic_metrics is set to AiCoreNone, because profiler_level is {self.profiler_level.value}.")
            self.aic_metrics = AicoreMetrics.AiCoreNone
        elif self.aic_metrics is AicoreMetrics.AiCoreNone:
            self.aic_metrics = AicoreMetrics.PipeUtilization
        if (self.mstx_domain_include or self.mstx_domain_exclude) and not self.mstx:
            log.warning("mstx_domain_include and mstx_domain_exclude have no effect without mstx=True.")
            self.mstx_domain_include, self.mstx_domain_exclude = [], []
        if self.mstx_domain_include and self.mstx_domain_exclude:
            log.warning("mstx_domain_exclude has no effect beside mstx_domain_include.")
            self.mstx_domain_exclude = []

    def wants(self, domain: str) -> bool:
        """Whether marks of a domain are recorded."""
        if not self.mstx:
            return False
        if self.mstx_domain_include:
            return domain in self.mstx_domain_include
        return domain not in self.mstx_domain_exclude

    def record(self) -> dict[str, Any]:
        """The options as JSON values."""
        return {
            name: [getattr(item, "value", item) for item in value] if isinstance(value, list) else getattr(value, "value", value)
            for name, value in vars(self).items()
        }


def boolean_or_default(name: str, value: Any, default: bool) -> bool:
    """A truth value, or its default with a warning."""
    if isinstance(value, bool):
        return value
    log.warning(f"{name} should be True or False, not {value!r}; {default} is used.")
    return default


def _member_or_default(name: str, value: Any, kind: type[Any], default: Any) -> Any:
    if isinstance(value, kind):
        return value
    log.warning(f"{name} should be a {kind.__name__}, not {value!r}; {default.value} is used.")
    return default


def _member_list(name: str, value: Any, kind: type[Any]) -> list[Any]:
    if value is None:
        return []
    items = list(value) if isinstance(value, (list, tuple)) else [value]
    good = [item for item in items if isinstance(item, kind)]
    if len(good) < len(items):
        log.warning(f"{name} should be a list of {kind.__name__}, not {value!r}; what is none is left out.")
    return good
