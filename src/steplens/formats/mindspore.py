"""MindSpore's files and the columns of their tables: those of a flat ``profiler`` directory, and what steplens keeps of a window.

``{rank}`` numbers the files.
"""

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

#: columns of the tables, in their order: name -> the names that it had before
OPERATOR_TYPE_COLUMNS: dict[str, tuple[str, ...]] = {
    "kernel_type": ("op_type",),
    "task_time": ("total_time", "execution_time"),
    "execution_frequency": (),
    "percent": (),
}
OPERATOR_DETAIL_COLUMNS: dict[str, tuple[str, ...]] = {
    "full_kernel_name": ("full_kernel_time", "full_op_name"),
    "task_duration": ("execution_time",),
    "execution_frequency": (),
    "task_type": (),
}
AICPU_COLUMNS: dict[str, tuple[str, ...]] = {
    "serial_num": ("serial_number",),
    "kernel_type": ("node_type_name",),
    "total_time": ("total_time(ms)",),
    "dispatch_time": ("dispatch_time(ms)",),
    **dict.fromkeys(("execution_time", "run_start", "run_end"), ()),
}
FRAMEWORK_COLUMNS: dict[str, tuple[str, ...]] = {
    **dict.fromkeys(("task_id", "stream_id", "block_dim"), ()),
    "full_kernel_name": ("full_op_name",),
    **dict.fromkeys(("op_name", "kernel_name"), ()),
    "kernel_type": ("op_type",),
    **dict.fromkeys(("subgraph", "op_info", "model_id", "task_type"), ()),
}
FLOPS_COLUMNS: dict[str, tuple[str, ...]] = {
    "full_kernel_name": (),
    "MFLOPs(10^6 cube)": ("FLOPs",),
    "GFLOPS(10^9 cube)": ("FLOPS",),
    "FLOPS utilization(cube)": ("FLOPS utilization",),
    **dict.fromkeys(("MFLOPs(10^6 vector)", "GFLOPS(10^9 vector)", "FLOPS utilization(vec)"), ()),
}
HOST_COLUMNS = ("tid", "pid", "parent_pid", "module_name", "event", "stage", "level", "start_end", "custom_info",
                "memory_usage(kB)", "time_stamp(us)")  # fmt: skip
PIPELINE_RAW_COLUMNS = ("op_id", "op_type", "num_workers", "output_queue_size", "output_queue_average_size",
                        "output_queue_length", "output_queue_usage_rate", "sample_interval", "parent_id",
                        "children_id")  # fmt: skip

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
