"""``steplens run``: profile a script, or the processes of a command, that know nothing of steplens.

The options are generated from ``steplens.common.options``, so each argument of ``profile()`` and of what belongs to it is a
flag of the same name. Nothing heavy is imported before the script runs.
"""

from __future__ import annotations

import enum
import inspect
import os
import sys
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from steplens.cli.line.commands import Command, value_options
from steplens.cli.recording import recording, run_answers, run_command, script
from steplens.cli.recording.flags import command_parameter, generated_command, option_parameter, optional_parameter, plain_value
from steplens.cli.recording.interrupted import Interrupted
from steplens.collect.dynamic import launched_processes
from steplens.collect.handoff import upload
from steplens.common import options, rundir
from steplens.common.errors import InputError, SteplensError

#: a window that suits a script nobody has prepared, where the options' own defaults record everything
SCHEDULE_DEFAULTS = {"wait": 1, "warmup": 1, "active": 3, "repeat": 1}

_PANELS = {
    options.PROFILE: "What to record",
    options.SCHEDULE: "When to record",
    options.EXPERIMENTAL: "Extended options",
    options.HANDLER: "Results",
}


class _BlackBox(str, enum.Enum):
    """What ``--black-box`` keeps."""

    operators = launched_processes.OPERATORS
    numbers = launched_processes.NUMBERS


class _StepOn(str, enum.Enum):
    """What ends a step, for ``--step-on``."""

    optimizer = launched_processes.OPTIMIZER
    forward = launched_processes.FORWARD


class RunCommand(Command):
    """Everything after ``-m MODULE`` belongs to the module, as with ``python -m``."""

    #: behind what is to be run, options are its own
    allow_interspersed_args = False

    def parse_args(self, ctx: Any, args: list[str]) -> list[str]:
        """Arguments as click parses them, without those of the module."""
        return super().parse_args(ctx, self._end_options_after_module(args))

    def checked_arguments(self, args: list[str]) -> list[str]:
        """The options and what is to be run; what that gets may well be empty."""
        end = self._end_of_options(args)
        return args[: end + 1 + (args[end : end + 1] in (["--"], ["-m"]))]

    def _end_of_options(self, args: list[str]) -> int:
        """Where the first argument is that belongs to no option; ``--`` or ``-m`` where one of them comes first."""
        takes_value = value_options(self.params)
        position = 0
        while position < len(args) and args[position].startswith("-") and args[position] not in ("--", "-m"):
            position += 2 if args[position] in takes_value else 1
        return position

    def _end_options_after_module(self, args: list[str]) -> list[str]:
        position = self._end_of_options(args)
        # click drops the "--" that tells a command from a script
        self.explicit = False
        if args[position : position + 1] == ["-m"]:
            return [*args[: position + 2], "--", *args[position + 2 :]]
        self.explicit = position < len(args) and args[position] == "--"
        return args


def run_target(
    target: str | None, arguments: list[str], module: str | None, out: str, values: Mapping[str, Any], explicit: bool
) -> int:
    """Run a script, a module or a command under the profiler and return its exit code.

    Args:
        target: the script or the command, or None with ``module``.
        arguments: what it gets as arguments.
        module: the module to run instead of a script.
        out: folder for the run directories, or a URL that fsspec knows.
        values: options by name; a missing one was not given.
        explicit: the target follows ``--``.
    """
    if module is not None and target is not None:
        arguments = [target, *arguments]
    name = module if module is not None else target
    if name is None:
        raise SteplensError("give a SCRIPT or a COMMAND to run, or -m MODULE; see steplens run --help")
    command = module is None and run_command.is_command(name, explicit)
    if not command:
        if explicit and not run_command.is_script_name(name):
            raise run_command.CommandNotFound(f"{name}: there is no such command")
        script.check_script(name, module is not None)
    schedule, start, process = options.select_options(options.SCHEDULE, values), Path.cwd(), os.getpid()
    folder, target = upload.split_target(out, values.get("local_dir"))
    local = Path(folder or ".")
    # said before a training runs for hours
    if (unusable := rundir.why_unusable(local)) is not None:
        raise InputError(*unusable, "Name another folder with --out")
    with run_answers.answers_folder() as answers:
        order = launched_processes.Order(
            out=str(local),
            answers=str(answers),
            profile=options.select_options(options.PROFILE, values),
            schedule=schedule,
            experimental=options.select_options(options.EXPERIMENTAL, values),
            worker_name=values.get("worker_name"),
            black_box=values.get("black_box"),
            step_on=values.get("step_on", launched_processes.OPTIMIZER),
        )
        recorded = recording.Recorded(local, answers)
        ending: BaseException | None = None
        if command:
            code = run_command.run_command([name, *arguments], {**os.environ, launched_processes.VARIABLE: order.text()})
        else:
            ending = _run_here(name, arguments, module is not None, order)
            code = _show_exception(ending)
            if os.getpid() != process:  # a child that the script forked came back from it
                if isinstance(ending, KeyboardInterrupt):
                    raise Interrupted
                return code
        recorded.collect()
        before = schedule["skip_first"] + schedule["wait"] + schedule["warmup"]
        recording.report_recorded(recorded, max(before, 1), order, command=command, ending=_describe_ending(ending, code))
        if recorded.directories or recorded.events:
            # what is to be moved has to be complete
            wait = target is not None or not values.get("async_mode", False)
            complete = values.get("analyse_flag", True) and recording.analyse_directories(recorded.directories, wait=wait)
            result_folder, directories = local, recorded.directories
            if target is not None:
                landed = recording.move_directories(recorded.parts(), target)
                result_folder = landed[0].parent if landed else local
                directories = [run for folder in landed for run in rundir.find_run_directories(folder)]
            if directories:
                recording.say_next(result_folder, directories, start, complete=complete)
    if isinstance(ending, SystemExit):
        raise ending
    if isinstance(ending, KeyboardInterrupt):
        raise Interrupted
    run_command.end_like(code)
    return code


def _run_here(name: str, arguments: list[str], module: bool, order: launched_processes.Order) -> BaseException | None:
    """Run a script or module in this process and record it; what ended it, if it was an exception."""
    launched_processes.recorded_by_command = True
    # for processes that it starts
    os.environ[launched_processes.VARIABLE] = order.text()
    watcher = launched_processes.Watcher(order)
    watcher.install()
    process = os.getpid()
    ending: BaseException | None = None
    try:
        script.run_script(name, arguments, module)
    except BaseException as error:  # whatever ends the script ends this command in the same way
        if os.getpid() != process:
            raise
        ending = error
    watcher.end(ending)
    return ending


def _describe_ending(ending: BaseException | None, code: int) -> str:
    """What ended the script or command other than its last line, as the beginning of a sentence; empty where nothing did."""
    if ending is not None and not isinstance(ending, SystemExit):
        return f"{type(ending).__name__} ended the script"
    if isinstance(ending, SystemExit) and ending.code not in (None, 0):
        return f"the script ended with exit code {ending.code if isinstance(ending.code, int) else 1}"
    return f"the command ended with exit code {code}" if code > 0 else ""


def _show_exception(ending: BaseException | None) -> int:
    """Show the script's exception as Python would, and return the exit code that goes with it."""
    if ending is None or isinstance(ending, SystemExit):
        return 0
    ending = ending.with_traceback(script.strip_launcher_frames(ending.__traceback__))
    sys.excepthook(type(ending), ending, ending.__traceback__)
    return script.EXIT_EXCEPTION


def make_command() -> Any:
    """The function typer makes the command from: its signature has one parameter per option of the table."""
    parameters = [
        command_parameter("context", typer.Context, inspect.Parameter.empty),
        command_parameter(
            "script",
            str | None,
            typer.Argument(None, metavar="[SCRIPT]", help="The script or command to run.", show_default=False),
        ),
        command_parameter(
            "args", list[str] | None, typer.Argument(None, metavar="[ARGS]...", help="Its arguments.", show_default=False)
        ),
        command_parameter(
            "module", str | None, typer.Option(None, "-m", metavar="MODULE", help="Run this module; ends the options.")
        ),
        command_parameter(
            "out",
            str,
            typer.Option(
                "result",
                "--out",
                "-o",
                metavar="FOLDER",
                help="Folder or URL for the run directories.",
                rich_help_panel="Results",
            ),
        ),
    ]
    when = "When to record"
    parameters += [
        optional_parameter(
            "black_box",
            _BlackBox,
            when,
            "Write only when a step is slow, on an exception or on SIGUSR2. Values: operators, numbers (no operators).",
            metavar="WHAT",
        ),
        command_parameter(
            "step_on",
            _StepOn,
            typer.Option(
                _StepOn.optimizer,
                metavar="WHAT",
                help="What ends a step: optimizer, its step(), or forward, the next call of the model where nothing is trained.",
                rich_help_panel=when,
            ),
        ),
    ]
    excluded = {"dir_name"}  # --out
    for option in options.OPTIONS:
        if option.cli and option.name not in excluded:
            default = SCHEDULE_DEFAULTS.get(option.name, option.default) if option.group == options.SCHEDULE else None
            parameters.append(option_parameter(option, _PANELS[option.group], default))

    def command(**values: Any) -> None:
        explicit = getattr(values.pop("context").command, "explicit", False)
        plain_values = {name: plain_value(value) for name, value in values.items() if value is not None and value != []}
        target, arguments = plain_values.pop("script", None), plain_values.pop("args", [])
        raise typer.Exit(
            run_target(target, arguments, plain_values.pop("module", None), plain_values.pop("out"), plain_values, explicit)
        )

    command.__doc__ = """Run SCRIPT unchanged and profile a few of its steps; its output and exit code stay its own.

    Or a command, with the processes that it starts: steplens run -- torchrun --nproc-per-node 2 train.py

    A step ends when torch.optim.Optimizer.step returns; with several optimizers the first one counts. For a script that trains
    nothing: steplens run --step-on forward predict.py
    """
    return generated_command(command, parameters)
