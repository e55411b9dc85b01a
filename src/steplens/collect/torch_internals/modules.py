"""Records which ``nn.Module`` is running, as ranges named ``nn.Module: <qualified name>``.

Kineto knows modules by class and a running number only (``Linear_3``); the qualified name (``Net.encoder.0``)
is what people and the memory of a model are organised by. Global forward hooks open and close the ranges.
"""

from __future__ import annotations

import importlib
import threading
import weakref
from collections.abc import Callable
from typing import Any

#: the prefix by which readers tell a module from an operator
MODULE_PREFIX = "nn.Module: "


class ModuleHooks:
    """Opens a range when a module is called and closes it when the call returns or raises.

    The name of a module is its path below the outermost module that was called, starting with the class
    name of that one. A module that is called inside of another one without being registered in it is named
    by the path of the caller and its own class.

    Args:
        failed: called at most once, with the exception, if the hooks themselves fail; they record nothing then.
        range_type: makes a context manager of a name, which whoever records sees; by default one that Kineto sees.
    """

    def __init__(self, failed: Callable[[Exception], None], range_type: Callable[[str], Any] | None = None) -> None:
        torch: Any = importlib.import_module("torch")
        profiler: Any = importlib.import_module("torch._C._profiler")
        # A plain record_function costs several times as much, and dispatches through the operator registry.
        self._range: Any = range_type or profiler._RecordFunctionFast
        self._compiling: Callable[[], bool] = torch.compiler.is_compiling
        self._modules: Any = importlib.import_module("torch.nn.modules.module")
        self._failed = failed
        self._broken = False
        # A weak reference guards against the id of a deleted module being used again.
        self._names: dict[int, tuple[weakref.ref[Any], str]] = {}
        self._thread = threading.local()
        self._handles: list[Any] = []

    def install(self) -> None:
        """Begin to record."""
        self._handles = [
            self._modules.register_module_forward_pre_hook(self._enter_module),
            self._modules.register_module_forward_hook(self._leave_module, always_call=True),
        ]

    def remove(self) -> None:
        """End, and close what is still open on this thread (a window may end in the middle of a call)."""
        for handle in self._handles:
            handle.remove()
        self._handles = []
        stack = getattr(self._thread, "stack", [])
        while stack:
            stack.pop()[1].__exit__(None, None, None)
        self._names.clear()

    def _enter_module(self, module: Any, _inputs: Any) -> None:
        # torch.compile would trace the hook into the graph.
        if self._compiling() or self._broken:
            return
        try:
            try:
                stack = self._thread.stack
            except AttributeError:
                stack = self._thread.stack = []
            entry = self._names.get(id(module))
            name = entry[1] if entry is not None and entry[0]() is module else self._name(module, stack)
            opened = self._range(name)
            opened.__enter__()
            stack.append((module, opened, name))
        except Exception as exception:  # the boundary to the training, inside of a forward pass
            self._report_failure(exception)

    def _leave_module(self, module: Any, _inputs: Any, _output: Any) -> None:
        if self._compiling() or self._broken:
            return
        try:
            stack = getattr(self._thread, "stack", None)
            if not stack:
                return
            if stack[-1][0] is module:
                stack.pop()[1].__exit__(None, None, None)
            elif any(entry[0] is module for entry in stack):
                # Something between was left without its hook being called (KeyboardInterrupt): close it as well.
                while stack:
                    left, opened, _ = stack.pop()
                    opened.__exit__(None, None, None)
                    if left is module:
                        break
        except Exception as exception:  # the boundary to the training, inside of a forward pass
            self._report_failure(exception)

    def _name(self, module: Any, stack: list[Any]) -> str:
        """Name a module that was not seen yet, and everything below it."""
        kind = type(module).__name__
        root = f"{stack[-1][2]}.{kind}" if stack else f"{MODULE_PREFIX}{kind}"
        for path, child in module.named_modules():
            self._names[id(child)] = (weakref.ref(child), f"{root}.{path}" if path else root)
        return root

    def _report_failure(self, exception: Exception) -> None:
        self._broken = True
        self._failed(exception)
