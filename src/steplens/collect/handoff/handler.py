"""What happens when a window is recorded: its analysis, in another process; and at the end of a program whose profilers run."""

from __future__ import annotations

import atexit
import os
import subprocess
import sys
import sysconfig
import threading
import time
import weakref
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Protocol

from steplens.collect.common import interrupts, log, paths
from steplens.collect.handoff import closing_line, upload
from steplens.common import options, parent, rundir
from steplens.common.storage import urls

#: A wait with an end looks every 50 ms: it notices Ctrl-C also where a library of the program, such as polars, has put a handler
#: before Python's after which the system goes on with a wait.
_LONGEST_S = 365 * 24 * 3600.0


class WindowProfiler(Protocol):
    """A profiler object, as far as the handler of its windows and the end of the program need it."""

    def _relocate(self, parent: Path) -> None:
        """Move the run directory of the last window below ``parent``."""

    @property
    def run_directory(self) -> Path | None:
        """The run directory of the last window, if its raw data is safe."""

    def _end_of_program(self) -> None:
        """Close the window that is open."""

    def _remove_temporary(self) -> None:
        """Remove data that nobody asked to keep."""

    def _closed_window(self) -> Any:
        """The last window; its ``run_directory`` is set when that has moved, so that export methods find it."""


@dataclass(eq=False)
class TraceHandler:
    """The callable that :func:`tensorboard_trace_handler` returns.

    Attributes:
        dir_name: folder for run directories; None leaves the choice to the profiler.
        target: folder or URL to which they are moved when they are complete; None leaves them where they are.
        worker_name: first part of a run directory's name; None takes the host name.
        analyse_flag: analyse every window.
        async_mode: analyse beside the training.
        quiet: say nothing of how far the work is, nor which command shows the results.
    """

    dir_name: str | None
    worker_name: str | None
    analyse_flag: bool
    async_mode: bool
    target: str | None = None
    quiet: bool = False

    def __call__(self, profiler: WindowProfiler) -> None:
        """Take over the window that ``profiler`` just closed."""
        if self.dir_name is not None:
            # Already there, unless the handler is called by a function that hides it from the profiler.
            profiler._relocate(Path(self.dir_name))
        run_directory = profiler.run_directory
        if run_directory is None:
            return
        then = self._after_analysis(profiler, run_directory)
        rank = profiler._closed_window().rank
        if not self.quiet and not urls.is_url(self.target or ""):
            closing_line.add_window(Path(self.target) if self.target else run_directory.parent, rank)
        # rank 0 speaks for all
        quiet = self.quiet or rank > 0
        if self.analyse_flag and self.async_mode:
            analyse_beside(run_directory, then)
            return
        try:
            if self.analyse_flag:
                analyse_and_wait(run_directory, quiet=quiet)
        finally:
            then()

    def _after_analysis(self, profiler: WindowProfiler, run_directory: Path) -> Callable[[], None]:
        """What is left to do with a run directory when its analysis is done."""
        target, window = self.target, profiler._closed_window()
        if target is None:
            return lambda: None

        def follow_destination(destination: str) -> None:
            if not urls.is_url(destination):
                window.run_directory = Path(destination)

        return lambda: upload.move_later(run_directory, target, follow_destination)


def tensorboard_trace_handler(
    dir_name: str | os.PathLike[str] | None = None,
    worker_name: str | None = None,
    analyse_flag: bool = True,
    async_mode: bool = False,
    local_dir: str | os.PathLike[str] | None = None,
    quiet: bool = False,
) -> TraceHandler:
    """Where to put recorded windows and whether to analyse them; give it to ``profile`` as ``on_trace_ready``.

    The analysis runs in a process of its own without access to the GPU. Training waits for it unless
    ``async_mode`` is set; at the end of the program the analyses that still run are waited for, and one line on stderr
    says which command shows the results.

    Args:
        dir_name: folder for run directories; else ``$ASCEND_WORK_PATH/profiling_data``, else the current directory. Or a URL that
            fsspec knows, such as ``s3://bucket/runs``: they are written to a local folder and moved there.
        worker_name: first part of a run directory's name; the host name by default. What does not fit (219 bytes) is cut off.
        analyse_flag: analyse a window as soon as it is recorded; else use ``steplens.analyse`` later.
        async_mode: do not make the training wait for the analysis.
        local_dir: write and analyse here, and move the complete run directories to ``dir_name`` beside the training. What cannot
            be moved stays here, and a line says so.
        quiet: leave out that line and those on how far the analysis is; warnings and errors stay. The environment variable
            ``STEPLENS_QUIET=1`` does it for a whole program.
    """
    values, warnings = options.resolve_options(options.HANDLER, options.call_arguments(locals()))
    for warning in warnings:
        log.warning(warning)
    worker = values["worker_name"]
    if worker and rundir.worker_part(worker) != worker:
        values["worker_name"] = rundir.worker_part(worker)
        log.warning(
            f"worker_name cannot begin a folder's name as it is (at most {rundir.WORKER_BYTES} bytes, no {os.sep!r}): "
            f"{values['worker_name']} is used."
        )
    for name in ("dir_name", "local_dir"):
        if values[name] and not urls.is_url(values[name]):
            paths.warn_if_unusual(values[name], f"{name} of tensorboard_trace_handler")
    values["dir_name"], target = upload.split_target(values["dir_name"], values.pop("local_dir"))
    return TraceHandler(**values, target=target)


def offline_environment() -> dict[str, str]:
    """The environment of an analysis process: ours, without the GPU, and with the steplens that is running here."""
    environment = dict(os.environ)
    # Analysis must not take memory of a GPU that trains.
    environment["CUDA_VISIBLE_DEVICES"] = ""
    # A random.py in the training's folder must not be imported instead of the standard one.
    environment["PYTHONSAFEPATH"] = "1"
    home = str(Path(__file__).resolve().parents[3])
    if home not in (sysconfig.get_path("purelib"), sysconfig.get_path("platlib")):
        environment["PYTHONPATH"] = os.pathsep.join(filter(None, (home, environment.get("PYTHONPATH"))))
    return environment


def offline_command(*arguments: str | Path) -> list[str]:
    """The command line of an offline task."""
    return [sys.executable, "-m", "steplens.offline", *map(str, arguments)]


def _start_analysis(run_directory: Path, *, is_async: bool) -> tuple[subprocess.Popen[bytes], Path]:
    logs = rundir.make_directory(run_directory / rundir.LOG_DIRECTORY)
    path = logs / f"profiler_{time.strftime('%Y%m%d%H%M%S')}_{os.getpid()}_analyse.log"
    # On a terminal the analysis shows its progress itself.
    show = not is_async and sys.stderr is not None and sys.stderr.isatty()
    with os.fdopen(os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, rundir.FILE_MODE), "wb") as handle:
        os.fchmod(handle.fileno(), rundir.FILE_MODE)
        handle.write(os.fsencode(f"{run_directory}\n"))
        handle.flush()
        process = subprocess.Popen(
            offline_command("analyse", run_directory),
            # A killed training leaves no analysis behind.
            env={**offline_environment(), parent.VARIABLE: str(os.getpid())},
            stdin=subprocess.DEVNULL,
            stdout=handle,
            stderr=None if show else handle,
            # Ctrl-C ends the training, not an analysis beside it.
            start_new_session=is_async,
        )
    return process, path


def _report_failed_analysis(run_directory: Path, code: int, path: Path) -> None:
    if code:
        log.error(f"The analysis of {run_directory} failed (exit code {code}), see {path}; the recorded data is safe.")


def analyse_and_wait(run_directory: Path, *, quiet: bool = False) -> None:
    """Analyse a run directory in another process and wait for it; ``quiet`` leaves out all that is not wrong."""
    process: subprocess.Popen[bytes] | None = None
    try:
        # What was recorded is safe: whoever has interrupted the program does not wait for this.
        interrupts.deliver_signals()
        if not quiet:
            log.report_progress("analysing the window (the training waits; async_mode=True would not) ...")
        process, path = _start_analysis(run_directory, is_async=False)
        with interrupts.allow_signals():
            code = process.wait(_LONGEST_S)
    except BaseException as error:  # Ctrl-C while the training waits: the analysis is not waited for any longer
        if isinstance(error, Exception) and not interrupts.of_the_program(error):
            raise
        if process is not None:
            process.terminate()
        log.warning(f"{run_directory} is not analysed, because the program was interrupted: steplens analyse does it later.")
        raise
    _report_failed_analysis(run_directory, code, path)


class _Analyses:
    """The analyses that run beside the training: at most half the cores at once, the others queue."""

    def __init__(self) -> None:
        self._slots = threading.Semaphore(max(1, (os.cpu_count() or 2) // 2))
        self._threads: list[threading.Thread] = []
        self._process = os.getpid()

    def add_run(self, run_directory: Path, then: Callable[[], None]) -> None:
        """Analyse a run directory as soon as there is room, and call ``then``."""
        thread = threading.Thread(target=self._run_analysis, args=(run_directory, then), name="steplens analysis", daemon=True)
        self._threads = [*self.running_threads, thread]
        thread.start()

    def _run_analysis(self, run_directory: Path, then: Callable[[], None]) -> None:
        with self._slots:
            try:
                process, path = _start_analysis(run_directory, is_async=True)
                _report_failed_analysis(run_directory, process.wait(), path)
            except Exception as exception:  # the boundary to the system, which starts the analysis
                log.report_failure(f"analyse {run_directory}", exception)
            then()

    @property
    def running_threads(self) -> list[threading.Thread]:
        """Those that are going on, or wait for their turn."""
        return [thread for thread in self._threads if thread.is_alive()]

    def wait_for_all(self) -> None:
        """Wait for all of them; for the end of the program."""
        if os.getpid() != self._process:
            return
        running = self.running_threads
        if running:
            log.info(f"Waiting for {len(running)} analyses to finish; Ctrl-C leaves them to `steplens analyse`.")
        for thread in running:
            thread.join()


_analyses = _Analyses()


def analyse_beside(run_directory: Path, then: Callable[[], None] = lambda: None) -> None:
    """Analyse a run directory in another process without waiting for it.

    Args:
        run_directory: the run directory.
        then: called when it has ended, whatever came of it.
    """
    _analyses.add_run(run_directory, then)


def is_analysing() -> bool:
    """Whether an analysis runs beside the training."""
    return bool(_analyses.running_threads)


def wait_for_analyses(*_: Any) -> None:
    """Wait for the analyses that run beside the training, and for data that is on its way to its target."""
    _analyses.wait_for_all()
    upload.wait_for_moves()


#: profilers that were started, to be finished when the program ends
_started: weakref.WeakSet[WindowProfiler] = weakref.WeakSet()


def finish_at_exit(profiler: WindowProfiler) -> None:
    """Close the window of ``profiler`` when the program ends, if it is open then."""
    if not _started:
        atexit.unregister(_at_exit)
        atexit.register(_at_exit)
    _started.add(profiler)


def _at_exit() -> None:
    """Close windows that are still open, then wait for the analyses, then remove data nobody asked to keep."""
    profilers = list(_started)
    try:
        with interrupts.hold_signals():
            for profiler in profilers:
                profiler._end_of_program()
        wait_for_analyses()
        closing_line.say_next_command()
    finally:
        for profiler in profilers:
            profiler._remove_temporary()
