"""What every format of Ascend's profilers calls the same: allocators, layers of calls, the task queue, types of elements."""

from __future__ import annotations

#: stands for a text that is not known
NOT_AVAILABLE = "N/A"
#: "there is none" of unsigned 32-bit numbers: contexts, models, connections, ids of texts
NO_NUMBER = 4294967295

#: the framework's allocator, the graph engine's, and rows that add up both
PTA, GE, PTA_AND_GE = "PTA", "GE", "PTA+GE"
#: what the whole process holds on the device, sampled
APP = "APP"
#: begins the names of the graph engine's allocations
CANN_PREFIX = "cann::"
#: the counters of the memory that each module of the NPU's software holds
MODULE_MEMORY = "npu_module_mem"

#: layers of CANN's calls; the "node" layer launches device tasks
ACL, NODE, COMMUNICATION = "acl", "node", "communication"
#: calls of the operating system, which are apart from CANN's
OS_LAYER = "os_runtime"
#: layers by what begins the name of a call in timelines (``Node@launch``)
LAYERS = {
    "AscendCL": ACL,
    "Model": "model",
    "Node": NODE,
    "Runtime": "runtime",
    "Communication": COMMUNICATION,
    "Hccl": COMMUNICATION,
}
#: what older versions call a layer
OLDER_LAYERS = {"hccl": COMMUNICATION}
#: begins the name of a call in timelines, by its layer
CALL_PREFIXES = {layer: f"{prefix}@" for prefix, layer in LAYERS.items() if prefix != "Hccl"}
#: the call that launches a device task
LAUNCH = "launch"

#: the two sides of the framework's task queue; tasks are called ``Enqueue@<operator>``
ENQUEUE, DEQUEUE = "Enqueue", "Dequeue"

#: the cores of a GPU in files of steplens, of whose tasks the type tells what they do
GPU_CORES = ("CUDA", "ROCM")
AI_CORE = "AI_CORE"
#: begins the scheduler's types of kernels in databases
KERNEL_PREFIX = "KERNEL_"
#: core -> what databases call a kernel on it
KERNEL_TYPES = {
    AI_CORE: "KERNEL_AICORE",
    "AI_VECTOR_CORE": "KERNEL_AIVEC",
    "MIX_AIC": "KERNEL_MIX_AIC",
    "MIX_AIV": "KERNEL_MIX_AIV",
}
#: the scheduler's type of a copy
MEMCPY = "MEMCPY_ASYNC"
#: a kind of mark that is a plain one under another name
MARKER_EX = "marker_ex"

#: the type of a collective in front of its name: ``hcom_allReduce_`` of ``hcom_allReduce__586_0_1``
OPERATION_TYPE = r"(?i)^(hcom_[a-z]+_)"
#: what an operation of HCCL does, by a word in its name: the leftmost counts, and of several there the longest, which stand first
HCCL_OPERATIONS = (
    "allgather", "allreduce", "alltoallvc", "alltoallv", "alltoall", "batchsendrecv", "broadcast", "invalid", "receive",
    "reducescatter", "reduce", "scatter", "send",
)  # fmt: skip
#: begin the names of operations between two ranks, in lower case
SEND_OPERATION, RECEIVE_OPERATION = "hcom_send", "hcom_receive"
POINT_TO_POINT_OPERATIONS = (SEND_OPERATION, RECEIVE_OPERATION, "hcom_batchsendrecv")
#: how the analysis of communication tells the operations of a link apart that it lists: ``allreduce-top1``
SELECTION = r"-(top\d*|middle|bottom\d*|total)$"

#: bytes of one element, by the name of its type
ELEMENT_BYTES = {
    **dict.fromkeys(("INT8", "UINT8", "HIF8", "FP8E4M3", "FP8E5M2", "FP8E8M0"), 1),
    **dict.fromkeys(("INT16", "UINT16", "FP16", "BFP16", "BF16"), 2),
    **dict.fromkeys(("INT32", "UINT32", "FP32"), 4),
    **dict.fromkeys(("INT64", "UINT64", "FP64"), 8),
    "INT128": 16,
}
