"""The extended options of a profiler."""

from __future__ import annotations

import warnings
from typing import Any

from steplens import options
from steplens.collect.common import log

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
        given = {name: value for name, value in locals().items() if name != "self" and value is not _UNSET}
        values, messages = options.resolve_experimental(given)
        self.profiler_level: options.ProfilerLevel = values["profiler_level"]
        self.aic_metrics: options.AiCMetrics = values["aic_metrics"]
        self.l2_cache: bool = values["l2_cache"]
        self.msprof_tx: bool = values["msprof_tx"]
        self.mstx: bool = values["mstx"]
        self.data_simplification: bool = values["data_simplification"]
        self.record_op_args: bool = values["record_op_args"]
        self.op_attr: bool = values["op_attr"]
        self.gc_detect_threshold: float | None = values["gc_detect_threshold"]
        self.export_type: list[options.ExportType] = values["export_type"]
        self.host_sys: list[options.HostSystem] = values["host_sys"]
        self.mstx_domain_include: list[str] = values["mstx_domain_include"]
        self.mstx_domain_exclude: list[str] = values["mstx_domain_exclude"]
        self.sys_io: bool = values["sys_io"]
        self.sys_interconnection: bool = values["sys_interconnection"]
        self.data_loader: bool = values["data_loader"]
        #: options that were asked for and that only an NPU can deliver
        self.needs_npu: list[str] = options.needs_npu(values, given)
        for message in messages:
            log.warning(message)
        if self.msprof_tx:
            warnings.warn("msprof_tx is deprecated, use mstx", FutureWarning, stacklevel=2)
        if self.gc_detect_threshold == 0:
            log.info("gc_detect_threshold is 0, all garbage collections are recorded.")

    def recorded(self) -> dict[str, Any]:
        """The values as ``profiler_info.json`` holds them."""
        return {
            "_profiler_level": self.profiler_level.value,
            "_aic_metrics": self.aic_metrics.value,
            "_l2_cache": self.l2_cache,
            "_msprof_tx": self.msprof_tx,
            "_mstx": self.mstx,
            "_data_simplification": self.data_simplification,
            "record_op_args": self.record_op_args,
            "_export_type": [item.value for item in self.export_type],
            "_host_sys": [item.value for item in self.host_sys],
            "_op_attr": self.op_attr,
            "_gc_detect_threshold": self.gc_detect_threshold,
            "_mstx_domain_include": self.mstx_domain_include,
            "_mstx_domain_exclude": self.mstx_domain_exclude,
            "_sys_io": self.sys_io,
            "_sys_interconnection": self.sys_interconnection,
            "_data_loader": self.data_loader,
        }
