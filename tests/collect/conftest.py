"""Programs, networks and checks that the tests of the collector share."""

import json
import os
import subprocess
import sys
import tempfile
from pathlib import Path
from types import SimpleNamespace

import pytest

from ..warm_python import run_warm

SOURCE = Path(__file__).resolve().parents[2] / "src"


@pytest.fixture(autouse=True)
def _quiet_environment(monkeypatch, tmp_path):
    for name in (
        "RANK",
        "WORLD_SIZE",
        "ASCEND_WORK_PATH",
        "PROFILER_SAMPLECONFIG",
        "PROFILING_MODE",
        "TORCH_NPU_WARNING_DISABLE",
    ):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.chdir(tmp_path)


@pytest.fixture(autouse=True)
def nothing_compiled(monkeypatch):
    """What another test has compiled does not make this one a program that compiles, for which Kineto records."""
    if compiler := sys.modules.get("torch._dynamo.eval_frame"):
        monkeypatch.setattr(compiler, "cached_backends", {})


@pytest.fixture
def train():
    """A function that runs training steps of a small network, calling ``step`` after each one."""
    torch = pytest.importorskip("torch")
    torch.manual_seed(0)
    model = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 2))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)

    def run(steps, profiler=None):
        for _ in range(steps):
            optimizer.zero_grad()
            model(torch.ones(4, 8)).sum().backward()
            optimizer.step()
            if profiler is not None:
                profiler.step()

    return run


def runs(folder):
    """The run directories in a folder, oldest first."""
    return sorted(Path(folder).glob("*_ascend_pt"))


EXPORT = "import sys\nfrom steplens.writers.exports.__main__ import main\nsys.exit(main(['kineto', *sys.argv[1:]]))"


def raw(run, name="trace.json"):
    """The content of a file of the raw data; of the recorder's, in the form that Kineto's would have."""
    path = run / "KINETO" / name
    if name == "trace.json" and not path.exists() and (run / "KINETO" / "operators.rec").exists():
        path = Path(tempfile.mkdtemp()) / name
        # in another process: polars, which reads it, has a handler for Ctrl-C of its own from then on
        done = warm_python(EXPORT, run.absolute(), path, cwd=path.parent)
        assert done.returncode == 0, done.stderr
        made = json.loads(path.read_bytes())
        # what the CPU computes is in such a file a second time, as work of a device
        made["traceEvents"] = [event for event in made["traceEvents"] if event.get("cat") != "kernel"]
        return made
    return json.loads(path.read_bytes())


def raw_bytes(run):
    """The size of the file with what was recorded."""
    return next(
        (run / "KINETO" / name).stat().st_size for name in ("trace.json", "operators.rec") if (run / "KINETO" / name).exists()
    )


def state(run):
    """The content of state.json."""
    return raw(run, "state.json")


def names(run):
    """The names of all events of a run, in order of time."""
    events = [event for event in raw(run)["traceEvents"] if "ts" in event]
    return [event["name"] for event in sorted(events, key=lambda event: event["ts"])]


def checks(run):
    """The names of the findings in the health of a run."""
    return [finding["check"] for finding in state(run)["health"]]


def warm_python(code, *arguments, cwd, **options):
    """As ``python``, in a process that has imported PyTorch before; see ``tests/warm_python.py``."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), **options.pop("env", {})}
    return run_warm("-c", code, *arguments, folder=cwd, env=environment)


def python(code, *arguments, cwd, **options):
    """Run a Python program that can import steplens."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE), **options.pop("env", {})}
    return subprocess.run(
        [sys.executable, "-c", code, *map(str, arguments)], cwd=cwd, env=environment, capture_output=True, text=True, timeout=600
    )


@pytest.fixture
def look():
    """The helpers of this file, for reading run directories and running programs."""
    return SimpleNamespace(
        runs=runs, raw=raw, raw_bytes=raw_bytes, state=state, names=names, checks=checks, python=python, warm_python=warm_python
    )


@pytest.fixture(params=["auto", "off"], ids=["recorder", "kineto"])
def each_recorder(request, monkeypatch):
    """What records: first what does by default, then Kineto."""
    monkeypatch.setenv("STEPLENS_RECORDER", request.param)
    return request.param


@pytest.fixture
def with_kineto(monkeypatch):
    """Kineto records, whatever the default is: for what is true of Kineto alone."""
    monkeypatch.setenv("STEPLENS_RECORDER", "off")
