"""What ``steplens run`` makes of the windows that its processes recorded, and what it says about them."""

from __future__ import annotations

import os
import shlex
import subprocess
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

from steplens.cli.text.text import clean
from steplens.collect.black_box.black_box_event import EVENT_FILE
from steplens.collect.common import log
from steplens.collect.dynamic.launched_processes import FORWARD, OPTIMIZER, Order, read_answers
from steplens.collect.handoff import closing_line, upload
from steplens.common import json_text, rundir
from steplens.common.storage import urls

#: how steps are called, and why there are none
_STEPS = {
    OPTIMIZER: "optimizer steps",
    FORWARD: "steps from one call of the model to the next",
}
_NO_STEP = {
    OPTIMIZER: (
        "torch.optim.Optimizer.step was never called; where nothing is trained use steplens run --step-on forward, and "
        "steplens.profile where a step is something else, see the README"
    ),
    FORWARD: "no torch.nn.Module was called twice; where a step is something else use steplens.profile, see the README",
}


def write_message(message: str) -> None:
    """One line on stderr; stdout belongs to the script."""
    log.write_line(f"steplens: {clean(message)}")


class Recorded:
    """The run directories that the processes of one ``steplens run`` leave in a folder.

    Args:
        out: the folder.
        answers: folder of what the processes say about themselves.
    """

    def __init__(self, out: Path, answers: Path) -> None:
        self._out = out
        self._answers = answers
        self._before = {*self._find_run_directories(), *self._event_files()}
        self.processes: list[dict[str, object]] = []
        #: with raw data, and without: their process was killed, or their data could not be saved
        self.directories: list[Path] = []
        self.lost: list[Path] = []
        #: folders of what a black box wrote, and why
        self.events: list[tuple[Path, str]] = []

    def _find_run_directories(self) -> list[Path]:
        if not self._out.is_dir() or rundir.is_run_directory(self._out):
            return []
        folders = [path.parent for path in self._event_files()]
        return [path for folder in (self._out, *folders) for path in rundir.find_run_directories(folder)]

    def _event_files(self) -> list[Path]:
        return sorted(self._out.glob(f"*/{EVENT_FILE}")) if self._out.is_dir() else []

    def collect(self) -> None:
        """Look for them; for when all processes have ended."""
        self.processes = read_answers(self._answers)
        ours = {f"_{answer['pid']}_" for answer in self.processes}
        for path in self._find_run_directories():
            # Other jobs may write to the same folder at the same time.
            if path not in self._before and any(part in path.name for part in ours):
                is_raw = rundir.raw_recording(path) is not None
                (self.directories if is_raw else self.lost).append(path)
        pids = {answer["pid"] for answer in self.processes}
        for path in self._event_files():
            if path not in self._before and (event := _read_event(path)).get("pid") in pids:
                self.events.append((path.parent, str(event.get("message"))))

    def parts(self) -> list[Path]:
        """What is to be moved: folders of events, and the run directories that lie in none."""
        events = [folder for folder, _ in self.events]
        return [*events, *(path for path in self.directories if path.parent not in events)]

    @property
    def vanished(self) -> list[int]:
        """Process ids of those that took steps and did not say at their end how many."""
        return [int(str(answer["pid"])) for answer in self.processes if answer["steps"] and not answer.get("ended")]

    @property
    def steps(self) -> int:
        """How many steps the process took that took most."""
        return max((int(str(answer["steps"])) for answer in self.processes), default=0)


def analyse_directories(directories: list[Path], *, wait: bool) -> bool:
    """Turn ``directories`` into results in another process each, because the script may have left anything in this one.

    Returns:
        whether all of them succeeded; True without ``wait``.
    """
    from steplens.collect.handoff.handler import offline_command, offline_environment

    nowhere = subprocess.DEVNULL
    environment = offline_environment()
    commands = [offline_command("analyse", directory) for directory in directories]
    if wait:

        def run_analysis(command: list[str]) -> int:
            return subprocess.run(command, env=environment, stdin=nowhere, stdout=nowhere, check=False).returncode

        with ThreadPoolExecutor(max(1, (os.cpu_count() or 2) // 2)) as pool:
            return not any(pool.map(run_analysis, commands))
    for command in commands:
        subprocess.Popen(command, env=environment, stdin=nowhere, stdout=nowhere, stderr=nowhere, start_new_session=True)
    return True


def _read_event(path: Path) -> dict[str, Any]:
    try:
        event = json_text.loads(path.read_bytes())
    except (OSError, ValueError):
        return {}
    return event if isinstance(event, dict) else {}


def _why_lost(directory: Path) -> str:
    """What whoever opens the run directory is told of it."""
    from steplens.readers.common.side_files import read_json
    from steplens.readers.steplens_run import run_directory

    state = read_json(directory / rundir.RAW_DIRECTORY / rundir.STATE_FILE)
    return run_directory.lost_window(directory, state)[0]


def report_recorded(recorded: Recorded, needed: int, order: Order, *, command: bool, ending: str = "") -> None:
    """Say what was recorded, or why nothing was.

    Args:
        recorded: what was found.
        needed: how many steps pass before the first one is recorded.
        order: what was to be recorded.
        command: a command was run, and not a script in this process.
        ending: what ended it before its time, as the beginning of a sentence.
    """
    for folder, message in recorded.events:
        write_message(f"{message}: {folder}")
    for directory in recorded.directories:
        log.report_progress(f"recorded {clean(str(directory))}")
    for directory in recorded.lost:
        write_message(f"{directory} {_why_lost(directory).rstrip('.')}")
    if recorded.directories or recorded.lost or recorded.events:
        return
    # after how many steps a window is open that stays: without a wait the schedule begins behind the first step
    waits = order.schedule.get("skip_first", 0) + order.schedule.get("wait", 0)
    before_window = needed if waits else int(order.schedule.get("warmup", 0)) + 1
    if any(answer.get("failed") for answer in recorded.processes):
        write_message("nothing was recorded")
    elif ending and recorded.steps == 0 and not recorded.vanished:
        write_message(f"nothing was recorded: {ending} before its first step")
    elif command and not recorded.processes:
        write_message(
            "nothing was recorded: no process of the command left word that it imported PyTorch; that takes PyTorch 2.5 or newer "
            "in an environment that has steplens and without TORCH_DEVICE_BACKEND_AUTOLOAD=0"
        )
    elif vanished := recorded.vanished:
        processes = f"process{'es' if len(vanished) > 1 else ''} {', '.join(map(str, vanished))}"
        write_message(
            f"nothing was recorded: {processes} took steps and left no word of how many, as one does "
            "that is killed, ends by os._exit or still runs"
        )
    elif recorded.steps == 0:
        write_message(f"nothing was recorded, because {_NO_STEP[order.step_on]}")
    elif order.black_box is not None:
        write_message(f"nothing was recorded: nothing happened in {recorded.steps} {_STEPS[order.step_on]}")
    elif recorded.steps >= before_window:
        write_message("nothing was recorded: no window was opened and kept; messages of the profiler above say why")
    else:
        write_message(
            f"nothing was recorded: the script took {recorded.steps} {_STEPS[order.step_on]} and recording begins after "
            f"{needed}; let it run longer or lower --wait and --warmup"
        )


def move_directories(directories: list[Path], target: str) -> list[Path]:
    """Move run directories to a target.

    Returns:
        those that lie in a folder now, in the target or where they were.
    """
    landed = []
    for directory in directories:
        try:
            destination = upload.move_run(directory, target)
        except Exception as error:  # whatever a foreign file system raises: the data is safe and the next one is tried
            write_message(upload.note_failure(directory, target, error))
            landed.append(directory)
            continue
        log.report_progress(clean(f"moved {directory.name} to {urls.without_credentials(target)}"))
        if not urls.is_url(destination):
            landed.append(Path(destination))
    return landed


def say_next(out: Path, directories: list[Path], start: Path, *, complete: bool) -> None:
    """Where the results are, and the command that shows them, for a shell that is still in ``start``."""
    alone = len(directories) == 1 and os.environ.get("WORLD_SIZE", "1") == "1"
    # a folder with nothing else in it has the shorter name
    is_beside_others = alone and rundir.find_run_directories(out) != directories
    path_text = shlex.quote(os.path.relpath(directories[0] if is_beside_others else out, start))
    if complete:
        closing_line.write_closing_line(path_text)
    else:
        command = closing_line.program_name()
        log.report_progress(f"the recorded steps are in {path_text}, not analysed yet; next: {command} analyse {path_text}")
