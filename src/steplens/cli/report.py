"""``steplens report``: the pages of the web UI and their data in one file that opens without steplens."""

from __future__ import annotations

from pathlib import Path
from typing import Annotated

import typer

from steplens.cli.advise import Language
from steplens.cli.line.arguments import Scheduler
from steplens.cli.shown_runs import Paths, needing_the_extra
from steplens.cli.text.text import console, plain, size
from steplens.common.errors import InputError, SteplensError
from steplens.readers.glance import refuse_hopeless


def report(
    paths: Paths,
    output: Annotated[Path, typer.Option("--out", "-o", metavar="FILE", help="The HTML file to write.")] = Path("report.html"),
    step: Annotated[int | None, typer.Option(metavar="N", help="Show the events of this step.")] = None,
    window: Annotated[
        str | None, typer.Option(metavar="START:END", help="Show the events between these times, ms from the start of the run.")
    ] = None,
    redact: Annotated[
        bool, typer.Option("--redact", help="Replace paths, host names and names from the program by pseudonyms.")
    ] = False,
    rows: Annotated[int, typer.Option(min=1, max=1_000_000, metavar="N", help="Rows of each table at most.")] = 2000,
    limit: Annotated[int, typer.Option(min=1, max=1024, metavar="MIB", help="Size of the data at most, MiB.")] = 32,
    language: Annotated[
        Language | None,
        typer.Option(metavar="LANGUAGE", help="Language in which it opens, en or zh; that of the browser by default."),
    ] = None,
    scheduler: Scheduler = "",
) -> None:
    """Write runs as one HTML file: the pages of steplens view with their data, which needs neither steplens nor a network.

    The timeline has the events of one window, by default of the step of median length; the rest of the run is shown in boxes.
    The page "Report" of the file says which window that is and what was left out to keep the file small.
    """
    if step is not None and window is not None:
        raise SteplensError("--step and --window both choose what to show; give one of them")
    for path in paths:
        refuse_hopeless(path)
    if output.is_dir():
        raise InputError(output, "is a folder", "Give the file to write, such as -o report.html")
    if not output.absolute().parent.is_dir():
        raise InputError(output.absolute().parent, "is not a folder that is there", "Make it first")
    with needing_the_extra("a report"):
        from steplens.common.executors import named_executor
        from steplens.report.window import parse_window
        from steplens.report.write import Options, write_report

    executor = named_executor(scheduler) if scheduler else None
    out = console()
    span_ns = parse_window(window) if window is not None else None
    options = Options(step, span_ns, rows, limit << 20, redact, language.value if language is not None else None)
    with out.status("") as status:
        written = write_report(paths, output, options, lambda what: status.update(plain(what)), executor=executor)
    out.print(plain(f"{output}: {size(written.size_bytes)}", "bold"), soft_wrap=True)
    for path, shown in zip(paths, written.windows, strict=True):
        which = "" if shown.step is None else f"step {shown.step}" + (" (of median length)" if shown.median else "") + ", "
        span = f"{shown.start_ns / 1e6:.3f} to {shown.end_ns / 1e6:.3f} ms"
        out.print(plain(f"{path}: events of {which}{span}"), soft_wrap=True)
    if written.left_out:
        out.print(plain(f"{written.left_out} things are not whole in it; its page Report lists them"), soft_wrap=True)
