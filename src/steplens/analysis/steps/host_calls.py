"""The calls of the training thread that tell its phases: data loader, model, backward, optimizer, waits for the device."""

from __future__ import annotations

from dataclasses import dataclass

import numpy as np
import numpy.typing as npt
import polars as pl

from steplens.analysis.steps.training_thread import TrainingThread, records_host, training_thread
from steplens.analysis.tools import names
from steplens.analysis.tools.order import in_order
from steplens.analysis.tools.overlap import Int64Array, Intervals, length_inside, merge_intervals, merged, subtract, union
from steplens.trace import schema
from steplens.trace.trace import Trace

#: runtime calls that wait for the device
SYNCHRONIZATION_NAME = r"(?i)synchronize|^aclrtsync|stream sync|context sync|^(cuda|hip)memcpy$|^hipmemcpywithstream$"
#: runtime calls that copy; some of them wait
_COPY_NAME = r"(?i)memcpy"
#: operators that read a tensor's value, which waits for the device where the tensor lies there
_READS_VALUE = ("aten::item", "aten::_local_scalar_dense", "aten::is_nonzero")
#: ranges of users and libraries that say what they are: "## forward ##", "DistributedDataParallel.forward", "forward-compute"
_SAYS_FORWARD = r"(?i)^\W*(forward|fwd)([-_ ](pass|step|compute))?\W*$|^\w+\.forward$"
_SAYS_BACKWARD = r"(?i)^\W*(backward|bwd)([-_ ](pass|step|compute))?\W*$"
_SAYS_OPTIMIZER = r"(?i)^\W*optimizer([-_ ]step)?\W*$"
#: wrappers of autograd's engine around the nodes that it runs
_ENGINE_PREFIX = "autograd::engine::"
#: how DistributedDataParallel ends backward, when no node of autograd runs any more: it takes the reduced gradients over
_REDUCED = "torch.distributed.ddp.reducer::copy_bucket_to_grad"
#: the frames in which Python calls autograd's engine
_ENGINE_FRAME = r"torch/(_tensor|autograd/__init__)\.py\(\d+\): (backward|grad)$|run_backward of torch\._C\._EngineBase"
#: the gradient that backward begins with
_ROOT = "aten::ones_like"
#: operators that communicate
COMMUNICATION_NAME = r"^(c10d::|_c10d_functional|record_param_comms$|gloo:|mpi:|ucc:|nccl:|hccl:)"


@dataclass(frozen=True)
class HostCalls:
    """What the training thread calls, over the whole trace.

    Attributes:
        step_starts: of all steps, sorted.
        data: it waits for the data loader.
        model: outermost calls of modules, and ranges that say forward; ``model_starts``: when they begin, sorted.
        answered_starts: when the outermost operators begin that a node of backward answers to, sorted.
        operators: operators run; ``operator_starts``: when the outermost ones begin, sorted.
        roots: the operators that make the gradient which backward begins with.
        backward: nodes of autograd run, on any thread of the process, or a range or frame says backward.
        reduced: DistributedDataParallel takes reduced gradients over, at the end of backward.
        runs_in_backward: operators other than communication and nodes of autograd, on any thread that autograd uses.
        optimizer: ``Optimizer.step``; ``optimizer_ends``: when those end, sorted.
        closure_starts: when an optimizer calls its closure, sorted.
        device_waits: calls that wait for the device.
        inference: operators and the gaps between them, as far as no data, no wait and no optimizer lies in them.
        complete: whether operators that the thread called were recorded, or those of a graph of MindSpore, whose names tell all.
    """

    step_starts: Int64Array
    data: Intervals
    model: Intervals
    model_starts: Int64Array
    answered_starts: Int64Array
    operators: Intervals
    operator_starts: Int64Array
    roots: Intervals
    backward: Intervals
    reduced: Intervals
    runs_in_backward: Intervals
    optimizer: Intervals
    optimizer_ends: Int64Array
    closure_starts: Int64Array
    device_waits: Intervals
    inference: Intervals
    complete: bool


def host_calls(trace: Trace) -> HostCalls | None:
    """The calls of the training thread; None where the trace holds no calls of the host."""
    thread = training_thread(trace)
    ops = trace.ops
    if thread is None or ops is None or not ops.height:
        return None
    selected = _Selected.of(trace, thread, ops)
    step_starts = np.sort(trace.required("steps").select("start_ns").collect()["start_ns"].to_numpy())
    data = selected.named_with(schema.DATALOADER_PREFIX)
    operators, operator_starts = selected.operators()
    model, model_starts = _model_calls(trace, thread, selected)
    optimizer = selected.ranges(schema.OPTIMIZER_STEP_PREFIX, _SAYS_OPTIMIZER, schema.GRAPH_OPTIMIZER)
    waits = _device_waits(trace, thread, selected)
    running, autograd = selected.backward_calls()
    backward = union(autograd, union(selected.says(_SAYS_BACKWARD), _engine_frames(trace, thread)))
    return HostCalls(
        step_starts=step_starts,
        data=data,
        model=model,
        model_starts=model_starts,
        answered_starts=selected.answered_starts(),
        operators=operators,
        operator_starts=operator_starts,
        roots=selected.called(_ROOT),
        backward=backward,
        reduced=selected.called(_REDUCED),
        runs_in_backward=running,
        optimizer=optimizer,
        optimizer_ends=optimizer.end,
        closure_starts=selected.called(schema.OPTIMIZER_CLOSURE).start,
        device_waits=waits,
        inference=bridge_gaps(subtract(operators, union(optimizer, waits)), union(union(data, waits), optimizer), step_starts),
        complete=selected.is_graph or records_host(trace),
    )


def bridge_gaps(intervals: Intervals, blockers: Intervals, borders: Int64Array) -> Intervals:
    """``intervals`` with every gap filled that holds no part of ``blockers`` and no time of ``borders`` (sorted)."""
    if len(intervals.start) < 2:
        return intervals
    gap_start, gap_end = intervals.end[:-1], intervals.start[1:]
    blocked = length_inside(blockers, gap_start, gap_end) > 0
    blocked |= np.searchsorted(borders, gap_start, side="left") != np.searchsorted(borders, gap_end, side="right")
    first, last = np.r_[True, blocked], np.r_[blocked, True]
    return Intervals(intervals.start[first], intervals.end[last])


def outermost_calls(trace: Trace) -> pl.DataFrame:
    """The outermost operator calls of the training thread, in order of time: name, start_ns, end_ns."""
    thread = training_thread(trace)
    ops = trace.ops
    if thread is None or ops is None:
        return pl.DataFrame(schema={"name": pl.String, "start_ns": pl.Int64, "end_ns": pl.Int64})
    selected = _Selected.of(trace, thread, ops)
    rows = ops.filter(selected.is_operator).select("name", "start_ns", "end_ns")
    rows = in_order(rows, "start_ns")
    return rows.filter(_is_outermost(rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()))


def synchronising_calls(trace: Trace) -> pl.DataFrame:
    """The runtime calls of the training thread that wait for the device: name, start_ns, end_ns.

    They synchronise, or copy and return when most of the copying has been done, as copies from pageable memory do.
    """
    thread = training_thread(trace)
    runtime = names.of_runtime(trace)
    waits, copies = names.containing(runtime, SYNCHRONIZATION_NAME), names.containing(runtime, _COPY_NAME)
    api = trace.required("api").filter(pl.col("name").is_in([*waits, *copies]))
    if thread is not None:
        api = api.filter(thread.is_own())
    calls = api.select("name", "start_ns", "end_ns", "correlation").drop_nulls(["name", "start_ns", "end_ns"]).collect()
    tasks = trace.required("kernels").filter(pl.col("kind") == schema.KIND_COPY)
    copied = tasks.select("correlation", copy_start_ns="start_ns", copy_end_ns="end_ns").drop_nulls().collect()
    calls = calls.join(copied.unique("correlation"), on="correlation", how="left", maintain_order="left")
    within = pl.min_horizontal("end_ns", "copy_end_ns") - pl.max_horizontal("start_ns", "copy_start_ns")
    blocks = within > (pl.col("copy_end_ns") - pl.col("copy_start_ns")) / 2
    return calls.filter(pl.col("name").is_in(waits) | blocks).select("name", "start_ns", "end_ns")


@dataclass(frozen=True)
class _Selected:
    """The calls of a trace with what is asked of each of them.

    Attributes:
        ops: all calls.
        known: their different names.
        is_own: which are of the training thread; of a graph of MindSpore, of any thread of the process.
        is_process: which are of its process.
        is_operator: those of ``is_own`` that are operators.
        is_graph: whether a graph of MindSpore runs, whose full names say what its operators are part of.
    """

    ops: pl.DataFrame
    known: pl.Series
    is_own: pl.Series
    is_process: pl.Series
    is_operator: pl.Series
    is_graph: bool

    @classmethod
    def of(cls, trace: Trace, thread: TrainingThread, ops: pl.DataFrame) -> _Selected:
        call_names = names.of_calls(trace)
        is_own = ops.select(thread.is_own().fill_null(False)).to_series()
        is_process = ops.select((pl.col("pid") == thread.pid).fill_null(False)).to_series()
        is_call = ops["scope"].is_in([schema.SCOPE_FUNCTION, schema.SCOPE_BACKWARD])
        gradients = names.with_prefix(call_names, schema.GRADIENTS_PREFIX)
        # a graph of MindSpore runs on threads of its own
        is_graph = bool(gradients) and not (is_own & (is_call | (ops["scope"] == schema.SCOPE_MODULE))).any()
        if is_graph:
            is_own = is_process
        return cls(ops, call_names, is_own, is_process, is_own & is_call, is_graph)

    def _merge_calls(self, chosen: pl.Series) -> Intervals:
        # column by column: a query takes longer than the few calls of a small trace
        return merge_intervals(*(self.ops[name].filter(chosen).to_numpy() for name in ("start_ns", "end_ns")))

    def _named(self, wanted: list[str]) -> pl.Series:
        names = self.ops["name"]
        return names.is_in(wanted) if wanted or names.null_count() else pl.Series([False]).new_from_index(0, len(names))

    def called(self, name: str) -> Intervals:
        """When calls of one name run on the thread."""
        return self._merge_calls(self.is_own & self._named([name]))

    def named_with(self, prefix: str) -> Intervals:
        """When calls run on the thread whose names begin so."""
        return self._merge_calls(self.is_own & self._named(names.with_prefix(self.known, prefix)))

    def says(self, pattern: str) -> Intervals:
        """When ranges of users and libraries whose names match are open on the thread."""
        return self._merge_calls(self.is_own & ~self.is_operator & self._named(names.containing(self.known, pattern)))

    def ranges(self, prefix: str, pattern: str, in_graph: str) -> Intervals:
        """When ranges are open whose names begin with ``prefix``, else those that match, else operators of a graph with it."""
        if self.is_graph:
            merged_ranges = self._merge_calls(self.is_own & self._named(names.containing(self.known, in_graph)))
            return bridge_gaps(merged_ranges, subtract(self.operators()[0], merged_ranges), np.empty(0, dtype=np.int64))
        named_ranges = self.named_with(prefix)
        return named_ranges if len(named_ranges.start) else self.says(pattern)

    def operators(self) -> tuple[Intervals, Int64Array]:
        """When operators run on the thread, and when the outermost ones begin."""
        rows = in_order(pl.DataFrame([self.ops[name].filter(self.is_operator) for name in ("start_ns", "end_ns")]), "start_ns")
        start, end = rows["start_ns"].to_numpy(), rows["end_ns"].to_numpy()
        return merge_intervals(start, end), start[_is_outermost(start, end).to_numpy()]

    def backward_calls(self) -> tuple[Intervals, Intervals]:
        """When something runs that could be backward's work, and when autograd's nodes run, on any thread of the process."""
        wrappers = names.with_prefix(self.known, _ENGINE_PREFIX)
        if self.is_graph:
            wrappers += names.with_prefix(self.known, schema.GRADIENTS_PREFIX)
        autograd = self.is_process & ((self.ops["scope"] == schema.SCOPE_BACKWARD) | self._named(wrappers))
        communicates = self._named(names.containing(self.known, COMMUNICATION_NAME))
        nodes = self._merge_calls(autograd)
        return union(nodes, self._merge_calls(self.is_operator & ~communicates)), nodes

    def answered_starts(self) -> Int64Array:
        """When the outermost operators of the thread begin that a node of backward answers to.

        Of operators with one sequence number it is the last one: those before it made no node, and the number went on to it.
        """
        empty = np.empty(0, dtype=np.int64)
        if self.is_graph:
            gradients = self._named(names.with_prefix(self.known, schema.GRADIENTS_PREFIX))
            is_other = self.is_own & ~gradients & ~self._named(names.containing(self.known, schema.GRAPH_OPTIMIZER))
            data = self._named(names.with_prefix(self.known, schema.DATALOADER_PREFIX))
            is_call = self.ops["scope"].is_in([schema.SCOPE_FUNCTION, schema.SCOPE_BACKWARD])
            return np.sort(self.ops.filter((is_other & ~data & is_call).fill_null(False))["start_ns"].to_numpy())
        is_backward = self.ops["scope"] == schema.SCOPE_BACKWARD
        numbered = self.ops["sequence"].is_not_null() & (self.ops["sequence"] >= 0)
        answered = self.ops.filter(self.is_process & is_backward & numbered)["sequence"].unique()
        forward = self.ops.filter(self.is_operator & ~is_backward & numbered).select("start_ns", "sequence")
        forward = forward.filter(pl.col("sequence").is_in(answered.to_list())).sort("start_ns")
        if forward.is_empty():
            return empty
        start = forward.unique("sequence", keep="last", maintain_order=True)["start_ns"].to_numpy()
        _, outermost = self.operators()
        place = np.searchsorted(outermost, start, side="right") - 1
        return np.unique(outermost[np.maximum(place, 0)])


def _is_outermost(start: Int64Array, end: Int64Array) -> pl.Series:
    """Which intervals, in order of their starts, begin behind the ends of all before them."""
    outermost: npt.NDArray[np.bool_] = np.ones(len(start), dtype=bool)
    outermost[1:] = start[1:] >= np.maximum.accumulate(end)[:-1]
    return pl.Series(outermost)


def _model_calls(trace: Trace, thread: TrainingThread, selected: _Selected) -> tuple[Intervals, Int64Array]:
    """Calls of modules and ranges that say forward, on the training thread; of ranges in one another the outermost."""
    is_module = selected.is_own & (selected.ops["scope"] == schema.SCOPE_MODULE)
    frames = trace.required("python").filter(
        thread.is_own() & pl.col("name").cast(pl.String).str.starts_with(schema.MODULE_PREFIX)
    )
    modules = union(selected._merge_calls(is_module), merged(frames.select("start_ns", "end_ns").collect()))
    model = union(modules, selected.says(_SAYS_FORWARD))
    # an optimizer's or a loader's call of a module is none of the model
    return model, model.start


def _engine_frames(trace: Trace, thread: TrainingThread) -> Intervals:
    """When Python has called autograd's engine on the training thread, where its frames were recorded."""
    if "python" not in trace:
        return merge_intervals(np.empty(0, dtype=np.int64), np.empty(0, dtype=np.int64))
    calls_engine = pl.col("name").is_in(_matching_frames(trace))
    frames = trace.required("python").filter(thread.is_own() & calls_engine)
    return merged(frames.select("start_ns", "end_ns").collect())


def _matching_frames(trace: Trace) -> list[str]:
    frames = trace.required("python").select("name").collect()["name"]
    return names.containing(names.distinct(frames), _ENGINE_FRAME)


def _device_waits(trace: Trace, thread: TrainingThread, selected: _Selected) -> Intervals:
    """Calls of the training thread that wait for an accelerator: they synchronise, or read the value of one of its tensors."""
    empty = np.empty(0, dtype=np.int64)
    if not trace.has_accelerator:
        return merge_intervals(empty, empty)
    synchronising = merged(synchronising_calls(trace).select("start_ns", "end_ns"))
    reads = in_order(
        selected.ops.filter(selected.is_operator & selected._named(list(_READS_VALUE))).select("start_ns", "end_ns"), "start_ns"
    )
    start, end = reads["start_ns"].to_numpy(), reads["end_ns"].to_numpy()
    runtime = trace.required("api").filter(thread.is_own()).select("start_ns", "end_ns").drop_nulls().collect()
    if runtime.height:
        # the value of a tensor of the host is read without a call of the device's runtime
        asks_device = length_inside(merged(runtime), start, end) > 0
        start, end = start[asks_device], end[asks_device]
    return union(synchronising, merge_intervals(start, end))
