"""The extended options of a profiler."""

from __future__ import annotations

import warnings
from typing import Any

from steplens.collect.common import log
from steplens.common import options

_UNSET: Any = object()


class _ExperimentalConfig:
    """Extended options. Wrong values are reset with a warning; an option no device here can serve is reported.

    Args:
        profiler_level: how much to collect and report.
        aic_metrics: AI Core counters, with Level1 or Level2.
        l2_cache: L2 cache hit rates.
        msprof_tx: deprecated name of ``mstx``.
        data_simplification: delete after analysis what can be made again; raw data stays (docs/exports.md).
        record_op_args: operator arguments for tuning tools.
        op_attr: operator attributes, with the db export.
        gc_detect_threshold: garbage collections longer than this many ms; 0 records all.
        export_type: form of the results, one or a list.
        host_sys: host system data.
        mstx: mstx marks and ranges.
        mstx_domain_include: only these mstx domains.
        mstx_domain_exclude: not these mstx domains.
        sys_io: network card traffic.
        sys_interconnection: HCCS and PCIe traffic.
        data_loader: the stages of every ``DataLoader``, see docs/data_pipeline.md.
    """

    # in the order in which profiler_info.json has them
    profiler_level: options.ProfilerLevel
    aic_metrics: options.AiCMetrics
    l2_cache: bool
    msprof_tx: bool
    mstx: bool
    data_simplification: bool
    record_op_args: bool
    export_type: list[options.ExportType]
    host_sys: list[options.HostSystem]
    op_attr: bool
    gc_detect_threshold: float | None
    mstx_domain_include: list[str]
    mstx_domain_exclude: list[str]
    sys_io: bool
    sys_interconnection: bool
    data_loader: bool

    # Positions agree among the versions of the original interface up to msprof_tx only; the rest are keywords.
    def __init__(
        self,
        profiler_level: options.ProfilerLevel | str = _UNSET,
        aic_metrics: options.AiCMetrics | str = _UNSET,
        l2_cache: bool = _UNSET,
        msprof_tx: bool = _UNSET,
        *,
        data_simplification: bool = _UNSET,
        record_op_args: bool = _UNSET,
        op_attr: bool = _UNSET,
        gc_detect_threshold: float | None = _UNSET,
        export_type: options.ExportType | str | list[options.ExportType | str] | None = _UNSET,
        host_sys: list[options.HostSystem | str] | None = _UNSET,
        mstx: bool = _UNSET,
        mstx_domain_include: list[str] | None = _UNSET,
        mstx_domain_exclude: list[str] | None = _UNSET,
        sys_io: bool = _UNSET,
        sys_interconnection: bool = _UNSET,
        data_loader: bool = _UNSET,
    ) -> None:
        arguments = {name: value for name, value in options.call_arguments(locals()).items() if value is not _UNSET}
        values, messages = options.resolve_experimental(arguments)
        vars(self).update(values)
        #: options that were asked for and that only an NPU can deliver
        self.needs_npu: list[str] = options.needs_npu(values, arguments)
        for message in messages:
            log.warning(message)
        if self.msprof_tx:
            warnings.warn("msprof_tx is deprecated, use mstx", FutureWarning, stacklevel=2)
        if self.gc_detect_threshold == 0:
            log.info("gc_detect_threshold is 0, all garbage collections are recorded.")

    def recorded(self) -> dict[str, Any]:
        """The values as ``profiler_info.json`` holds them."""
        names = _ExperimentalConfig.__annotations__
        return {name if name == "record_op_args" else f"_{name}": getattr(self, name) for name in names}
