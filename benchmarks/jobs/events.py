"""The events that Kineto writes of a program, as one text per stage and step with places for what differs between ranks.

Times are the only numbers that differ from rank to rank: they are filled in by one ``%`` for a whole step. What is text of a rank
(process, device, groups) stands as a mark in between, see ``marks_of``.
"""

from __future__ import annotations

from collections import Counter
from dataclasses import dataclass, field

import numpy as np
import numpy.typing as npt
from benchmarks.jobs.layout import Group, Layout
from benchmarks.jobs.program import (
    ALL_GATHER,
    DATA,
    DESCRIBES,
    ENGINE,
    MAIN,
    NESTED_NS,
    RANGE,
    REDUCE_SCATTER,
    SEND,
    TENSOR,
    WORLD,
    Call,
    Kernel,
    Program,
    Transfer,
)
from benchmarks.jobs.simulation import StageTimes

Ints = npt.NDArray[np.int64]

#: marks in the text of a step
_PROCESS, _ENGINE, _DEVICE, _PEER = "@PROCESS@", "@ENGINE@", "@DEVICE@", "@PEER{}@"
_GROUP = "@GROUP{}@"

#: what describes a group of more ranks than this is cut, as PyTorch does
_MOST_RANKS = 30
_TIME = "%d.%03d"
_EVENT = (
    '\n  {{\n    "ph": "X",\n    "cat": "{}",\n    "name": "{}",\n    "pid": {},\n    "tid": {},\n    "ts": '
    + _TIME
    + (',\n    "dur": ' + _TIME + '\n    ,\n    "args": {{\n      {}\n    }}\n  }},')
)
_ARROW = (
    '\n  {{\n    "ph": "{}",\n    "id": {},\n    "pid": {},\n    "tid": {},\n    "ts": '
    + _TIME
    + (',\n    "cat": "{}",\n    "name": "{}"\n    {}\n  }},')
)
_THREADS = {MAIN: _PROCESS, ENGINE: _ENGINE}
#: CUPTI's numbers of runtime calls
_LAUNCH_KERNEL, _COPY_ASYNC, _SYNCHRONIZE = (211, "cudaLaunchKernel"), (41, "cudaMemcpyAsync"), (131, "cudaStreamSynchronize")
_LAUNCH_EXTENDED, _RECORD, _WAIT_EVENT = (430, "cudaLaunchKernelExC"), (135, "cudaEventRecord"), (147, "cudaStreamWaitEvent")
_NCCL = {
    "allreduce": "AllReduce_Sum_{}_RING_LL",
    "_allgather_base": "AllGather_RING_LL",
    "_reduce_scatter_base": "ReduceScatter_Sum_{}_RING_LL",
}

#: where the times of an event are taken from
_HOST, _WORK = 0, 1


@dataclass
class StageEvents:
    """The events of a step of one stage.

    Attributes:
        text: with ``%`` for times and marks for ranks.
        source: 0: times of the host, 1: of the work that a call launches.
        first, first_ns, first_blocked: the call from whose beginning an event's start is counted, by how many usual ns, and
            whether the wait of its launch lies before it; ``last`` likewise for the end.
        is_arrow: it has no duration.
        stretch: ns that are added at both ends of work.
    """

    text: str
    source: Ints
    first: Ints
    first_ns: Ints
    last: Ints
    last_ns: Ints
    last_blocked: Ints
    is_arrow: npt.NDArray[np.bool_]
    stretch: Ints
    _places: Ints = field(init=False)

    def __post_init__(self) -> None:
        # of the four numbers of an event an arrow has two
        counted = np.ones((len(self.source), 4), dtype=bool)
        counted[self.is_arrow, 2:] = False
        self._places = np.flatnonzero(counted.ravel())

    def times(self, times: StageTimes, column: int) -> tuple[Ints, Ints]:
        """True start and end of every event on one rank of the stage, ns."""
        begin, pace = times.begin[:, column], times.pace[:, column].astype(np.float64)
        blocked = times.blocked[:, column]
        start = begin[self.first] + np.floor(pace[self.first] * self.first_ns).astype(np.int64)
        end = begin[self.last] + np.floor(pace[self.last] * self.last_ns).astype(np.int64)
        end += blocked[self.last] * self.last_blocked
        is_work = self.source == _WORK
        start[is_work] = times.work_begin[self.first[is_work], column]
        end[is_work] = times.work_end[self.first[is_work], column]
        return start - self.stretch, end + self.stretch

    def filled(self, text: str, start: Ints, end: Ints) -> str:
        """The text of a rank with its times.

        Args:
            text: ``text`` with the marks of the rank replaced.
            start: of each event on the clock of the rank, ns since Kineto's base time; ``end`` likewise.
            end: see there.
        """
        # a clock that was set back between both ends gives no negative duration: Kineto writes none
        duration = np.maximum(end - start, 0)
        numbers = np.stack([start // 1000, start % 1000, duration // 1000, duration % 1000], axis=1).ravel()
        return text % tuple(numbers[self._places].tolist())


class _Text:
    """Collects events and their text."""

    def __init__(self, first_id: int) -> None:
        self.parts: list[str] = []
        self.rows: list[tuple[int, int, int, int, int, int, bool, int]] = []
        self.next_id = first_id

    def number(self) -> int:
        self.next_id += 1
        return self.next_id

    def host(self, category: str, name: str, thread: int, first: int, first_ns: int, last: int, last_ns: int, blocked: bool,
             args: str) -> None:  # fmt: skip
        lane = _THREADS[thread]
        self.parts.append(_EVENT.format(category, name, _PROCESS, lane, args))
        self.rows.append((_HOST, first, first_ns, last, last_ns, int(blocked), False, 0))

    def work(self, category: str, name: str, stream: int, row: int, args: str, stretch: int = 0) -> None:
        self.parts.append(_EVENT.format(category, name, _DEVICE, stream, args))
        self.rows.append((_WORK, row, 0, row, 0, 0, False, stretch))

    def arrow(self, starts: bool, number: int, kind: str, thread: int | None, stream: int, row: int, first_ns: int) -> None:
        pid, tid = (_DEVICE, stream) if thread is None else (_PROCESS, _THREADS[thread])
        bound = "" if starts else ',"bp": "e"'
        self.parts.append(_ARROW.format("s" if starts else "f", number, pid, tid, kind, kind, bound))
        self.rows.append((_WORK if thread is None else _HOST, row, first_ns, row, first_ns, 0, True, 0))

    def done(self) -> StageEvents:
        columns = [np.array(column) for column in zip(*self.rows, strict=True)]
        return StageEvents("".join(self.parts), *columns)


def stage_events(program: Program, layout: Layout, step: int, number: int) -> StageEvents:
    """The events of a step.

    Args:
        program: of the stage.
        layout: of the job.
        step: how many steps were recorded before it.
        number: of the step, as the training counts.
    """
    ids = 4 * sum(len(call.names) + 4 for call in program.calls) + 4 * len(program.spans)
    text = _Text(step * ids)
    sequences = 1 + max((call.sequence for call in program.calls if call.sequence is not None), default=0)
    node_ids: dict[int, int] = {}
    for span in program.spans:
        name = f"{span.name}{number}" if span.name.endswith("#") else span.name
        identity = text.number()
        args = f'"External id": {identity},"Record function id": 0'
        if span.sequence is not None:
            args += f', "Sequence number": {span.sequence + step * sequences}, "Fwd thread id": 1'
        args += f', "Ev Idx": {identity}'
        last_ns = program.calls[span.last].whole_ns + span.tail_ns
        text.host(span.category, name, span.thread, span.first, -span.lead_ns, span.last, last_ns, True, args)
        if span.category == "cpu_op":
            # what lies in it without a name of its own
            node_ids.update(dict.fromkeys(range(span.first, span.last + 1), identity))
        if span.sequence is not None and not span.name.startswith("autograd::"):
            text.arrow(False, 1 + span.sequence + step * sequences, "fwdbwd", ENGINE, 0, span.first, -span.lead_ns)
    in_step = Counter(_counted(call.work) for call in program.calls if isinstance(call.work, Transfer))
    # as if all steps before had been like these
    counts = Counter({key: number * count for key, count in in_step.items()})
    for row, call in enumerate(program.calls):
        description = ""
        if isinstance(call.work, Transfer):
            counts[_counted(call.work)] += 1
            description = _described(call.work, layout, counts[_counted(call.work)])
        _call_events(text, call, row, node_ids.get(row, 0), step * sequences, description)
    return text.done()


def _counted(work: Transfer) -> tuple[bool, int]:
    """What PyTorch counts on its own: the collectives of a group, and its messages between two ranks."""
    return bool(work.peer), 0 if work.peer else work.stream


def _call_events(text: _Text, call: Call, row: int, around: int, sequences: int, description: str) -> None:
    identity, linked = around, around
    work = call.work
    for place, name in enumerate(call.names):
        identity = text.number()
        args = f'"External id": {identity},"Record function id": 0'
        is_range = call.annotation or (isinstance(work, Transfer) and place == RANGE)
        if isinstance(work, Transfer) and place == DESCRIBES:
            args += f", {description}"
            linked = identity
        elif call.sequence is not None:
            args += f', "Sequence number": {call.sequence + sequences}, "Fwd thread id": 0'
        if call.shapes and not (isinstance(work, Transfer) and place == DESCRIBES):
            types = ", ".join(['"c10::BFloat16"'] * len(call.shapes))
            dimensions = ", ".join(str(list(shape)) for shape in call.shapes)
            args += f', "Input type": [{types}], "Input Dims": [{dimensions}]'
        args += f', "Ev Idx": {identity}'
        inside = place * NESTED_NS
        category = "user_annotation" if is_range else "cpu_op"
        text.host(category, name, call.thread, row, inside, row, call.whole_ns - inside, True, args)
        if call.sequence is not None and place == len(call.names) - 1:
            text.arrow(True, 1 + call.sequence + sequences, "fwdbwd", call.thread, 0, row, inside)
    if not isinstance(work, Transfer):
        linked = identity
    launch_end = call.before_ns + call.launch_ns
    runtime: list[tuple[tuple[int, str], int, int]] = []
    if isinstance(work, Transfer):
        begin = call.before_ns
        runtime += [(_RECORD, begin - 2_300, begin - 1_700), (_WAIT_EVENT, begin - 1_500, begin - 900)]
    if isinstance(work, Transfer) and call.holds:
        runtime.append((_WAIT_EVENT, launch_end + 300, launch_end + 900))
    for (number, name), start_ns, end_ns in runtime:
        args = f'"External id": {linked},"cbid": {number}, "correlation": {text.number()}'
        text.host("cuda_runtime", name, call.thread, row, start_ns, row, end_ns, start_ns > call.before_ns, args)
    if work is None and not call.waits:
        return
    correlation = text.number()
    number, name = _SYNCHRONIZE
    if work is not None:
        copies = isinstance(work, Kernel) and work.copied_bytes
        number, name = _LAUNCH_EXTENDED if isinstance(work, Transfer) else _COPY_ASYNC if copies else _LAUNCH_KERNEL
    args = f'"External id": {linked},"cbid": {number}, "correlation": {correlation}'
    text.host("cuda_runtime", name, call.thread, row, call.before_ns, row, launch_end, True, args)
    if work is None:
        return
    text.arrow(True, correlation, "ac2g", call.thread, 0, row, call.before_ns)
    _work_events(text, work, call, row, linked, correlation, description, identity)
    text.arrow(False, correlation, "ac2g", None, call.stream, row, 0)


def _work_events(
    text: _Text, work: Kernel | Transfer, call: Call, row: int, linked: int, correlation: int, description: str, identity: int
) -> None:
    placed = f'"device": {_DEVICE}, "context": 1, "stream": {call.stream}, "correlation": {correlation}'
    if isinstance(work, Kernel) and work.copied_bytes:
        bandwidth = round(work.copied_bytes / work.usual_ns, 6)
        args = f'"External id": {linked},{placed}, "bytes": {work.copied_bytes}, "memory bandwidth (GB/s)": {bandwidth}'
        text.work("gpu_memcpy", work.name, call.stream, row, args)
        return
    heavy = isinstance(work, Kernel) and "gemm" in work.name
    block, grid = (384, (132, 1, 1)) if heavy else (512, (24, 1, 1)) if isinstance(work, Transfer) else (128, (4096, 1, 1))
    args = (
        f'"External id": {linked},"queued": 0, {placed}, "registers per thread": {168 if heavy else 32}, '
        f'"shared memory": {196608 if heavy else 0}, "blocks per SM": {round(grid[0] / 132, 6)}, '
        f'"warps per SM": {round(grid[0] * block / 32 / 132, 6)}, "grid": {list(grid)}, "block": [{block}, 1, 1], '
        f'"est. achieved occupancy %%": {19 if heavy else 100}'
    )
    if isinstance(work, Kernel):
        text.work("kernel", work.name, call.stream, row, args)
        return
    name = _NCCL.get(work.operation, "SendRecv").format("f32" if work.dtype == "Float" else "bf16")
    text.work("kernel", f"ncclDevKernel_{name}(ncclDevKernelArgsStorage<4096ul>)", call.stream, row, f"{args}, {description}")
    text.work("gpu_user_annotation", call.names[RANGE], call.stream, row, f'"External id": {identity}', stretch=1)


def _group_slot(work: Transfer) -> int:
    return 3 if work.peer else {WORLD: 0, DATA: 1, TENSOR: 2}[work.stream]


def _described(work: Transfer, layout: Layout, number: int) -> str:
    """What PyTorch says of a message, with marks for what differs between ranks."""
    members = layout.pipeline if work.peer else {WORLD: layout.ranks, DATA: layout.data, TENSOR: layout.tensor}[work.stream]
    elements_out = work.elements
    if work.operation == ALL_GATHER:
        elements_out *= members
    elif work.operation == REDUCE_SCATTER:
        elements_out //= members
    args = (
        f'"Collective name": "{work.operation}", "In msg nelems": {work.elements}, "Out msg nelems": {elements_out}, '
        f'"Group size": {members}, "dtype": "{work.dtype}", "In split size": "[]", "Out split size": "[]", '
        f'{_GROUP.format(_group_slot(work))}, "Seq": {number}'
    )
    if work.peer:
        args += f', "{"Dst" if work.operation == SEND else "Src"} Rank": {_PEER.format("+" if work.peer > 0 else "-")}'
    return args


def marks_of(layout: Layout, rank: int) -> dict[str, str]:
    """What stands for the marks on one rank."""
    groups = (layout.everybody, layout.data_group(rank), layout.tensor_group(rank), layout.pipeline_group(rank))
    process = process_of(layout, rank)
    return {
        _PROCESS: str(process),
        _ENGINE: str(process + 500),
        _DEVICE: str(layout.local_rank(rank)),
        _PEER.format("+"): str(rank + layout.ranks_per_stage),
        _PEER.format("-"): str(rank - layout.ranks_per_stage),
        **{_GROUP.format(slot): _group_text(group) for slot, group in enumerate(groups)},
    }


#: marks that are the same on all ranks of a stage with one place in their hosts
LOCAL_MARKS = (_PROCESS, _ENGINE, _DEVICE)


def process_of(layout: Layout, rank: int) -> int:
    """The number of a rank's process on its host."""
    return 4_000 + layout.local_rank(rank)


def _group_text(group: Group) -> str:
    named = ", ".join(map(str, group.ranks[:_MOST_RANKS])) + (", ..." if len(group.ranks) > _MOST_RANKS else "")
    return (
        f'"Process Group Name": "{group.number}", "Process Group Description": "{group.description}", '
        f'"Process Group Ranks": "[{named}]"'
    )
