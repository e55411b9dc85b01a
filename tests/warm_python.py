"""Runs programs as children of an interpreter that has imported PyTorch: most of what a process of their own costs is that.

A program gets the folder, arguments, environment and pipes that ``python PROGRAM`` has, is a process of its own, and ends like
one, but for the memory of the interpreter, which nobody tears down. What depends on that, on the import of PyTorch happening in
it, on the start of Python, or on variables that are read then, needs ``subprocess`` and ``sys.executable``.
"""

from __future__ import annotations

import atexit
import contextlib
import functools
import importlib
import importlib.machinery
import json
import os
import runpy
import signal
import socket
import subprocess
import sys
import threading
import types
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Any

_MOST_BYTES = 1 << 17
_PIPES = 2


class _Interpreter:
    """The parent of the programs of this test process. Those of one request run beside each other."""

    def __init__(self) -> None:
        self._channel, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        with other:
            command = [sys.executable, __file__, str(other.fileno())]
            # NumPy's OpenBLAS would start threads
            environment = {**os.environ, "OPENBLAS_NUM_THREADS": "1"}
            # its streams, which its children have too, are those of pipes
            streams = {"stdin": subprocess.DEVNULL, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE}
            self._process = subprocess.Popen(command, pass_fds=[other.fileno()], env=environment, **streams)
        if self._channel.recv(_MOST_BYTES) != b"ready":
            raise RuntimeError(self._process.communicate()[1].decode())
        atexit.register(self.close)

    def run(self, programs: list[dict[str, Any]], timeout: float) -> tuple[list[int], str, str]:
        """Exit statuses of programs, and what they and all that they started wrote."""
        pipes = [os.pipe() for _ in range(_PIPES)]
        socket.send_fds(self._channel, [json.dumps(programs).encode()], [end for _, end in pipes])
        for _, end in pipes:
            os.close(end)
        children = json.loads(self._channel.recv(_MOST_BYTES))
        texts = [b""] * _PIPES
        readers = [threading.Thread(target=_read_all, args=(begin, texts, number)) for number, (begin, _) in enumerate(pipes)]
        for reader in readers:
            reader.start()
        timer = threading.Timer(timeout, _kill, (children,))
        timer.start()
        statuses = json.loads(self._channel.recv(_MOST_BYTES))
        timer.cancel()
        for reader in readers:
            reader.join()
        out, err = (text.decode() for text in texts)
        return [os.waitstatus_to_exitcode(status) for status in statuses], out, err

    def close(self) -> None:
        """End it, so that the system counts its time as that of the tests."""
        self._channel.close()
        self._process.communicate()


def _kill(children: Sequence[int]) -> None:
    for child in children:
        with contextlib.suppress(ProcessLookupError):
            os.kill(child, signal.SIGKILL)


def _read_all(descriptor: int, texts: list[bytes], number: int) -> None:
    with open(descriptor, "rb") as pipe:
        texts[number] = pipe.read()


@functools.cache
def _interpreter() -> _Interpreter:
    return _Interpreter()


def run_warm(
    *arguments: str | Path, folder: Path | None = None, env: Mapping[str, str] | None = None, timeout: float = 600
) -> subprocess.CompletedProcess[str]:
    """Run ``python ARGUMENTS``, a script, ``-m MODULE`` or ``-c CODE`` and what they get, and wait for it.

    Args:
        arguments: those of Python.
        folder: where, if not here.
        env: the whole environment, if not that of the tests.
        timeout: seconds after which it is killed.
    """
    line, program = _program(arguments, folder, os.environ if env is None else env)
    (status,), out, err = _interpreter().run([program], timeout)
    return subprocess.CompletedProcess(line, status, out, err)


def run_warm_ranks(
    ranks: int, *arguments: str | Path, folder: Path | None = None, env: Mapping[str, str] | None = None, timeout: float = 600
) -> subprocess.CompletedProcess[str]:
    """Run a script as ``torchrun`` does, in so many processes of one job; the first exit status that is not 0 is the result.

    Args:
        ranks: how many.
        arguments: of Python, as for ``run_warm``.
        folder: where, if not here.
        env: changes to the environment.
        timeout: seconds after which all are killed.
    """
    job = {"MASTER_ADDR": "127.0.0.1", "MASTER_PORT": str(_free_port()), "OMP_NUM_THREADS": "1"}
    job |= {"WORLD_SIZE": str(ranks), "LOCAL_WORLD_SIZE": str(ranks), "GROUP_RANK": "0"}
    programs = []
    for rank in map(str, range(ranks)):
        line, program = _program(arguments, folder, {**os.environ, **(env or {}), **job, "RANK": rank, "LOCAL_RANK": rank})
        programs.append(program)
    statuses, out, err = _interpreter().run(programs, timeout)
    return subprocess.CompletedProcess(line, next(filter(None, statuses), 0), out, err)


def _free_port() -> int:
    # below those that the system gives to whoever asks for any; programs of other test processes begin elsewhere
    first = 20_000 + os.getpid() * 16 % 10_000
    for port in range(first, first + 2_000):
        with socket.socket() as free, contextlib.suppress(OSError):
            free.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            free.bind(("", port))
            return port
    raise OSError(f"no port from {first} on is free")


def _program(
    arguments: Sequence[str | Path], folder: Path | None, environment: Mapping[str, str]
) -> tuple[list[str], dict[str, Any]]:
    line = [str(argument) for argument in arguments]
    program = {"arguments": line, "folder": str(folder or Path.cwd()), "environment": dict(environment)}
    return [sys.executable, *line], program


def _serve(channel: socket.socket) -> dict[str, Any] | None:
    """Fork the children of each request; returns what a child has to run in that child, and None at the end."""
    channel.send(b"ready")
    while True:
        message, descriptors, _, _ = socket.recv_fds(channel, _MOST_BYTES, _PIPES)
        if not message:
            return None
        children = []
        for program in json.loads(message):
            child = os.fork()
            if not child:
                channel.close()
                for number, descriptor in enumerate(descriptors, start=1):
                    os.dup2(descriptor, number)
                    os.close(descriptor)
                running: dict[str, Any] = program
                return running
            children.append(child)
        for descriptor in descriptors:
            os.close(descriptor)
        channel.send(json.dumps(children).encode())
        channel.send(json.dumps(_wait(children)).encode())


def _wait(children: list[int]) -> list[int]:
    """The statuses of all; the first that fails takes the others with it, which may wait for it."""
    statuses = {}
    while len(statuses) < len(children):
        child, status = os.wait()
        statuses[child] = status
        if status:
            _kill([other for other in children if other not in statuses])
    return [statuses[child] for child in children]


def _run(arguments: Sequence[str], folder: str, environment: Mapping[str, str]) -> None:
    before = os.environ.get("PYTHONPATH", "").split(os.pathsep)
    os.environ.clear()
    os.environ.update(environment)
    os.chdir(folder)
    rest = [path for path in sys.path[1:] if path not in before]
    paths = [path for path in environment.get("PYTHONPATH", "").split(os.pathsep) if path]
    kind, program, *line = arguments if arguments[0] in ("-m", "-c") else ("", *arguments)
    first = {"-m": folder, "-c": ""}.get(kind, os.path.dirname(os.path.abspath(program)))
    sys.path[:] = [first, *paths, *rest]
    sys.argv = ["-c" if kind == "-c" else program, *line]
    sys.orig_argv = [sys.executable, *arguments]
    importlib.invalidate_caches()
    if threads := environment.get("OMP_NUM_THREADS"):
        # read where OpenMP starts
        sys.modules["torch"].set_num_threads(int(threads))
    if kind == "-m":
        runpy.run_module(program, run_name="__main__", alter_sys=True)
        return
    # runpy takes its module away at the end of the script: what runs at exit, and processes that multiprocessing starts, need it
    main = sys.modules["__main__"] = types.ModuleType("__main__")
    if kind == "-c":
        exec(compile(program, "<string>", "exec", dont_inherit=True), main.__dict__)
        return
    script = os.path.abspath(program)
    main.__dict__.update(__file__=script, __loader__=importlib.machinery.SourceFileLoader("__main__", script), __cached__=None)
    exec(compile(Path(script).read_bytes(), script, "exec", dont_inherit=True), main.__dict__)


def _status(run: Callable[[], None]) -> int:
    """The exit status that Python makes of what ends a program."""
    try:
        run()
    except SystemExit as end:
        if end.code is None or isinstance(end.code, int):
            return end.code or 0
        print(end.code, file=sys.stderr)
        return 1
    except BaseException as error:  # the boundary of the program
        sys.excepthook(type(error), error, error.__traceback__)
        return -signal.SIGINT if isinstance(error, KeyboardInterrupt) else 1
    return 0


def _end(status: int) -> None:
    """End as Python does, without what takes a second where PyTorch is: freeing every object."""
    threading._shutdown()  # type: ignore[attr-defined]
    atexit._run_exitfuncs()
    for stream in (sys.stdout, sys.stderr):
        with contextlib.suppress(AttributeError, OSError, ValueError):
            stream.flush()
    if status < 0:
        signal.signal(-status, signal.SIG_DFL)
        os.kill(os.getpid(), -status)
    os._exit(status & 0xFF)


def _serve_programs() -> None:
    for variable in ("STEPLENS_RUN", "STEPLENS_CONFIG_PATH", "PROF_CONFIG_PATH"):
        os.environ.pop(variable, None)
    import torch
    import torch._dynamo  # the first optimizer imports it

    # a child of a process with threads may hang
    threads = len(os.listdir("/proc/self/task"))
    assert threads == 1, f"the import of PyTorch {torch.__version__} left {threads} threads"
    program = _serve(socket.socket(fileno=int(sys.argv[1])))
    if program is not None:
        _end(_status(lambda: _run(**program)))


if __name__ == "__main__":
    _serve_programs()
