"""``steplens doctor``: what can be collected on this machine, and why not the rest."""

from __future__ import annotations

import dataclasses
import importlib.metadata
import importlib.util
import os
import platform
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

from steplens.cli.line.arguments import Json
from steplens.cli.text.text import console, plain, print_json, size
from steplens.collect.ascend import installation, library
from steplens.collect.common import profiler_environment
from steplens.collect.recorder import recorder_library
from steplens.common import json_text, rundir
from steplens.common.native import build
from steplens.common.native.libraries import is_wanted

LOW_SPACE_BYTES = 1 << 30
PROBE_SECONDS = 60

#: the folder that holds the steplens that is running here
_HOME = Path(__file__).resolve().parents[2]


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


def doctor(
    json: Json = False,
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


def _installed_version(distribution: str) -> str | None:
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
    kineto, recorder = bool(torch.autograd.kineto_available()), _check_recorder()
    why = "Kineto is part of this PyTorch" if kineto else "this PyTorch was built without Kineto"
    if recorder.available:
        why = f"recorded by the recorder; {why}"
    yield Check("CPU operators", kineto or recorder.available, why, "" if kineto else "install a PyTorch built with USE_KINETO=1")
    yield recorder
    yield _check_cuda(torch)
    yield Check("modules", True, "recorded by forward hooks, with_modules=True")
    yield Check("DataLoader wait", True, "time the step waits for the next batch")


def _check_recorder() -> Check:
    """The recorder of the host: built, or what it lacks."""
    name = "recorder"
    if not is_wanted():
        return Check(name, False, "STEPLENS_NATIVE=off forbids native libraries; Kineto records", "unset STEPLENS_NATIVE")
    if recorder_library.wanted_recorder() == recorder_library.OFF:
        return Check(name, False, "STEPLENS_RECORDER=off; Kineto records", "unset STEPLENS_RECORDER")
    how = "it records in place of Kineto, without stacks and devices"
    try:
        library = recorder_library.recorder_library()
    except recorder_library.RecorderError as error:
        return Check(name, False, f"{error}; Kineto records", "install a PyTorch with its headers, such as the one of PyPI")
    if recorder_library.is_built():
        return Check(name, True, f"built for this PyTorch; {how}")
    compiler = build.find_compiler()
    if compiler is None:
        return Check(name, False, "there is no C++ compiler to build it with; Kineto records", "install g++ or clang++")
    if reason := build.known_failure(library, compiler):
        return Check(name, False, f"{reason}; Kineto records")
    return Check(name, True, f"is built with {compiler} when it is first used; {how}")


def _check_cuda(torch: Any) -> Check:
    name = "CUDA kernels"
    built = getattr(torch.version, "cuda", None) or getattr(torch.version, "hip", None)
    if not built:
        return Check(name, False, "this PyTorch is built for the CPU only", "install a PyTorch built for CUDA or ROCm")
    if not torch.cuda.is_available():
        return Check(name, False, f"PyTorch is built for {built}, but finds no device that it can use")
    if torch.profiler.ProfilerActivity.CUDA not in torch.profiler.supported_activities():
        return Check(name, False, "there is a device, but this PyTorch does not offer to trace it")
    return Check(name, True, f"{torch.cuda.device_count()} device(s), {torch.cuda.get_device_name(0)}, built for {built}")


def check_ascend() -> Iterator[Check]:
    """Ascend: CANN's profiling library and export command, the PyTorch plug-in."""
    plug_in = _installed_version("torch_npu") or _installed_version("torch-npu")
    command = shutil.which("msprof")
    probed = _run_probe("steplens.collect.ascend.probe", "CANN's library")
    installed = (
        plug_in or command or installation.cann_home() or installation.unsourced_home() or os.environ.get(library.OVERRIDE)
    )
    if probed["problem"] and not installed:
        yield Check("Ascend NPU", False, "no Ascend software is installed: no CANN, no msprof command, no torch_npu")
    else:
        yield from _check_npu(probed, plug_in)
        why = "not on PATH: device data is exported for the analysis by a machine that has it"
        yield Check("msprof", command is not None, command or why, "" if command else "source CANN's set_env.sh")


def check_mindspore() -> Iterator[Check]:
    """MindSpore: what it runs on the CPU is recorded, what it runs on a device is left to its own profiler."""
    name = "MindSpore"
    if importlib.util.find_spec("mindspore") is None:
        detail = f"not installed for {sys.executable}; what its profilers wrote elsewhere is read"
        yield Check(name, False, detail, "pip install 'steplens[mindspore]' to record it on a CPU")
        return
    installed = next((version for part in ("", "-gpu", "-ascend") if (version := _installed_version(f"mindspore{part}"))), "")
    probed = _run_probe("steplens.collect.mindspore.recording.probe", "MindSpore")
    version = str(probed.get("version") or installed)
    if probed["problem"]:
        yield Check(name, False, f"{version}: {probed['problem']}".removeprefix(": "), "repair the installation of mindspore")
        return
    detail = f"{version}: what it runs on the CPU is recorded, through steplens.mindspore"
    if (device := probed.get("device") or "CPU") != "CPU":
        detail += f"; on {device} use MindSpore's own profiler, whose files are read"
    yield Check(name, True, detail)


def _check_npu(probed: dict[str, Any], plug_in: str | None) -> Iterator[Check]:
    version = installation.cann_version()
    cann = f"CANN {version}" if version else "CANN of unknown version"
    name = "Ascend NPU"
    if probed["problem"]:
        unsourced = installation.unsourced_home()
        remedy = f"source {unsourced.parent / 'set_env.sh'} before starting Python" if unsourced else ""
        yield Check(name, False, f"device data cannot be recorded: {probed['problem']}", remedy)
        yield Check("torch_npu", plug_in is not None, plug_in or "not installed: a PyTorch program cannot use the NPU")
        return
    other_profilers = profiler_environment.variables_of_other_profilers()
    if other_profilers:
        yield Check(
            name, False, f"{' and '.join(other_profilers)} is set: another profiler owns this environment, nothing is recorded"
        )
        return
    absent = [symbol for symbol, there in probed["symbols"].items() if not there]
    without = f"; older than this, without {', '.join(absent)}" if absent else ""
    yield Check(name, True, f"{cann}, {probed['library']}{without}")
    yield Check("torch_npu", plug_in is not None, plug_in or "not installed: a PyTorch program cannot use the NPU")
    if probed["features"] is None:
        yield Check("CANN features", False, "this CANN cannot list them, so options that depend on one are not recorded")
        return
    for option, works in probed["options"].items():
        yield Check(f"NPU {option}", works, "offered by this CANN" if works else "not offered by this CANN")


def _run_probe(module: str, what: str) -> dict[str, Any]:
    """What a module prints of a foreign library; in another process, because such a library may end the process that loads it."""
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(_HOME), *filter(None, [os.environ.get("PYTHONPATH")])])}
    # nothing is to be recorded
    environment.pop("MS_PROFILER_OPTIONS", None)
    try:
        done = subprocess.run(
            [sys.executable, "-m", module],
            env=environment,
            stdin=subprocess.DEVNULL,
            capture_output=True,
            timeout=PROBE_SECONDS,
            check=False,
        )
    except subprocess.TimeoutExpired:
        return {"problem": f"asking {what} took longer than {PROBE_SECONDS} seconds"}
    if done.returncode:
        return {"problem": f"asking {what} ended the process that asked (exit code {done.returncode})"}
    # the library itself may print before the answer
    answer: dict[str, Any] = json_text.loads(done.stdout.splitlines()[-1])
    return answer


def check_disk() -> Iterator[Check]:
    """Whether a run directory can be written here."""
    here = Path.cwd()
    free = rundir.free_bytes(here)
    writable = os.access(here, os.W_OK)
    detail = f"{size(free)} free in {here}" if writable else f"{here} is not writable"
    remedy = "" if writable and free >= LOW_SPACE_BYTES else "give --out a directory with at least 1 GiB free"
    yield Check("disk space", writable and free >= LOW_SPACE_BYTES, detail, remedy)


#: every group of checks, in the order they are shown
CHECKS: tuple[Callable[[], Iterator[Check]], ...] = (check_python, check_torch, check_mindspore, check_ascend, check_disk)
