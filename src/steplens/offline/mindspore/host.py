"""Makes MindSpore r2.2's files of its own records of the host, beside the records that are there already."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import Path

from steplens.common.errors import InputError
from steplens.readers.mindspore import mindspore_host
from steplens.readers.mindspore.mindspore_find import MindSporeSource
from steplens.readers.mindspore.mindspore_host import HostRecords
from steplens.trace.health import HealthLog
from steplens.writers.mindspore import mindspore_host as writers
from steplens.writers.result import OutputStatus, write_file

Write = Callable[[HostRecords, Path], None]


def _file_writers(source: MindSporeSource, file: Path) -> dict[Path, Write]:
    """Where each file goes: beside the records, and the data pipeline's also where r2.4 has it."""
    number = source.number

    def write_dataset(records: HostRecords, path: Path) -> None:
        writers.write_dataset(records.ranges, path)

    return {
        file.with_name(f"timeline_{number}.json"): lambda records, path: writers.write_timeline(
            records.ranges, records.instants, records.unfinished, path
        ),
        file.with_name(f"host_memory_{number}.csv"): lambda records, path: writers.write_memory(records.memory, path),
        file.with_name(f"dataset_{number}.csv"): write_dataset,
        source.path / f"dataset_{number}.csv": write_dataset,
    }


def write(source: MindSporeSource, *, overwrite: bool) -> dict[str, OutputStatus]:
    """Write ``timeline_<rank>.json``, ``host_memory_<rank>.csv`` and ``dataset_<rank>.csv`` of one rank.

    A damaged row costs that row; what was lost is in the health of the rank's trace.

    Args:
        source: a rank with records of the host.
        overwrite: also files that are newer than the records, which MindSpore itself may have written.

    Returns:
        file below the source's folder -> what became of it; files that were left alone are not in it.

    Raises:
        InputError: nothing can be read in the records, or their folder is a link to somewhere else.
    """
    file = source.host_file
    if file is None:
        raise InputError(source.path, f"holds no records of the host of rank {source.number}", "Give the folder above host_info")
    if file.is_symlink() or file.parent.is_symlink():
        raise InputError(file, "is reached through a link: nothing is written there", "Copy the folder with what it links to")
    due = {path: writer for path, writer in _file_writers(source, file).items() if overwrite or not _is_newer(path, file)}
    if not due:
        return {}
    health = HealthLog()
    records = mindspore_host.read_host_records(file, health)
    if not records and health.findings:
        reasons = "; ".join(dict.fromkeys(finding.message for finding in health.findings))
        raise InputError(file, "holds no record of the host that can be read", reasons)
    return {str(path.relative_to(source.path)): write_file(path, partial(writer, records)) for path, writer in due.items()}


def _is_newer(path: Path, than: Path) -> bool:
    try:
        return path.stat().st_mtime_ns >= than.stat().st_mtime_ns
    except OSError:
        return False
