"""``mindspore.Profiler`` as of r2.2: other defaults, and one window per object."""

from __future__ import annotations

from typing import Any

from steplens.collect.mindspore.interfaces import parameters
from steplens.collect.mindspore.interfaces.profiler import Profiler as _Profiler


class Profiler(_Profiler):
    """Records one window of a training of MindSpore; see ``steplens.mindspore.Profiler``.

    Args:
        **kwargs: the parameters of ``mindspore.Profiler`` in r2.2. ``data_process`` and ``parallel_strategy`` are True by
            default.

    Raises:
        TypeError: ``start_profile`` is neither True nor False.
        RuntimeError: another profiler is recording in this process.
    """

    _contract = parameters.R2_2

    def __init__(self, **kwargs: Any) -> None:
        self._started = False
        super().__init__(**kwargs)
        self._started = bool(self._values["start_profile"])

    def start(self) -> None:
        """Begin to record.

        Raises:
            RuntimeError: ``start_profile`` is True or was not given, or the profiler was started before.
        """
        if self._values["start_profile"]:
            raise RuntimeError("start() needs start_profile=False: the profiler was started when it was made")
        if self._started:
            raise RuntimeError("repeated start and stop actions are not supported")
        super().start()
        self._started = True
