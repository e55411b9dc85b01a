"""``profiler_config.json``: its fields, their defaults and what happens to a wrong one. A wrong one never raises."""

from __future__ import annotations

import dataclasses
import difflib
from collections.abc import Iterable, Mapping
from typing import Any

from steplens import options
from steplens.collect.dynamic.plan import NEVER, NEXT, Plan
from steplens.options import ProfilerActivity

TEMPLATE: dict[str, Any] = {
    "activities": ["CPU", "NPU"],
    "prof_dir": "./",
    "analyse": False,
    "async_mode": False,
    "record_shapes": False,
    "profile_memory": False,
    "with_stack": False,
    "with_flops": False,
    "with_modules": False,
    "active": 1,
    "warmup": 0,
    "start_step": NEVER,
    "is_rank": False,
    "rank_list": [],
    "experimental_config": {
        "profiler_level": "Level0",
        "aic_metrics": "AiCoreNone",
        "l2_cache": False,
        "op_attr": False,
        "gc_detect_threshold": None,
        "data_simplification": True,
        "record_op_args": False,
        "export_type": ["text"],
        "msprof_tx": False,
        "mstx": False,
        "host_sys": [],
        "mstx_domain_include": [],
        "mstx_domain_exclude": [],
        "sys_io": False,
        "sys_interconnection": False,
    },
}

#: fields that a file may have although a new one does not
_LIMITS = ("max_seconds", "max_bytes", "max_overhead")
_OPTIONAL = ("metadata", *_LIMITS)
_RECORDED = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")


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
        limits: max_seconds, max_bytes, max_overhead, as far as they are given.
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

    def boolean(self, name: str) -> bool:
        default = bool(TEMPLATE[name])
        value = self._document.get(name, default)
        if isinstance(value, bool):
            return value
        self.warnings.append(f"Parameter {name} is of boolean type, reset it to {default}.")
        return default

    def integer(self, name: str, least: int) -> int:
        default = TEMPLATE[name]
        value = self._document.get(name, default)
        if isinstance(value, int) and not isinstance(value, bool) and value >= least:
            return value
        self.warnings.append(f"Parameter {name} should be an integer not smaller than {least}, reset it to {default}.")
        return int(default)

    def text(self, name: str) -> str:
        value = self._document.get(name, TEMPLATE[name])
        if isinstance(value, str) and value and "\0" not in value:
            return value
        self.warnings.append(f"Parameter {name} should be a path, reset it to {TEMPLATE[name]}.")
        return str(TEMPLATE[name])

    def activities(self) -> tuple[ProfilerActivity, ...] | None:
        value = self._document.get("activities", TEMPLATE["activities"])
        given = value if isinstance(value, list) else [value]
        chosen = []
        for item in given:
            activity = options.to_activity(item) if isinstance(item, str) else None
            if activity is None:
                self.warnings.append(f"Parameter activities holds {item!r}, which is no activity and is left out.")
            else:
                chosen.append(activity)
        # Both, as in a new file: everything there is, so that the file of an NPU also serves another machine.
        if not chosen or {ProfilerActivity.CPU, ProfilerActivity.NPU} <= set(chosen):
            return None
        return tuple(dict.fromkeys(chosen))

    def ranks(self) -> list[int]:
        value = self._document.get("rank_list", [])
        if not isinstance(value, list):
            self.warnings.append("Parameter rank_list should be a list of ranks, reset it to an empty list.")
            return []
        ranks = [item for item in value if isinstance(item, int) and not isinstance(item, bool) and item >= 0]
        if len(ranks) != len(value):
            self.warnings.append("Parameter rank_list holds something else than ranks, which is left out.")
        return ranks

    def mapping(self, name: str) -> Mapping[str, Any] | None:
        value = self._document.get(name)
        if value is None or isinstance(value, dict):
            return value
        self.warnings.append(f"Parameter {name} should be an object, it is left out.")
        return None

    def limits(self) -> Mapping[str, Any]:
        found = {}
        for option in options.options(options.PROFILE):
            if option.name in _LIMITS and option.name in self._document:
                found[option.name], warning = option.accept(self._document[option.name])
                self.warnings += [warning] if warning else []
        return found

    def experimental(self) -> Mapping[str, Any] | None:
        given = self.mapping("experimental_config")
        if given is None:
            return None
        names = [option.name for option in options.options(options.EXPERIMENTAL)]
        self.unknown(given, names, "experimental_config.")
        known = {name: given[name] for name in given if name in names}
        values, warnings = options.resolve_experimental(known)
        self.warnings += warnings
        return {name: values[name] for name in known}

    def unknown(self, given: Iterable[str], known: Iterable[str], prefix: str = "") -> None:
        names = list(known)
        for name in given:
            if name not in names:
                near = difflib.get_close_matches(name[:64], names, n=1)
                hint = f" (is {prefix}{near[0]} meant?)" if near else ""
                self.warnings.append(f"There is no parameter {prefix}{name[:64]}{hint}, it is ignored.")


def read(document: Mapping[str, Any], rank: int) -> Plan:
    """What a configuration asks of a rank.

    Args:
        document: the content of a configuration file.
        rank: of this process; -1 when it is no distributed job, where it counts as rank 0.
    """
    reader = _Reader(document)
    active = reader.integer("active", 1)
    warmup = reader.integer("warmup", 0)
    start_step = reader.integer("start_step", NEXT)
    analyse, async_mode = reader.boolean("analyse"), reader.boolean("async_mode")
    only_some, ranks = reader.boolean("is_rank"), reader.ranks()
    refusal = ""
    if only_some:
        own = max(rank, 0)
        if own not in ranks:
            refusal = f"rank {own} is not in rank_list" if ranks else "is_rank is true and rank_list is empty"
        elif analyse and not async_mode:
            analyse = False
            reader.warnings.append("With is_rank the analysis needs async_mode, reset analyse to False.")
    settings = Settings(
        activities=reader.activities(),
        prof_dir=reader.text("prof_dir"),
        analyse=analyse,
        async_mode=async_mode,
        recorded={name: reader.boolean(name) for name in _RECORDED},
        active=active,
        warmup=warmup,
        experimental=reader.experimental(),
        metadata=reader.mapping("metadata") or {},
        limits=reader.limits(),
    )
    reader.unknown(document, (*TEMPLATE, *_OPTIONAL))
    return Plan(start_step, active + warmup, warmup, refusal, tuple(reader.warnings), settings)
