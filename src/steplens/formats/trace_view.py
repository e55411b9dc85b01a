"""Timelines of Ascend, CANN's ``msprof_*.json`` and results' ``trace_view.json``: processes, lanes, categories, members.

A timeline is an array of Chrome trace events. Processes stand for layers and are told apart by their names, which clients match
literally; a process id is ``os pid << 10 | place of the layer << 5 | device``.
"""

from __future__ import annotations

from steplens.formats.kineto import OPERATOR, OPERATOR_MEMBERS, PYTHON, PYTHON_MEMBERS

#: bits of a process id below the id of the recorded process, and those of them that hold the device
LAYER_BITS, DEVICE_BITS = 10, 5
#: device field of a process id that belongs to the host
HOST = 31

#: names of processes
PYTHON_PROCESS, COLLECTIONS, MARKS = "Python", "Python GC", "MSTX"
CANN, OS_RUNTIME = "CANN", "OS Runtime API"
HARDWARE, COMMUNICATION, OVERLAP = "Ascend Hardware", "Communication", "Overlap Analysis"
#: process -> place of its layer
PLACES = {
    PYTHON_PROCESS: 0, COLLECTIONS: 1, MARKS: 6, CANN: 7, OS_RUNTIME: 13, HARDWARE: 14, COMMUNICATION: 16, OVERLAP: 31,
}  # fmt: skip
#: the same of groups of counters; the others come behind everything
COUNTER_PLACES = {
    "CPU Usage": 9, "Memory Usage": 10, "Network Usage": 11, "Disk Usage": 12, "AI Core Freq": 15, "NPU MEM": 17, "DDR": 18,
    "Acc PMU": 19, "HCCS": 20, "NIC": 21, "RoCE": 22, "PCIe": 23, "HBM": 24, "Stars Soc Info": 25, "Stars Chip Trans": 26,
    "LLC": 27, "SIO": 28, "QoS": 29,
}  # fmt: skip
LAST_PLACE = 36

#: lanes of the overlap analysis
COMPUTING, COMMUNICATING, NOT_OVERLAPPED, FREE = "Computing", "Communication", "Communication(Not Overlapped)", "Free"
OVERLAP_LANES = (COMPUTING, COMMUNICATING, NOT_OVERLAPPED, FREE)
#: lanes of communication: one per group, and those of its planes below it
GROUP_PREFIX, GROUP_SUFFIX, PLANE_PREFIX = "Group ", " Communication", "Plane "

#: categories of events, besides those of calls and Python frames
ENQUEUE, DEQUEUE, COLLECTION = "enqueue", "dequeue", "GC"
#: categories of arrows: from a call of CANN, or of the framework, to a device task; through the task queue
HOST_TO_DEVICE, OPERATOR_TO_DEVICE, TASK_QUEUE = "HostToDevice", "async_npu", "async_task_queue"

#: column -> member of an event's ``args``
TASK_MEMBERS = {
    "task_type": "Task Type",
    "physical_stream": "Physic Stream Id",
    "stream": "Stream Id",
    "task": "Task Id",
    "subtask": "Subtask Id",
    "model": "Model Id",
}
COMMUNICATION_MEMBERS = {"elements": "count", "bytes": "size(Byte)", "recorded": "recorded as"}
MARK_MEMBERS = {"event": "event_type", "event_old": "Event Type", "domain_old": "Domain"}
#: of the parts of collectives, on planes
PART_MEMBERS = {
    "notify": "notify_id",
    "inner_type": "task type",
    "inner_task_id": "task id",
    "inner_context": "context id",
    "source_rank": "src rank",
    "destination_rank": "dst rank",
    "transport": "transport type",
    "inner_data_type": "data type",
    "link": "link type",
}
#: column of COMMUNICATION_TASK_INFO -> what the events on planes have of it
PART_COLUMNS = {
    "taskType": "inner_type",
    "notifyId": "notify",
    "srcRank": "source_rank",
    "dstRank": "destination_rank",
    "transportType": "transport",
    "size": "bytes",
    "dataType": "inner_data_type",
    "linkType": "link",
}
#: every member that has another name than its column
MEMBERS = {
    **OPERATOR_MEMBERS,
    **{f"python_{column}": member for column, member in PYTHON_MEMBERS.items()},
    **TASK_MEMBERS,
    **COMMUNICATION_MEMBERS,
    **MARK_MEMBERS,
    **PART_MEMBERS,
}

CATEGORIES = (OPERATOR, PYTHON, ENQUEUE, DEQUEUE, COLLECTION)
