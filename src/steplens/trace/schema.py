"""The types of the tables of a ``Trace``, which ``steplens.trace.names`` names with their columns, and values that these have."""

from __future__ import annotations

import polars as pl

from steplens.trace.names import TABLES

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
#: key of ``meta``: what the recorded process is known by; its number others have had
PROCESS_IDENTITY = "process_identity"
#: key of ``meta``: what recorded the operators, where it is not the framework's own profiler
OPERATOR_RECORDER = "operator_recorder"
#: its value of recordings by steplens' recorder
OWN_RECORDER = "steplens"
#: key of ``meta``: how often a second Python stacks were sampled
STACK_SAMPLING_RATE = "stack_sampling_hz"
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

_TYPES: dict[str, pl.DataType] = {
    "Name": NAME,
    **{kind.__name__: kind() for kind in (pl.Boolean, pl.Float64, pl.Int16, pl.Int32, pl.Int64, pl.String, pl.UInt8)},
}

SCHEMA: dict[str, dict[str, pl.DataType]] = {
    table: {column: _TYPES[kind] for column, kind in columns.items()} for table, columns in TABLES.items()
}
