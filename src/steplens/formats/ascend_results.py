"""The text files of Ascend's results (``ASCEND_PROFILER_OUTPUT``): names, titles of columns, members of JSON.

CANN exports the same tables under names that have changed; where a title has several forms, the first is the current one.
"""

from __future__ import annotations

from steplens.formats.ascend_terms import MODULE_MEMORY

TRACE_VIEW = "trace_view.json"
OPERATOR_DETAILS = "operator_details.csv"
KERNEL_DETAILS = "kernel_details.csv"
MEMORY_RECORD = "memory_record.csv"
OPERATOR_MEMORY = "operator_memory.csv"
MODULE_MEMORY_FILE = f"{MODULE_MEMORY}.csv"
COMMUNICATION = "communication.json"
COMMUNICATION_MATRIX = "communication_matrix.json"

#: tables that are kept under these names, besides being files
STEP_TRACE_TABLE, OP_STATISTIC_TABLE, API_STATISTIC_TABLE = "step_trace_time", "op_statistic", "api_statistic"
STEP_TRACE = f"{STEP_TRACE_TABLE}.csv"
OP_STATISTIC = f"{OP_STATISTIC_TABLE}.csv"
API_STATISTIC = f"{API_STATISTIC_TABLE}.csv"
#: CANN calls it aicpu
DATA_PREPROCESS = "data_preprocess"
#: those that make a folder a result folder, whatever it is called
RESULT_MARKS = (TRACE_VIEW, KERNEL_DETAILS, STEP_TRACE, OPERATOR_DETAILS, COMMUNICATION, COMMUNICATION_MATRIX)
#: all of them
RESULT_FILES = frozenset((
    *RESULT_MARKS, OP_STATISTIC, API_STATISTIC, MEMORY_RECORD, OPERATOR_MEMORY, MODULE_MEMORY_FILE,
    *(f"{name}.csv" for name in ("l2_cache", "nic", "roce", "pcie", "hccs", DATA_PREPROCESS, "soc_pmu", "aicpu")),
))  # fmt: skip

#: Unix ns that the times of text files count from: a key of profiler_metadata.json, and an event of timelines
TIME_BASE_KEY = "base_time_ns"

DEVICE, STEP = "Device_id", "Step"
DEVICE_TYPE, STREAM_POINTER = "Device Type", "Stream Ptr"
COMPONENT, TIMESTAMP = "Component", "Timestamp(us)"

#: part of a step -> its title (µs) in step_trace_time.csv, and its column of StepTraceTime in analysis.db
STEP_PARTS = {
    "computing": ("Computing", "computing"),
    "communication_not_overlapped": ("Communication(Not Overlapped)", "communication_not_overlapped"),
    "overlapped": ("Overlapped", "overlapped"),
    "communication": ("Communication", "communication"),
    "free": ("Free", "free"),
    "stage": ("Stage", "stage"),
    "bubble": ("Bubble", "bubble"),
    "exclude_receive": ("Communication(Not Overlapped and Exclude Receive)", "communication_not_overlapped_and_exclude_receive"),
    "preparing": ("Preparing", "preparing"),
}
#: the same with what a row is about: title -> column of StepTraceTime
STEP_COLUMNS = {DEVICE: "deviceId", STEP: "step", **dict(STEP_PARTS.values())}

#: what kernel_details (CANN's op_summary) says of a task -> titles
KERNEL_TITLES = {
    "step": ("Step Id",),
    "device": (DEVICE,),
    "model_id": ("Model ID",),
    "task_id": ("Task ID",),
    "stream": ("Stream ID",),
    "name": ("Name", "Op Name"),
    "type": ("Type", "OP Type"),
    "state": ("OP State",),
    "core": ("Accelerator Core", "Task Type"),
    "start": ("Start Time(us)", "Task Start Time(us)"),
    "duration": ("Duration(us)", "Task Duration(us)"),
    "wait": ("Wait Time(us)", "Task Wait Time(us)"),
    "blocks": ("Block Num", "Block Dim"),
    "mix_blocks": ("Mix Block Num", "Mix Block Dim"),
    "hf32": ("HF32 Eligible",),
    "input_shapes": ("Input Shapes",),
    "input_types": ("Input Data Types",),
    "input_formats": ("Input Formats",),
    "output_shapes": ("Output Shapes",),
    "output_types": ("Output Data Types",),
    "output_formats": ("Output Formats",),
    "context_id": ("Context ID",),
}
#: the current ones
KERNEL_COLUMNS = {key: titles[0] for key, titles in KERNEL_TITLES.items()}
#: every column that describes the task; what else a file has is measured
KERNEL_DESCRIPTION = frozenset(
    {title for titles in KERNEL_TITLES.values() for title in titles}
    | {"Model Name", "Infer ID", "Iteration ID", "Op Attr"}
)  # fmt: skip

#: totals of an allocator -> titles of memory_record.csv; as of every size, the unit follows in parentheses
TOTALS = {"allocated": "Total Allocated", "reserved": "Total Reserved", "active": "Total Active"}
#: the same at both ends of an allocation, in operator_memory.csv
ALLOCATION_TOTALS = {
    f"{end}_{total}": f"{end.capitalize()} {title}" for end in ("allocation", "release") for total, title in TOTALS.items()
}
ALLOCATION_TIME, RELEASE_TIME, ACTIVE_RELEASE_TIME = "Allocation Time(us)", "Release Time(us)", "Active Release Time(us)"

#: op_statistic.csv
OP_TYPE, TOTAL_TIME = "OP Type", "Total Time(us)"

#: columns and members that hold points in time
TIME_COLUMNS = (
    KERNEL_COLUMNS["start"], ALLOCATION_TIME, RELEASE_TIME, ACTIVE_RELEASE_TIME, TIMESTAMP, "Start Timestamp(us)",
)  # fmt: skip

#: communication.json: steps are called ``step<number>``, sums of all operations of a step have a name of their own
STEP_PREFIX = "step"
TOTAL_OPERATION = "Total Op Info"
POINT_TO_POINT, COLLECTIVE = "p2p", "collective"
TIME_INFO, BANDWIDTH_INFO = "Communication Time Info", "Communication Bandwidth Info"
START_TIMESTAMP = TIME_COLUMNS[-1]
#: part of an operation's time -> member, ms
OPERATION_TIMES = {
    part: f"{part.capitalize()} Time(ms)" for part in ("elapse", "transit", "wait", "synchronization", "idle")
}  # fmt: skip
WAIT_RATIO, SYNCHRONIZATION_RATIO = "Wait Time Ratio", "Synchronization Time Ratio"
#: what a transport moved
TRANSIT_SIZE, TRANSIT_TIME, BANDWIDTH = "Transit Size(MB)", OPERATION_TIMES["transit"], "Bandwidth(GB/s)"
LARGE_PACKETS, PACKETS = "Large Packet Ratio", "Size Distribution"
#: every operation lists these transports, used or not
TRANSPORTS = ("RDMA", "HCCS", "PCIE", "SDMA", "SIO")
#: transport of a rank's link to itself
LOCAL = "LOCAL"

#: communication_matrix.json
TRANSPORT_TYPE, OPERATION_NAME = "Transport Type", "Op Name"
