"""The parameters of ``mindspore.Profiler``: r2.2 and r2.4, their defaults, what they need, and what becomes of a wrong one."""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from steplens.collect.mindspore.interfaces.names import ProfilerLevel

R2_2 = "r2.2"
R2_4 = "r2.4"

_DEFAULT_PATH = "data"
_PATH_VARIABLE = "MS_DIAGNOSTIC_DATA_PATH"
_TIMELINE_LIMIT_MB = 500
#: what is collected of a device that this machine does not have; accepted, checked and without effect on a CPU
_DEVICE_ONLY = {
    "profile_communication", "parallel_strategy", "aicore_metrics", "l2_cache", "sync_enable", "hbm_ddr", "pcie",
    "profile_framework", "profiler_level",
}  # fmt: skip


@dataclass(frozen=True)
class Parameter:
    """One keyword.

    Attributes:
        default: its default in r2.4.
        default_2_2: its default in r2.2.
        accepts: whether a value is right; a wrong one is reset to the default with a warning.
        expected: what is right, in words that follow "should be".
        contracts: the releases that have it.
        needs_op_time: whether it has no effect without ``op_time``.
    """

    default: Any
    default_2_2: Any
    accepts: Callable[[Any, str], bool]
    expected: str
    contracts: tuple[str, ...] = (R2_2, R2_4)
    needs_op_time: bool = False


def _is_bool(value: Any, contract: str) -> bool:
    return isinstance(value, bool)


def _is_metrics(value: Any, contract: str) -> bool:
    return type(value) is int and -1 <= value <= (5 if contract == R2_2 else 6)


def _is_framework(value: Any, contract: str) -> bool:
    return value is None or value in (("all", "time", "memory") if contract == R2_2 else ("all", "time"))


def _flag_parameter(default: bool, default_2_2: bool | None = None, **more: Any) -> Parameter:
    return Parameter(default, default if default_2_2 is None else default_2_2, _is_bool, "True or False", **more)


def _is_types(value: Any, contract: str) -> bool:
    return isinstance(value, str) or (isinstance(value, (list, tuple)) and all(isinstance(item, str) for item in value))


_NEW = (R2_4,)

PARAMETERS: dict[str, Parameter] = {
    "output_path": Parameter(None, None, lambda value, _: value is None or isinstance(value, str), "a path"),
    "op_time": _flag_parameter(True),
    "profile_communication": _flag_parameter(False, needs_op_time=True),
    "profile_memory": _flag_parameter(False, needs_op_time=True),
    "parallel_strategy": _flag_parameter(False, True),
    "start_profile": _flag_parameter(True),
    "aicore_metrics": Parameter(0, 0, _is_metrics, "a number of a group of metrics, -1 to 5 (r2.4: 6)", needs_op_time=True),
    "l2_cache": _flag_parameter(False),
    "sync_enable": _flag_parameter(True),
    "data_process": _flag_parameter(False, True),
    "timeline_limit": Parameter(
        _TIMELINE_LIMIT_MB, _TIMELINE_LIMIT_MB, lambda value, _: type(value) is int and value > 0, "a number of MB above 0",
        needs_op_time=True,
    ),
    "profile_framework": Parameter(None, "all", _is_framework, "'all', 'time', None (r2.2: or 'memory')"),
    "profiler_level": Parameter(
        None, None, lambda value, _: value is None or isinstance(value, ProfilerLevel), "a ProfilerLevel", contracts=_NEW
    ),
    "hbm_ddr": _flag_parameter(False, contracts=_NEW),
    "pcie": _flag_parameter(False, contracts=_NEW),
    "with_stack": _flag_parameter(False, needs_op_time=True, contracts=_NEW),
    "data_simplification": _flag_parameter(True, contracts=_NEW),
}  # fmt: skip

SUBGRAPHS = ("all", "Default", "Gradients")
_TYPES = "types of operators: a list, or one text with commas"
#: of MindInsight's own profiler, which MindSpore's replaced; they say what the sums by operator count, and nothing else
LEGACY: dict[str, Parameter] = {
    "subgraph": Parameter("all", "all", lambda value, _: value in SUBGRAPHS, f"one of {', '.join(SUBGRAPHS)}"),
    "is_detail": _flag_parameter(True),
    "is_show_op_path": _flag_parameter(False),
    "optypes_to_deal": Parameter("", "", _is_types, _TYPES),
    "optypes_not_deal": Parameter(["Variable"], ["Variable"], _is_types, _TYPES),
}


def resolve_parameters(given: Mapping[str, Any], contract: str = R2_4) -> tuple[dict[str, Any], list[str]]:
    """The value of every parameter of a release, and what was wrong with the given ones, a sentence each.

    Args:
        given: the keywords of the call.
        contract: ``R2_2`` or ``R2_4``.

    Raises:
        TypeError: ``start_profile`` is neither True nor False; everything else is reset with a warning.
    """
    warnings: list[str] = []
    if not isinstance(given.get("start_profile", True), bool):
        raise TypeError(f"start_profile should be True or False, not {given['start_profile']!r}")
    known = {name: parameter for name, parameter in PARAMETERS.items() if contract in parameter.contracts}
    values = {name: parameter.default_2_2 if contract == R2_2 else parameter.default for name, parameter in known.items()}
    for name, value in given.items():
        parameter = known.get(name) or LEGACY.get(name)
        if parameter is None:
            warnings.append(f"{name} is an invalid param which doesn't work.")
        elif parameter.accepts(value, contract):
            values[name] = value
        else:
            fallback: Any = ProfilerLevel.Level0 if name == "profiler_level" else values.get(name, parameter.default)
            values[name] = fallback
            shown = f"'{_fallback_path()}'" if name == "output_path" else repr(fallback)
            warnings.append(f"{name} should be {parameter.expected}, not {value!r}; {shown} is used.")
    if legacy := [name for name in given if name in LEGACY]:
        warnings.append(
            f"{', '.join(legacy)}: deprecated parameters of MindInsight's profiler. They choose what cpu_op_type_info and "
            "cpu_op_detail_info count; everything is recorded."
        )
    values["output_path"] = values["output_path"] or _fallback_path()
    _adjust_values(values, given, known, warnings)
    return values, warnings


def without_effect(given: Mapping[str, Any], values: Mapping[str, Any]) -> list[str]:
    """The given parameters that ask for what a CPU does not have."""
    asked = [name for name in given if name in _DEVICE_ONLY and name in values]
    if values.get("with_stack"):
        # what it is asked for with
        asked = [name for name in asked if name != "profile_framework"]
    return sorted(name for name in asked if values[name] not in (False, None, -1) and values[name] != PARAMETERS[name].default)


def _adjust_values(values: dict[str, Any], given: Mapping[str, Any], known: Mapping[str, Parameter], warnings: list[str]) -> None:
    if not values["op_time"]:
        for name, parameter in known.items():
            if parameter.needs_op_time and name in given and values[name] != parameter.default:
                values[name] = parameter.default
                warnings.append(f"{name} has no effect when op_time is False.")
    level = values.get("profiler_level")
    if level in (ProfilerLevel.Level0, ProfilerLevel.Level1) and values["data_process"]:
        values["data_process"] = False
        warnings.append(f"data_process is set to False, because profiler_level is {level.value}.")
    if level is ProfilerLevel.Level0 and values["aicore_metrics"] != -1:
        if "aicore_metrics" in given:
            warnings.append("aicore_metrics is set to -1, because profiler_level is Level0.")
        values["aicore_metrics"] = -1
    if values.get("with_stack") and values["profile_framework"] is None:
        values["with_stack"] = False
        warnings.append("with_stack is set to False, because it needs profile_framework.")


def _fallback_path() -> str:
    return os.environ.get(_PATH_VARIABLE) or _DEFAULT_PATH
