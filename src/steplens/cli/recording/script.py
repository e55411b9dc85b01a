"""Runs somebody's script as ``python SCRIPT ARGS`` or ``python -m MODULE ARGS`` would."""

from __future__ import annotations

import builtins
import importlib.machinery
import io
import os
import runpy
import sys
import types
import zipfile
from pathlib import Path
from types import TracebackType

from steplens.common.errors import InputError, SteplensError

EXIT_EXCEPTION = 1


def check_script(script: str, module: bool) -> None:
    """Refuse what cannot be run before anything is set up.

    Raises:
        InputError: there is no such script.
        SteplensError: there is no such module.
    """
    if not module:
        if not Path(script).exists():
            raise InputError(script, "there is no such script")
        return
    # find_spec would import the parent packages, which belongs to the script; only the first part is looked for
    top = script.partition(".")[0]
    sys.path.insert(0, os.getcwd())
    try:
        import importlib.util

        if not top or importlib.util.find_spec(top) is None:
            raise SteplensError(f"there is no module named {script}")
    finally:
        sys.path.pop(0)


def run_script(script: str, arguments: list[str], module: bool) -> None:
    """Run ``script`` as ``__main__`` with its own ``sys.argv`` and ``sys.path``.

    Its exceptions leave this function unchanged; ``strip_launcher_frames`` removes our frames from their traceback.
    """
    sys.argv = [script, *arguments]
    if not getattr(sys.flags, "safe_path", False) and sys.path:
        sys.path[0] = os.getcwd() if module else os.path.dirname(os.path.realpath(script))
    if module:
        runpy.run_module(script, run_name="__main__", alter_sys=True)
    elif os.path.isfile(script) and not script.endswith(".pyc") and not zipfile.is_zipfile(script):
        # source text; Python also runs compiled files, archives and folders
        _run_source(script)
    else:
        runpy.run_path(script, run_name="__main__")


def _run_source(script: str) -> None:
    # runpy takes its module away again at the end of the script: threads that still run, and what runs at exit, need it
    path = os.path.join(os.getcwd(), script)
    with io.open_code(path) as file:
        code = compile(file.read(), path, "exec", dont_inherit=True)
    main = types.ModuleType("__main__")
    loader = importlib.machinery.SourceFileLoader("__main__", path)
    main.__dict__.update(__file__=path, __loader__=loader, __builtins__=builtins, __cached__=None)
    sys.modules["__main__"] = main
    exec(code, main.__dict__)


def strip_launcher_frames(traceback: TracebackType | None) -> TracebackType | None:
    """``traceback`` from the script's own first frame on, as if Python had run the script itself."""
    while traceback is not None and _is_ours(traceback):
        traceback = traceback.tb_next
    return traceback


def _is_ours(traceback: TracebackType) -> bool:
    name = traceback.tb_frame.f_code.co_filename
    return name in ("<frozen runpy>", runpy.__file__) or name.startswith(os.path.dirname(os.path.dirname(__file__)) + os.sep)
