"""Options of the table ``steplens.common.options`` as flags of the command line: flag name = argument name."""

from __future__ import annotations

import enum
import inspect
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import typer

from steplens.common import options

#: the heading of options that only an NPU delivers data for
NPU_PANEL = "On an NPU"
#: what stands for the value of an option
_PLACEHOLDERS = {
    "max_seconds": "SECONDS",
    "max_bytes": "BYTES",
    "max_overhead": "SHARE",
    "stack_sampling_hz": "HZ",
    "gc_detect_threshold": "MS",
    "local_dir": "FOLDER",
    "mstx_domain_include": "DOMAIN",
    "mstx_domain_exclude": "DOMAIN",
}
_PLACEHOLDERS_BY_TYPE = {"int": "N", "float": "NUMBER", "str": "NAME", "enum": "NAME", "enums": "NAME", "strings": "NAME"}

_SCALARS: Mapping[str, type] = {"bool": bool, "int": int, "float": float, "str": str}


def command_parameter(name: str, annotation: Any, default: Any) -> inspect.Parameter:
    """A parameter of a function that typer makes a command from."""
    return inspect.Parameter(name, inspect.Parameter.KEYWORD_ONLY, default=default, annotation=annotation)


def optional_parameter(name: str, kind: Any, panel: str, text: str, **settings: Any) -> inspect.Parameter:
    """An option of a command that is None unless it was given, under a heading of the help."""
    return command_parameter(name, kind | None, typer.Option(None, help=text, rich_help_panel=panel, **settings))


def generated_command(function: Callable[..., None], parameters: Sequence[inspect.Parameter]) -> Callable[..., None]:
    """A function of any keywords as typer reads it: with these parameters."""
    function.__signature__ = inspect.Signature(parameters)  # type: ignore[attr-defined]
    function.__annotations__ = {parameter.name: parameter.annotation for parameter in parameters}
    return function


def option_parameter(option: options.Option, panel: str, default: Any = None, *, both: bool = False) -> inspect.Parameter:
    """One option as a parameter that is None unless it was given, so that defaults stay those of the table.

    Args:
        option: of the table.
        panel: the heading under which the help shows it.
        default: the default of this command, if it has one of its own.
        both: a switch can also be set to off.
    """
    flag = "--" + option.name.replace("_", "-")
    names = [f"{flag}/--no-{flag[2:]}"] if option.default is True or (both and option.type == "bool") else [flag]
    annotation = _option_annotation(option)
    panel = NPU_PANEL if option.needs_npu else panel
    text = option.help
    if option.choices:
        text = f"{text} Values: {', '.join(option.choices)}."
    if default is None and option.default not in (None, False):
        text += f" [default: {_default_text(option)}]"
    text = text.replace("[", r"\[")
    metavar = _PLACEHOLDERS.get(option.name) or _PLACEHOLDERS_BY_TYPE.get(option.type)
    info = typer.Option(default, *names, metavar=metavar, help=text, rich_help_panel=panel, show_default=default is not None)
    return command_parameter(option.name, annotation if default is not None else annotation | None, info)


def _option_annotation(option: options.Option) -> Any:
    """The type typer parses the option with."""
    make: Any = enum.Enum  # the functional form with a computed name, which type checkers do not follow
    choices = {choice: choice for choice in option.choices}
    item: Any = make(option.name, choices, type=str) if choices else _SCALARS.get(option.type, str)
    return list.__class_getitem__(item) if option.type in ("enums", "strings") else item


def _default_text(option: options.Option) -> str:
    """The default as it would be given: a choice may be the name of an enum's member or its value."""
    if option.default is True:
        return "on"
    name = getattr(option.default, "name", None)
    return name if name in option.choices else str(option.default)


def plain_value(value: Any) -> Any:
    """Enum members of the command line as the strings the options accept."""
    if isinstance(value, enum.Enum):
        return value.value
    return [plain_value(item) for item in value] if isinstance(value, list) else value
