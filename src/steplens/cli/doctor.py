"""``steplens doctor``: what can be collected on this machine, and why not the rest."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Annotated, Any

import typer

from steplens import rundir
from steplens.cli.text import console, plain, print_json, size

LOW_SPACE_BYTES = 1 << 30


@dataclasses.dataclass(frozen=True)
class Check:
    """One thing that can or cannot be collected or used here.

    Attributes:
        name: what it is, as a user would say it.
        available: whether it works here.
        detail: the version or figure found, or why it is not available.
        remedy: what would make it available; empty when it is, or when nothing would.
    """

    name: str
    available: bool
    detail: str
    remedy: str = ""


def register(app: typer.Typer) -> None:
    """Add the command to ``app``."""
    app.command("doctor")(doctor)


def doctor(
    json: Annotated[bool, typer.Option("--json", help="Print one JSON document instead of text.")] = False,
) -> None:
    """Say what can be collected on this machine, and why not the rest."""
    checks = [check for group in CHECKS for check in group()]
    if json:
        print_json({"checks": [dataclasses.asdict(check) for check in checks]})
        return
    out = console()
    width = max(len(check.name) for check in checks)
    for check in checks:
        mark = plain("yes", "green") if check.available else plain("no ", "yellow")
        out.print(mark, plain(check.name.ljust(width)), plain(check.detail), sep="  ", soft_wrap=True)
        if check.remedy:
            out.print(plain(" " * (width + 7) + check.remedy, "dim"), soft_wrap=True)
    if any(check.name == "CPU operators" and check.available for check in checks):
        out.print(plain("next: steplens run --out result SCRIPT"), soft_wrap=True)


def _version(distribution: str) -> str | None:
    try:
        return importlib.metadata.version(distribution)
    except importlib.metadata.PackageNotFoundError:
        return None


def check_python() -> Iterator[Check]:
    """Python itself, and garbage collections, which need nothing else."""
    yield Check("Python", True, f"{platform.python_version()} on {platform.system()} {platform.machine()}")
    yield Check("garbage collections", True, "set gc_detect_threshold (milliseconds) to record them")


def check_torch() -> Iterator[Check]:
    """PyTorch and everything that comes with it."""
    if importlib.util.find_spec("torch") is None:
        remedy = "pip install torch"
        yield Check("PyTorch", False, f"not installed for {sys.executable}", remedy)
        for name in ("CPU operators", "CUDA kernels", "modules", "DataLoader wait"):
            yield Check(name, False, "needs PyTorch")
        return
    try:
        import torch
        import torch.profiler
    except Exception as error:  # the boundary to a foreign package: its import may fail in any way
        yield Check("PyTorch", False, f"installed, but its import fails: {error}", "repair the installation of torch")
        return
    yield Check("PyTorch", True, str(torch.__version__))
    kineto = bool(torch.autograd.kineto_available())
    why = "Kineto is part of this PyTorch" if kineto else "this PyTorch was built without Kineto"
    yield Check("CPU operators", kineto, why, "" if kineto else "install a PyTorch built with USE_KINETO=1")
    yield _check_cuda(torch)
    yield Check("modules", True, "recorded by forward hooks, with_modules=True")
    yield Check("DataLoader wait", True, "time the step waits for the next batch")


def _check_cuda(torch: Any) -> Check:
    name = "CUDA kernels"
    built = getattr(torch.version, "cuda", None) or getattr(torch.version, "hip", None)
    if not built:
        return Check(name, False, "this PyTorch is built for the CPU only", "install a PyTorch built for CUDA or ROCm")
    if not torch.cuda.is_available():
        return Check(name, False, f"PyTorch is built for {built}, but there is no usable device or driver")
    if torch.profiler.ProfilerActivity.CUDA not in torch.profiler.supported_activities():
        return Check(name, False, "there is a device, but this Kineto cannot trace it (no CUPTI or roctracer)")
    return Check(name, True, f"{torch.cuda.device_count()} device(s), {torch.cuda.get_device_name(0)}, built for {built}")


def check_ascend() -> Iterator[Check]:
    """Ascend: the PyTorch plug-in, CANN's own tool, MindSpore."""
    reason = "options for the NPU are accepted and recorded, but steplens does not collect from the device yet"
    version = _version("torch_npu") or _version("torch-npu")
    yield Check("Ascend NPU", False, f"torch_npu {version}: {reason}" if version else f"torch_npu is not installed; {reason}")
    msprof = shutil.which("msprof")
    yield Check("msprof", msprof is not None, msprof or "not on PATH: CANN is not installed or its set_env.sh was not sourced")
    version = _version("mindspore")
    detail = f"{version}, but steplens does not collect from it yet" if version else "not installed, and not collected yet"
    yield Check("MindSpore", False, detail)


def check_disk() -> Iterator[Check]:
    """Whether a run directory can be written here."""
    here = Path.cwd()
    free = rundir.free_bytes(here)
    writable = os.access(here, os.W_OK)
    detail = f"{size(free)} free in {here}" if writable else f"{here} is not writable"
    remedy = "" if writable and free >= LOW_SPACE_BYTES else "give --out a directory with at least 1 GiB free"
    yield Check("disk space", writable and free >= LOW_SPACE_BYTES, detail, remedy)


#: every group of checks, in the order they are shown
CHECKS: tuple[Callable[[], Iterator[Check]], ...] = (check_python, check_torch, check_ascend, check_disk)
