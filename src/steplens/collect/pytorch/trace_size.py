"""How large a trace will become: the recorder says it itself, and of Kineto's it is told from the memory that Kineto takes.

Kineto does not say how much it has recorded. At the end of a step a training that has come to rest holds as much memory as at the
end of the step before; what the heap has grown by since the window opened is Kineto's.
"""

from __future__ import annotations

import ctypes
import importlib
from pathlib import Path
from typing import Any

from steplens.collect.common.recording_settings import RecordingSettings
from steplens.collect.recorder import recorder_library
from steplens.collect.torch_internals import kineto_messages

#: bytes of the trace per byte of the heap, measured with PyTorch 2.13 on the CPU (docs/blackbox.md); the size of the first window
#: of a process is told with them, that of later ones with what the ones before came to
_WITH_INPUTS, _WITH_MEMORY, _WITH_STACK, _PLAIN = 0.85, 1.8, 1.65, 1.3


class _Mallinfo2(ctypes.Structure):
    _fields_ = [
        (name, ctypes.c_size_t)
        for name in ("arena", "ordblks", "smblks", "hblks", "hblkhd", "usmblks", "fsmblks", "uordblks", "fordblks", "keepcost")
    ]


def _load_mallinfo2() -> Any:
    try:
        function = ctypes.CDLL(None).mallinfo2
    except (AttributeError, OSError):  # another C library than glibc 2.33 or newer
        return None
    function.restype = _Mallinfo2
    return function


_heap = _load_mallinfo2()


def heap_bytes() -> int | None:
    """Bytes that the C library has handed out and not got back; None where it does not say. Takes 3 us."""
    if _heap is None:
        return None
    heap = _heap()
    return int(heap.uordblks) + int(heap.hblkhd)


class TraceSize:
    """Estimates the size of the trace of the window that is open."""

    def __init__(self, settings: RecordingSettings) -> None:
        if settings.record_shapes or settings.with_flops:
            self._ratio = _WITH_INPUTS + (0.3 if settings.profile_memory or settings.with_stack else 0.0)
        elif settings.profile_memory:
            self._ratio = _WITH_MEMORY
        else:
            self._ratio = _WITH_STACK if settings.with_stack else _PLAIN
        self._at_start: int | None = None
        self._growth: int | None = None
        #: bytes of a recorded step, once one is known
        self.bytes_per_step: float | None = None
        #: whether that is what a window came to, and no estimate
        self.measured = False

    def window_opens(self) -> None:
        """Recording begins."""
        self._at_start, self._growth = heap_bytes(), None

    def first_events(self) -> None:
        """A few events are recorded. Kineto takes memory in blocks of a thousand: steps will use half of one on average."""
        now = heap_bytes()
        if now is not None and self._at_start is not None:
            self._at_start += max(0, now - self._at_start) // 2

    def estimate(self, steps: int) -> int | None:
        """Bytes of the trace so far, at the end of a step of a window with so many; None where that cannot be told."""
        size = self._bytes_so_far()
        if steps and size is not None and not self.measured:
            self.bytes_per_step = size / steps
        return size

    def _bytes_so_far(self) -> int | None:
        now = heap_bytes()
        if now is None or self._at_start is None:
            return None
        self._growth = max(0, now - self._at_start)
        return int(self._growth * self._ratio)

    def window_saved(self, size: int, steps: int) -> None:
        """A window of ``steps`` steps (0 without steps) has come to ``size`` bytes; the next estimates are made with that."""
        if self._growth:
            self._ratio = size / self._growth
        if steps:
            self.bytes_per_step = size / steps
            self.measured = True
        self._at_start = None


class SizeProbe:
    """A recording that is thrown away, from now until :meth:`end`: how large a step becomes before the window opens.

    Args:
        size: gets what is found.
        step: the step that runs.
    """

    def __init__(self, size: TraceSize, step: int) -> None:
        self._size = size
        self._first_step = step

    def end(self, step: int) -> None:
        """End it in a step; those before that are complete."""
        if step > self._first_step:
            self._size.estimate(step - self._first_step)
        self._end_recording()

    def _end_recording(self) -> None:
        raise NotImplementedError


class KinetoProbe(SizeProbe):
    """With Kineto.

    Args:
        kineto: PyTorch's object of a session, unused so far.
        size: gets what is found.
        step: the step that runs.
    """

    def __init__(self, kineto: Any, size: TraceSize, step: int) -> None:
        super().__init__(size, step)
        self._kineto = kineto
        kineto_messages.prepare_recording(kineto)
        kineto._start_trace()
        size.window_opens()
        torch: Any = importlib.import_module("torch")
        with torch.autograd.profiler.record_function("steplens probe"):
            torch.empty(0)
        size.first_events()

    def _end_recording(self) -> None:
        kineto, self._kineto = self._kineto, None
        kineto.__exit__(None, None, None)


class RecorderSize(TraceSize):
    """The size of the file of the window that is open."""

    def window_opens(self) -> None:
        """Recording begins: there is nothing to compare with."""

    def _bytes_so_far(self) -> int | None:
        return recorder_library.recorded_bytes()


class RecorderProbe(SizeProbe):
    """A recording of the warmup that is thrown away: it tells how large a step becomes before the window opens.

    Args:
        path: its file, in which the recorder records since now.
        size: gets what is found.
        step: the step that runs.
    """

    def __init__(self, path: Path, size: TraceSize, step: int) -> None:
        super().__init__(size, step)
        self._path = path

    def _end_recording(self) -> None:
        recorder_library.stop_recorder()
        recorder_library.finish_recorder({})
        self._path.unlink(missing_ok=True)
