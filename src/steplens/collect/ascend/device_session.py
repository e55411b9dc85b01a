"""One recording of an NPU after the other with CANN's profiling library, each into its own directory.

The calls and their order are CANN's: ``aclprofInit``, ``aclprofSetConfig`` for every config value,
``aclprofCreateConfig``, ``aclprofWarmup`` where there is one, ``aclprofStart``, ``aclprofRegisterDeviceCallback``,
``aclprofStop``, ``aclprofDestroyConfig``, ``aclprofFinalize``. This module knows no framework: what it must ask
one is given to it.
"""

from __future__ import annotations

import functools
import os
import re
import threading
from collections.abc import Callable
from enum import Enum
from pathlib import Path
from typing import Any, ClassVar, TypeVar, cast

from steplens.collect.ascend import codes, features, library
from steplens.collect.ascend.operator_arguments import OperatorArguments
from steplens.collect.ascend.settings import Data, DeviceOptions, Plan, plan_recording
from steplens.collect.common import log, profiler_environment
from steplens.collect.common.health import ERROR, INFO, WARNING

_Method = TypeVar("_Method", bound=Callable[..., Any])

#: gets a finding: check, severity, message; keyword ``unsafe``
Report = Callable[..., None]

#: the name of the finding that says why there is no data from the device
MISSING = "device_data_missing"

#: what findings make unsafe, in the words of steplens.trace.health, which the collector must not import
NO_DEVICE = (
    "kernel calls, kernel times, device time per operator, device time of steps, communication times, overlap and idle time"
)
_EDGES = "kernel calls, device time of steps"

_DIRECTORY = re.compile(r"PROF_\d+_\d+_[0-9A-Za-z]+")
_DEVICE_DIRECTORY = "device_[0-9]*"


class State(Enum):
    """How far a session is."""

    CLOSED = "closed"
    OPEN = "open"
    CONFIGURED = "configured"
    RUNNING = "running"
    STOPPED = "stopped"


def _guard_device_call(method: _Method) -> _Method:
    """Run a method in the process it belongs to and one at a time, and report what it raises instead of raising."""

    @functools.wraps(method)
    def call_guarded(self: DeviceSession, *args: Any, **kwargs: Any) -> Any:
        # A forked worker has a copy of this object, but neither the device nor a lock that anyone releases.
        if self._process is not None and self._process != os.getpid():
            return False
        with self._lock:
            # A signal handler may call in the middle of a call of this very thread, which the lock does not stop.
            if self._busy:
                return False
            self._busy = True
            try:
                return method(self, *args, **kwargs)
            except Exception as exception:  # the boundary to CANN's library
                self._report_missing_data(f"{method.__name__} failed with {type(exception).__name__}: {exception}")
                return False
            finally:
                self._busy = False

    return cast(_Method, call_guarded)


class DeviceSession:
    """Records the current NPU of this process. Its methods never raise; they may be called from any thread.

    A method returns whether what it is for was done. What went wrong is reported, and printed. A method that is called
    when it makes no sense, because something before it failed, does nothing.

    Args:
        options: what to record.
        device: returns the number of the current device; asked when a recording is opened.
        synchronize: waits until the device with this number is idle.
        report: gets the findings, for instance :meth:`steplens.collect.common.health.Health.add`.
        load: returns CANN's library.
        beside: what else is to be recorded from start to stop.
    """

    #: the session that has opened CANN's profiling: there is one per process
    _owner: ClassVar[DeviceSession | None] = None
    _owner_lock: ClassVar[threading.Lock] = threading.Lock()

    def __init__(
        self,
        options: DeviceOptions,
        *,
        device: Callable[[], int],
        synchronize: Callable[[int], None] | None = None,
        report: Report | None = None,
        load: Callable[[], library.CannLibrary] = library.load_cann,
        beside: OperatorArguments | None = None,
    ) -> None:
        self._options = options
        self._device = device
        self._synchronize = synchronize
        self._report = report
        self._load = load
        self._beside = beside
        self._lock = threading.RLock()
        self._busy = False
        self._process: int | None = None
        self._said: set[str] = set()
        self._reset_recording()

    def _reset_recording(self) -> None:
        self._state = State.CLOSED
        self._library: library.CannLibrary | None = None
        self._features: list[features.Feature] | None = None
        self._features_asked = False
        self._directory = Path()
        self._device_id = -1
        self._plan: Plan | None = None
        self._config: int | None = None
        self._warm = False
        self._cancel_needed = False
        self._started = False
        self._recorded: list[str] = []

    # --- for the profiler

    def summary(self) -> dict[str, Any]:
        """What the last recording was, for the record of the run."""
        chosen = self._plan
        return {
            "library": self._library.path if self._library else "",
            "device_id": self._device_id,
            "data_type_config": f"{int(chosen.mask):#x}" if chosen else "",
            "aicore_metrics": chosen.metrics if chosen else None,
            "configs": {kind.name: value for kind, value in chosen.configs} if chosen else {},
            "warmed_up": self._warm,
            "recorded": self._started,
            "directories": list(self._recorded),
        }

    @_guard_device_call
    def open(self, directory: Path) -> bool:
        """Initialise CANN's profiling.

        Args:
            directory: an existing directory, in which CANN creates ``PROF_...``.
        """
        self._close_recording()
        self._reset_recording()
        others = profiler_environment.variables_of_other_profilers()
        if others:
            return self._report_missing_data(f"{' and '.join(others)} is set, another profiler is at work in this process")
        if not self._claim_device():
            return self._report_missing_data("another profiler object of steplens is recording the NPU in this process")
        opened = False
        try:
            opened = self._initialize_cann(directory)
        finally:
            if not opened:
                self._give_up_claim()
        return opened

    def _initialize_cann(self, directory: Path) -> bool:
        try:
            self._library = self._load()
        except library.LibraryError as error:
            return self._report_missing_data(str(error))
        # Before aclprofInit: asking for the device initialises the NPU in this process, which CANN needs first.
        self._device_id = self._device()
        # The path must hold no link: CANN follows none.
        self._directory = Path(os.path.realpath(directory))
        code = self._library.call("aclprofInit", os.fsencode(self._directory))
        if code != codes.SUCCESS:
            return self._report_missing_data(codes.describe_failure("aclprofInit", code))
        self._process = os.getpid()
        self._state = State.OPEN
        return True

    @_guard_device_call
    def warm_up(self) -> bool:
        """Let the device prepare, so that starting takes less time; the data is discarded."""
        if self._state is not State.OPEN or not self._configure_cann():
            return False
        code = self._call_config("aclprofWarmup")
        if code in codes.UNSUPPORTED:
            return True
        # CANN also remembers a warm-up that failed.
        self._cancel_needed = True
        self._warm = code == codes.SUCCESS
        if not self._warm:
            self._report_problem("device_warmup", WARNING, codes.describe_failure("aclprofWarmup", code), unsafe=_EDGES)
        return self._warm

    @_guard_device_call
    def start(self) -> bool:
        """Begin to record; the device records when this returns True."""
        if self._state is State.OPEN and not self._configure_cann():
            return False
        if self._state is not State.CONFIGURED:
            return False
        # What was launched before belongs to no recorded step.
        self._wait_for_device()
        self._cancel_needed = False
        code = self._call_config("aclprofStart")
        if code != codes.SUCCESS:
            return self._report_missing_data(codes.describe_failure("aclprofStart", code))
        self._state = State.RUNNING
        self._started = True
        if self._beside is not None:
            self._beside.start(self._directory)
        code = self._cann.call("aclprofRegisterDeviceCallback")
        if code != codes.SUCCESS and code not in codes.UNSUPPORTED:
            message = codes.describe_failure("aclprofRegisterDeviceCallback", code)
            self._report_problem("device_callback", INFO, message, unsafe="kernel calls")
        return True

    @_guard_device_call
    def wait(self) -> bool:
        """Wait until the device has done everything it was given before."""
        if self._state is not State.RUNNING:
            return False
        self._wait_for_device()
        return True

    @_guard_device_call
    def stop(self) -> bool:
        """End recording, when the device has done everything it was given before."""
        if self._state is not State.RUNNING:
            return False
        self._wait_for_device()
        return self._stop_recording()

    def _stop_recording(self) -> bool:
        self._state = State.STOPPED
        if self._beside is not None:
            self._beside.stop()
        code = self._call_config("aclprofStop")
        if code != codes.SUCCESS:
            self._report_problem("device_stop", ERROR, codes.describe_failure("aclprofStop", code), unsafe=_EDGES)
        return code == codes.SUCCESS

    @_guard_device_call
    def close(self) -> bool:
        """End whatever was begun, write everything and free the device for another session.

        Returns:
            whether there is data from the device.
        """
        return self._close_recording()

    def _close_recording(self) -> bool:
        if self._state is State.CLOSED:
            return False
        if self._state is State.RUNNING:
            self._wait_for_device()
            self._stop_recording()
        elif self._cancel_needed:
            self._cancel_warm_up()
        try:
            if self._config is not None:
                config, self._config = self._config, None
                self._check_return_code("aclprofDestroyConfig", self._cann.call("aclprofDestroyConfig", config))
            self._check_return_code("aclprofFinalize", self._cann.call("aclprofFinalize"))
        finally:
            self._state = State.CLOSED
            self._process = None
            self._give_up_claim()
        return self._started and self._find_data()

    # --- inside

    def _claim_device(self) -> bool:
        with DeviceSession._owner_lock:
            owner = DeviceSession._owner
            # The owner of a parent process is a copy that will never give up its claim.
            if owner is not None and owner is not self and owner._process in (None, os.getpid()):
                return False
            DeviceSession._owner = self
            return True

    def _give_up_claim(self) -> None:
        with DeviceSession._owner_lock:
            if DeviceSession._owner is self:
                DeviceSession._owner = None

    def _has_feature(self, feature: str) -> bool:
        if not self._features_asked:
            self._features_asked = True
            self._features = self._cann.features()
        return features.is_feature_supported(self._features, feature)

    def _configure_cann(self) -> bool:
        """Tell CANN what to record."""
        self._plan = plan_recording(self._options, self._has_feature)
        if self._plan.dropped:
            message = f"Not offered by this version of CANN: {', '.join(self._plan.dropped)}."
            self._report_problem("not_collected", INFO, message)
        for kind, value in self._plan.configs:
            code = self._cann.call("aclprofSetConfig", kind, value.encode())
            if code != codes.SUCCESS:
                message = f"{kind.name}={value} is not recorded: {codes.describe_failure('aclprofSetConfig', code)}"
                self._report_problem("not_collected", WARNING, message, unsafe="counters")
        self._config = self._cann.create_config(self._device_id, self._plan.metrics, self._plan.mask)
        if self._config is None:
            return self._report_missing_data(
                f"aclprofCreateConfig refused device {self._device_id} with data {int(self._plan.mask):#x}: "
                "it does not say why; usual causes are that there is no such device, or that CANN and the driver do not fit"
            )
        self._state = State.CONFIGURED
        return True

    @property
    def _cann(self) -> library.CannLibrary:
        assert self._library is not None
        return self._library

    def _call_config(self, symbol: str) -> int:
        """The code of a call for what was configured."""
        assert self._config is not None
        return self._cann.call(symbol, self._config)

    def _wait_for_device(self) -> None:
        if self._synchronize is None:
            return
        try:
            self._synchronize(self._device_id)
        except Exception as exception:  # the boundary to the framework
            message = f"Waiting for device {self._device_id} failed: {type(exception).__name__}: {exception}"
            self._report_problem("device_synchronize", WARNING, message, unsafe=_EDGES)

    def _cancel_warm_up(self) -> None:
        """Bring CANN back from warm-up to rest.

        It remembers a warm-up beyond ``aclprofFinalize``, and would take the start of the next recording for the end of
        this warm-up; only starting ends it.
        """
        code = self._call_config("aclprofStart")
        if code == codes.SUCCESS:
            self._stop_recording()
        else:
            self._check_return_code("aclprofStart", code)

    def _check_return_code(self, call: str, code: int) -> None:
        if code != codes.SUCCESS:
            self._report_problem("device_close", WARNING, codes.describe_failure(call, code), unsafe=_EDGES)

    def _find_data(self) -> bool:
        """Look for what CANN wrote: it also reports success when it wrote nothing."""
        assert self._plan is not None
        directories = [path for path in self._directory.glob("PROF_*") if path.is_dir() and _DIRECTORY.fullmatch(path.name)]
        self._recorded = sorted(path.name for path in directories)
        if not directories:
            return self._report_missing_data("CANN reported success, but wrote no PROF_ directory")
        if self._plan.mask & (Data.TASK_TIME | Data.TASK_TIME_L0) and not any(
            next(path.glob(_DEVICE_DIRECTORY), None) for path in directories
        ):
            return self._report_missing_data(
                "CANN wrote data of the host only; versions of CANN and of the driver that do not fit are the usual cause "
                "(compare `npu-smi info` with CANN's release notes)"
            )
        return True

    def _report_missing_data(self, reason: str) -> bool:
        self._report_problem(MISSING, ERROR, f"No device data: {reason}.", unsafe=NO_DEVICE)
        return False

    def _report_problem(self, check: str, severity: str, message: str, *, unsafe: str = "") -> None:
        # Every rank says what is missing, in every window. The rest does not change from window to window.
        if severity == ERROR:
            log.error(message)
        elif message not in self._said:
            self._said.add(message)
            (log.warning if severity == WARNING else log.info)(message)
        if self._report is not None:
            self._report(check, severity, message, unsafe=unsafe)
