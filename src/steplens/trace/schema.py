"""The tables of a ``Trace``: their columns and types. The one place where they are named.

All times are Unix nanoseconds in columns ending in ``_ns``; sizes are bytes. A table that a source
cannot fill is absent. ``SCHEMA_VERSION`` changes with every change here, which makes every cache stale.
"""

from __future__ import annotations

import polars as pl

SCHEMA_VERSION = 13

#: how a mark of the user was recorded, in the words and the order of CANN: a point; a range that a thread pushed and popped; a
#: range that was started and ended by its number
MARKER, PUSH_POP, START_END = "marker", "push/pop", "start/end"
MARK_KINDS = (MARKER, PUSH_POP, START_END)


NAME = pl.Categorical()

#: values of ``ops.scope``
SCOPE_FUNCTION = 0
SCOPE_BACKWARD = 1
SCOPE_USER = 7
#: not one of PyTorch's: a module call recorded by the forward hooks of steplens.collect
SCOPE_MODULE = 100

MODULE_PREFIX = "nn.Module: "
STEP_PREFIX = "ProfilerStep#"
DATALOADER_PREFIX = "enumerate(DataLoader)#"
OPTIMIZER_STEP_PREFIX = "Optimizer.step#"
#: of full names of the backward pass of a graph of MindSpore
GRADIENTS_PREFIX = "Gradients/"
#: in names of tasks of a graph of MindSpore: what its training cell calls the optimizer
GRAPH_OPTIMIZER = "/optimizer-"
#: what an optimizer calls back for, around forward and backward inside its step
OPTIMIZER_CLOSURE = "Optimizer.closure"

#: key of ``meta``: the recorder knows that it began and ended between steps
WHOLE_STEPS = "whole_steps"
#: key of ``meta``: numbers of the steps that recording holds a part of, where the recorder knows which
PARTIAL_STEPS = "partial_steps"
#: key of ``meta``: the source holds sums and times of another analysis alone, and none of the work that they are of
RESULTS_ONLY = "results_only"
#: key of ``meta``: mean size of the files that torch.save wrote
CHECKPOINT_BYTES = "checkpoint_bytes"

CORE_CPU = "CPU"

CORE_CUDA = "CUDA"
CORE_ROCM = "ROCM"

#: values of ``kernels.kind``: what a device task does with the time line of its device.
#: communication tasks are rows of ``communication`` too; KIND_OTHER is what neither computes, communicates nor copies
#: (waits, event records, the inner tasks of a collective).
KIND_COMPUTE = "compute"
KIND_COMMUNICATION = "communication"
KIND_COPY = "copy"
KIND_OTHER = "other"

#: values of ``communication.kind``
COLLECTIVE = "collective"
SEND = "send"
RECEIVE = "receive"

#: values of ``memory.event``
ALLOCATE = "allocate"
FREE = "free"
#: the block went back to the allocator's pool, later than the tensor let go of it
BLOCK_FREE = "block_free"

SCHEMA: dict[str, dict[str, pl.DataType]] = {
    # One framework operator call or user annotation, sorted by (pid, tid, start_ns, -end_ns).
    # id = row number; parent = id of the enclosing call on the same thread.
    # counted_as = id of the call whose statistics it joins: its own, or, for the only child of a parent with the same
    # name (an operator calling its own out= variant), the parent's, as in PyTorch's tables.
    # arguments = JSON list of the values of a convolution's arguments ("[1, 1]"; "" for a tensor): its output's size follows.
    # device_self_ns / device_total_ns: device time of the call itself / of it and everything below it (kernels.self_ns).
    "ops": {
        "id": pl.Int32(),
        "name": NAME,
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "pid": pl.Int64(),
        "tid": pl.Int64(),
        "parent": pl.Int32(),
        "depth": pl.Int16(),
        "self_ns": pl.Int64(),
        "counted_as": pl.Int32(),
        "step": pl.Int64(),
        "scope": pl.UInt8(),
        "sequence": pl.Int64(),
        "forward_tid": pl.Int64(),
        "external_id": pl.Int64(),
        "input_shapes": NAME,
        "input_types": NAME,
        "arguments": NAME,
        "stack": NAME,
        "module": NAME,
        "flops": pl.Int64(),
        "device_self_ns": pl.Int64(),
        "device_total_ns": pl.Int64(),
    },
    # One Python frame, C function or module call.
    "python": {
        "id": pl.Int64(),
        "name": NAME,
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "pid": pl.Int64(),
        "tid": pl.Int64(),
        "parent": pl.Int64(),
        "module_id": pl.Int64(),
    },
    # One runtime or driver call; layer is the source's ("cuda_runtime", "cuda_driver", "acl", "node", "runtime" ...).
    "api": {
        "name": NAME,
        "layer": NAME,
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "pid": pl.Int64(),
        "tid": pl.Int64(),
        "correlation": pl.Int64(),
        "external_id": pl.Int64(),
    },
    # One task that the framework handed to its own launching thread (Ascend's task queue).
    "task_queue": {
        "name": NAME,
        "correlation": pl.Int64(),
        "pid": pl.Int64(),
        "enqueue_tid": pl.Int64(),
        "enqueue_start_ns": pl.Int64(),
        "enqueue_end_ns": pl.Int64(),
        "dequeue_tid": pl.Int64(),
        "dequeue_start_ns": pl.Int64(),
        "dequeue_end_ns": pl.Int64(),
    },
    # One device task. On a run without accelerator the CPU is the device, and every operator call is a task of it
    # (trace.cpu_device): core "CPU", stream = thread id, op = the call. Tasks of one such stream nest as their calls do.
    # self_ns = how long the task itself kept its device busy: end_ns - start_ns on an accelerator, the self time of the call on
    # the CPU. Sums over tasks are sums of it; when a device is busy follows from the ranges.
    # type = the source's own type (Ascend's OP Type) or, where it has none, the category; category = matmul,
    # convolution, attention ..., see trace.classify. launch_ns = host time of the call that launched it.
    # wait_ns: on CUDA and ROCm from launch to start, on Ascend the device's Wait Time (since the stream's previous task).
    # bytes: of a copy. blocks: thread blocks or AI cores used. task_type: what the device's scheduler calls the task, where
    # a source has that besides the core; older schedulers call every kernel "AI_CORE".
    "kernels": {
        "id": pl.Int32(),
        "name": NAME,
        "type": NAME,
        "kind": NAME,
        "category": NAME,
        "core": NAME,
        "task_type": NAME,
        "device": pl.Int32(),
        "stream": pl.Int64(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "self_ns": pl.Int64(),
        "wait_ns": pl.Int64(),
        "launch_ns": pl.Int64(),
        "correlation": pl.Int64(),
        "op": pl.Int32(),
        "step": pl.Int64(),
        "bytes": pl.Int64(),
        "task_id": pl.Int64(),
        "model_id": pl.Int64(),
        "context_id": pl.Int64(),
        "state": NAME,
        "blocks": pl.Int64(),
        "mix_blocks": pl.Int64(),
        "hf32": NAME,
        "input_shapes": NAME,
        "input_types": NAME,
        "input_formats": NAME,
        "output_shapes": NAME,
        "output_types": NAME,
        "output_formats": NAME,
    },
    # One measured value of a device task (performance counters, occupancy, registers), in the source's unit and order.
    "kernel_metrics": {
        "kernel": pl.Int32(),
        "name": NAME,
        "value": pl.Float64(),
    },
    # One collective or point-to-point operation; kind is "collective", "send" or "receive"; operation = "allreduce" ...;
    # ranks = size of the group; elements and dtype as the library counts them; algorithm = the library's name of it.
    "communication": {
        "name": NAME,
        "kind": NAME,
        "operation": NAME,
        "group": NAME,
        "ranks": pl.Int32(),
        "elements": pl.Int64(),
        "bytes": pl.Int64(),
        "dtype": NAME,
        "algorithm": NAME,
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "launch_ns": pl.Int64(),
        "correlation": pl.Int64(),
        "device": pl.Int32(),
        "stream": pl.Int64(),
        "op": pl.Int32(),
        "step": pl.Int64(),
        "peer": pl.Int32(),
    },
    # What the communication library measured of one operation, in its units (ms, MB of 10**6 bytes, GB/s);
    # kind is "collective" or "p2p", group the name or hash that the library gives.
    "communication_times": {
        "name": NAME,
        "group": NAME,
        "kind": NAME,
        "step": pl.Int64(),
        "start_ns": pl.Int64(),
        "elapse_ms": pl.Float64(),
        "transit_ms": pl.Float64(),
        "wait_ms": pl.Float64(),
        "synchronization_ms": pl.Float64(),
        "idle_ms": pl.Float64(),
    },
    # The same per transport and packet size; package_mb is null where a transport was not used.
    "communication_bandwidth": {
        "name": NAME,
        "group": NAME,
        "kind": NAME,
        "step": pl.Int64(),
        "transport": NAME,
        "size_mb": pl.Float64(),
        "transit_ms": pl.Float64(),
        "bandwidth_gbps": pl.Float64(),
        "large_packet_ratio": pl.Float64(),
        "package_mb": pl.Float64(),
        "count": pl.Int64(),
        "duration_ms": pl.Float64(),
    },
    # The same per pair of ranks. selection is null for a row of one operation; in a result that holds selected rows only
    # it is "top1", "middle", "bottom1" ... or "total", and name is the type of operation ("allreduce").
    "communication_matrix": {
        "name": NAME,
        "selection": NAME,
        "op_name": NAME,
        "group": NAME,
        "kind": NAME,
        "step": pl.Int64(),
        "source": pl.Int32(),
        "destination": pl.Int32(),
        "transport": NAME,
        "size_mb": pl.Float64(),
        "transit_ms": pl.Float64(),
        "bandwidth_gbps": pl.Float64(),
    },
    # One allocator event: bytes > 0 allocates, bytes < 0 frees (event says which, see ALLOCATE, FREE, BLOCK_FREE; null: by
    # sign); device_type "CPU", "CUDA" or "NPU". bytes and address are null where a source records only the totals.
    # allocated, reserved and active are the allocator's totals after the event; op = innermost call around it.
    "memory": {
        "time_ns": pl.Int64(),
        "event": NAME,
        "address": pl.Int64(),
        "bytes": pl.Int64(),
        "allocated": pl.Int64(),
        "reserved": pl.Int64(),
        "active": pl.Int64(),
        "device_type": NAME,
        "device": pl.Int32(),
        "stream": pl.Int64(),
        "pid": pl.Int64(),
        "tid": pl.Int64(),
        "op": pl.Int32(),
        "component": NAME,
    },
    # One allocation with its release, in order of allocation; only of sources that record pairs instead of events.
    "allocations": {
        "name": NAME,
        "op": pl.Int32(),
        "bytes": pl.Int64(),
        "allocation_ns": pl.Int64(),
        "release_ns": pl.Int64(),
        "active_release_ns": pl.Int64(),
        "allocation_allocated": pl.Int64(),
        "allocation_reserved": pl.Int64(),
        "allocation_active": pl.Int64(),
        "release_allocated": pl.Int64(),
        "release_reserved": pl.Int64(),
        "release_active": pl.Int64(),
        "stream": pl.Int64(),
        "device_type": NAME,
        "device": pl.Int32(),
        "component": NAME,
    },
    # One training step: from one prof.step() to the next, on the thread that steps.
    "steps": {
        "id": pl.Int64(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "pid": pl.Int64(),
        "tid": pl.Int64(),
    },
    # The points of one step as a device records them: the step (or iteration of a loaded model) runs from start_ns to end_ns,
    # its first forward operator starts at forward_ns, its last backward operator ends at backward_ns (null for inference).
    "step_points": {
        "step": pl.Int64(),
        "model_id": pl.Int64(),
        "start_ns": pl.Int64(),
        "forward_ns": pl.Int64(),
        "backward_ns": pl.Int64(),
        "end_ns": pl.Int64(),
    },
    # The points of one collective in a step, beside step_points; index counts the collectives of a step per stream from 0.
    "step_collectives": {
        "step": pl.Int64(),
        "model_id": pl.Int64(),
        "stream": pl.Int64(),
        "index": pl.Int32(),
        "name": NAME,
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
    },
    # One operation of a data pipeline. parent: the operation that takes what it puts out, null for the last one before the
    # training loop; queue_capacity: of its output queue, null where it has none (it runs inside its parent's threads).
    "pipeline_ops": {
        "id": pl.Int32(),
        "type": NAME,
        "workers": pl.Int32(),
        "parent": pl.Int32(),
        "queue_capacity": pl.Int64(),
    },
    # One sample taken of a data pipeline: scope is "op", "process" or "host", op the operation; name is "queue_size",
    # "user_utilization" ...; unit "batches" (elements of a queue), "%" (of one core for an operation, of all cores for process
    # and host), "MB" or "1"; sample counts from 0; time_ns is null where the source keeps only the order.
    "pipeline_samples": {
        "scope": NAME,
        "op": pl.Int32(),
        "name": NAME,
        "unit": NAME,
        "sample": pl.Int32(),
        "time_ns": pl.Int64(),
        "value": pl.Float64(),
    },
    # One batch at one place: kind "iterate" (the loop takes it from the pipeline), "send" (it goes to the device's queue) or
    # "receive" (the device takes it from there). get_ns: time to get it out of the pipeline; push_ns: to hand it on;
    # total_ns: of the whole batch; wait_ns: the receiver waited; queue_size: elements in the queue before the place.
    "pipeline_batches": {
        "kind": NAME,
        "name": NAME,
        "batch": pl.Int64(),
        "time_ns": pl.Int64(),
        "get_ns": pl.Int64(),
        "push_ns": pl.Int64(),
        "total_ns": pl.Int64(),
        "wait_ns": pl.Int64(),
        "queue_size": pl.Int64(),
        "queue_capacity": pl.Int64(),
    },
    # One DataLoader of PyTorch. queue_capacity: batches that its workers make ahead, prefetch_factor times workers; null without
    # workers. transform: whether its data set's transforms were timed apart from the rest of reading a sample.
    "pipeline_loaders": {
        "loader": pl.Int32(),
        "dataset": NAME,
        "workers": pl.Int32(),
        "batch_size": pl.Int64(),
        "prefetch_factor": pl.Int64(),
        "queue_capacity": pl.Int64(),
        "collate": NAME,
        "start_method": NAME,
        "iterable": pl.Boolean(),
        "persistent_workers": pl.Boolean(),
        "pin_memory": pl.Boolean(),
        "in_order": pl.Boolean(),
        "transform": pl.Boolean(),
    },
    # One pass over a DataLoader, from iter() on; null where it began before it was watched, or did not get so far.
    # workers_ns: its workers had been started (null: they were there); first_batch_ns: the loop got the first batch.
    "pipeline_epochs": {
        "loader": pl.Int32(),
        "epoch": pl.Int64(),
        "start_ns": pl.Int64(),
        "workers_ns": pl.Int64(),
        "first_batch_ns": pl.Int64(),
    },
    # One batch of a DataLoader. Who made it (worker, pid; worker is null for the training process itself) fetched samples from
    # start_ns to collate_ns, transforms of them included (transforms calls that took transform_ns; null in batches
    # whose transforms were not timed, because they are short), collated until end_ns and
    # pickled from pickle_start_ns to pickle_end_ns; cpu_ns: processor time of the worker since its previous batch. The loop
    # asked for it at next_start_ns and had it at next_end_ns, of which it waited wait_ns for a batch to be there; ready:
    # batches that were made and not taken when it asked. It was received and unpickled from receive_start_ns to
    # receive_end_ns, and pinned until pin_end_ns. step: in which the loop got it. Null is what was not seen or did not happen.
    "pipeline_tasks": {
        "loader": pl.Int32(),
        "epoch": pl.Int64(),
        "batch": pl.Int64(),
        "worker": pl.Int32(),
        "pid": pl.Int64(),
        "start_ns": pl.Int64(),
        "collate_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "transform_ns": pl.Int64(),
        "transforms": pl.Int64(),
        "failed": pl.Boolean(),
        "cpu_ns": pl.Int64(),
        "pickle_start_ns": pl.Int64(),
        "pickle_end_ns": pl.Int64(),
        "next_start_ns": pl.Int64(),
        "next_end_ns": pl.Int64(),
        "wait_ns": pl.Int64(),
        "ready": pl.Int64(),
        "receive_start_ns": pl.Int64(),
        "receive_end_ns": pl.Int64(),
        "pin_end_ns": pl.Int64(),
        "step": pl.Int64(),
    },
    # One user mark (end_ns = start_ns) or range; kind is how it was recorded, one of MARK_KINDS, or null.
    "marks": {
        "domain": NAME,
        "message": NAME,
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "pid": pl.Int64(),
        "tid": pl.Int64(),
        "stream": pl.Int64(),
        "correlation": pl.Int64(),
        "kind": NAME,
    },
    # One garbage collection of the Python interpreter.
    "gc": {
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "pid": pl.Int64(),
        "tid": pl.Int64(),
        "generation": pl.Int32(),
    },
    # One sample of a counter; group is what is sampled ("HBM", "LLC", "NPU MEM", "npu_module_mem" ...).
    "counters": {
        "group": NAME,
        "name": NAME,
        "unit": NAME,
        "time_ns": pl.Int64(),
        "value": pl.Float64(),
        "device": pl.Int32(),
    },
    # One arrow of the source: kind is the source's category ("fwdbwd", "ac2g", ...).
    "flows": {
        "kind": NAME,
        "flow_id": pl.Int64(),
        "from_ns": pl.Int64(),
        "from_pid": pl.Int64(),
        "from_tid": pl.Int64(),
        "to_ns": pl.Int64(),
        "to_pid": pl.Int64(),
        "to_tid": pl.Int64(),
    },
    # One thread of a process: what the viewers call the lane.
    "threads": {
        "pid": pl.Int64(),
        "tid": pl.Int64(),
        "name": pl.String(),
    },
    # One row of a table that a source keeps and steplens hands on unchanged (l2_cache, api_statistic, nic ...): record is a
    # JSON object of text, keys in the order of the source's columns.
    "source_tables": {
        "table": pl.String(),
        "row": pl.Int32(),
        "record": pl.String(),
    },
    # key/value; the value is JSON text.
    "meta": {
        "key": pl.String(),
        "value": pl.String(),
    },
    # One finding about the data itself; severity "info", "warning" or "error"; count = how many events.
    "health": {
        "check": pl.String(),
        "severity": pl.String(),
        "count": pl.Int64(),
        "message": pl.String(),
        "unsafe": pl.String(),
    },
}
