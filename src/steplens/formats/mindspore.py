"""MindSpore's files: those of a flat ``profiler`` directory, and what steplens keeps of a window; ``{rank}`` numbers them."""

from __future__ import annotations

import re

from steplens.formats.ascend_capture import FRAMEWORK_DIRECTORY

#: folder of the windows of a run, and what describes a window, and a recording of a data pipeline, in folders of their own
RAW_DIRECTORY = FRAMEWORK_DIRECTORY
WINDOW_FILE, PIPELINE_FILE = "window.json", "pipeline.json"

#: family -> name
FILES = {
    "profiler_info": "profiler_info_{rank}.json",
    "step_trace": "step_trace_raw_{rank}_detail_time.csv",
    "step_points": "step_trace_point_info_{rank}.json",
    "operator_types": "aicore_intermediate_{rank}_type.csv",
    "operator_details": "aicore_intermediate_{rank}_detail.csv",
    "aicpu": "aicpu_intermediate_{rank}.csv",
    "framework": "framework_raw_{rank}.csv",
    "timeline_data": "output_timeline_data_{rank}.txt",
    "scheduler_text": "output_format_data_hwts_{rank}.txt",
    "aicpu_text": "output_data_preprocess_aicpu_{rank}.txt",
    "flops": "flops_{rank}.txt",
    "flops_summary": "flops_summary_{rank}.json",
    "cluster": "ascend_cluster_analyse_{mode}_{stages}_{size}_{rank}.csv",
    "collectives": "hccl_raw_{rank}.csv",
    "strategy": "parallel_strategy_{rank}.json",
    "dynamic_shape": "dynamic_shape_info_{rank}.json",
    "operator_memory": "operator_memory_{rank}.csv",
    "memory_plan": "memory_usage_{rank}.pb",
    "ascend_timeline": "ascend_timeline_display_{rank}.json",
    "gpu_timeline": "gpu_timeline_display_{rank}.json",
    "cpu_timeline": "cpu_timeline_display_{rank}.json",
    "cpu_operators": "cpu_op_execute_timestamp_{rank}.txt",
    "cpu_framework": "cpu_framework_{rank}.txt",
    "cpu_memory": "cpu_ms_memory_record_{rank}.txt",
    "cpu_details": "cpu_op_detail_info_{rank}.csv",
    "cpu_types": "cpu_op_type_info_{rank}.csv",
    "gpu_operators": "gpu_op_execute_timestamp_{rank}.txt",
    "gpu_activity": "activity_execute_timestamp_{rank}.txt",
    "gpu_details": "gpu_op_detail_info_{rank}.csv",
    "gpu_types": "gpu_op_type_info_{rank}.csv",
    "gpu_activity_details": "gpu_activity_data_{rank}.csv",
    "gpu_start": "start_time_{rank}.txt",
    "gpu_steps": "step_trace_profiling_{rank}.txt",
    "dataset": "dataset_{rank}.csv",
    "host_info": "host_info_{rank}.csv",
}
#: of the data pipeline
PIPELINE_FILES = {
    "pipeline": "pipeline_profiling_{rank}.json",
    "raw": "minddata_pipeline_raw_{rank}.csv",
    "summary": "minddata_pipeline_summary_{rank}.json",
    # the same once more, as a table
    "summary_table": "minddata_pipeline_summary_{rank}.csv",
    "iterate": "dataset_iterator_profiling_{rank}.txt",
    "send": "device_queue_profiling_{rank}.txt",
    "cpu": "minddata_cpu_utilization_{rank}.json",
    "receive": "minddata_aicpu_{rank}.txt",
    "receive_ns": "minddata_getnext_profiling_{rank}.txt",
}
#: sums that nothing reads again
COMPUTE_TIME, COMPUTE_TIME_DETAIL = "output_op_compute_time_{rank}.txt", "output_op_compute_time_detail_{rank}.txt"
CPU_TIMELINE_SUMMARY = "cpu_timeline_summary_{rank}.json"

_PARTS = {"rank": r"\d{1,9}", "mode": ".+", "stages": r"\d{1,6}", "size": r"\d{1,9}"}
#: some versions write one file for all ranks, or in another form
_ALTERNATIVES = {FILES["step_points"]: ("_{rank}", "(?:_{rank})?"), PIPELINE_FILES["receive"]: (r"\.txt", r"\.(?:txt|json)")}


def pattern(name: str) -> re.Pattern[str]:
    """A regular expression of the names of one kind of file, with the parts in braces as named groups.

    Args:
        name: a value of ``FILES`` or ``PIPELINE_FILES``.
    """
    expression = name.replace(".", r"\.").replace(*_ALTERNATIVES.get(name, ("", "")))
    for part, numbers in _PARTS.items():
        expression = expression.replace(f"{{{part}}}", f"(?P<{part}>{numbers})")
    return re.compile(f"^{expression}$")
