"""Makes MindSpore r2.2's files of its own records of the host, beside the records that are there already."""

from __future__ import annotations

from functools import partial
from pathlib import Path

from steplens.common.errors import InputError
from steplens.readers.mindspore import mindspore_host
from steplens.readers.mindspore.mindspore_find import MindSporeSource
from steplens.trace.health import HealthLog
from steplens.writers.mindspore import mindspore_host as writers
from steplens.writers.result import OutputStatus, write_file


def write(source: MindSporeSource, *, overwrite: bool) -> dict[str, OutputStatus]:
    """Write ``timeline_<rank>.json``, ``host_memory_<rank>.csv`` and ``dataset_<rank>.csv`` of one rank beside its records.

    A damaged row costs that row; what was lost is in the health of the rank's trace. Files that are newer than the records, which
    MindSpore itself may have written, are left alone unless ``overwrite`` asks for them.

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
    number = source.number
    timeline, memory, dataset = (f"timeline_{number}.json", f"host_memory_{number}.csv", f"dataset_{number}.csv")
    # the data pipeline's also where r2.4 has it
    paths = [*(file.with_name(name) for name in (timeline, memory, dataset)), source.path / dataset]
    due = [path for path in dict.fromkeys(paths) if overwrite or not _is_newer(path, file)]
    if not due:
        return {}
    health = HealthLog()
    records = mindspore_host.read_host_records(file, health)
    if not records and health.findings:
        reasons = "; ".join(dict.fromkeys(finding.message for finding in health.findings))
        raise InputError(file, "holds no record of the host that can be read", reasons)
    writer_of = {
        timeline: partial(writers.write_timeline, records.ranges, records.instants, records.unfinished),
        memory: partial(writers.write_memory, records.memory),
        dataset: partial(writers.write_dataset, records.ranges),
    }
    return {str(path.relative_to(source.path)): write_file(path, writer_of[path.name]) for path in due}


def _is_newer(path: Path, than: Path) -> bool:
    try:
        return path.stat().st_mtime_ns >= than.stat().st_mtime_ns
    except OSError:
        return False
