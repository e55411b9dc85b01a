"""Good captures of MindSpore, small: recorded windows, raw device logs, results, device data of one file per iteration."""

from __future__ import annotations

import json
import shutil
from pathlib import Path
from typing import Any

from ..readers.mindspore_data import step_record, task_record

BASE = 1_795_000_000_000_000_000
_STEP = 20_000_000


def _pipeline(folder: Path) -> None:
    """The data pipeline's files."""
    queue = {"output_queue": {"length": 16, "size": [0, 4, 16, 2]}}
    operations = [
        {"op_id": 0, "op_type": "EpochCtrlOp", "num_workers": 1, "metrics": None, "children": [1]},
        {"op_id": 1, "op_type": "BatchOp", "num_workers": 2, "metrics": queue, "children": [2]},
        {"op_id": 2, "op_type": "GeneratorOp", "num_workers": 1, "metrics": queue, "children": None},
    ]
    (folder / "pipeline_profiling_0.json").write_text(json.dumps({"op_info": operations, "sampling_interval": 20}))
    start = BASE // 1_000_000
    lines = [f"{kind} {extra} {batch} {value} {start + 20 * batch}" for batch in range(1, 5)
             for kind, extra, value in ((0, 1, 0), (0, 2, 7), (0, 0, 7), (1, 16, 3))]  # fmt: skip
    (folder / "dataset_iterator_profiling_0.txt").write_text("\n".join(lines) + "\n")
    use = {"user_utilization": [1, 2, 3, 4], "sys_utilization": [1, 1, 1, 1]}
    device = {
        **use,
        "idle_utilization": [90] * 4,
        "io_utilization": [0] * 4,
        "context_switch_count": [5] * 4,
        "runnable_process": [1] * 4,
    }
    cpu: dict[str, Any] = {
        "cpu_processor_num": 2, "device_info": device, "op_info": [{"op_id": 1, "metrics": use}], "process_info": use,
        "sampling_interval": 20, "time_stamp": [start + 20 * number for number in range(4)],
    }  # fmt: skip
    (folder / "minddata_cpu_utilization_0.json").write_text(json.dumps(cpu))


def write_windows(run: Path) -> Path:
    """Two windows and the recording of a pipeline, as ``steplens.mindspore`` leaves them."""
    for number in range(2):
        window = run / "FRAMEWORK" / f"window_0_{number}"
        window.mkdir(parents=True)
        begin = BASE + number * 5 * _STEP
        names = ("Default/net/fc-Dense/MatMul-op0", "Gradients/Default/net/fc-Dense/MatMul-op0")
        text = ""
        for place, name in enumerate(names):
            launches = (f"{begin + step * _STEP + place * 4_000_000},{1.5 + place},0 " for step in range(3))
            text += f"{name};HostCpuOps;{''.join(launches)}\n"
        (window / "cpu_op_execute_timestamp_0.txt").write_text(text)
        (window / "cpu_framework_0.txt").write_text("MatMul;MatMul-op0;7;input_1:[2, 8];input_2:[16, 8];input_3:NoShape;\n" * 6)
        rows = (f"{begin + number * 1000},{512 * number},1073741824,{512 * number}\n" for number in range(4))
        title = "Timestamp(ns),Total Allocated(Byte),Total Reserved(Byte),Total Active(Byte)\n"
        (window / "cpu_ms_memory_record_0.txt").write_text(title + "".join(rows))
        first = 1 + number * 5
        state = {
            "state": "collected", "pid": 7, "tid": 9, "rank": 0, "operators": True, "memory": True, "context_mode": "graph",
            "begin_ns": begin, "end_ns": begin + 4 * _STEP, "partial_steps": [first],
            "config": {"contract": "r2.4", "profile_memory": True},
            "steps": [[first + step, begin + step * _STEP, begin + (step + 1) * _STEP] for step in range(3)],
            "waits": [[first, begin, begin + 1000]], "marks": [["default", "mark", begin, begin + 9, 9]],
            "health": [{"check": "told", "severity": "warning", "count": 1, "message": "so", "unsafe": "memory"}],
        }  # fmt: skip
        (window / "window.json").write_text(json.dumps(state))
    pipeline = run / "FRAMEWORK" / "pipeline_0_0"
    pipeline.mkdir()
    _pipeline(pipeline)
    (pipeline / "pipeline.json").write_text(json.dumps({"rank": 0, "pid": 7, "clock_offset_ns": 0}))
    return run


def write_logs(folder: Path) -> Path:
    """Raw logs of one device: step trace, scheduler, framework, AI CPU, and a data pipeline."""
    folder.mkdir(parents=True)
    steps, tasks = [], []
    for step in range(3):
        at = 1_000_000 + step * 500_000
        points = ((0, 0, 0), (1, 0, 10), (3, 10, 300_000), (4, 10, 350_000), (2, 0, 400_000), (255, 0, 499_999))
        steps += [step_record(tag, stream, at + offset, step) for tag, stream, offset in points]
        for task in (1, 2):
            marks = ((0, 0), (1, 50_000))
            tasks += [task_record(kind, task, 5, at + task * 100_000 + offset, counter=step) for kind, offset in marks]
    (folder / "training_trace.46.dev.profiler_default_tag.0.slice_0").write_bytes(b"".join(steps))
    (folder / "hwts.log.data.45.dev.profiler_default_tag.0.slice_0").write_bytes(b"".join(tasks))
    names = ("Default/net/MatMul-op1", "Default/net/Cast-op2")
    listed = "".join(f"{name} 2 {task} 5\n" for task, name in enumerate(names, 1))
    (folder / "Framework.host.vm.task_desc_info.0.slice_0").write_text(listed)
    tensor = 'input_id:0 input_format:DefaultFormat input_data_type:40 input_shape:"2,8" '
    graph = "".join(f"op_name:{name} op_type:{name.rpartition('/')[2].partition('-')[0]} {tensor}\n" for name in names)
    (folder / "Framework.host.vm.graph_desc_info.0.slice_0").write_text(graph)
    (folder / "Framework.host.vm.point.0.slice_0").write_text(f"1 {names[0]}\n2 {names[1]}\n")
    thread = ("Thread[ 1] process device[0]:aicpu[ 0] task end, tickDrvTopHalf=1000001, tickDrvBottomHalf=1000002, "
              "tickBeforeRun=1000003,tickAfterRun=1000900, dispatchTime=100 us, totalTime=1567 us.\0")  # fmt: skip
    record = f"[22] Node:InitData, Run tart:10000, Run end:10129\0{thread}"
    (folder / "DATA_PREPROCESS.dev.AICPU.0.slice_0").write_text(record * 3)
    _pipeline(folder)
    return folder


def _seeds(folder: Path) -> list[Any]:
    from .seeds import _seed

    return [_seed(folder, lambda name: True)]


def windows(folder: Path) -> list[Any]:
    """What ``steplens.mindspore`` recorded."""
    write_windows(folder / "profiler")
    return _seeds(folder)


def logs(folder: Path) -> list[Any]:
    """Raw logs of a device."""
    write_logs(folder / "job")
    return _seeds(folder)


def flat(folder: Path) -> list[Any]:
    """Results of both, in one flat directory each, with tables that only a cluster has."""
    from steplens.offline.mindspore.ranks import analyse_all_ranks
    from steplens.offline.mindspore.settings import Options

    options = Options()
    made = write_logs(folder / "work" / "job")
    ((_, result),) = analyse_all_ranks(made, options)
    assert result.ok
    shutil.copytree(made / "profiler", folder / "device" / "profiler")
    cost = json.dumps({"0-1": {"SDMA": [1.5, 2048, 1.3]}})
    rows = f'1,1.5,0.5,"{cost.replace(chr(34), chr(34) * 2)}","{{}}"\n-,1.5,0.5,"{{}}","{{}}"\n'
    title = "step_num,communication_cost,wait_cost,link_info,communication_operator_cost\n"
    (folder / "device" / "profiler" / "hccl_raw_0.csv").write_text(title + rows)
    cluster = "computation_time,communication_alone_time\n1.5,0.5\n1.5,0.5\n"
    (folder / "device" / "profiler" / "ascend_cluster_analyse_model-parallel_1_2_0.csv").write_text(cluster)
    ((_, result),) = analyse_all_ranks(write_windows(folder / "work" / "profiler"), options)
    assert result.ok
    shutil.copytree(
        folder / "work" / "profiler", folder / "host" / "profiler", ignore=shutil.ignore_patterns("rank-*", "FRAMEWORK")
    )
    shutil.rmtree(folder / "work")
    return [*_seeds(folder / "device"), *_seeds(folder / "host")]


def prof(folder: Path) -> list[Any]:
    """Device data of one file per iteration."""
    device = folder / "PROF_000001_20230818142704322_COJGGGCANRMICFBC" / "device_0"
    (device / "timeline").mkdir(parents=True)
    info = {"rank_id": 0, "hostname": "host", "pid": "7", "DeviceInfo": [{"hwts_frequency": "100"}]}
    (device / "info.json.0").write_text(json.dumps(info))
    start = {"collectionTimeBegin": "1795000000000000", "clockMonotonicRaw": "1000000"}
    (device / "start_info.0").write_text(json.dumps(start))
    for iteration in (1, 2):
        at = 1000.0 * iteration
        step = {
            "Iteration ID": iteration,
            "FP Start": at + 1,
            "BP End": at + 400,
            "Iteration End": at + 500,
            "Iteration Time(ns)": 499000,
        }
        steps = [
            {"name": f"Iteration {iteration}", "ph": "X", "pid": 0, "tid": 0, "ts": at + 1, "dur": 499, "args": step},
            {"name": f"Reduce_{iteration}_0", "ph": "X", "pid": 0, "tid": 1, "ts": at + 300, "dur": 50,
             "args": {"Iteration ID": iteration, "Reduce Start 0": at + 300, "Reduce End 0": at + 350}},
            {"name": f"Data_aug Bound {iteration}", "ph": "s", "pid": 0, "tid": 0, "ts": at, "id": 1},
        ]  # fmt: skip
        args = {"Task Type": "AI_CORE", "Stream Id": 5, "Task Id": 1, "Batch Id": 0, "Aicore Time(ms)": 0.1, "Total Cycle": 100}
        tasks = [{"name": "Default/MatMul-op1", "ph": "X", "pid": 1, "tid": 5, "ts": at + 10, "dur": 100, "args": args}]
        for kind, events in (("step_trace", steps), ("task_time", tasks)):
            (device / "timeline" / f"{kind}_0_1_{iteration}.json").write_text(json.dumps(events))
    return _seeds(folder)
