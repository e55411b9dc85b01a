"""The entry point: the sub-commands in one visible list, and what an error looks like."""

from __future__ import annotations

import contextlib
import errno
import importlib
import os
import sys
from collections.abc import Callable, Sequence
from typing import Annotated, Any, NamedTuple

import typer

from steplens import __version__
from steplens.cli.line.commands import Commands, ListedCommand
from steplens.cli.line.problems import problem_sentence
from steplens.cli.recording.interrupted import Interrupted
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
        sentence: the first one of its own help, which the list of all commands shows.
    """

    called: str
    panel: str
    kind: str = "line.commands:Command"
    sentence: str = ""


_COMMANDS = {
    "run": _Entry(
        "recording.run:make_command",
        _RECORD,
        "recording.run:RunCommand",
        "Run SCRIPT unchanged and profile a few of its steps; its output and exit code stay its own.",
    ),
    "trigger": _Entry(
        "recording.trigger:make_command",
        _RECORD,
        sentence="Ask the job that watches PATH for a capture of its next steps, and follow it to the result.",
    ),
    "status": _Entry(
        "recording.status:status",
        _RECORD,
        sentence="Say what the processes that watch PATH do: step, state, whether they can capture, and where captures went.",
    ),
    "doctor": _Entry("doctor:doctor", _RECORD, sentence="Say what can be collected on this machine, and why not the rest."),
    "view": _Entry(
        "view:view",
        _LOOK,
        sentence="Show runs in the browser: overview, steps, operators, timeline, memory, data pipeline, ranks and advice.",
    ),
    "summary": _Entry(
        "summary.summary:summary",
        _LOOK,
        _LOOKING,
        "Show where each step's time went, the top operators, the memory peak and what is doubtful about the data.",
    ),
    "advise": _Entry("advise:advise", _LOOK, _LOOKING, "Say what to change in the training in PATH, most valuable first."),
    "compare": _Entry(
        "compare:show_comparisons",
        _LOOK,
        _LOOKING,
        "Compare runs with an earlier one: is a step slower, by how much, where, and is that more than chance?",
    ),
    "bench": _Entry(
        "bench:run_versions",
        _LOOK,
        "bench:BenchCommand",
        "Run two versions of a program in turns, and tell whether a step became longer.",
    ),
    "baseline": _Entry(
        "baseline:make_group",
        _LOOK,
        sentence="Keep what a comparison needs of recordings, by name: steplens compare baseline:NAME RUN.",
    ),
    "history": _Entry(
        "comparing.history:show_history",
        _LOOK,
        _LOOKING,
        "Show where the figures of a program moved over many versions of it, and by how much.",
    ),
    "table": _Entry(
        "table:table",
        _LOOK,
        _LOOKING,
        "Show or export any table of a run: operators, kernels, flops, memory_peak, communication, ranks ...",
    ),
    "sql": _Entry("sql:answer_sql", _LOOK, _LOOKING, "Answer a SQL query (SELECT) over the tables of a run."),
    "open": _Entry(
        "open_:open_",
        _LOOK,
        _LOOKING,
        "Say what PATH holds: traces of PyTorch, captures of Ascend's or MindSpore's profiler, raw or analysed.",
    ),
    "report": _Entry(
        "report:report",
        _FILES,
        _LOOKING,
        "Write runs as one HTML file: the pages of steplens view with their data, which needs neither steplens nor a network.",
    ),
    "analyse": _Entry(
        "analyse:analyse",
        _FILES,
        sentence="Write the result files of every recorded run in PATH; what is complete already is left alone.",
    ),
    "export": _Entry("export:export", _FILES, _LOOKING, "Write the traces in PATH as files that other tools open."),
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


def make_app() -> typer.Typer:
    """The command line, with all commands, each of which is imported when it is asked for."""
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
    for name, entry in _COMMANDS.items():
        app.command(name, cls=ListedCommand, help=entry.sentence, rich_help_panel=entry.panel)(_loader_of(name))
    return app


def _loader_of(name: str) -> Callable[[], Any]:
    """What imports a command and gives it as click has it."""
    entry = _COMMANDS[name]

    def load_command() -> Any:
        called = _load_attribute(entry.called)
        alone = typer.Typer(add_completion=False, pretty_exceptions_enable=False, rich_markup_mode="rich")
        if entry.called.endswith(":make_group"):
            alone.add_typer(called(), name=name)
            return typer.main.get_group(alone).commands[name]
        if entry.called.endswith(":make_command"):
            called = called()
        alone.command(name, cls=_load_attribute(entry.kind), rich_help_panel=entry.panel)(called)
        return typer.main.get_command(alone)

    return load_command


def _load_attribute(place: str) -> Any:
    module, _, name = place.partition(":")
    return getattr(importlib.import_module(f"steplens.cli.{module}"), name)


app = make_app()


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
    except Interrupted:
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
    from steplens.cli.text.text import clean

    log.write_line(f"steplens: {clean(message)}")
    return code


def _drop_stdout() -> None:
    """Send what is still to be written nowhere: Python would complain of it once more at its end."""
    with contextlib.suppress(OSError, ValueError):
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
