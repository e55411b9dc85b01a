"""Files of ranks, written step by step: Kineto's alone, or in run directories of steplens."""

from __future__ import annotations

import json
import time
import zlib
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from benchmarks.jobs.clocks import START_NS, Clock
from benchmarks.jobs.events import LOCAL_MARKS, StageEvents, marks_of, process_of
from benchmarks.jobs.layout import Layout
from benchmarks.jobs.simulation import StageTimes

import steplens
from steplens.collect.common import metadata
from steplens.collect.common.experimental_config import _ExperimentalConfig
from steplens.collect.common.recording_settings import RecordingSettings
from steplens.common import rundir
from steplens.common.options import ProfilerActivity

Ints = npt.NDArray[np.int64]

KINETO, RUN = "kineto", "run"
#: Kineto's base of times, which it counts from
BASE_NS = metadata.base_time_ns(START_NS)
_TORCH = "2.13.0+cu126"
#: what the clock that nobody sets shows at the beginning
_MONOTONIC_NS = 1_000_000_000_000
_DEVICE = (
    '\n    {{\n      "id": {}, "name": "NVIDIA H100 80GB HBM3", "totalGlobalMem": 84942979072,\n      "computeMajor": 9, '
    '"computeMinor": 0,\n      "maxThreadsPerBlock": 1024, "maxThreadsPerMultiprocessor": 2048,\n      "regsPerBlock": 65536, '
    '"warpSize": 32,\n      "sharedMemPerBlock": 49152, "numSms": 132\n    , "regsPerMultiprocessor": 65536, '
    '"sharedMemPerBlockOptin": 232448, "sharedMemPerMultiprocessor": 233472\n    }}'
)
_NAME = (
    '\n  {{\n    "ph": "M",\n    "name": "{}",\n    "ts": {},\n    "pid": {},\n    "tid": {},\n    "args": {{\n      "{}": {}\n'
    "    }}\n  }},"
)
#: what a job of this kind records: shapes, and no memory and no stacks
_SETTINGS = RecordingSettings(
    activities=(ProfilerActivity.CPU, ProfilerActivity.CUDA),
    record_shapes=True,
    profile_memory=False,
    with_stack=False,
    with_flops=False,
    with_modules=False,
    experimental=_ExperimentalConfig(),
    schedule=None,
)


def host_name(host: int) -> str:
    return f"node{host:04}"


@dataclass
class _Rank:
    """The file of one rank."""

    rank: int
    path: Path
    host: int
    compressor: Any = None
    begun: bool = False


class Recorder:
    """Writes the traces of a job below a folder, no more than a step of a rank at once in memory."""

    def __init__(
        self,
        out: Path,
        layout: Layout,
        clocks: list[Clock],
        form: str,
        *,
        first_step: int,
        steps: int,
        missing: Iterable[int] = (),
        compressed: bool = False,
    ) -> None:
        self.out, self.layout, self.clocks, self.form = out, layout, clocks, form
        self.first_step, self.steps = first_step, steps
        self.compressed = compressed and form == KINETO
        out.mkdir(parents=True, exist_ok=True)
        left_out = set(missing)
        self.ranks = {rank: self._open(rank) for rank in range(layout.ranks) if rank not in left_out}
        self.bytes = 0

    def finish(self, end_ns: int) -> None:
        """Complete the files, with the true end of the recording."""
        for rank in self.ranks.values():
            self._close(rank, end_ns)

    def _open(self, rank: int) -> _Rank:
        host = self.layout.host_of(rank)
        process = process_of(self.layout, rank)
        stamp = self._stamp(host, 0)
        if self.form == KINETO:
            suffix = ".json.gz" if self.compressed else ".json"
            return _Rank(rank, self.out / f"{host_name(host)}_{process}.{stamp}.pt.trace{suffix}", host, self._compressor())
        local = time.strftime("%Y%m%d%H%M%S", time.gmtime(stamp // 1_000_000_000)) + f"{stamp // 1_000_000 % 1000:03d}"
        directory = self.out / f"{host_name(host)}_{process}_{local}{rundir.RUN_SUFFIX}"
        raw = directory / rundir.RAW_DIRECTORY
        raw.mkdir(parents=True)
        return _Rank(rank, raw / rundir.RAW_TRACE, host)

    def _compressor(self) -> Any:
        return zlib.compressobj(level=1, wbits=31) if self.compressed else None

    def _stamp(self, host: int, time_ns: int) -> int:
        return int(self.clocks[host].stamp(np.array([time_ns]))[0])

    def add(self, events: StageEvents, times: StageTimes) -> None:
        """Write a step of all ranks of a stage."""
        of_place: dict[int, str] = {}
        for column, number in enumerate(times.ranks.tolist()):
            if number not in self.ranks:
                continue
            rank, marks = self.ranks[number], marks_of(self.layout, number)
            place = self.layout.local_rank(number)
            if place not in of_place:
                of_place[place] = _replaced(events.text, {mark: marks[mark] for mark in LOCAL_MARKS})
            text = _replaced(of_place[place], {mark: text for mark, text in marks.items() if mark not in LOCAL_MARKS})
            start, end = events.times(times, column)
            clock = self.clocks[rank.host]
            filled = events.filled(text, clock.stamp(start) - BASE_NS, clock.stamp(end) - BASE_NS)
            self._write(rank, filled if rank.begun else self._header(rank) + filled)
            rank.begun = True

    def _write(self, rank: _Rank, text: str, *, ends: bool = False) -> None:
        data = text.encode()
        self.bytes += len(data)
        if rank.compressor is not None:
            data = rank.compressor.compress(data) + (rank.compressor.flush() if ends else b"")
        with rank.path.open("ab") as file:
            file.write(data)

    def _header(self, rank: _Rank) -> str:
        layout, number = self.layout, rank.rank
        info = {
            "backend": "nccl",
            "rank": number,
            "world_size": layout.ranks,
            "pg_count": len(layout.groups_of(number)),
            "pg_config": [
                {
                    "pg_name": str(group.number),
                    "pg_desc": group.description,
                    "backend_config": "cuda:nccl",
                    "pg_size": len(group.ranks),
                    "ranks": list(group.ranks),
                }
                for group in layout.groups_of(number)
            ],
            "nccl_version": "2.27.5",
        }
        process = process_of(layout, number)
        devices = ",".join(_DEVICE.format(place) for place in range(len(layout.ranks_of_host(rank.host))))
        own = f'\n      "host_name": "{host_name(rank.host)}",' if self.form == RUN else ""
        begin = _us(self._stamp(rank.host, 0) - BASE_NS)
        lanes = [
            ("process_name", process, 0, "name", '"python"'),
            ("process_labels", process, 0, "labels", '"CPU"'),
            ("process_sort_index", process, 0, "sort_index", process),
            ("process_name", layout.local_rank(number), 0, "name", '"python"'),
            ("process_labels", layout.local_rank(number), 0, "labels", f'"GPU {layout.local_rank(number)}"'),
            ("process_sort_index", layout.local_rank(number), 0, "sort_index", 5_000_000 + layout.local_rank(number)),
            ("thread_name", process, process, "name", f'"thread {process} (python)"'),
            ("thread_name", process, process + 500, "name", f'"thread {process + 500} (pt_autograd_0)"'),
        ]
        return (
            f'{{\n  "schemaVersion": 1,\n    "deviceProperties": [{devices}\n    ],\n    '
            f'\n      "trace_id": "{number:032X}",\n      "record_shapes": 1,\n      "distributedInfo": {json.dumps(info)},{own}'
            f'\n    "displayTimeUnit": "ms",\n    "baseTimeNanoseconds": {BASE_NS},\n    "traceEvents": [\n    '
        ) + "".join(_NAME.format(name, begin, pid, tid, key, value) for name, pid, tid, key, value in lanes)

    def _close(self, rank: _Rank, end_ns: int) -> None:
        begin, end = (self._stamp(rank.host, at) for at in (0, end_ns))
        span = (
            f'\n  {{\n    "ph": "X",\n    "cat": "Trace",\n    "name": "PyTorch Profiler (0)",\n    "pid": "Spans",\n'
            f'    "tid": "PyTorch Profiler",\n    "ts": {_us(begin - BASE_NS)},\n    "dur": {_us(max(end - begin, 0))}\n    ,\n'
            '    "args": {\n      "Op count": 0\n    }\n  },'
            f'\n  {{\n    "ph": "i",\n    \n    "s": "g",\n    "name": "Record Window End",\n    "pid": "",\n    "tid": "",\n'
            f'    "ts": {_us(end - BASE_NS)}\n    \n  }}\n  ],"traceName": "{rank.path.name}" }}'
        )
        self._write(rank, span, ends=True)
        if self.form == RUN:
            self._side_files(rank, begin, end, end_ns)

    def _side_files(self, rank: _Rank, begin: int, end: int, elapsed_ns: int) -> None:
        """What ``steplens.collect.pytorch.saving.write_side_files`` writes beside Kineto's file, of a process that is none."""
        raw, layout = rank.path.parent, self.layout
        groups = {
            str(group.number): {
                "group_name": "default_group" if group is layout.everybody else group.description,
                "group_rank": group.ranks.index(rank.rank),
                "global_ranks": list(group.ranks),
            }
            for group in layout.groups_of(rank.rank)
        }
        info = {
            "config": _SETTINGS.recorded(),
            "start_info": {
                "syscnt_enable": False,
                "freq": 100.0,
                "start_cnt": 0,
                "start_monotonic": _MONOTONIC_NS,
                "collectionTimeStart": begin,
            },
            "end_info": {"collectionTimeEnd": end, "MonotonicTimeEnd": _MONOTONIC_NS + elapsed_ns},
            "torch_npu_version": "",
            "cann_version": "",
            "steplens_version": steplens.__version__,
            "torch_version": _TORCH,
            "python_version": "3.12.11",
            "rank_id": rank.rank,
            "world_size": layout.ranks,
            "processor": {"count": 128, "features": ["avx512_bf16", "amx_bf16"]},
            "allocator": {"preloaded": "", "mmap_threshold": ""},
        }
        described = {
            "ENV_VARIABLES": dict.fromkeys(metadata.ENVIRONMENT_VARIABLES, ""),
            "parallel_group_info": groups,
            "trace_id": f"{rank.rank:032X}",
            "base_time_ns": BASE_NS,
        }
        state = {
            "state": rundir.STATE_COLLECTED,
            "pid": process_of(layout, rank.rank),
            "machine": host_name(rank.host),
            "rank": rank.rank,
            "first_step": self.first_step,
            "last_step": self.first_step + self.steps - 1,
            "whole_steps": True,
            "start_ns": begin,
            "health": [],
        }
        collection = {"trace_bytes": rank.path.stat().st_size}
        # not by rundir.write_json: that waits for the disk after each of these files
        for path, value in (
            (raw / rundir.HOST_EVENTS, {"gc": [], "collection": collection}),
            (raw / rundir.STATE_FILE, state),
            (raw.parent / f"{rundir.INFO_PREFIX}_{rank.rank}.json", info),
            (raw.parent / rundir.METADATA_FILE, described),
        ):
            path.write_text(json.dumps(value))


def _replaced(text: str, marks: dict[str, str]) -> str:
    for mark, value in marks.items():
        text = text.replace(mark, value)
    return text


def _us(time_ns: int) -> str:
    return f"{time_ns // 1000}.{time_ns % 1000:03}"
