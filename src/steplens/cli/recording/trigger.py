"""``steplens trigger``: ask a running job for a capture, and follow it to its result."""

from __future__ import annotations

import os
import shlex
import time
from collections.abc import Mapping
from pathlib import Path
from typing import Any

import typer

from steplens.cli.line.ending import next_commands, say_next
from steplens.cli.recording.flags import command_parameter, generated_command, option_parameter, optional_parameter, plain_value
from steplens.cli.recording.status import describe_process, existing_directory, has_failed, is_analysed, request_text
from steplens.cli.text.text import console, duration, plain, print_json
from steplens.collect.dynamic import client
from steplens.collect.dynamic.client import Participant
from steplens.collect.dynamic.configuration import TEMPLATE
from steplens.collect.dynamic.job import job_folder
from steplens.collect.dynamic.plan import DONE, ENDED, NEXT, REFUSED, SEEN
from steplens.common import options
from steplens.common.errors import InputError, SteplensError

#: the request reached the job, but not every process that takes part has a result
EXIT_PARTIAL = 3

_POLL_S = 0.2
#: folder of captures in that of the configuration, where that names none
CAPTURES = "captures"
_PANELS = {options.PROFILE: "What to record", options.EXPERIMENTAL: "Extended options"}


def trigger_capture(path: Path, changes: Mapping[str, Any], *, wait: bool, timeout: float, json: bool) -> int:
    """Ask the processes that watch ``path`` for a capture and return the exit code.

    Args:
        path: the configuration folder.
        changes: fields of ``profiler_config.json`` that differ from what the file says; the file itself stays as it is.
        wait: until every process that takes part has its result.
        timeout: how many seconds at most.
        json: print one document at the end instead of lines.
    """
    directory = existing_directory(path)
    configuration = capture_configuration(directory, _read_configuration(directory), changes)
    if wait and not any(item.watches for item in client.find_participants(directory)):
        raise SteplensError(
            f"{path}: no process on this machine watches this folder; see steplens status, "
            "or use --no-wait if the processes run on other machines"
        )
    try:
        id, followed = client.send_request(directory, configuration)
    except OSError as error:
        raise InputError(directory, f"the request cannot be written: {error.strerror or error}") from error
    out = console()
    if not json:
        living = sum(item.watches for item in followed)
        who = "1 process that watches" if living == 1 else f"{living} processes that watch"
        out.print(plain(f"request {id} to {who} {directory}"), soft_wrap=True)
        out.print(plain(f"results go to {configuration['prof_dir']}"), soft_wrap=True)
    if wait:
        # training does not wait for these results, and whoever asked for them does
        analysing = configuration.get("analyse") is True and configuration.get("async_mode") is True
        followed = _follow_request(id, directory, followed, timeout, None if json else out, analysing=analysing)
    code = exit_code(id, followed) if wait else 0
    if json:
        print_json(
            {"path": str(directory), "request": id, "processes": [describe_process(item) for item in followed], "exit_code": code}
        )
    elif not wait:
        out.print(plain(f"next: steplens status {shlex.quote(str(path))}"), soft_wrap=True)
    return code


def capture_configuration(directory: Path, base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """What a request says, with what a capture that somebody asks for needs beyond the file's defaults.

    One step to warm up, without which the first recorded step is slow, and a folder beside the configuration instead of whatever
    folder the training works in.

    Args:
        directory: the configuration folder.
        base: what its file says.
        changes: what was asked for.
    """
    configuration = merge_configuration(base, changes)
    if "warmup" not in changes and base.get("warmup", 0) == 0:
        first = configuration.get("start_step")
        if not isinstance(first, int) or first < 0:
            configuration["warmup"] = 1
        elif first > 1:  # recording is to begin with that step
            configuration.update(warmup=1, start_step=first - 1)
    if "prof_dir" not in changes and base.get("prof_dir", TEMPLATE["prof_dir"]) == TEMPLATE["prof_dir"]:
        configuration["prof_dir"] = str(directory / CAPTURES)
    return configuration


def merge_configuration(base: Mapping[str, Any], changes: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration with some fields changed; those of ``experimental_config`` one by one."""
    configuration = {**base, **changes}
    inner = base.get("experimental_config")
    if isinstance(inner, dict) and "experimental_config" in changes:
        configuration["experimental_config"] = {**inner, **changes["experimental_config"]}
    return configuration


def _read_configuration(directory: Path) -> dict[str, Any]:
    file = directory / job_folder.CONFIGURATION_FILE
    if not file.exists():
        raise InputError(directory, f"there is no {job_folder.CONFIGURATION_FILE}", "A job that watches the folder makes one")
    configuration = job_folder.read_json(file.resolve())
    if configuration is None:
        raise InputError(file, "is not a JSON object", "Correct it, or remove it and start from the defaults")
    return configuration


def _follow_request(
    id: str, directory: Path, found: list[Participant], timeout: float, out: Any, *, analysing: bool
) -> list[Participant]:
    """Say what happens to the request until nothing more does, or the time is over.

    Args:
        id: of the request.
        directory: the configuration folder.
        found: the processes that watch it.
        timeout: seconds.
        out: the console; None to say nothing.
        analysing: whether the results are made beside the training, and followed, too.
    """
    messages: dict[int, str] = {}
    limit = time.monotonic() + timeout
    while True:
        for item in found:
            text = _progress_text(id, item, analysing=analysing)
            if text and messages.get(item.process.pid) != text:
                messages[item.process.pid] = text
                if out is not None:
                    who = f"rank {item.rank} " if item.rank >= 0 else ""
                    out.print(plain(f"{who}pid {item.process.pid}: {text}"), soft_wrap=True)
        waiting = [item for item in found if _is_expected(id, item) or (analysing and _is_being_analysed(id, item))]
        if not waiting:
            break
        if time.monotonic() > limit:
            if out is not None:
                for item in waiting:
                    out.print(plain(_late_text(item), "yellow"), soft_wrap=True)
            break
        time.sleep(_POLL_S)
        found = client.find_participants(directory)
    if out is not None:
        _say_next(id, found, out)
    return found


def _progress_text(id: str, item: Participant, *, analysing: bool) -> str:
    request = item.request(id)
    if request is not None:
        text = request_text(item, request)
        return text.replace(" (raw)", ", which is being analysed") if analysing and _is_being_analysed(id, item) else text
    return f"takes no part: {item.why_not}" if item.watches and item.why_not else ""


def _is_expected(id: str, item: Participant) -> bool:
    """Whether a process still has something to do about the request; one that never steps has not."""
    request = item.request(id)
    if not item.alive:
        return False
    if request is None:
        return item.eligible
    return request.get("state") not in ENDED and (request.get("state") != SEEN or item.step is not None)


def _is_being_analysed(id: str, item: Participant) -> bool:
    """Whether results of a capture are still to come: the process that trains waits for them before it ends."""
    request = item.request(id)
    if request is None or not item.alive or request.get("state") != DONE:
        return False
    return not is_analysed(request) and not has_failed(request)


def _late_text(item: Participant) -> str:
    since = "" if item.step_age_ns is None else f", which has run for {duration(max(item.step_age_ns, 0))}"
    return f"not waited for any longer: pid {item.process.pid}, {item.state} in step {item.step}{since}"


def _say_next(id: str, found: list[Participant], out: Any) -> None:
    requests = [request for item in found if (request := item.request(id)) and request.get("state") == DONE]
    results = [str(request["result"]) for request in requests]
    if not results:
        return
    parents = sorted({os.path.dirname(result) for result in results})
    result_path = results[0] if len(results) == 1 else parents[0]
    say_next(next_commands(result_path, "summary" if all(map(is_analysed, requests)) else "analyse"))


def exit_code(id: str, found: list[Participant]) -> int:
    """0 when every process that takes part has its result, 3 when only some have, 2 when none has."""
    states = [(item, str(request.get("state"))) for item in found if (request := item.request(id)) is not None]
    if DONE not in [state for _, state in states]:
        return 2
    taking_part = [state for item, state in states if state != REFUSED and not (state == SEEN and item.step is None)]
    return 0 if all(state == DONE for state in taking_part) else EXIT_PARTIAL


def _parse_ranks(values: list[str]) -> list[int]:
    """Ranks from ``--rank 0 --rank 4-7,9``."""
    ranks: list[int] = []
    for part in ",".join(values).split(","):
        first, dash, last = part.strip().partition("-")
        last = last if dash else first
        if not first.isdecimal() or not last.isdecimal() or int(last) - int(first) not in range(1 << 16):
            raise SteplensError(f"--rank takes ranks such as 0, 0,3 or 4-7, not {part!r}")
        ranks += range(int(first), int(last) + 1)
    return sorted(set(ranks))


def _configuration_changes(values: Mapping[str, Any]) -> dict[str, Any]:
    """The fields of the configuration that the command line sets."""
    changes = options.select_options(options.PROFILE, values)
    if experimental := options.select_options(options.EXPERIMENTAL, values):
        changes["experimental_config"] = experimental
    changes["active"] = values["steps"]
    changes["start_step"] = values.get("at_step", NEXT)
    changes["is_rank"], changes["rank_list"] = "rank" in values, _parse_ranks(values["rank"]) if "rank" in values else []
    for name in ("warmup", "analyse", "async_mode"):
        if name in values:
            changes[name] = values[name]
    if "prof_dir" in values:
        changes["prof_dir"] = str(values["prof_dir"].expanduser().absolute())
    return changes


def make_command() -> Any:
    """The function typer makes the command from: its signature has one parameter per option of the table."""
    when, results = "When and where", "Results"
    out_help = "Folder for the run directories; that of the configuration, or captures/ in PATH where it names none."
    rank_help = "Only these ranks: 0, 0,3 or 4-7; may be repeated. All by default."
    parameters = [
        command_parameter(
            "path", Path, typer.Argument(..., metavar="PATH", help="The folder of profiler_config.json.", show_default=False)
        ),
        command_parameter(
            "steps", int, typer.Option(TEMPLATE["active"], help="Steps to record.", min=1, metavar="N", rich_help_panel=when)
        ),
        optional_parameter(
            "warmup",
            int,
            when,
            "Steps to warm up before that; 1 by default, because the first recorded step is slow without.",
            min=0,
            metavar="N",
        ),
        optional_parameter("at_step", int, when, "Record from this step on, not at once.", min=1, metavar="N"),
        optional_parameter("rank", list[str], when, rank_help, metavar="RANKS"),
        command_parameter(
            "prof_dir", Path | None, typer.Option(None, "--out", "-o", help=out_help, metavar="FOLDER", rich_help_panel=results)
        ),
        optional_parameter("analyse", bool, results, "Analyse when recorded; training waits."),
        optional_parameter("async_mode", bool, results, "Analyse beside the training."),
        command_parameter("wait", bool, typer.Option(True, "--wait/--no-wait", help="Wait for the result.")),
        command_parameter("timeout", float, typer.Option(600.0, help="Seconds to wait.", min=0, metavar="SECONDS")),
        command_parameter("json", bool, typer.Option(False, "--json", help="Print one JSON document instead of text.")),
    ]
    selected = [option for group in _PANELS for option in options.options_of_group(group) if option.cli]
    parameters += [option_parameter(option, _PANELS[option.group], both=True) for option in selected]

    def command(**values: Any) -> None:
        plain_values = {name: plain_value(value) for name, value in values.items() if value is not None and value != []}
        path, wait, timeout, json = (plain_values.pop(name) for name in ("path", "wait", "timeout", "json"))
        raise typer.Exit(trigger_capture(path, _configuration_changes(plain_values), wait=wait, timeout=timeout, json=json))

    command.__doc__ = """Ask the job that watches PATH for a capture of its next steps, and follow it to the result.

    What is not given here is taken from PATH/profiler_config.json, which stays as it is. All processes record the same steps;
    one that never steps holds nobody up. While a capture runs, the next one waits.
    """
    return generated_command(command, parameters)
