"""The tables of a ``Trace``: their columns and types. The one place where they are named.

All times are Unix nanoseconds in columns ending in ``_ns``; sizes are bytes. A table that a source
cannot fill is absent. ``SCHEMA_VERSION`` changes with every change here, which makes every cache stale.
"""

from __future__ import annotations

import polars as pl

SCHEMA_VERSION = 3

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

CORE_CPU = "CPU"

#: ``kernels.type`` of tasks that communicate; they are rows of ``communication`` too
COMMUNICATION_TYPE = "communication"

SCHEMA: dict[str, dict[str, pl.DataType]] = {
    # One framework operator call or user annotation, sorted by (pid, tid, start_ns, -end_ns).
    # id = row number; parent = id of the enclosing call on the same thread.
    # counted_as = id of the call whose statistics it joins: its own, or, for the only child of a parent with the same
    # name (an operator calling its own out= variant), the parent's, as in PyTorch's tables.
    # device_self_ns / device_total_ns: device tasks of the call itself / of it and everything below it.
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
    # One runtime or driver call.
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
    # One device task. On a run without accelerator the CPU is the device: core "CPU", stream = thread id.
    "kernels": {
        "id": pl.Int32(),
        "name": NAME,
        "type": NAME,
        "core": NAME,
        "device": pl.Int32(),
        "stream": pl.Int64(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "wait_ns": pl.Int64(),
        "correlation": pl.Int64(),
        "op": pl.Int32(),
        "step": pl.Int64(),
        "input_shapes": NAME,
        "input_types": NAME,
    },
    # One collective or point-to-point operation; kind is "collective", "send" or "receive".
    "communication": {
        "name": NAME,
        "kind": NAME,
        "group": NAME,
        "ranks": pl.Int32(),
        "bytes": pl.Int64(),
        "dtype": NAME,
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "device": pl.Int32(),
        "stream": pl.Int64(),
        "op": pl.Int32(),
        "step": pl.Int64(),
        "peer": pl.Int32(),
    },
    # One allocator event: bytes > 0 allocates, bytes < 0 frees; device_type "CPU", "CUDA" or "NPU".
    # allocated, reserved and active are the allocator's totals after the event; op = innermost call around it.
    "memory": {
        "time_ns": pl.Int64(),
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
    # One training step: from one prof.step() to the next, on the thread that steps.
    "steps": {
        "id": pl.Int64(),
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "pid": pl.Int64(),
        "tid": pl.Int64(),
    },
    "marks": {
        "domain": NAME,
        "message": NAME,
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "tid": pl.Int64(),
        "stream": pl.Int64(),
    },
    # One garbage collection of the Python interpreter.
    "gc": {
        "start_ns": pl.Int64(),
        "end_ns": pl.Int64(),
        "pid": pl.Int64(),
        "tid": pl.Int64(),
        "generation": pl.Int32(),
    },
    "counters": {
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
