"""Where the ranks of a job are read and judged, besides this machine: anything that takes tasks as ``concurrent.futures`` does.

Dask is found by the address of its scheduler or the file that it wrote; other packages add executors behind entry points of the
group ``steplens.executors``, each a function without arguments that gives one.
"""

from __future__ import annotations

import logging
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

from steplens.common import extensions
from steplens.common.errors import InputError

Asked = TypeVar("Asked")

_LOG = logging.getLogger("steplens.common.executors")
#: tasks that an executor has at once: more would wait there
_AT_ONCE = 512
#: how long a scheduler may take to answer
_TIMEOUT = "15s"
_ADDRESSES = ("tcp://", "tls://", "ucx://", "ws://", "wss://")


class Task(Protocol):
    """What ``submit`` gives: a future, or what has its ``result``."""

    def result(self) -> Any:
        """What the function returned; raises what it raised, or that it was lost."""


class TaskExecutor(Protocol):
    """What takes tasks: every ``concurrent.futures.Executor``, and whatever else has its ``submit``."""

    def submit(self, function: Callable[..., Any], /, *arguments: Any) -> Task:
        """Have a function called somewhere."""


def named_executor(name: str) -> TaskExecutor:
    """An executor by what a user calls it.

    Args:
        name: address of a scheduler of Dask (``tcp://host:8786``), the file that it wrote (``--scheduler-file``), or the name of
            an entry point of the group ``steplens.executors``.

    Raises:
        InputError: there is none of that name, or it cannot be reached.
    """
    if name.startswith(_ADDRESSES):
        return _dask_executor(name, address=name)
    if Path(name).is_file():
        return _dask_executor(name, scheduler_file=name)
    makers = {entry.name: entry for entry in extensions.entry_points_of(extensions.EXECUTORS)}
    if name not in makers:
        installed = (
            f"; installed executors: {', '.join(sorted(makers))}" if makers else "; no package that adds executors is installed"
        )
        raise InputError(name, "is no address (tcp://HOST:PORT) and no scheduler file" + installed)
    try:
        executor: TaskExecutor = makers[name].load()()
    except Exception as error:  # the code of another package
        raise InputError(name, f"this executor cannot be started ({type(error).__name__}: {error})") from error
    return executor


def map_ranks(executor: TaskExecutor, function: Callable[[Asked], Any], ranks: Iterable[Asked]) -> Iterator[tuple[Asked, Any]]:
    """What a function gives for each rank, in the order given, but for those that failed or were lost: the caller does these.

    Args:
        executor: where it is called.
        function: of what is asked about a rank; other processes have to find it under its name.
        ranks: what is asked about each, such as its number.
    """
    waiting = iter(ranks)
    running: deque[tuple[Asked, Task]] = deque()
    is_broken = False
    while True:
        while not is_broken and len(running) < _AT_ONCE and (question := next(waiting, None)) is not None:
            try:
                running.append((question, executor.submit(function, question)))
            except Exception as error:  # such as that its processes died
                _LOG.warning("steplens: the executor takes no more tasks (%s: %s)", type(error).__name__, error)
                is_broken = True
        if not running:
            return
        question, task = running.popleft()
        try:
            yield question, task.result()
        except Exception as error:  # whatever happens there: the rank is done here, and says itself what is wrong with it
            _LOG.info("a rank was not done there (%s: %s)", type(error).__name__, error)


def _dask_executor(name: str, **where: str) -> TaskExecutor:
    try:
        from distributed import Client
    except ImportError as error:
        raise InputError(name, "needs Dask, which is not installed", "Run pip install 'steplens[cluster]'") from error
    try:
        client: Any = Client
        executor: TaskExecutor = client(timeout=_TIMEOUT, **where).get_executor()
    except (OSError, TimeoutError, ValueError) as error:
        raise InputError(name, f"no scheduler of Dask answers there ({error})") from error
    return executor
