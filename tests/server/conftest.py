"""A real server on a real port, and a client that is nothing but HTTP."""

from __future__ import annotations

import http.client
import json
import threading
import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from urllib.parse import urlencode

import pytest
import uvicorn

from steplens.cli.view_captures import Trainings
from steplens.server.app import STATIC, create_app
from steplens.server.http import connections
from steplens.server.http.address import open_listening_socket
from steplens.server.runs import RunLibrary

from ..once import once, run_training
from ..shared_data import shared

TOKEN = "the-token-of-the-tests"
#: a busy machine may take long for a run that it opens the first time
DEADLINE_S = 300


@dataclass
class Answer:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Client:
    """Asks a server; every request brings the token unless it is told otherwise."""

    def __init__(self, port: int, library: RunLibrary) -> None:
        self.port = port
        self.library = library

    def ask(
        self,
        path: str,
        *,
        method: str = "GET",
        body: bytes | None = None,
        headers: dict[str, str] | None = None,
        token: str | None = TOKEN,
        host: str | None = None,
    ) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=DEADLINE_S)
        try:
            connection.putrequest(method, path, skip_host=True)
            connection.putheader("Host", host or f"127.0.0.1:{self.port}")
            sent = {"Authorization": f"Bearer {token}"} if token is not None else {}
            if body is not None:
                sent |= {"Content-Type": "application/json", "Content-Length": str(len(body))}
            for name, value in {**sent, **(headers or {})}.items():
                connection.putheader(name, value)
            connection.endheaders(body)
            answer = connection.getresponse()
            return Answer(answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read())
        finally:
            connection.close()

    def get(self, path: str, expect: int = 200, **parameters: Any) -> Any:
        told = {name: str(value).lower() if isinstance(value, bool) else value for name, value in parameters.items()}
        answer = self.ask(f"{path}?{urlencode(told)}" if told else path)
        assert answer.status == expect, (answer.status, answer.body[:2000])
        return answer.json

    def post(self, path: str, body: Any, expect: int = 200) -> Any:
        answer = self.ask(path, method="POST", body=json.dumps(body).encode())
        assert answer.status == expect, (answer.status, answer.body[:2000])
        return answer.json

    def opened(self) -> Client:
        """Wait until every run is open or has failed."""
        deadline = time.monotonic() + DEADLINE_S
        while any(run["progress"]["state"] in ("waiting", "opening") for run in self.get("/api/session")["runs"]):
            assert time.monotonic() < deadline, "the runs are not opened"
            time.sleep(0.02)
        return self


Start = Callable[..., Client]


@pytest.fixture(scope="module")
def serve() -> Iterator[Start]:
    """Starts servers; they end with the module's tests."""
    running: list[tuple[uvicorn.Server, threading.Thread]] = []

    def start(
        paths: Sequence[Path], static: Path = STATIC, wait: bool = True, limits: connections.Limits | None = None
    ) -> Client:
        bound = open_listening_socket("127.0.0.1", 0)
        library = RunLibrary(paths)
        app = create_app(library, TOKEN, static=static, control=Trainings())
        server = connections.create_server(app, limits)
        thread = threading.Thread(target=server.run, kwargs={"sockets": [bound]}, daemon=True)
        thread.start()
        running.append((server, thread))
        library.start()
        client = Client(bound.getsockname()[1], library)
        return client.opened() if wait else client

    yield start
    for server, _ in running:
        server.should_exit = True
    for _, thread in running:
        thread.join(10)


def sample(*parts: str) -> Path:
    """A sample of the shared test data."""
    return shared(*parts)


TRAIN = """
import sys
import torch
import steplens

model = torch.nn.Sequential(torch.nn.Linear(64, 64), torch.nn.ReLU(), torch.nn.Linear(64, 8))
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
data = torch.utils.data.TensorDataset(torch.randn(256, 64))
loader = iter(torch.utils.data.DataLoader(data, batch_size=16))
with steplens.profile(
    activities=[steplens.ProfilerActivity.CPU],
    schedule=steplens.schedule(wait=1, warmup=1, active=6, repeat=1),
    on_trace_ready=steplens.tensorboard_trace_handler(sys.argv[1]),
    record_shapes=True,
    profile_memory=True,
    with_stack=True,
    with_modules=True,
) as prof:
    for _ in range(10):
        (batch,) = next(loader)
        optimizer.zero_grad()
        model(batch).sum().backward()
        optimizer.step()
        prof.step()
"""


@pytest.fixture(scope="session")
def recorded(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with one run of a real training on the CPU, with shapes, stacks, modules and memory."""

    def make(folder: Path) -> None:
        script = folder / "train.py"
        script.write_text(TRAIN)
        run_training(script, folder / "result", folder=folder)

    return once(tmp_path_factory, "server", make) / "result"
