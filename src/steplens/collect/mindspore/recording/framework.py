"""What of MindSpore is called, and nothing else: the CPU profiler's and the data engine's own bindings.

MindSpore is imported at the first use, so that ``import steplens.mindspore`` may come before it.
"""

from __future__ import annotations

import contextlib
import os
import sys
from typing import Any

GRAPH = "graph"
PYNATIVE = "pynative"


def operator_profiler() -> Any:
    """MindSpore's profiler of operators on the CPU.

    Raises:
        RuntimeError: MindSpore is not installed, or was built without it.
    """
    try:
        from mindspore import _c_expression
    except ImportError as error:
        raise RuntimeError(f"MindSpore cannot be imported ({error}); install steplens[mindspore]") from error
    found = _c_expression.Profiler.get_instance("CPU") if hasattr(_c_expression, "Profiler") else None
    if found is None:
        raise RuntimeError("this build of MindSpore has no profiler (it was compiled with '-s on')")
    return found


def other_profiler() -> bool:
    """Whether MindSpore's own profiler is at work: it records with the same bindings, and one of the two gets nothing."""
    module = sys.modules.get("mindspore.profiler.profiler_interface")
    return bool(getattr(getattr(module, "ProfilerInterface", None), "is_initialized", False))


def pipeline_profiler() -> Any:
    """The data engine's manager of profiling."""
    from mindspore import _c_dataengine

    return _c_dataengine.GlobalContext.profiling_manager()


def dataset_config() -> Any:
    """``mindspore.dataset.config``."""
    import mindspore.dataset

    return mindspore.dataset.config


def iterator_class() -> Any:
    """The class of every iterator over a data pipeline."""
    from mindspore.dataset.engine.iterators import Iterator

    return Iterator


def worker_pool_class() -> Any:
    """The class of the pools of worker processes of a data pipeline; None where MindSpore has no such class."""
    from mindspore.dataset.engine import datasets

    return getattr(datasets, "_PythonMultiprocessing", None)


def callback_manager_class() -> Any:
    """The class through which ``Model`` calls its callbacks; None where MindSpore has no such class."""
    from mindspore.train import callback

    return getattr(callback, "_CallbackManager", None)


def wait_for_eager_work() -> None:
    """Wait for eager work that is still on its way, so that it belongs to the step that launched it."""
    executor = _eager_executor()
    if executor is not None:
        executor.sync()


_EXECUTOR: Any = None


def _eager_executor() -> Any:
    global _EXECUTOR
    if _EXECUTOR is None and "mindspore" in sys.modules:
        try:
            from mindspore.graph.api import _pynative_executor
        except ImportError:  # 2.4 and earlier
            from mindspore.common.api import _pynative_executor
        _EXECUTOR = _pynative_executor
    return _EXECUTOR


def execution_mode() -> str:
    """``graph`` or ``pynative``: the mode that the context is in."""
    import mindspore

    return GRAPH if mindspore.get_context("mode") == mindspore.GRAPH_MODE else PYNATIVE


def device_target() -> str:
    """``CPU``, ``GPU`` or ``Ascend``."""
    import mindspore

    return str(mindspore.get_context("device_target"))


def mindspore_version() -> str:
    """MindSpore's version; empty before it is imported."""
    module = sys.modules.get("mindspore")
    return str(getattr(module, "__version__", ""))


def mindspore_rank() -> int:
    """The rank that MindSpore's own files are numbered with: the environment's ``RANK_ID``, else 0."""
    text = os.environ.get("RANK_ID", "")
    return int(text) if text.isascii() and text.isdecimal() and len(text) < 10 else 0


def world_size() -> int | None:
    """How many ranks the job has; None where nothing tells."""
    text = os.environ.get("RANK_SIZE", "")
    if text.isascii() and text.isdecimal() and 0 < len(text) < 10:
        return int(text)
    with contextlib.suppress(Exception):
        from mindspore.communication import get_group_size

        return int(get_group_size())
    return None
