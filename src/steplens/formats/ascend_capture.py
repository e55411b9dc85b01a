"""What CANN and the Ascend PyTorch Profiler record: names of folders, of the files that CANN exports, and of what lies beside."""

from __future__ import annotations

import re

#: raw data of the framework, and of a device
FRAMEWORK_DIRECTORY = "FRAMEWORK"
PROF_NAME = re.compile(r"^PROF_\d+_\d+_[0-9A-Za-z]+$")
#: in the latter: raw data of the host, and what CANN makes of it all
HOST_DIRECTORY = "host"
EXPORT_DIRECTORY = "mindstudio_profiler_output"
ANALYSIS_DIRECTORY = "analyze"

#: CANN's program, and the kind of its timelines and databases: ``msprof_<time of export>.json``
MSPROF = "msprof"
CANN_DATABASE = re.compile(rf"^{MSPROF}_\d+\.db$")
#: kinds of exported tables that results hand on
HANDED_ON = (
    "op_statistic", "api_statistic", "l2_cache", "aicpu", "nic", "roce", "pcie", "hccs", "task_time", "soc_pmu",
)  # fmt: skip
#: kinds of exported tables
OP_SUMMARY, NPU_MEM, NPU_MODULE_MEM = "op_summary", "npu_mem", "npu_module_mem"
MEMORY_RECORD, OPERATOR_MEMORY = "memory_record", "operator_memory"
CSV_KINDS = (OP_SUMMARY, NPU_MEM, "step_trace", MEMORY_RECORD, OPERATOR_MEMORY, NPU_MODULE_MEM, *HANDED_ON)
#: what older versions put in front of a kind
OLDER_PREFIXES = {MEMORY_RECORD: "ge_", OPERATOR_MEMORY: "ge_"}

#: names of chips by the number that info.json has for them
CHIPS = {"0": "Ascend310", "1": "Ascend910A", "4": "Ascend310P", "5": "Ascend910B", "7": "Ascend310B", "15": "Ascend950"}
