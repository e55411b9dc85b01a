"""Readers open files through ``common.storage`` alone: any other way reads stand-ins, which hold nothing."""

from __future__ import annotations

import ast
from pathlib import Path

import steplens

PACKAGE = Path(steplens.__file__).parent
#: what reads content of what a user opens
READING = ("readers", "common/expansion.py", "trace/cache/seal.py", "offline")
#: methods that read content, and functions of libraries
READS = {"open", "read_bytes", "read_text", "fromfile", "memmap", "scan_parquet", "scan_ipc", "scan_csv", "connect"}
#: who may, and why
ALLOWED = {
    "readers/kineto/two_processes.py": "files of its own, in a temporary folder",
    "readers/common/sqlite_file.py": "connects to what local_file gave it, and copies that",
    "readers/common/json_sample.py": "writes the sample",
    "readers/ascend/msprof_command.py": "writes a log, beside data of this machine",
    "trace/cache/seal.py": "files of ours, and local sources by descriptor",
    "readers/mindspore/results/mindspore_kernels.py": "calls a function of ours that is named so",
}


def reads_past_storage(path: Path) -> list[int]:
    calls = [node.func for node in ast.walk(ast.parse(path.read_text())) if isinstance(node, ast.Call)]
    methods = [call.lineno for call in calls if isinstance(call, ast.Attribute) and call.attr in READS]
    return methods + [call.lineno for call in calls if isinstance(call, ast.Name) and call.id == "open"]


def test_no_reader_opens_files_by_itself() -> None:
    files = [file for name in READING for file in ([PACKAGE / name] if name.endswith(".py") else (PACKAGE / name).rglob("*.py"))]
    assert len(files) > 100
    ways = {str(file.relative_to(PACKAGE)): lines for file in sorted(files) if (lines := reads_past_storage(file))}
    assert {name: lines for name, lines in ways.items() if name not in ALLOWED} == {}
    assert set(ALLOWED) <= set(ways)
