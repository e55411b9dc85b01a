"""Kineto's traces: categories of events, members of their ``args``, and what steplens adds to the names of an NPU's tasks."""

from __future__ import annotations

#: how names of trace files end
SUFFIXES = (".json", ".json.gz")

#: calls of the framework, ranges of the user, frames of Python
OPERATOR, ANNOTATION, PYTHON = "cpu_op", "user_annotation", "python_function"
#: ranges of the user as the device saw them, and waits of the host for it
DEVICE_ANNOTATION, SYNCHRONIZATION = "gpu_user_annotation", "cuda_sync"
#: device tasks; older versions wrote other names
KERNEL, COPY, SET = "kernel", "gpu_memcpy", "gpu_memset"
KERNEL_CATEGORIES = (KERNEL, "Kernel", "concurrent_kernel")
COPY_CATEGORIES = (COPY, SET, "Memcpy", "Memset")
#: calls that launch device work; every tool knows them
RUNTIME = "cuda_runtime"
#: arrows from a forward call to its backward call, and from a launch to its task
FORWARD_BACKWARD, LAUNCH = "fwdbwd", "ac2g"

#: what steplens puts in front of the names of an NPU's collectives and copies, since tools know these by CUDA's names
COLLECTIVE_PREFIX = "ncclKernel: "
COPY_PREFIX = "Memcpy: "

EXTERNAL_ID = "External id"
#: of an operator call; timelines of Ascend have them too
OPERATOR_MEMBERS = {
    "sequence": "Sequence number",
    "forward_tid": "Fwd thread id",
    "input_shapes": "Input Dims",
    "input_types": "Input type",
    "stack": "Call stack",
    "module": "Module Hierarchy",
}
#: of a Python frame, likewise
PYTHON_MEMBERS = {"id": "Python id", "parent": "Python parent id", "module_id": "Python module id"}
#: of a communication operation, in its call and its kernels
COLLECTIVE_MEMBERS = {
    "collective": "Collective name",
    "elements_in": "In msg nelems",
    "elements_out": "Out msg nelems",
    "group": "Process Group Name",
    "group_number": "Process Group ID",
    "group_description": "Process Group Description",
    "group_ranks": "Process Group Ranks",
    "group_size": "Group size",
    "source": "Src Rank",
    "destination": "Dst Rank",
}
#: of an event of an allocator
MEMORY_MEMBERS = {
    "reserved": "Total Reserved",
    "allocated": "Total Allocated",
    "device_type": "Device Type",
    "device": "Device Id",
}
#: kinds of devices by the number that events of allocators have for them
DEVICE_TYPES = {0: "CPU", 1: "CUDA", 6: "HIP", 9: "XLA", 12: "XPU", 13: "MPS", 15: "HPU", 19: "MTIA", 20: "NPU"}
