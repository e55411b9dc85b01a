"""The entry point: the sub-commands in one visible list, and what an error looks like."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import sys
from collections.abc import Collection, Sequence
from typing import Annotated, Any, NamedTuple

import typer

from steplens import __version__
from steplens.cli.line.commands import COMMAND_SPELLINGS, Commands
from steplens.cli.line.problems import problem_sentence
from steplens.cli.recording import script
from steplens.cli.text.text import clean
from steplens.collect.common import log
from steplens.common.errors import SteplensError

EXIT_NOT_WRITTEN = 1
EXIT_INTERRUPTED = 130
EXIT_BROKEN_PIPE = 141

# of a write to an open file, which names none: stdout was sent to a disk that is full
_DISK_FULL = (errno.ENOSPC, errno.EDQUOT)

# typer vendors click in newer versions and imports it in older ones; this is "a wrong command line" in both
_COMMAND_LINE_ERROR: Any = typer.BadParameter.__mro__[2]

_RECORD, _LOOK, _FILES = "Record", "Look", "Files for other tools"
_LOOKING = "line.commands:LookingCommand"


class _Entry(NamedTuple):
    """A command, of which nothing is imported before it is asked for.

    Attributes:
        called: module of this package, and the function there that is the command; ``make_command`` gives it, ``make_group``
            gives one that has commands of its own.
        panel: where the help lists it.
        kind: module and class, where it has one of its own.
    """

    called: str
    panel: str
    kind: str = "line.commands:Command"


_COMMANDS = {
    "run": _Entry("recording.run:make_command", _RECORD, kind="recording.run:RunCommand"),
    "trigger": _Entry("recording.trigger:make_command", _RECORD),
    "status": _Entry("recording.status:status", _RECORD),
    "doctor": _Entry("doctor:doctor", _RECORD),
    "view": _Entry("view:view", _LOOK),
    "summary": _Entry("summary.summary:summary", _LOOK, _LOOKING),
    "advise": _Entry("advise:advise", _LOOK, _LOOKING),
    "compare": _Entry("compare:show_comparisons", _LOOK, _LOOKING),
    "bench": _Entry("bench:bench", _LOOK, "bench:BenchCommand"),
    "baseline": _Entry("baseline:make_group", _LOOK),
    "table": _Entry("table:table", _LOOK, _LOOKING),
    "sql": _Entry("sql:answer_sql", _LOOK, _LOOKING),
    "open": _Entry("open_:open_", _LOOK, _LOOKING),
    "report": _Entry("report:report", _FILES, _LOOKING),
    "analyse": _Entry("analyse:analyse", _FILES),
    "export": _Entry("export:export", _FILES, _LOOKING),
}


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"steplens {__version__}")
        raise typer.Exit


def _global_options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


def make_app(names: Collection[str] = _COMMANDS) -> typer.Typer:
    """The command line.

    Args:
        names: the commands that it has.
    """
    app = typer.Typer(
        name="steplens",
        cls=Commands,
        help="Profile deep-learning training, step by step, and see where each step's time went.",
        no_args_is_help=True,
        pretty_exceptions_enable=False,
        rich_markup_mode="rich",
        context_settings={"help_option_names": ["-h", "--help"]},
    )
    app.callback()(_global_options)
    for name in names:
        entry = _COMMANDS[name]
        called = _load_attribute(entry.called)
        if entry.called.endswith(":make_group"):
            app.add_typer(called(), name=name, rich_help_panel=entry.panel)
            continue
        if entry.called.endswith(":make_command"):
            called = called()
        app.command(name, cls=_load_attribute(entry.kind), rich_help_panel=entry.panel)(called)
    return app


def _load_attribute(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(f"steplens.cli.{module}"), name)


def __getattr__(name: str) -> Any:
    if name != "app":
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    # whoever asks for it, rather than to run one command line, gets all commands
    globals()[name] = app = make_app()
    return app


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and return its exit code: 0 success, 1 the output could not be written, 2 bad input, 130 interrupted.

    Args:
        arguments: the command line without the program's name; that of the process by default.

    Raises:
        KeyboardInterrupt: it ended a script of ``steplens run``; it has been shown, and Python says nothing more.
    """
    for stream in (sys.stdout, sys.stderr):
        # names in a trace may hold characters the terminal's encoding lacks
        with contextlib.suppress(AttributeError, ValueError):
            stream.reconfigure(errors="replace")  # type: ignore[union-attr]
    process = os.getpid()
    try:
        command_line = sys.argv[1:] if arguments is None else list(arguments)
        command = COMMAND_SPELLINGS.get(command_line[0], command_line[0]) if command_line else ""
        # what is no command may be close to one
        app = make_app((command,) if command in _COMMANDS else _COMMANDS)
        code = app(args=command_line, prog_name="steplens", standalone_mode=False)
        sys.stdout.flush()
    except SteplensError as error:
        return _report_failure(str(error), error.exit_code)
    except BrokenPipeError:
        # the reader of our output went away, as in ``steplens summary result | head``: stop without a word
        _drop_stdout()
        return EXIT_BROKEN_PIPE
    except OSError as error:
        if error.errno not in _DISK_FULL or error.filename is not None or os.getpid() != process:
            raise  # the last: of a child of a recorded script
        _drop_stdout()
        return _report_failure(f"the output cannot be written: {error.strerror}", EXIT_NOT_WRITTEN)
    except script.Interrupted:
        # Python then ends by the signal, for which shells look, when everything else that waits for its end is done
        sys.excepthook = lambda *_: None
        raise KeyboardInterrupt from None
    except (KeyboardInterrupt, typer.Abort):
        return _report_failure("interrupted", EXIT_INTERRUPTED)
    except _COMMAND_LINE_ERROR as error:
        return _report_failure(problem_sentence(error), error.exit_code)
    return code if isinstance(code, int) else 0


def _report_failure(message: str, code: int) -> int:
    if not message:  # no command at all: the help has been printed
        return code
    log.write_line(f"steplens: {clean(message)}")
    return code


def _drop_stdout() -> None:
    """Send what is still to be written nowhere: Python would complain of it once more at its end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
