"""What is asked of every damaged capture: a trace, or an InputError. Never a traceback, a hang or an unbounded allocation."""

from __future__ import annotations

import os
import shutil
from pathlib import Path

from steplens.common.errors import DefectError, InputError
from steplens.readers import detect
from steplens.run import Run, Source
from steplens.trace.trace import Trace

from .mutations import Files


def write(files: Files, folder: Path) -> Path:
    """Write a capture into an empty folder; the path to open: the only file, or the folder."""
    shutil.rmtree(folder, ignore_errors=True)
    folder.mkdir(parents=True)
    # files that were read are told from files that were not by their time
    for name, data in files.items():
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
    only = [name for name in files if "/" not in name]
    return folder / only[0] if len(files) == 1 and only else folder


def read(path: Path, *, through_cache: bool = False) -> str:
    """Open a capture, look at every table and ask every question; what came of it, in a few words.

    Args:
        path: what to open.
        through_cache: read what lies in the cache, as far as it is trusted.
    """
    try:
        found = detect.find_traces(path)
    except InputError as error:
        return f"refused: {error.problem[:60]}"
    traces: list[tuple[Source, Trace]] = []
    refused = []
    for one in found:
        try:
            trace = detect.load(one) if through_cache else one.reader.read(one.where)
        except DefectError:
            raise
        except InputError as error:
            refused.append(error)
            continue
        traces.append((Source(one.path), trace))
    if not traces:
        return f"refused: {refused[0].problem[:60]}"
    return _ask(Run(path, traces, refused))


def _ask(run: Run) -> str:
    for trace in run.traces:
        for name in trace:
            frame = trace.table(name)
            assert frame is not None
            frame.rows()
    run.steps(whole_trace_without_steps=True)
    for by in ("name", "shape", "stack", "module"):
        run.operators(by=by)
    run.memory()
    health = run.health()
    checks = ",".join(sorted(set(health["check"].to_list())))
    tables = ",".join(sorted({name for trace in run.traces for name in trace}))
    return f"read: {tables} [{checks}]"


def touch_cache(folder: Path, files: Files) -> None:
    """Give the raw file the times that the cached manifest was made for, so that the cache is not simply stale."""
    import json

    for name, data in files.items():
        if name.endswith("manifest.json"):
            try:
                sources = json.loads(data)["manifest"]["key"]["sources"]
                for source, _, modified, *_ in sources:
                    os.utime(folder / source, ns=(modified, modified))
            except (ValueError, KeyError, TypeError, OSError, OverflowError):
                return
