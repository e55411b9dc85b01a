"""``events()`` and ``key_averages()`` of the last window, as PyTorch's own: from the saved trace, and only when somebody asks.

A window is saved by Kineto in C++; its events never become Python objects. Who asks for them gets them from the file: it is read
again, each event is given the interface of Kineto's own, and PyTorch's own code makes its lists of them. So the figures are those
that ``torch.profiler`` would show, and a window of which nobody asks costs nothing.
"""

from __future__ import annotations

import importlib
import json
from collections.abc import Callable, Iterator
from decimal import Decimal
from pathlib import Path
from typing import Any

from steplens.common import json_text

_DEVICE = {"kernel", "gpu_memcpy", "gpu_memset", "concurrent_kernel", "gpu_user_annotation"}
_ANNOTATIONS = ("user_annotation", "gpu_user_annotation")
#: events on the host that are not in PyTorch's lists
_HIDDEN = {"ac2g", "fwdbwd", "overhead", "Trace", "async_cpu_to_gpu"}
_MEMORY = "[memory]"
_OUT_OF_MEMORY = "[OutOfMemory]"
#: ``torch.autograd.DeviceType``
_CPU, _CUDA = 0, 1
#: method of Kineto's event -> the argument of an event in the file that it gives, a list or a number
_LISTS = {
    "shapes": "Input Dims",
    "structured_input_shapes": "Input Dims",
    "structured_input_strides": "Input Strides",
    "dtypes": "Input type",
    "concrete_inputs": "Concrete Inputs",
}
_NUMBERS = {"device_index": "device", "external_id": "External id", "flops": "flops", "nbytes": "Bytes"}
#: the same -> what it gives where the file does not tell
_CONSTANTS: dict[str, Any] = {
    "overload_name": "",
    "is_async": False,
    **dict.fromkeys(("python_id", "python_parent_id", "python_module_id"), -1),
}
#: scope of a range that the program itself opens, as PyTorch numbers it
_USER_SCOPE = 7


class _Event:
    """One event of a trace with the methods of Kineto's event that PyTorch's lists are made from.

    ``device_types`` is ``torch.autograd.DeviceType``; ``forward_threads`` has the thread of the forward call by sequence number.
    """

    def __init__(self, event: dict[str, Any], device_types: Callable[[int], Any], forward_threads: dict[int, int]) -> None:
        self._event = event
        self._arguments: dict[str, Any] = event.get("args") or {}
        self._device_types = device_types
        self._forward_threads = forward_threads
        self._start_ns = int(event["ts"] * 1000)
        self._end_ns = self._start_ns + int(event.get("dur", 0) * 1000)
        self._on_device = event.get("cat") in _DEVICE
        self._is_operator = event.get("cat") in ("cpu_op", "user_annotation")

    def __getattr__(self, name: str) -> Callable[[], Any]:
        if name.startswith("_"):
            raise AttributeError(name)
        if name in _LISTS:
            return lambda: list(self._arguments.get(_LISTS[name], ()))
        if name in _NUMBERS:
            return lambda: _integer_or_default(self._arguments.get(_NUMBERS[name]))
        # 0: what another release of PyTorch asks, and the file does not tell
        return lambda: _CONSTANTS.get(name, 0)

    def name(self) -> str:
        return str(self._event.get("name", ""))

    def start_ns(self) -> int:
        return self._start_ns

    def end_ns(self) -> int:
        return self._end_ns

    def start_us(self) -> float:
        return self._start_ns / 1000

    def end_us(self) -> float:
        return self._end_ns / 1000

    def duration_ns(self) -> int:
        return self._end_ns - self._start_ns

    def duration_us(self) -> float:
        return self.duration_ns() / 1000

    def start_thread_id(self) -> int:
        return _integer_or_default(self._event.get("tid"))

    end_thread_id = start_thread_id

    def fwd_thread_id(self) -> int:
        return self._forward_threads.get(self.sequence_nr(), 0) if self._arguments.get("Fwd thread id") else 0

    def device_type(self) -> Any:
        if self.name() in (_MEMORY, _OUT_OF_MEMORY):
            return self._device_types(_integer_or_default(self._arguments.get("Device Type")))
        return self._device_types(_CUDA if self._on_device else _CPU)

    def device_resource_id(self) -> int:
        return _integer_or_default(self._arguments.get("stream", self._event.get("tid")))

    def correlation_id(self) -> int:
        return _integer_or_default(self._arguments.get("External id" if self._is_operator else "correlation"))

    def linked_correlation_id(self) -> int:
        return 0 if self._is_operator else _integer_or_default(self._arguments.get("External id"))

    def sequence_nr(self) -> int:
        return _integer_or_default(self._arguments.get("Sequence number"), -1)

    def kwinputs(self) -> dict[str, Any]:
        return dict(self._arguments.get("kwinputs", {}))

    def stack(self) -> list[str]:
        return [frame for frame in str(self._arguments.get("Call stack", "")).split(";") if frame]

    def scope(self) -> int:
        return _USER_SCOPE if self._event.get("cat") == "user_annotation" else 0

    def is_user_annotation(self) -> bool:
        return self._event.get("cat") in _ANNOTATIONS

    def is_python_function(self) -> bool:
        return self._event.get("cat") == "python_function"

    def activity_type(self) -> str:
        return str(self._event.get("cat", ""))

    def extra_meta(self) -> dict[str, Any]:
        return {}

    def metadata_json(self) -> str:
        return json.dumps(self._arguments, default=float)[1:-1]


class _Result:
    """A trace with the methods of Kineto's result."""

    def __init__(self, events: list[_Event]) -> None:
        self._events = events

    def events(self) -> list[_Event]:
        return self._events

    def trace_start_ns(self) -> int:
        return min((event.start_ns() for event in self._events), default=0)


def function_events(trace: Path, options: dict[str, Any], *, host_only: bool = False) -> Any:
    """The events of a saved trace as PyTorch's ``EventList``.

    Args:
        trace: Kineto's file. All of it is read into memory, some ten times as much as it has bytes.
        options: arguments of ``torch.autograd.profiler.profile``, those with which the trace was recorded.
        host_only: of a trace that was made of results, in which the processor's work stands for that of a device as well.

    Raises:
        OSError, ValueError: the file is not there or no trace.
    """
    profiler: Any = importlib.import_module("torch.autograd.profiler")
    owner = profiler.profile(**options)
    events = profiler.EventList(
        owner._parse_kineto_results(_Result(list(_wanted_events(trace, host_only)))),
        use_device=owner.use_device,
        profile_memory=owner.profile_memory,
        with_flops=owner.with_flops,
    )
    events._build_tree()
    return events


def no_events() -> Any:
    """An ``EventList`` without events."""
    events = importlib.import_module("torch.autograd.profiler").EventList([])
    events._build_tree()
    return events


def _wanted_events(trace: Path, host_only: bool) -> Iterator[_Event]:
    # times of days in microseconds with three digits, exactly
    with trace.open("rb") as file:
        listed = json_text.loads(file.read(), parse_float=Decimal)["traceEvents"]
    events = [event for event in listed if _is_wanted(event) and not (host_only and event.get("cat") in _DEVICE)]
    threads = {}
    for event in events:
        arguments = event.get("args") or {}
        if "Sequence number" in arguments and not arguments.get("Fwd thread id"):
            threads[_integer_or_default(arguments["Sequence number"])] = _integer_or_default(event.get("tid"))
    device_types: Any = importlib.import_module("torch.autograd").DeviceType
    return (_Event(event, device_types, threads) for event in events)


def _is_wanted(event: dict[str, Any]) -> bool:
    if event.get("name") in (_MEMORY, _OUT_OF_MEMORY):
        return event.get("ph") == "i"
    return event.get("ph") == "X" and event.get("cat") not in _HIDDEN


def _integer_or_default(value: Any, missing: int = 0) -> int:
    return value if type(value) is int else missing
