"""The file of the recorder (``operators.rec``): its parts, as ``native/recorder/file_format.h`` has them.

Little-endian; a header, then blocks, each of which begins at a multiple of 8 bytes. docs/formats.md describes all of it.
"""

from __future__ import annotations

SUFFIX = ".rec"
MAGIC = b"STPLREC\n"
VERSION = 1
#: magic, version, options, process id, bytes of a call, bytes of an allocator event, source of the clock, Unix minus monotonic ns
HEADER = "<8s6Iq"
HEADER_BYTES = 40

#: what was recorded of a call beside its name, thread and times: bits of the options in the header
WITH_SHAPES, WITH_MEMORY, WITH_FLOPS, WITH_PYTHON, WITH_SAMPLES = 1, 2, 4, 8, 16
#: sources of the clock: what is counted are nanoseconds of CLOCK_MONOTONIC, or ticks of the processor's own counter
MONOTONIC_CLOCK, PROCESSOR_COUNTER = 0, 1

BLOCK_MAGIC = b"SBLK"
#: magic, kind, count, number of the thread, bytes of what follows without the padding to ``ALIGNMENT``
BLOCK_HEADER = "<4s3IQ"
BLOCK_HEADER_BYTES = 24
ALIGNMENT = 8

#: kinds of blocks
CLOCKS, SIGNATURES, THREADS, CALLS, MEMORY, OPEN_CALLS, METADATA, END = range(1, 9)
PYTHON_NAMES, PYTHON_CALLS, OPEN_PYTHON_CALLS, THREAD_HANDLES = range(9, 13)
PYTHON_SAMPLES, PYTHON_STACKS, PYTHON_SAMPLED_THREADS = range(13, 16)

#: fields of records in their order, as numpy names their types
CLOCK_FIELDS = (("ticks", "<u8"), ("monotonic_ns", "<i8"))
THREAD_FIELDS = (("number", "<u4"), ("native_id", "<u4"), ("torch_id", "<u8"), ("name", "S16"))
CALL_FIELDS = (
    ("start_ticks", "<u8"), ("end_ticks", "<u8"), ("sequence", "<i8"), ("signature", "<u4"), ("forward_thread", "<u4"),
    ("start_thread", "<u4"), ("scope", "<u2"), ("reserved", "<u2"),
)  # fmt: skip
MEMORY_FIELDS = (("ticks", "<u8"), ("address", "<u8"), ("bytes", "<i8"))
PYTHON_FIELDS = (("start_ticks", "<u8"), ("end_ticks", "<u8"), ("name", "<u4"), ("depth", "<u4"))
SAMPLE_FIELDS = (
    ("wanted_ticks", "<u8"), ("taken_ticks", "<u8"), ("processor_ns", "<u8"), ("stack", "<u4"), ("thread", "<u4"),
    ("count", "<u4"), ("reserved", "<u4"),
)  # fmt: skip
STACK_FIELDS = (("parent", "<u4"), ("name", "<u4"), ("line", "<u4"), ("reserved", "<u4"))
#: files of versions that did not record calls of Python end before ``python_calls``, of those that did not sample stacks before
#: ``python_samples``
TOTAL_FIELDS = (
    ("calls", "<u8"), ("memory_events", "<u8"), ("dropped_calls", "<u8"), ("dropped_memory_events", "<u8"), ("file_bytes", "<u8"),
    ("error_number", "<i8"), ("python_calls", "<u8"), ("dropped_python_calls", "<u8"), ("refused_python_threads", "<u8"),
    ("lost_python_threads", "<u8"), ("python_samples", "<u8"), ("dropped_python_samples", "<u8"),
    ("stackless_python_samples", "<u8"), ("cut_python_samples", "<u8"),
)  # fmt: skip

#: the member of the metadata that says how often a second stacks were sampled
SAMPLING_RATE = "stack_sampling_hz"

#: the signature of a call whose text could not be made
NO_SIGNATURE = (1 << 32) - 1
#: the stack of a sample that found no place for it, and what is around the outermost frame; the processor time that is not known
NO_STACK, NO_PROCESSOR_TIME = (1 << 32) - 1, (1 << 64) - 1
#: the sequence number of a call that has none
NO_SEQUENCE = -1
#: the bytes of an event that frees what was allocated last at its address
FREED = -1
#: of PyTorch's scopes those of operators, of nodes of the backward pass, and of ``record_function``
FUNCTION_SCOPE, BACKWARD_SCOPE, USER_SCOPE = 0, 1, 7

#: bytes of totals that each end has
LEAST_TOTALS = 48

#: members of the text of a signature, the first of which each has; ``collective`` has those of Kineto's arguments
SIGNATURE_MEMBERS = ("name", "shapes", "types", "arguments", "flops", "collective")
