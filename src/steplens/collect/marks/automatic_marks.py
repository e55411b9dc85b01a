"""Marks that a window with mstx records by itself: communication, data loading, checkpoints and forward passes.

The functions concerned are replaced while the window is open. What took a reference to one of them before, as
``from torch import save`` does, calls the original and is not seen.
"""

from __future__ import annotations

import functools
import importlib
import threading
import weakref
from collections.abc import Callable
from typing import Any

from steplens.collect.common import clock, log
from steplens.collect.marks.marks import DEFAULT_DOMAIN, MarkRecorder

#: domain of the marks of communication
COMMUNICATION_DOMAIN = "communication"

DATALOADER, SAVE_CHECKPOINT, FORWARD = "dataloader", "save_checkpoint", "forward"

#: PyTorch's types as the messages of communication name them; those of integers are called alike
_TYPES = {"float16": "fp16", "float32": "fp32", "float64": "fp64", "bfloat16": "bfp16"}

_ALLGATHER_VARIANTS = ("all_gather_single", "allgather_into_tensor_coalesced", "all_gather_single_coalesced")
_REDUCE_SCATTER_VARIANTS = ("reduce_scatter_single", "reduce_scatter_tensor_coalesced", "reduce_scatter_single_coalesced")
#: operation -> which argument holds the data that this rank contributes, and the methods of a process group
_OPERATIONS = {
    "Allreduce": (0, ("allreduce", "allreduce_coalesced")),
    "Broadcast": (0, ("broadcast",)),
    "Reduce": (0, ("reduce",)),
    "Allgather": (1, ("allgather", "allgather_coalesced", "_allgather_base", *_ALLGATHER_VARIANTS)),
    "ReduceScatter": (1, ("reduce_scatter", "_reduce_scatter_base", *_REDUCE_SCATTER_VARIANTS)),
    "Alltoall": (1, ("alltoall",)),
    "AlltoallV": (1, ("alltoall_base", "all_to_all_single")),
    "Gather": (1, ("gather",)),
    "Scatter": (1, ("scatter",)),
    "Send": (0, ("send",)),
    "Recv": (0, ("recv", "recv_anysource")),
    "Barrier": (0, ("barrier",)),
}


class AutomaticMarks:
    """Replaces functions of PyTorch between :meth:`install` and :meth:`remove`; the recorder gets the marks."""

    def __init__(self, recorder: MarkRecorder) -> None:
        self._recorder = recorder
        self._replaced: list[tuple[Any, str, Any, Any]] = []
        self._handles: list[Any] = []
        self._works: weakref.WeakKeyDictionary[Any, int] = weakref.WeakKeyDictionary()
        self._thread = threading.local()
        self._broken = False

    def install(self) -> None:
        """Begin to record."""
        for part in (self._watch_communication, self._data_loading, self._watch_checkpoints, self._watch_forward):
            try:
                part()
            except Exception as exception:  # the boundary to PyTorch, whose calls are watched
                log.report_failure(f"automatic marks ({part.__name__.strip('_')})", exception)

    def remove(self) -> None:
        """Put everything back, unless somebody else has replaced it meanwhile."""
        for owner, name, original, replacement in reversed(self._replaced):
            if vars(owner).get(name) is replacement:
                setattr(owner, name, original)
        for handle in self._handles:
            handle.remove()
        self._replaced, self._handles = [], []

    def _replace_method(self, owner: Any, name: str, new: Callable[[Any], Any]) -> None:
        original = vars(owner).get(name)
        if original is not None:
            replacement = new(original)
            setattr(owner, name, replacement)
            self._replaced.append((owner, name, original, replacement))

    # --- communication

    def _watch_communication(self) -> None:
        distributed: Any = importlib.import_module("torch.distributed")
        if not distributed.is_available():
            return
        types: Any = importlib.import_module("torch._C._distributed_c10d")
        # Methods and not functions of torch.distributed: those are compared with each other (batch_isend_irecv).
        for operation, (argument, methods) in _OPERATIONS.items():
            for method in methods:
                self._replace_method(types.ProcessGroup, method, functools.partial(self._collective, operation, argument))
        self._replace_method(types.Work, "wait", self._wrap_wait)

    def _collective(self, operation: str, argument: int, original: Any) -> Any:
        def call(group: Any, *args: Any, **kwargs: Any) -> Any:
            number = 0
            try:
                message = _communication_message(group, operation, args[argument] if len(args) > argument else None, args)
                number = self._recorder.start(message, None, COMMUNICATION_DOMAIN)
            except Exception as exception:  # the boundary to PyTorch, whose calls are watched
                self._report_failure("communication", exception)
            try:
                work = original(group, *args, **kwargs)
            except BaseException:  # goes on: the mark of the failed call is ended first
                if number:
                    self._recorder.end(number)
                raise
            if number:
                self._track_work(number, work)
            return work

        return functools.wraps(original)(call)

    def _track_work(self, number: int, work: Any) -> None:
        """A range ends when its work has been waited for; until then, here."""
        try:
            self._works[work] = number
        except TypeError:
            self._recorder.end(number)
            return
        self._recorder.ends_at(number, clock.now_ns())

    def _wrap_wait(self, original: Any) -> Any:
        def wait(work: Any, *args: Any, **kwargs: Any) -> Any:
            try:
                return original(work, *args, **kwargs)
            finally:
                number = self._works.pop(work, 0)
                if number:
                    self._recorder.end(number)

        return functools.wraps(original)(wait)

    # --- phases

    def _data_loading(self) -> None:
        loader: Any = importlib.import_module("torch.utils.data.dataloader")
        self._replace_method(loader._BaseDataLoaderIter, "__next__", functools.partial(self._wrap_phase, DATALOADER))

    def _watch_checkpoints(self) -> None:
        torch: Any = importlib.import_module("torch")
        self._replace_method(torch, "save", self._wrap_save)

    def _wrap_save(self, original: Any) -> Any:
        recorder = self._recorder
        marked = self._wrap_phase(SAVE_CHECKPOINT, original)

        def save(*args: Any, **kwargs: Any) -> Any:
            result = marked(*args, **kwargs)
            recorder.saved(args[1] if len(args) > 1 else kwargs.get("f"))
            return result

        return functools.wraps(original)(save)

    def _wrap_phase(self, message: str, original: Any) -> Any:
        recorder = self._recorder

        def call(*args: Any, **kwargs: Any) -> Any:
            number = recorder.start(message, None, DEFAULT_DOMAIN)
            try:
                return original(*args, **kwargs)
            finally:
                if number:
                    recorder.end(number)

        return functools.wraps(original)(call)

    def _watch_forward(self) -> None:
        torch: Any = importlib.import_module("torch")
        modules: Any = importlib.import_module("torch.nn.modules.module")
        self._compiling: Callable[[], bool] = torch.compiler.is_compiling
        self._handles += [
            modules.register_module_forward_pre_hook(self._enter_module),
            modules.register_module_forward_hook(self._leave_module, always_call=True),
        ]

    def _enter_module(self, module: Any, _inputs: Any) -> None:
        # torch.compile would trace the hook into the graph
        if self._compiling():
            return
        thread = self._thread
        if getattr(thread, "outermost", None) is None:
            thread.outermost = module
            thread.again = 0
            thread.range = self._recorder.start(FORWARD, None, DEFAULT_DOMAIN)
        elif thread.outermost is module:
            thread.again += 1

    def _leave_module(self, module: Any, _inputs: Any, _output: Any) -> None:
        thread = self._thread
        if self._compiling() or getattr(thread, "outermost", None) is not module:
            return
        if thread.again:
            thread.again -= 1
            return
        thread.outermost = None
        if thread.range:
            self._recorder.end(thread.range)

    def _report_failure(self, name: str, exception: Exception) -> None:
        if not self._broken:
            self._broken = True
            log.report_failure(f"automatic marks ({name})", exception)


def _communication_message(group: Any, operation: str, data: Any, args: tuple[Any, ...]) -> str:
    """What a mark of communication says, in the form of CANN's."""
    tensors = list(_iterate_tensors(data)) or list(_iterate_tensors(args))
    count = sum(tensor.numel() for tensor in tensors)
    dtype = str(tensors[0].dtype).removeprefix("torch.") if tensors else ""
    rank = ""
    if operation == "Send" and len(args) > 1:
        rank = f'"destRank": "{int(args[1])}",'
    elif operation == "Recv" and len(args) > 2:
        rank = f'"srcRank": "{int(args[1])}",'
    kind = _TYPES.get(dtype, dtype)
    name = f"{group.name().capitalize()}{operation}"
    stream = _stream_number(tensors[0]) if tensors else threading.get_native_id()
    return (
        f'{{"streamId": "{stream}","count": "{count}","dataType": "{kind}",{rank}'
        f'"groupName": "{group.group_name}","opName": "{name}"}}'
    )


def _iterate_tensors(data: Any) -> Any:
    if hasattr(data, "numel"):
        yield data
    elif isinstance(data, list | tuple):
        for item in data:
            yield from _iterate_tensors(item)


def _stream_number(tensor: Any) -> int:
    """What executes: the current stream of the device, or on a CPU the thread."""
    if tensor.device.type == "cpu":
        return threading.get_native_id()
    module = importlib.import_module("torch").get_device_module(tensor.device)
    return int(module.current_stream(tensor.device).stream_id)
