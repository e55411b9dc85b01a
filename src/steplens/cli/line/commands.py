"""What every command has: other spellings of its options, no empty arguments, and one look of its help."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Sequence
from typing import Any

from typer.core import TyperCommand, TyperGroup

from steplens.cli.line import help_text
from steplens.cli.line.values import spare_checks
from steplens.common.errors import SteplensError
from steplens.common.listings import listed_once

#: other spellings of options, which the help leaves out: each is accepted where a command has the option
SPELLINGS = {
    "--out": ("--output",),
    "--language": ("--lang",),
    "--analyse": ("--analyze",),
    "--no-analyse": ("--no-analyze",),
    "--analyse-flag": ("--analyze-flag",),
    "--no-analyse-flag": ("--no-analyze-flag",),
}
#: what one command called its option before it had the name of all others: that of its parameter
_EARLIER = {"prof_dir": "--prof-dir"}
#: and of commands
COMMAND_SPELLINGS = {"analyze": "analyse"}


class Command(TyperCommand):
    """A command of steplens."""

    def make_parser(self, ctx: Any) -> Any:
        """The parser of click, which knows the other spellings of the options as well."""
        spare_checks(self.get_params(ctx))
        parser = super().make_parser(ctx)
        declared = {name for param in self.params for name in (*param.opts, *param.secondary_opts)}
        for param in self.get_params(ctx):
            spellings, secondary = (_other_spellings(names, declared) for names in (param.opts, param.secondary_opts))
            if (earlier := _EARLIER.get(param.name)) is not None and earlier not in declared:
                spellings.append(earlier)
            if spellings or secondary:
                spelled = copy.copy(param)
                spelled.opts, spelled.secondary_opts = spellings, secondary
                spelled.add_to_parser(parser, ctx)
        return parser

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Arguments as click parses them; none may be empty, which is what an unset variable of a shell becomes."""
        refuse_empty(self.checked_arguments(args))
        return super().parse_args(ctx, args)

    def checked_arguments(self, args: list[str]) -> list[str]:
        """Those that are for the command itself."""
        return args

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        help_text.print_help(self, ctx)


def value_options(params: Iterable[Any]) -> set[str]:
    """The options that take a value, in every spelling."""
    names = {name for param in params if not getattr(param, "is_flag", True) for name in param.opts}
    return names | {spelling for name in names for spelling in SPELLINGS.get(name, ())}


class LookingCommand(Command):
    """A command that looks at what was recorded, once, and changes nothing of it."""

    def _invoke_listed_once(self, ctx: Any) -> Any:
        with listed_once():
            return super().invoke(ctx)

    #: what click calls
    invoke = _invoke_listed_once


class ListedCommand(Command):
    """A command of which no more is known than what the list of all commands shows; called, it gives the command itself."""


class Commands(TyperGroup):
    """All commands, each loaded when it is asked for; some are known by an American name, too."""

    def make_parser(self, ctx: Any) -> Any:
        """The parser of click."""
        spare_checks(self.get_params(ctx))
        return super().make_parser(ctx)

    def get_command(self, ctx: Any, cmd_name: str) -> Any:
        """A command by its name."""
        name = COMMAND_SPELLINGS.get(cmd_name, cmd_name)
        command = super().get_command(ctx, name)
        if isinstance(command, ListedCommand) and command.callback is not None:
            command = self.commands[name] = command.callback()
        return command

    def format_help(self, ctx: Any, formatter: Any) -> None:
        """Print the help."""
        help_text.print_help(self, ctx)


def refuse_empty(args: Iterable[str]) -> None:
    """Refuse empty arguments: an empty path would mean the folder one is in.

    Raises:
        SteplensError: one is empty.
    """
    before = ""
    for arg in args:
        if arg == "--":
            before = ""
            continue
        name, equals, value = arg.partition("=")
        if arg == "" or (arg.startswith("--") and equals and not value):
            option = name if arg else before
            subject = f"the value of {option}" if option.startswith("-") else "an argument"
            raise SteplensError(f"{subject} is empty; it has to be a path, a name or a number")
        before = arg


def _other_spellings(names: Sequence[str], declared: set[str]) -> list[str]:
    return [spelling for name in names for spelling in SPELLINGS.get(name, ()) if spelling not in declared]
