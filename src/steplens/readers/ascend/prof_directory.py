"""A ``PROF_*`` directory of CANN: its exported files, its devices, and the clock that it shares with ``FRAMEWORK/``.

Nothing here reads the device data; see ``ascend_timeline``, ``ascend_csv`` and ``cann_db`` for that.
"""

from __future__ import annotations

import contextlib
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from fractions import Fraction
from pathlib import Path
from typing import TYPE_CHECKING, Any

from steplens.common.listings import list_folder
from steplens.common.storage.files import read_bytes
from steplens.formats import ascend_capture as capture
from steplens.formats.ascend_database import CANN_ANALYSIS_DATABASE
from steplens.formats.ascend_results import COMMUNICATION, COMMUNICATION_MATRIX
from steplens.readers.common.side_files import as_object, read_json
from steplens.trace.health import ERROR, HOST_AGAINST_DEVICE, HealthLog

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt

    Int64Array = npt.NDArray[np.int64]

#: every time in ns that this code computes stays below, so that no sum leaves 64 bits
_LATEST_NS = 1 << 62
_LATEST_RAW = 1 << 61
_DEFAULT_FREQUENCY_MHZ = Fraction(100)
_FREQUENCIES_MHZ = (Fraction(1), Fraction(100_000))
#: keeps the products of a conversion below 2**62; exact for every frequency below 10 GHz with three decimals
_LARGEST_DENOMINATOR = 10_000_000

_SIDE_FILE_BYTES = 1 << 20


@dataclass(frozen=True)
class Clock:
    """From the times in ``FRAMEWORK/`` to Unix ns, in integer arithmetic.

    Attributes:
        unix_offset_ns: Unix time minus the monotonic clock, ns; None where nothing tells, and times stay monotonic.
        frequency_mhz: of the CPU's counter, when the times are counts; None when they are ns of the monotonic clock.
        start_count: counter at the start of recording.
        start_ns: monotonic clock at that count, ns.
    """

    unix_offset_ns: int | None = 0
    frequency_mhz: Fraction | None = None
    start_count: int = 0
    start_ns: int = 0

    def covers(self, raw: Int64Array) -> npt.NDArray[np.bool_]:
        """Which raw times a clock can show at all; shape of ``raw``."""
        if self.frequency_mhz is None:
            return (raw >= 0) & (raw < _LATEST_RAW)
        reach = int(_LATEST_RAW * self.frequency_mhz / 1000)
        low, high = max(self.start_count - reach, 0), min(self.start_count + reach, _LATEST_RAW)
        return (raw >= low) & (raw < high)

    def monotonic_ns(self, raw: Int64Array) -> Int64Array:
        """Raw times as ns of the monotonic clock: ``int((count - start_count) * 1000 / frequency) + start_ns``."""
        if self.frequency_mhz is None:
            return raw
        ns_per_count = (1000 / self.frequency_mhz).limit_denominator(_LARGEST_DENOMINATOR)
        count = raw - self.start_count
        # whole periods and the rest apart, so that no product leaves 64 bits; int() cuts towards zero
        quotient, remainder = divmod(abs(count), ns_per_count.denominator)
        ns = quotient * ns_per_count.numerator + remainder * ns_per_count.numerator // ns_per_count.denominator
        monotonic: Int64Array = (2 * (count > 0) - 1) * ns + self.start_ns
        return monotonic

    def unix_ns(self, raw: Int64Array) -> Int64Array:
        """Raw times as Unix ns."""
        return self.monotonic_ns(raw) + (self.unix_offset_ns or 0)

    def fitting(self, raw: Int64Array) -> Clock:
        """The clock that puts ``raw`` nearer to the start of recording: this one, or the same without the counter."""
        if self.frequency_mhz is None or not len(raw):
            return self
        first = raw[:1]
        as_ns = abs(int(first[0]) - self.start_ns)
        if not self.covers(first)[0] or as_ns < abs(int(self.monotonic_ns(first)[0]) - self.start_ns):
            return Clock(self.unix_offset_ns)
        return self


@dataclass(frozen=True)
class ProfDirectory:
    """One ``PROF_*`` directory.

    Attributes:
        path: the directory.
        devices: physical ids of the devices with data.
        timelines: exported timeline files in order.
        tables: kind of exported CSV file -> its files in order.
        database: the exported database, None where there is none.
        analysis: files of the communication analysis by name.
    """

    path: Path
    devices: tuple[int, ...]
    timelines: tuple[Path, ...]
    tables: Mapping[str, tuple[Path, ...]]
    database: Path | None
    analysis: Mapping[str, Path]

    @property
    def is_exported(self) -> bool:
        """Whether there is anything that can be read without CANN."""
        return bool(self.timelines or self.tables or self.database)

    def files(self) -> list[Path]:
        """Every file that decides what is read."""
        tables = [file for files in self.tables.values() for file in files]
        database = [self.database] if self.database is not None else []
        clocks = [path for path in _clock_files(self.path, self.devices) if _is_file(path)]
        return [*self.timelines, *tables, *database, *self.analysis.values(), *clocks]


def find_prof(run_directory: Path) -> list[ProfDirectory]:
    """The ``PROF_*`` directories of a run directory, by name; the run directory itself where it is one."""
    if capture.PROF_NAME.match(run_directory.resolve().name) and not (run_directory / capture.FRAMEWORK_DIRECTORY).is_dir():
        return [open_prof(run_directory)]
    return [open_prof(path) for path in _list_children(run_directory) if capture.PROF_NAME.match(path.name) and path.is_dir()]


def open_prof(path: Path) -> ProfDirectory:
    """List one ``PROF_*`` directory."""
    numbered = ((child, re.fullmatch(r"device_(\d{1,9})", child.name)) for child in _list_children(path))
    devices = [int(number[1]) for child, number in numbered if number and child.is_dir()]
    exported = path / capture.EXPORT_DIRECTORY
    tables = {}
    for kind in capture.CSV_KINDS:
        names = (kind, capture.OLDER_PREFIXES.get(kind, "") + kind)
        if files := next(filter(None, (_newest_slices(exported, name, "csv") for name in names)), None):
            tables[kind] = files
    databases = [*_newest_slices(path, capture.MSPROF, "db"), *_newest_slices(exported, capture.MSPROF, "db")]
    folder = path / capture.ANALYSIS_DIRECTORY
    analysis = (COMMUNICATION, COMMUNICATION_MATRIX, CANN_ANALYSIS_DATABASE)
    return ProfDirectory(
        path,
        tuple(sorted(devices)),
        _newest_slices(exported, capture.MSPROF, "json"),
        tables,
        databases[0] if databases else None,
        {name: folder / name for name in analysis if _is_file(folder / name)},
    )


def _newest_slices(folder: Path, kind: str, suffix: str) -> tuple[Path, ...]:
    """The files ``<kind>[_slice_<n>]_<time of export>*`` of the newest export, in the order of their slices.

    An export does not remove the files of an earlier one, and both hold the same data.
    """
    pattern = re.compile(rf"{kind}(?:_slice_(\d+))?_(\d+)(.*)\.{suffix}")
    slices: dict[int, list[tuple[int, str, Path]]] = {}
    for path in _list_children(folder):
        match = pattern.fullmatch(path.name)
        if match and _is_file(path):
            slices.setdefault(int(match[2]), []).append((int(match[1] or 0), path.name, path))
    return tuple(path for _, _, path in sorted(slices[max(slices)])) if slices else ()


def find_clock(prof: ProfDirectory | None, info: Mapping[str, Any], first_time: int | None, health: HealthLog) -> Clock:
    """The clock of ``FRAMEWORK/``.

    1. Frequency of the counter: ``host/info.json``, else ``start_info`` of profiler_info, else 100 MHz. Counter and
       monotonic clock at the start: ``host/host_start.log``, else ``start_info``.
    2. Unix time minus monotonic clock: ``host/start_info``, else ``device_<n>/start_info.<n>``, else ``end_info``.
    3. Without profiler_info nothing says whether times are counts: then they are what puts them nearer to the start.

    Args:
        prof: None where there is no device data.
        info: profiler_info.json; empty where it is missing.
        first_time: an early raw time of the recording; None where there is none.
        health: gets what is missing.
    """
    start_info, end_info = as_object(info.get("start_info")), as_object(info.get("end_info"))
    offset = _unix_offset_at_start(prof)
    if offset is None:
        offset = _clock_offset(end_info.get("collectionTimeEnd"), end_info.get("MonotonicTimeEnd"))
    if offset is None and first_time is not None:
        message = (
            "nothing tells the wall-clock time of the framework's events, so they keep the time since the machine started "
            "and cannot be joined with the device's"
        )
        health.add("no_time_base", ERROR, 1, message, HOST_AGAINST_DEVICE)
    counter = _counter_clock(prof, start_info, offset)
    if info:
        return counter if start_info.get("syscnt_enable") in (True, "true", "True", "1") else Clock(offset)
    if first_time is None or not counter.start_count:
        return Clock(offset)
    import numpy as np

    return counter.fitting(np.array([first_time], dtype=np.int64))


def _counter_clock(prof: ProfDirectory | None, start_info: Mapping[str, Any], offset: int | None) -> Clock:
    """The clock of times that are counts."""
    host = _host_info(prof)
    cpus = host.get("CPU")
    recorded = as_object(cpus[0]).get("Frequency") if isinstance(cpus, list) and cpus else None
    frequency = _to_frequency(recorded) or _to_frequency(start_info.get("freq")) or _DEFAULT_FREQUENCY_MHZ
    log = _host_start(prof)
    count, ns = _to_integer(log.get("cntvct")), _to_integer(log.get("clock_monotonic_raw"))
    if count is None or ns is None:
        count, ns = _to_integer(start_info.get("start_cnt")), _to_integer(start_info.get("start_monotonic"))
    return Clock(offset, frequency, count or 0, ns or 0)


def _clock_offset(unix_ns: object, monotonic_ns: object) -> int | None:
    """Unix time minus monotonic clock; None where one is missing, or where they are equal, which no machine's are."""
    unix, monotonic = _to_integer(unix_ns), _to_integer(monotonic_ns)
    if unix is None or monotonic is None or unix == monotonic or not 0 <= unix < _LATEST_NS:
        return None
    return unix - monotonic


def _unix_offset_at_start(prof: ProfDirectory | None) -> int | None:
    """Unix time minus monotonic clock from the first file that has both; None where there is none."""
    if prof is None:
        return None
    for path in (prof.path / capture.HOST_DIRECTORY / "start_info", *_device_start_files(prof.path, prof.devices)):
        value = _side_file(path)
        begin_us = _to_integer(value.get("collectionTimeBegin"))
        offset = _clock_offset(None if begin_us is None else begin_us * 1000, value.get("clockMonotonicRaw"))
        if offset is not None:
            return offset
    return None


def _device_start_files(prof: Path, devices: tuple[int, ...]) -> list[Path]:
    return [prof / f"device_{number}" / f"start_info.{number}" for number in devices]


def _clock_files(prof: Path, devices: tuple[int, ...]) -> list[Path]:
    host = prof / capture.HOST_DIRECTORY
    return [host / "start_info", host / "info.json", host / "host_start.log", *_device_start_files(prof, devices)]


def _host_start(prof: ProfDirectory | None) -> dict[str, str]:
    """The values of the section [Host] of host_start.log."""
    path = prof.path / capture.HOST_DIRECTORY / "host_start.log" if prof is not None else None
    if path is None or not _is_file(path) or path.stat().st_size > _SIDE_FILE_BYTES:
        return {}
    values: dict[str, str] = {}
    section = ""
    content = b""
    with contextlib.suppress(OSError):
        content = read_bytes(path)
    for line in content.decode("utf-8", "replace").splitlines():
        text = line.strip()
        if text.startswith("["):
            section = text.strip("[]").strip()
            continue
        key, _, value = text.replace("=", ":", 1).partition(":")
        if section == "Host":
            values.setdefault(key.strip(), value.strip())
    return values


def _host_info(prof: ProfDirectory | None) -> dict[str, Any]:
    return _side_file(prof.path / capture.HOST_DIRECTORY / "info.json") if prof is not None else {}


def host_values(prof: ProfDirectory | None) -> dict[str, Any]:
    """What ``host/info.json`` tells of the machine, as ``meta`` values."""
    info = _host_info(prof)
    values: dict[str, Any] = {}
    for key, name in (("hostname", "hostname"), ("hostUid", "host_uid"), ("pid", "prof_pid")):
        if isinstance(info.get(key), str | int):
            values[name] = info[key]
    platform = info.get("platform_version")
    if isinstance(platform, str | int):
        values["chip"] = capture.CHIPS.get(str(platform), str(platform))
    return values


def rank_of(prof: ProfDirectory) -> int | None:
    """The rank that ``info.json`` of the device, else of the host, has; None where neither says one."""
    devices = (path for number in prof.devices for path in (f"device_{number}/info.json.{number}", f"device_{number}/info.json"))
    for name in (*devices, f"{capture.HOST_DIRECTORY}/info.json"):
        rank = _side_file(prof.path / name).get("rank_id")
        if type(rank) is int and 0 <= rank < 1 << 31:
            return rank
    return None


#: what ``info.json`` of a device tells of its cores
_CORES = ("id", "ai_core_num", "aiv_num", "aic_frequency", "aiv_frequency")


def device_info(profs: Sequence[ProfDirectory]) -> list[dict[str, int]]:
    """``device_info`` of ``meta``: per device its cores and rated clocks (MHz), from ``device_<n>/info.json[.<n>]``.

    A result of another analysis does not hold them, so that its reader looks for the directories beside it.
    """
    devices: dict[int, dict[str, int]] = {}
    for prof in profs:
        for number in prof.devices:
            folder = prof.path / f"device_{number}"
            info = _side_file(folder / f"info.json.{number}") or _side_file(folder / "info.json")
            listed = info.get("DeviceInfo")
            for entry in listed if isinstance(listed, list) else ():
                values = {key: _to_integer(entry.get(key)) for key in _CORES} if isinstance(entry, dict) else {}
                devices.setdefault(number, {key: value for key, value in values.items() if value is not None})
    return [devices[number] for number in sorted(devices)]


def _side_file(path: Path) -> dict[str, Any]:
    return read_json(path) if _is_file(path) else {}


def _to_integer(value: object) -> int | None:
    """A whole number of ns, µs or counts, from JSON or text; None for anything else, or beyond 62 bits."""
    if isinstance(value, str) and re.fullmatch(r"\s*[+-]?\d{1,20}(\.0*)?\s*", value):
        number = int(value.partition(".")[0])
    elif isinstance(value, int | float) and not isinstance(value, bool) and value == value and abs(value) < _LATEST_NS:
        number = int(value)
    else:
        return None
    return number if abs(number) < _LATEST_NS else None


def _to_frequency(value: object) -> Fraction | None:
    """A frequency in MHz, from JSON or text; None where there is none that a CPU can have."""
    text = str(value).strip() if isinstance(value, str | int | float) and not isinstance(value, bool) else ""
    if not re.fullmatch(r"\d{1,9}(\.\d{1,9})?", text):
        return None
    frequency = Fraction(text)
    return frequency if _FREQUENCIES_MHZ[0] <= frequency <= _FREQUENCIES_MHZ[1] else None


def _list_children(folder: Path) -> list[Path]:
    """What a folder holds, by name; links are left out, because they could lead anywhere."""
    try:
        return [path for path in list_folder(folder).entry_paths if not path.is_symlink()]
    except OSError:
        return []


def _is_file(path: Path) -> bool:
    """Whether a file of a capture is there, not a link and not in a linked folder."""
    return path.is_file() and not path.is_symlink() and not path.parent.is_symlink()
