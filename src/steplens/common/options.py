"""Every collection option in one table: its type, default, allowed values and what happens to a wrong value.

A wrong value never raises: it is reset and a warning says so. The command line builds its flags from
:data:`OPTIONS`, ``profiler_config.json`` gets its defaults from it, and :mod:`steplens.collect` reads its arguments
through :func:`resolve`. The signatures of the public calls are spelled out, for editors that complete them; a test
compares their names, order, types and defaults with the table. Rules that involve two options (``aic_metrics`` needs
a profiler level, ``mstx_domain_*`` need ``mstx``) are in :func:`resolve_experimental`, next to the table.
"""

from __future__ import annotations

import math
import os
import signal
from collections.abc import Callable, Iterable, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any


class _Text(str, Enum):
    """An enum whose members are the strings that files and configurations hold."""

    def __str__(self) -> str:
        return str(self.value)


class ProfilerActivity(Enum):
    """What to record: the framework on the host, or the tasks of a device."""

    CPU = 0
    CUDA = 1
    NPU = 2


class ProfilerLevel(_Text):
    """How much device data is collected and which result files it fills."""

    Level0 = "Level0"
    Level1 = "Level1"
    Level2 = "Level2"
    Level_none = "Level_none"


#: the levels as files hold them; those that record tasks of a device, and those that also measure its kernels
LEVEL0, LEVEL1, LEVEL2, LEVEL_NONE = (level.value for level in ProfilerLevel)
DEVICE_LEVELS = (LEVEL0, LEVEL1, LEVEL2)
DETAILED_LEVELS = (LEVEL1, LEVEL2)


class AiCMetrics(_Text):
    """Groups of AI Core counters of an NPU."""

    PipeUtilization = "ACL_AICORE_PIPE_UTILIZATION"
    ArithmeticUtilization = "ACL_AICORE_ARITHMETIC_UTILIZATION"
    Memory = "ACL_AICORE_MEMORY_BANDWIDTH"
    MemoryL0 = "ACL_AICORE_L0B_AND_WIDTH"
    MemoryUB = "ACL_AICORE_MEMORY_UB"
    ResourceConflictRatio = "ACL_AICORE_RESOURCE_CONFLICT_RATIO"
    L2Cache = "ACL_AICORE_L2_CACHE"
    MemoryAccess = "ACL_AICORE_MEMORY_ACCESS"
    AiCoreNone = "ACL_AICORE_NONE"


class ExportType(_Text):
    """Form of the results: text files (and the database), or the database alone."""

    Text = "text"
    Db = "db"


class HostSystem(_Text):
    """System data of the host."""

    CPU = "cpu"
    MEM = "mem"
    DISK = "disk"
    NETWORK = "network"
    OSRT = "osrt"
    NUMA = "numa"


def supported_profiler_level() -> set[ProfilerLevel]:
    """The values of ``profiler_level``."""
    return set(ProfilerLevel)


def supported_ai_core_metrics() -> set[AiCMetrics]:
    """The values of ``aic_metrics``."""
    return set(AiCMetrics)


def supported_export_type() -> set[ExportType]:
    """The values of ``export_type``."""
    return set(ExportType)


#: What :meth:`Option.accept` gives back: the value to use, and a warning that is empty when the value was fine.
Accepted = tuple[Any, str]


@dataclass(frozen=True, slots=True)
class Option:
    """One collection option.

    Attributes:
        name: the keyword argument of the Python interface.
        group: what takes it: a call (:data:`PROFILE`, :data:`SCHEDULE`, :data:`EXPERIMENTAL`, :data:`HANDLER`,
            :data:`BLACK_BOX`), or the file ``profiler_config.json`` (:data:`CONFIGURATION`) beside the options of calls.
        type: ``bool``, ``int``, ``float``, ``str``, ``enum``, ``enums`` (a list of them), ``strings``, ``ints`` or ``callable``.
        default: the value without a setting.
        help: one sentence for users.
        check: takes the option and a value, returns the value to use and a warning.
        choices: allowed strings of ``enum`` and ``enums``.
        needs_npu: the option is accepted everywhere, but only an NPU delivers its data.
        cli: whether it makes sense on a command line; callables do not.
        least: the smallest value, of a number that has one.
    """

    name: str
    group: str
    type: str
    default: Any
    help: str
    check: Callable[[Option, Any], Accepted]
    choices: tuple[str, ...] = ()
    needs_npu: bool = False
    cli: bool = True
    least: int = 0

    def accept(self, value: Any) -> Accepted:
        """The value to use for ``value``, and a warning that is empty when nothing was reset."""
        return self.check(self, value)

    def plain(self, value: Any) -> Any:
        """An accepted value as configuration files hold it: members of enums as the strings of :attr:`choices`."""
        if isinstance(value, list):
            return [self.plain(item) for item in value]
        if isinstance(value, _Text):
            return value.name if value.name in self.choices else value.value
        return value


def _to_bool(option: Option, value: Any) -> Accepted:
    if isinstance(value, bool):
        return value, ""
    return option.default, f"Parameter {option.name} is of boolean type, reset it to {option.default}."


def _number_of_steps(option: Option, value: Any) -> Accepted:
    return (value, "") if isinstance(value, bool) and value >= option.least else _to_count(option, value)


def _to_integer(option: Option, value: Any) -> Accepted:
    if isinstance(value, int):
        return value, ""
    return option.default, f"Parameter {option.name} should be an integer, reset it to {option.default}."


def _keep_any(option: Option, value: Any) -> Accepted:
    return value, ""


def _callable(option: Option, value: Any) -> Accepted:
    if value is None or callable(value):
        return value, ""
    return None, f"Parameter {option.name} should be callable, reset it to None."


def _optional_boolean(option: Option, value: Any) -> Accepted:
    return (None, "") if value is None else _to_bool(option, value)


def _optional_text(option: Option, value: Any) -> Accepted:
    if value is None or isinstance(value, str):
        return value or None, ""
    return None, f"Parameter {option.name} should be a string, reset it to {option.default}."


def _optional_path(option: Option, value: Any) -> Accepted:
    return _optional_text(option, os.fspath(value) if isinstance(value, os.PathLike) else value)


def _to_folder(option: Option, value: Any) -> Accepted:
    value = os.fspath(value) if isinstance(value, os.PathLike) else value
    if isinstance(value, str) and value and "\0" not in value:
        return value, ""
    return option.default, f"Parameter {option.name} should be a path, reset it to {option.default}."


def _enum_member(kind: type[_Text], value: Any) -> _Text | None:
    """The member of ``kind`` that ``value`` means: a member, its string, or its name as configuration files have it."""
    try:
        return kind(value)
    except ValueError:
        return kind.__members__.get(value) if isinstance(value, str) else None


def _to_member(option: Option, value: Any) -> Accepted:
    member = _enum_member(type(option.default), value)
    if member is not None:
        return member, ""
    return option.default, f"Invalid parameter {option.name}, reset it to {option.default.name}."


def _enum_members(kind: type[_Text], value: Any) -> list[Any]:
    """The members of ``kind`` in a list or a set, each once; None among them where something is none of them."""
    items = value if isinstance(value, list | tuple | set | frozenset) else [None]
    return list(dict.fromkeys(_enum_member(kind, item) for item in items))


def _export_types(option: Option, value: Any) -> Accepted:
    if value is None:
        return [ExportType.Text], ""
    members = _enum_members(ExportType, [value] if isinstance(value, str) else value)
    if not members or None in members:
        return [ExportType.Text], f"Invalid parameter {option.name}, reset it to {ExportType.Text.value}."
    return members, ""


def _host_systems(option: Option, value: Any) -> Accepted:
    members = _enum_members(HostSystem, [] if value is None else value)
    return ([], f"Invalid parameter {option.name}, reset it to an empty list.") if None in members else (members, "")


def _is_finite(value: Any, kinds: Any = int | float) -> bool:
    return isinstance(value, kinds) and not isinstance(value, bool) and math.isfinite(value)


def _to_threshold(option: Option, value: Any) -> Accepted:
    if value is None or (_is_finite(value) and value >= 0):
        return (None if value is None else float(value)), ""
    return None, f"Parameter {option.name} should be a number not smaller than 0, reset it to None."


def _to_count(option: Option, value: Any) -> Accepted:
    if isinstance(value, int) and not isinstance(value, bool) and value >= option.least:
        return value, ""
    message = f"Parameter {option.name} should be an integer not smaller than {option.least}, reset it to {option.default}."
    return option.default, message


def _to_rate(option: Option, value: Any) -> Accepted:
    if _is_finite(value) and (value == 0 or LEAST_SAMPLING_HZ <= value <= MOST_SAMPLING_HZ):
        return float(value), ""
    bounds = f"{LEAST_SAMPLING_HZ:g} to {MOST_SAMPLING_HZ:g}"
    return option.default, f"Parameter {option.name} should be 0 or a number from {bounds}, reset it to {option.default:g}."


def _to_ranks(option: Option, value: Any) -> Accepted:
    if not isinstance(value, list):
        return [], f"Parameter {option.name} should be a list of ranks, reset it to an empty list."
    ranks = [item for item in value if isinstance(item, int) and not isinstance(item, bool) and item >= 0]
    if len(ranks) == len(value):
        return ranks, ""
    return ranks, f"Parameter {option.name} holds something else than ranks, which is left out."


def _to_limit(option: Option, value: Any) -> Accepted:
    kind, kinds, text = (int, int, "an integer") if option.type == "int" else (float, int | float, "a number")
    if value is None or (_is_finite(value, kinds) and value > 0):
        return (None if value is None else kind(value)), ""
    return None, f"Parameter {option.name} should be {text} larger than 0, reset it to None."


def _to_signal(option: Option, value: Any) -> Accepted:
    if value is None:
        return None, ""
    try:
        return signal.Signals(value), ""
    except ValueError:
        return option.default, f"Parameter {option.name} should be a signal or None, reset it to {option.default.name}."


def _to_domains(option: Option, value: Any) -> Accepted:
    if value is None:
        return [], ""
    if not isinstance(value, list) or not all(isinstance(item, str) for item in value):
        return [], f"Parameter {option.name} should be a list of strings, reset it to an empty list."
    return list(dict.fromkeys(value)), ""


def _to_activities(option: Option, value: Any) -> Accepted:
    if value is None:
        return None, ""
    try:
        items = list(value)
    except TypeError:
        items = [None]
    members = [to_activity(item) for item in items]
    if not members or None in members:
        return None, f"Invalid parameter {option.name}, reset it to all supported activities."
    return list(dict.fromkeys(members)), ""


def to_activity(value: Any) -> ProfilerActivity | None:
    """The activity that ``value`` means: a member of ours or of ``torch.profiler``, or its name; None if it is neither."""
    if isinstance(value, ProfilerActivity):
        return value
    # Recognised by name, because importing torch here would cost every command line a second.
    name = getattr(value, "name", None) if type(value).__name__ == "ProfilerActivity" else value
    return ProfilerActivity.__members__.get(name.removeprefix("ProfilerActivity.")) if isinstance(name, str) else None


#: how often a second stacks may be sampled: more often each look would last a good part of the time between two
LEAST_SAMPLING_HZ, MOST_SAMPLING_HZ = 0.1, 1000.0

PROFILE = "profile"
SCHEDULE = "schedule"
EXPERIMENTAL = "experimental_config"
HANDLER = "trace_handler"
BLACK_BOX = "black_box"
CONFIGURATION = "configuration"

#: the values of enums as configuration files and command lines have them: by name, or as they are
_ACTIVITIES, _LEVELS, _METRICS = (tuple(kind.__members__) for kind in (ProfilerActivity, ProfilerLevel, AiCMetrics))
_TYPES, _SYSTEMS = (tuple(str(member) for member in kind) for kind in (ExportType, HostSystem))

#: sentences for users that leave no room for the rest of a line
_HELP_METRICS = "AI Core counters to collect; needs Level1 or Level2."
_HELP_SAMPLING = "Sample the Python stacks of all threads so many times a second; 0 samples none."
_HELP_GARBAGE = "Record garbage collections longer than this many ms; 0 records all."

#: Every collection option. In a group the order is that of the Python signature.
OPTIONS: tuple[Option, ...] = (
    Option("activities", PROFILE, "enums", None, "What to record; all by default.", _to_activities, _ACTIVITIES),
    Option("schedule", PROFILE, "callable", None, "Maps a step to an action; always records by default.", _callable, cli=False),
    Option("on_trace_ready", PROFILE, "callable", None, "Called when a window has been recorded.", _callable, cli=False),
    Option("record_shapes", PROFILE, "bool", False, "Record shapes and types of operator inputs.", _to_bool),
    Option("profile_memory", PROFILE, "bool", False, "Record every allocation and release of tensor memory.", _to_bool),
    Option("with_stack", PROFILE, "bool", False, "Record Python calls and operator call stacks.", _to_bool),
    Option("with_flops", PROFILE, "bool", False, "Estimate the floating point operations of operators.", _to_bool),
    Option("with_modules", PROFILE, "bool", False, "Record which nn.Module an operator was called from.", _to_bool),
    Option("experimental_config", PROFILE, "callable", None, "Extended options.", _keep_any, cli=False),
    Option("execution_trace_observer", PROFILE, "callable", None, "Observer started and stopped with us.", _keep_any, cli=False),
    Option("custom_trace_id_callback", PROFILE, "callable", None, "Returns the trace id of a window.", _callable, cli=False),
    Option("use_cuda", PROFILE, "bool", None, "Deprecated: use activities.", _optional_boolean, cli=False),
    Option("max_seconds", PROFILE, "float", None, "End a window before it records longer than this.", _to_limit),
    Option("max_bytes", PROFILE, "int", None, "End a window before its trace becomes larger than about this.", _to_limit),
    Option("max_overhead", PROFILE, "float", None, "End a window whose steps take this share longer, such as 0.2.", _to_limit),
    Option("show_plan", PROFILE, "bool", False, "Print which steps are recorded and how large that becomes.", _to_bool),
    Option("stack_sampling_hz", PROFILE, "float", 0.0, _HELP_SAMPLING, _to_rate),
    Option("wait", SCHEDULE, "int", 0, "Steps to skip at the start of every cycle.", _number_of_steps),
    Option("active", SCHEDULE, "int", 1, "Steps to record in every cycle.", _number_of_steps, least=1),
    Option("warmup", SCHEDULE, "int", 0, "Steps to warm up before recording; 1 is recommended.", _number_of_steps),
    Option("repeat", SCHEDULE, "int", 0, "Number of cycles; 0 repeats until the end.", _number_of_steps),
    Option("skip_first", SCHEDULE, "int", 0, "Steps to skip before the first cycle.", _number_of_steps),
    Option("skip_first_wait", SCHEDULE, "int", 0, "1: the first cycle begins without its wait.", _to_integer),
    Option("profiler_level", EXPERIMENTAL, "enum", ProfilerLevel.Level0, "How much to collect and report.", _to_member, _LEVELS),
    Option("aic_metrics", EXPERIMENTAL, "enum", AiCMetrics.PipeUtilization, _HELP_METRICS, _to_member, _METRICS, needs_npu=True),
    Option("l2_cache", EXPERIMENTAL, "bool", False, "Collect L2 cache hit rates.", _to_bool, needs_npu=True),
    Option("msprof_tx", EXPERIMENTAL, "bool", False, "Deprecated: use mstx.", _to_bool),
    Option("data_simplification", EXPERIMENTAL, "bool", True, "Delete after analysis what can be made again.", _to_bool),
    Option("record_op_args", EXPERIMENTAL, "bool", False, "Record operator arguments for tuning.", _to_bool, needs_npu=True),
    Option("op_attr", EXPERIMENTAL, "bool", False, "Collect operator attributes; needs the db export.", _to_bool, needs_npu=True),
    Option("gc_detect_threshold", EXPERIMENTAL, "float", None, _HELP_GARBAGE, _to_threshold),
    Option("export_type", EXPERIMENTAL, "enums", ExportType.Text, "Form of the results.", _export_types, _TYPES),
    Option("host_sys", EXPERIMENTAL, "enums", None, "Host system data.", _host_systems, _SYSTEMS),
    Option("mstx", EXPERIMENTAL, "bool", False, "Record mstx marks and ranges.", _to_bool),
    Option("mstx_domain_include", EXPERIMENTAL, "strings", None, "Only these mstx domains.", _to_domains),
    Option("mstx_domain_exclude", EXPERIMENTAL, "strings", None, "Not these mstx domains.", _to_domains),
    Option("sys_io", EXPERIMENTAL, "bool", False, "Collect network card traffic.", _to_bool, needs_npu=True),
    Option("sys_interconnection", EXPERIMENTAL, "bool", False, "Collect HCCS and PCIe traffic.", _to_bool, needs_npu=True),
    Option("data_loader", EXPERIMENTAL, "bool", True, "Record the stages of every DataLoader.", _to_bool),
    Option("directory", BLACK_BOX, "str", "black_box", "Folder for what is written.", _to_folder, cli=False),
    Option("keep_steps", BLACK_BOX, "int", 8, "Steps before an event written with it, at least.", _to_count, cli=False, least=1),
    Option("record_operators", BLACK_BOX, "bool", True, "Keep their operators too.", _to_bool, cli=False),
    Option("on_slow_step", BLACK_BOX, "bool", True, "Write when a step is slower than its history says.", _to_bool, cli=False),
    Option("on_exception", BLACK_BOX, "bool", True, "Write when an exception ends the training.", _to_bool, cli=False),
    Option("on_nan_loss", BLACK_BOX, "bool", False, "Write when the loss given to step() is not finite.", _to_bool, cli=False),
    Option("on_signal", BLACK_BOX, "int", signal.SIGUSR2, "Write when the process gets this signal.", _to_signal, cli=False),
    Option("max_captures", BLACK_BOX, "int", 10, "Write no more often than this.", _to_count, cli=False, least=1),
    Option("analyse_flag", BLACK_BOX, "bool", True, "Analyse what is written, beside the training.", _to_bool, cli=False),
    Option("dir_name", HANDLER, "str", None, "Folder for run directories.", _optional_path),
    Option("worker_name", HANDLER, "str", None, "First part of a run directory's name; host name by default.", _optional_text),
    Option("analyse_flag", HANDLER, "bool", True, "Analyse a window as soon as it is recorded.", _to_bool),
    Option("async_mode", HANDLER, "bool", False, "Analyse beside the training instead of making it wait.", _to_bool),
    Option("local_dir", HANDLER, "str", None, "Write here first, then move to the folder or URL of the results.", _optional_path),
    Option("quiet", HANDLER, "bool", False, "Say only what is wrong.", _to_bool, cli=False),
    Option("prof_dir", CONFIGURATION, "str", "./", "Folder for the run directories.", _to_folder, cli=False),
    Option("analyse", CONFIGURATION, "bool", False, "Analyse when recorded; training waits.", _to_bool, cli=False),
    Option("async_mode", CONFIGURATION, "bool", False, "Analyse beside the training.", _to_bool, cli=False),
    Option("active", CONFIGURATION, "int", 1, "Steps to record.", _to_count, cli=False, least=1),
    Option("warmup", CONFIGURATION, "int", 0, "Steps to warm up before that.", _to_count, cli=False),
    Option("start_step", CONFIGURATION, "int", 0, "First step; 0 is never, -1 at once.", _to_count, cli=False, least=-1),
    Option("is_rank", CONFIGURATION, "bool", False, "Only the ranks of rank_list take part.", _to_bool, cli=False),
    Option("rank_list", CONFIGURATION, "ints", [], "The ranks that take part.", _to_ranks, cli=False),
)

#: the switches of ``profile``, which other calls take as well
SWITCHES = ("record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules")
#: the limits of a window of ``profile``
LIMITS = ("max_seconds", "max_bytes", "max_overhead")


def options_of_group(group: str) -> tuple[Option, ...]:
    """The options of one group, in the order of the Python signature."""
    return tuple(option for option in OPTIONS if option.group == group)


def find_option(group: str, name: str) -> Option:
    """One option of the table."""
    return next(option for option in options_of_group(group) if option.name == name)


def call_arguments(variables: Mapping[str, Any]) -> dict[str, Any]:
    """The arguments of the call whose first statement asks for its ``locals()``."""
    return {name: value for name, value in variables.items() if name != "self"}


def select_options(group: str, values: Mapping[str, Any]) -> dict[str, Any]:
    """Those of ``values`` that are options of a group, in the order of the table."""
    return {option.name: values[option.name] for option in options_of_group(group) if option.name in values}


def resolve_options(group: str, arguments: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Accept the values of one group.

    Args:
        group: a group of :data:`OPTIONS`.
        arguments: values by name; a missing one takes its default.

    Returns:
        every option of the group with the value to use, and the warnings.

    Raises:
        TypeError: a name is not an option of the group.
    """
    unknown = set(arguments) - {option.name for option in options_of_group(group)}
    if unknown:
        raise TypeError(f"{group} has no option {', '.join(sorted(unknown))}")
    accepted = {option.name: option.accept(arguments.get(option.name, option.default)) for option in options_of_group(group)}
    return {name: value for name, (value, _) in accepted.items()}, [warning for _, warning in accepted.values() if warning]


def resolve_experimental(arguments: Mapping[str, Any]) -> tuple[dict[str, Any], list[str]]:
    """Accept the values of ``_ExperimentalConfig``, including the rules that involve two options.

    A missing value takes its default without a warning, also where a rule changes it: the default
    ``aic_metrics`` becomes ``AiCoreNone`` below Level1 without a word.
    """
    values, warnings = resolve_options(EXPERIMENTAL, arguments)
    level = values["profiler_level"]
    if level in (ProfilerLevel.Level0, ProfilerLevel.Level_none) and values["aic_metrics"] is not AiCMetrics.AiCoreNone:
        values["aic_metrics"] = AiCMetrics.AiCoreNone
        if "aic_metrics" in arguments:
            warnings.append(f"Parameter aic_metrics needs Level1 or Level2, not {level}, reset it to AiCoreNone.")
    if level is ProfilerLevel.Level_none:
        values["mstx"] = True
    if values["op_attr"] and ExportType.Db not in values["export_type"]:
        values["op_attr"] = False
        warnings.append("Parameter op_attr needs the db export type, reset it to False.")
    include, exclude = values["mstx_domain_include"], values["mstx_domain_exclude"]
    if (include or exclude) and not (values["mstx"] or values["msprof_tx"]):
        values["mstx_domain_include"] = values["mstx_domain_exclude"] = []
        warnings.append("Parameters mstx_domain_include and mstx_domain_exclude need mstx, reset them to empty lists.")
    elif include and exclude:
        values["mstx_domain_exclude"] = []
        warnings.append("Parameters mstx_domain_include and mstx_domain_exclude are both set, mstx_domain_exclude is ignored.")
    return values, warnings


def needs_npu(values: Mapping[str, Any], names: Iterable[str]) -> list[str]:
    """Names of the options that were asked for and that only an NPU can deliver.

    Args:
        values: the resolved values of ``_ExperimentalConfig``.
        names: what the caller set; ``aic_metrics`` has a default that asks for nothing on other devices.
    """
    asked = set(names)
    return [
        option.name
        for option in options_of_group(EXPERIMENTAL)
        if option.needs_npu and option.name in asked and values[option.name] not in (False, [], None, AiCMetrics.AiCoreNone)
    ]
