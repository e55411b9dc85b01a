"""The entry point: the sub-commands in one visible list, and what an error looks like."""

from __future__ import annotations

import contextlib
import errno
import os
import sys
from collections.abc import Sequence
from typing import Annotated, Any

import typer

from steplens import __version__
from steplens.cli import advise, analyse, doctor, export, open_, report, sql, table, view
from steplens.cli.line.commands import Command, Commands, LookingCommand
from steplens.cli.line.problems import problem_sentence
from steplens.cli.recording import run, script, status, trigger
from steplens.cli.summary import summary
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

app = typer.Typer(
    name="steplens",
    cls=Commands,
    help="Profile deep-learning training, step by step, and see where each step's time went.",
    no_args_is_help=True,
    pretty_exceptions_enable=False,
    rich_markup_mode="rich",
    context_settings={"help_option_names": ["-h", "--help"]},
)
_RECORD, _LOOK, _FILES = "Record", "Look", "Files for other tools"
app.command("run", cls=run.RunCommand, context_settings={"allow_interspersed_args": False}, rich_help_panel=_RECORD)(
    run.make_command()
)
app.command("trigger", cls=Command, rich_help_panel=_RECORD)(trigger.make_command())
app.command("status", cls=Command, rich_help_panel=_RECORD)(status.status)
app.command("doctor", cls=Command, rich_help_panel=_RECORD)(doctor.doctor)
app.command("view", cls=Command, rich_help_panel=_LOOK)(view.view)
app.command("summary", cls=LookingCommand, rich_help_panel=_LOOK)(summary.summary)
app.command("advise", cls=LookingCommand, rich_help_panel=_LOOK)(advise.advise)
app.command("table", cls=LookingCommand, rich_help_panel=_LOOK)(table.table)
app.command("sql", cls=LookingCommand, rich_help_panel=_LOOK)(sql.answer_sql)
app.command("open", cls=LookingCommand, rich_help_panel=_LOOK)(open_.open_)
app.command("report", cls=LookingCommand, rich_help_panel=_FILES)(report.report)
app.command("analyse", cls=Command, rich_help_panel=_FILES)(analyse.analyse)
app.command("export", cls=LookingCommand, rich_help_panel=_FILES)(export.export)


def _print_version(asked: bool) -> None:
    if asked:
        typer.echo(f"steplens {__version__}")
        raise typer.Exit


@app.callback()
def _global_options(
    version: Annotated[
        bool, typer.Option("--version", help="Show the version and exit.", callback=_print_version, is_eager=True)
    ] = False,
) -> None:
    pass


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
        code = app(args=None if arguments is None else list(arguments), prog_name="steplens", standalone_mode=False)
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
