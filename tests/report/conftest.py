"""A recorded training whose names are secrets, and what reports of it hold."""

from __future__ import annotations

import base64
import contextlib
import json
import re
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from steplens.report.write import Options, write_report

from ..once import once, run_training

#: a page of its own, so that the tests need no built front end
PAGE = '<script type="module" src="./a.js"></script><link rel="stylesheet" href="./a.css"><link rel="icon" href="./i.svg" />'
PART = re.compile(rb'<script type="application/vnd\.steplens\.part" data-part="([^"]+)">([^<]*)</script>')

#: one for each place where a user's string may be; none is a word of steplens or of a framework
SECRETS = {
    place: f"zq{number}x{place}qz"
    for number, place in enumerate(
        ("folder", "file", "function", "module", "member", "range", "mark", "domain", "key", "metadata", "dataset", "collate",
         "autograd", "optimizer", "thread", "lambda", "machine")
    )
}  # fmt: skip

TRAINING = """
import socket, sys, threading, time
import torch
import steplens
from torch import nn

socket.gethostname = lambda: "{machine}"
steplens_mark = steplens.mstx


class {autograd}(torch.autograd.Function):
    @staticmethod
    def forward(context, data):
        return data * 2

    @staticmethod
    def backward(context, gradient):
        return gradient * 2


class {module}(nn.Module):
    def __init__(self):
        super().__init__()
        self.{member} = nn.Sequential(nn.Linear(16, 16), nn.ReLU())
        self.head = nn.Linear(16, 4)

    def forward(self, data):
        return self.head({autograd}.apply(self.{member}(data)))


class {dataset}(torch.utils.data.Dataset):
    def __len__(self):
        return 64

    def __getitem__(self, index):
        time.sleep(0.003)
        return torch.full((16,), float(index))


class {optimizer}(torch.optim.SGD):
    pass


def {collate}(samples):
    return torch.stack(samples)


def {function}(network, batch):
    with torch.profiler.record_function("{range}"):
        return network(batch).square().mean()


def main():
    threading.current_thread().name = "{thread}"
    network = {module}()
    optimizer = {optimizer}(network.parameters(), lr=0.01)
    loader = torch.utils.data.DataLoader({dataset}(), batch_size=8, collate_fn={collate}, num_workers=1)
    with steplens.profile(
        schedule=steplens.schedule(wait=1, warmup=1, active=4, repeat=1),
        on_trace_ready=steplens.tensorboard_trace_handler(sys.argv[1]),
        record_shapes=True,
        profile_memory=True,
        with_stack=True,
        with_modules=True,
        with_flops=True,
        experimental_config=steplens._ExperimentalConfig(mstx=True),
    ) as prof:
        prof.add_metadata("{key}", "{metadata}")
        for batch in loader:
            steplens.mstx.mark("{mark}", domain="{domain}")
            loss = {function}(network, batch)
            loss.backward()
            optimizer.step()
            optimizer.zero_grad()
            prof.step()
    prof.export_memory_timeline(sys.argv[1] + ".json", device="cpu")


main()
"""


@pytest.fixture(scope="session")
def secret_run(tmp_path_factory: pytest.TempPathFactory) -> Path:
    def make(above: Path) -> None:
        folder = above / SECRETS["folder"]
        folder.mkdir()
        script = folder / f"{SECRETS['file']}.py"
        text = TRAINING
        for place, secret in SECRETS.items():
            text = text.replace("{" + place + "}", secret)
        script.write_text(text)
        run_training(script, folder / "result", folder=folder)

    return once(tmp_path_factory, "redact", make) / SECRETS["folder"] / "result"


@pytest.fixture(scope="session")
def static(tmp_path_factory: pytest.TempPathFactory) -> Path:
    folder = tmp_path_factory.mktemp("static")
    (folder / "index.html").write_text(PAGE)
    (folder / "a.js").write_text("document.title = '</script><!--';")
    (folder / "a.css").write_text("p { color: red }")
    (folder / "i.svg").write_text("<svg xmlns='http://www.w3.org/2000/svg'/>")
    return folder


class Held:
    """The parts of a report."""

    def __init__(self, path: Path) -> None:
        self.text = path.read_bytes()
        self.parts = {name.decode(): zlib.decompress(base64.b64decode(data)) for name, data in PART.findall(self.text)}
        self._everything: bytes | None = None

    def json(self, name: str) -> Any:
        return json.loads(self.parts[name])

    def answers(self, run: int = 0) -> dict[str, Any]:
        """Question -> status and answer."""
        bodies = self.json(f"bodies/{run}")
        return {key: (status, bodies[place]) for key, (status, place) in self.json(f"answers/{run}")["known"].items()}

    def everything(self) -> bytes:
        """All that somebody who has the file can read."""
        if self._everything is None:
            self._everything = b"\n".join([PART.sub(b"", self.text), *map(str.encode, self.parts), *self.parts.values()])
        return self._everything


Make = Callable[..., Held]


@contextlib.contextmanager
def alone() -> Iterator[None]:
    """No other process helps: whether one is started depends on how busy the machine is, and each reads the run again.

    That a report is the same with them is said in tests/test_many_traces.py.
    """
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("STEPLENS_WORKER", "1")
        yield


@pytest.fixture(scope="session")
def make(static: Path, tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Makes the report of some paths."""

    def made(*paths: Path, **options: Any) -> Held:
        target = tmp_path_factory.mktemp("report") / "report.html"
        with alone():
            write_report(list(paths), target, Options(**options), lambda _: None, static)
        return Held(target)

    return made


@pytest.fixture(scope="session")
def made_once(static: Path, secret_run: Path, tmp_path_factory: pytest.TempPathFactory) -> Make:
    """Makes a report of the training, by its name once for all workers; with every row."""

    def made(name: str, **options: Any) -> Held:
        def write(folder: Path) -> None:
            with alone():
                write_report([secret_run], folder / "report.html", Options(rows=100_000, **options), lambda _: None, static)

        return Held(once(tmp_path_factory, f"report-{name}", write) / "report.html")

    return made


@pytest.fixture(scope="session")
def plain(made_once: Make) -> Held:
    return made_once("plain")


@pytest.fixture(scope="session")
def redacted(made_once: Make) -> Held:
    return made_once("redacted", redact=True)


@pytest.fixture(scope="session")
def redacted_again(made_once: Make) -> Held:
    """The same once more, with a step that is chosen."""
    return made_once("redacted-again", redact=True, step=3)
