"""``steplens export``: traces in the formats of other tools."""

from __future__ import annotations

import enum
from collections.abc import Iterable
from pathlib import Path
from typing import Annotated

import typer

from steplens.cli.line.arguments import InputPath, Json, Rank
from steplens.cli.opening import open_with_progress, show_work
from steplens.cli.text.text import console, plain, print_json
from steplens.common import extensions
from steplens.common.errors import SteplensError

#: some of the traces in a folder could not be read or written
EXIT_PARTIAL = 3


#: the formats; ``steplens.writers.exports.formats`` describes them
OFFERED = ("kineto", "chrome", "db", "text", "parquet", "speedscope", "pprof", "stacks", "memory")


class Metric(str, enum.Enum):
    """What the lines of --to stacks count."""

    self_cpu_time_total = "self_cpu_time_total"
    self_npu_time_total = "self_npu_time_total"
    self_cuda_time_total = "self_cuda_time_total"


def _format_name(text: str) -> str:
    """A format of steplens, or of an installed package; those are loaded only where somebody asks for one."""
    if text in OFFERED:
        return text
    formats: Iterable[str] = OFFERED
    if extensions.are_installed(extensions.WRITERS):
        from steplens.writers.exports.formats import all_formats

        formats = all_formats()
    if text not in formats:
        raise typer.BadParameter(f"{text!r} is not one of {', '.join(map(repr, formats))}.")
    return text


def export(
    path: InputPath,
    to: Annotated[
        str,
        typer.Option(
            "--to", help=f"The format: {', '.join(OFFERED)}.", metavar="FORMAT", parser=_format_name, show_default=False
        ),
    ],
    output: Annotated[
        Path | None,
        typer.Option(
            "--out",
            "-o",
            metavar="PATH",
            help="File or folder to write; of several traces, and of db and text, a folder for them.",
        ),
    ] = None,
    rank: Rank = None,
    metric: Annotated[
        Metric, typer.Option(metavar="METRIC", help=f"What --to stacks counts: {', '.join(Metric)}.")
    ] = Metric.self_cpu_time_total,
    device: Annotated[
        str | None,
        typer.Option(
            metavar="DEVICE", help="What --to memory shows: cpu, cuda:0 ...; the accelerator, or else the CPU, by default."
        ),
    ] = None,
    json: Json = False,
) -> None:
    """Write the traces in PATH as files that other tools open.

    kineto: PyTorch's own form, for HolisticTraceAnalysis · chrome: for Perfetto · db, text: a run directory for
    msprof-analyze and MindStudio Insight · parquet: the tables · speedscope · pprof · stacks: for FlameGraph · memory:
    by category over time (.html, .json, .raw.json.gz).

    Exit code 2 means that nothing could be exported, 3 that some of several traces could not be read or written.
    """
    run = open_with_progress(path, rank)
    from steplens.writers.exports.export import export as export_traces
    from steplens.writers.exports.formats import all_formats

    out = console()
    written: list[Path] = []

    notes: list[str] = []
    failed: list[SteplensError] = []
    try:
        with show_work("writing"):
            export_traces(
                run, to, output, rank=rank, metric=metric.value, device=device, on_written=written.append, on_note=notes.append
            )
    except SteplensError as error:
        if not written:
            raise
        failed.append(error)
    if not json:
        for target in written:
            out.print(plain(f"{target}: {all_formats()[to].what}"), soft_wrap=True)
    notes = [*dict.fromkeys(notes), *(str(error) for error in (*failed, *run.unreadable))]
    if json:
        print_json({"path": str(path), "to": to, "written": [str(target) for target in written], "notes": notes})
    else:
        for note in notes:
            typer.echo(f"steplens: {note}", err=True)
    raise typer.Exit(EXIT_PARTIAL if failed or run.unreadable else 0)
