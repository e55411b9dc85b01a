"""How help looks: names on the left, sentences on the right, nothing cut and no word broken."""

from __future__ import annotations

import enum
import inspect
import os
import re
import shutil
import sys
import textwrap
from typing import Any

_WIDEST = 110
#: names that are longer have their sentence below them
_NAMES = 30
_GAP = 2
#: styles of a terminal
_BOLD, _CYAN = "1", "36"


def print_help(command: Any, ctx: Any) -> None:
    """Print the help of a command, or of all commands; without the library that other text is printed with, which takes a moment.

    Args:
        command: the command of click.
        ctx: its context.
    """
    width = min(shutil.get_terminal_size().columns, _WIDEST)
    lines = [f"{_style_text('Usage: ', _BOLD)}{_usage_line(command, ctx)}"]
    for paragraph in _wrap_paragraphs(command.help or "", width):
        lines += ["", *paragraph]
    panels = _collect_panels(command, ctx)
    names = min(_NAMES, max((len(name) for rows in panels.values() for name, _ in rows), default=0))
    for title, rows in panels.items():
        lines += ["", _style_text(title, _BOLD)]
        for name, sentence in rows:
            lines += _row_lines(name, sentence, names, width)
    print("\n".join(lines))


def _style_text(text: str, style: str) -> str:
    """Text in a style, on terminals that know some; nothing asks for none."""
    is_plain = not sys.stdout.isatty() or os.environ.get("TERM", "dumb") in ("dumb", "unknown") or os.environ.get("NO_COLOR")
    return text if is_plain else f"\x1b[{style}m{text}\x1b[0m"


def _usage_line(command: Any, ctx: Any) -> str:
    """How the command is called; versions of typer differ in the brackets around names."""
    words = [ctx.command_path, "[OPTIONS]"]
    for param in command.get_params(ctx):
        if param.param_type_name == "argument":
            name = _argument_name(param)
            words.append((name if param.required else f"[{name}]") + ("..." if param.nargs != 1 else ""))
    return " ".join([*words, *(["COMMAND [ARGS]..."] if hasattr(command, "list_commands") else [])])


def _wrap_paragraphs(text: str, width: int) -> list[list[str]]:
    """A text in lines of some width; lines that are indented stay as they are."""
    paragraphs = []
    for paragraph in re.split(r"\n\s*\n", inspect.cleandoc(text)):
        lines: list[str] = []
        flowing: list[str] = []
        for line in (*paragraph.splitlines(), " "):
            if not line.startswith(" "):
                flowing.append(line)
                continue
            lines += textwrap.wrap(" ".join(flowing), width, break_on_hyphens=False, break_long_words=False)
            flowing = []
            lines += [line] if line.strip() else []
        paragraphs.append(lines)
    return [lines for lines in paragraphs if lines]


def _collect_panels(command: Any, ctx: Any) -> dict[str, list[tuple[str, str]]]:
    """Title -> names and sentences."""
    panels: dict[str, list[tuple[str, str]]] = {}
    # asking for a command would import it
    for name, listed in getattr(command, "commands", {}).items():
        if not listed.hidden:
            first = " ".join(inspect.cleandoc(listed.help or "").split("\n\n")[0].split())
            panels.setdefault(listed.rich_help_panel or "Commands", []).append((name, first))
    arguments = [param for param in command.get_params(ctx) if param.param_type_name == "argument"]
    if arguments:
        panels["Arguments"] = [(_argument_name(param), _unmarked_text(param.help or "")) for param in arguments]
    options = [param for param in command.get_params(ctx) if param.param_type_name == "option" and not param.hidden]
    # those of no panel come first
    for param in sorted(options, key=lambda param: bool(getattr(param, "rich_help_panel", None))):
        title = getattr(param, "rich_help_panel", None) or "Options"
        panels.setdefault(title, []).append((_option_name(param), _option_sentence(param)))
    return panels


def _argument_name(param: Any) -> str:
    name: str = param.metavar or param.name.upper()
    return name.strip("[].")


def _option_name(param: Any) -> str:
    names = sorted(param.opts, key=len)
    name = ", ".join(names) + "".join(f" / {negative}" for negative in param.secondary_opts)
    if getattr(param, "is_flag", False) or getattr(param, "count", False):
        return name
    return f"{name} {param.metavar or param.name.rpartition('_')[2].upper()}"


def _option_sentence(param: Any) -> str:
    sentence = _unmarked_text(param.help or "")
    default = param.default
    if param.show_default and default is not None and not isinstance(default, bool) and not callable(default):
        sentence += f" [default: {default.value if isinstance(default, enum.Enum) else default}]"
    if param.required:
        sentence += " [required]"
    return sentence


def _unmarked_text(sentence: str) -> str:
    return " ".join(sentence.replace(r"\[", "[").split())


def _row_lines(name: str, sentence: str, names: int, width: int) -> list[str]:
    room = max(width - names - 2 * _GAP, 20)
    lines = textwrap.wrap(sentence, room, break_on_hyphens=False, break_long_words=False) or [""]
    indent = " " * (_GAP + names + _GAP)
    head = " " * _GAP + _style_text(name, _CYAN)
    if len(name) > names:
        return [head, *(indent + line for line in lines)]
    first = f"{head}{' ' * (names - len(name) + _GAP)}{lines[0]}" if lines[0] else head
    return [first, *(indent + line for line in lines[1:])]
