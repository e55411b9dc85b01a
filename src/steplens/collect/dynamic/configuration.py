"""``profiler_config.json``: its fields, their defaults and what happens to a wrong one. A wrong one never raises."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from steplens.collect.dynamic.plan import Plan
from steplens.common import options
from steplens.common.options import ProfilerActivity

#: the extended options that a new file has, in its order
_EXPERIMENTAL = (
    "profiler_level",
    "aic_metrics",
    "l2_cache",
    "op_attr",
    "gc_detect_threshold",
    "data_simplification",
    "record_op_args",
    "export_type",
    "msprof_tx",
    "mstx",
    "host_sys",
    "mstx_domain_include",
    "mstx_domain_exclude",
    "sys_io",
    "sys_interconnection",
)


def _default_document() -> dict[str, Any]:
    """A new file: everything at its default."""
    values = {option.name: option.default for option in options.options_of_group(options.CONFIGURATION)}
    experimental, _ = options.resolve_experimental({})
    return {
        "activities": ["CPU", "NPU"],
        **{name: values.pop(name) for name in ("prof_dir", "analyse", "async_mode")},
        **dict.fromkeys(options.SWITCHES, False),
        **values,
        "experimental_config": {
            name: options.find_option(options.EXPERIMENTAL, name).plain(experimental[name]) for name in _EXPERIMENTAL
        },
    }


TEMPLATE: dict[str, Any] = _default_document()

#: fields that a file may have although a new one does not
_OPTIONAL = ("metadata", *options.LIMITS, "stack_sampling_hz")


@dataclasses.dataclass(frozen=True)
class Settings:
    """What to record, checked.

    Attributes:
        activities: what to observe; None for everything that this machine has.
        prof_dir: folder for the run directory.
        analyse: analyse the window.
        async_mode: analyse it beside the training.
        recorded: record_shapes, profile_memory, with_stack, with_flops, with_modules.
        active: steps to record.
        warmup: steps to warm up before that.
        experimental: arguments of ``_ExperimentalConfig``; None without any.
        metadata: what the user adds to the run.
        limits: max_seconds, max_bytes, max_overhead and stack_sampling_hz, as far as they are given.
    """

    activities: tuple[ProfilerActivity, ...] | None
    prof_dir: str
    analyse: bool
    async_mode: bool
    recorded: Mapping[str, bool]
    active: int
    warmup: int
    experimental: Mapping[str, Any] | None
    metadata: Mapping[str, Any]
    limits: Mapping[str, Any]


class _Reader:
    """Reads fields one by one and collects what was wrong with them."""

    def __init__(self, document: Mapping[str, Any]) -> None:
        self._document = document
        self.warnings: list[str] = []

    def values(self, group: str, names: Iterable[str] | None = None) -> dict[str, Any]:
        """The values of options of a group, or of some of it by name; a missing field takes the default."""
        accepted = {}
        for option in options.options_of_group(group):
            if names is None or option.name in names:
                accepted[option.name], warning = option.accept(self._document.get(option.name, option.default))
                self.warnings += [warning] if warning else []
        return accepted

    def activities(self) -> tuple[ProfilerActivity, ...] | None:
        value = self._document.get("activities", TEMPLATE["activities"])
        activities = []
        for item in value if isinstance(value, list) else [value]:
            activity = options.to_activity(item) if isinstance(item, str) else None
            if activity is None:
                self.warnings.append(f"Parameter activities holds {item!r}, which is no activity and is left out.")
            else:
                activities.append(activity)
        # Both, as in a new file: everything there is, so that the file of an NPU also serves another machine.
        if not activities or {ProfilerActivity.CPU, ProfilerActivity.NPU} <= set(activities):
            return None
        return tuple(dict.fromkeys(activities))

    def mapping(self, name: str) -> Mapping[str, Any] | None:
        value = self._document.get(name)
        if value is None or isinstance(value, dict):
            return value
        self.warnings.append(f"Parameter {name} should be an object, it is left out.")
        return None

    def experimental(self) -> Mapping[str, Any] | None:
        fields = self.mapping("experimental_config")
        if fields is None:
            return None
        self.unknown(fields, [option.name for option in options.options_of_group(options.EXPERIMENTAL)], "experimental_config.")
        arguments = options.select_options(options.EXPERIMENTAL, fields)
        values, warnings = options.resolve_experimental(arguments)
        self.warnings += warnings
        return {name: values[name] for name in arguments}

    def unknown(self, fields: Iterable[str], parameters: Iterable[str], prefix: str = "") -> None:
        """Name the fields that are no parameters."""
        names = list(parameters)
        for name in fields:
            if name not in names:
                near = difflib.get_close_matches(name[:64], names, n=1)
                hint = f" (is {prefix}{near[0]} meant?)" if near else ""
                self.warnings.append(f"There is no parameter {prefix}{name[:64]}{hint}, it is ignored.")


def read_plan(document: Mapping[str, Any], rank: int) -> Plan:
    """What a configuration asks of a rank.

    Args:
        document: the content of a configuration file.
        rank: of this process; -1 when it is no distributed job, where it counts as rank 0.
    """
    reader = _Reader(document)
    values = reader.values(options.CONFIGURATION)
    analyse, ranks = values["analyse"], values["rank_list"]
    refusal = ""
    if values["is_rank"]:
        own_rank = max(rank, 0)
        if own_rank not in ranks:
            refusal = f"rank {own_rank} is not in rank_list" if ranks else "is_rank is true and rank_list is empty"
        elif analyse and not values["async_mode"]:
            analyse = False
            reader.warnings.append("With is_rank the analysis needs async_mode, reset analyse to False.")
    settings = Settings(
        activities=reader.activities(),
        prof_dir=values["prof_dir"],
        analyse=analyse,
        async_mode=values["async_mode"],
        recorded=reader.values(options.PROFILE, options.SWITCHES),
        active=values["active"],
        warmup=values["warmup"],
        experimental=reader.experimental(),
        metadata=reader.mapping("metadata") or {},
        limits=reader.values(options.PROFILE, [name for name in _OPTIONAL if name in document]),
    )
    reader.unknown(document, (*TEMPLATE, *_OPTIONAL))
    steps = settings.active + settings.warmup
    return Plan(values["start_step"], steps, settings.warmup, refusal, tuple(reader.warnings), settings)
