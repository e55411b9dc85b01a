"""Texts of the rules about what a device waits for: launches, compilation, allocations, copies and batches."""

from __future__ import annotations

from steplens.advice.texts.text import CHINESE, ENGLISH, Text

_CHANGE = "{change}"
_AHEAD = (
    "+copies = torch.{module}.Stream()\n"
    "+with torch.{module}.stream(copies):\n"
    "+    following = next(batches).to(device, non_blocking=True)\n"
    " loss = model(batch)\n"
    "+torch.{module}.current_stream().wait_stream(copies)"
)
_PINNED = (
    "-loader = DataLoader(dataset, ...)\n+loader = DataLoader(dataset, ..., pin_memory=True)\n"
    "-batch = batch.to(device)\n+batch = batch.to(device, non_blocking=True)"
)
_GRAPH = "-model = Model()\n+model = torch.compile(Model(), mode='reduce-overhead')"
_NO_JIT = "+torch_npu.npu.set_compile_mode(jit_compile=False)"
_GC = "+gc.collect(); gc.freeze()   # once, when model and data are set up\n+profile(..., gc_detect_threshold=1)"

#: where these rules are described
PAGE = "docs/advice_devices.md"

TEXTS: dict[str, dict[str, Text]] = {
    "environment_variables": {
        ENGLISH: Text(
            "{variable} is not set as it should be",
            "The run was recorded with a value of this environment variable that costs time, or without one that saves it.",
            "Set it in the script that starts the training.",
            _CHANGE,
        ),
        CHINESE: Text(
            "环境变量 {variable} 设置不当",
            "采集时该环境变量的取值会拖慢训练，或者没有设置能够加速的取值。",
            "在启动训练的脚本中设置。",
            _CHANGE,
        ),
    },
    "dynamic_shapes": {
        ENGLISH: Text(
            "No operator was compiled for its shapes",
            "Every operator is marked as one of dynamic shape: the host works out how to cut it anew for each call.",
            "Keep shapes constant or pad them to few sizes; where they must change, switch off compiling at run time.",
            _NO_JIT,
        ),
        CHINESE: Text(
            "没有任何算子按固定形状编译",
            "所有算子都被标记为动态形状：主机每次调用都要重新计算切分方式。",
            "保持形状不变，或补齐为少数几种大小；必须变化时，关闭运行时编译。",
            _NO_JIT,
        ),
    },
    "operator_compilation": {
        ENGLISH: Text(
            "The host compiles operators while the training runs",
            "aclopCompileAndExecute looks every operator up, and compiles those that it does not know, before it launches them.",
            "Use operators that need no compiling (aclnn), and cache what was compiled.",
            _NO_JIT,
        ),
        CHINESE: Text(
            "训练过程中主机在编译算子",
            "aclopCompileAndExecute 在下发前要查找算子，未知的算子还要编译。",
            "使用无需编译的算子（aclnn），并缓存编译结果。",
            _NO_JIT,
        ),
    },
    "blocking_launches": {
        ENGLISH: Text(
            "The host waits for the device after most launches",
            "The device is idle from the end of each task until the host, woken up, has launched the next one.",
            "Unset ASCEND_LAUNCH_BLOCKING or CUDA_LAUNCH_BLOCKING, and remove synchronize() from the loop.",
            "+unset ASCEND_LAUNCH_BLOCKING CUDA_LAUNCH_BLOCKING",
        ),
        CHINESE: Text(
            "多数下发之后主机都在等待设备",
            "每个任务结束后设备一直空闲，直到主机被唤醒并下发下一个任务。",
            "取消 ASCEND_LAUNCH_BLOCKING 或 CUDA_LAUNCH_BLOCKING，并从循环中去掉 synchronize()。",
            "+unset ASCEND_LAUNCH_BLOCKING CUDA_LAUNCH_BLOCKING",
        ),
    },
    "suspected_collections": {
        ENGLISH: Text(
            "Neither device nor host does anything for long stretches",
            "Python works alone without calling the framework; its garbage collector often is the reason. Collections were not "
            "recorded, so that this is a guess.",
            "Record collections to be sure; freeze what was created at the start.",
            _GC,
        ),
        CHINESE: Text(
            "设备和主机长时间没有任何活动",
            "只有 Python 在运行而没有调用框架，原因往往是垃圾回收。由于没有采集垃圾回收事件，这只是推测。",
            "采集垃圾回收事件以确认；把启动时创建的对象冻结。",
            _GC,
        ),
    },
    "slow_fetches": {
        ENGLISH: Text(
            "Some batches take far longer than the others",
            "Most batches are ready in time; a few make the loop wait: a new file, a cold cache, workers that start again.",
            "Fetch further ahead in workers that stay alive (num_workers, prefetch_factor, persistent_workers=True), and look at "
            "what these batches read.",
        ),
        CHINESE: Text(
            "个别批次比其他批次慢得多",
            "多数批次能及时就绪，少数批次让循环等待：新文件、冷缓存或重新启动的工作进程。",
            "使用常驻工作进程提前取数（num_workers、prefetch_factor、persistent_workers=True），并检查这些批次读取的内容。",
        ),
    },
    "allocation_calls": {
        ENGLISH: Text(
            "Steps ask for device memory and give it back",
            "The calls below go to the driver; most of them wait for the device. A warm allocator uses its own memory again.",
            "Keep shapes constant, warm up with the largest batch, do not empty the cache in the loop, and let segments grow.",
            _CHANGE,
        ),
        CHINESE: Text(
            "步骤中申请和归还设备内存",
            "下列调用进入驱动，多数会等待设备。预热后的分配器会复用自己的内存。",
            "保持形状不变，用最大的批次预热，不要在循环中清空缓存，并允许内存段扩展。",
            _CHANGE,
        ),
    },
    "host_bound_sequences": {
        ENGLISH: Text(
            "{count} sequences of operators recur that run for less than half of their time",
            "Between the tasks of such a sequence the stream is empty: launching them takes longer than running them.",
            "Fuse them into fewer launches: torch.compile, graphs, or a fused operator of the framework.",
        ),
        CHINESE: Text(
            "有 {count} 个反复出现的算子序列执行时间不足一半",
            "这些序列的任务之间流是空的：下发比执行更慢。",
            "融合以减少下发次数：torch.compile、图模式或框架的融合算子。",
        ),
    },
    "launch_bound": {
        ENGLISH: Text(
            "The GPU finishes kernels faster than they are launched",
            "In these stretches the device is idle at every launch, and the steps launch the same kernels in the same order.",
            "Capture the step as a CUDA graph: torch.compile(mode='reduce-overhead') or torch.cuda.make_graphed_callables.",
            _GRAPH,
        ),
        CHINESE: Text(
            "GPU 执行内核比下发更快",
            "在这些区间中，每次下发时设备都已空闲，而各步骤以相同的顺序下发相同的内核。",
            "把步骤捕获为 CUDA graph：torch.compile(mode='reduce-overhead') 或 torch.cuda.make_graphed_callables。",
            _GRAPH,
        ),
    },
    "pageable_copies": {
        ENGLISH: Text(
            "Data is copied to the device from pageable memory",
            "The driver copies it into pinned memory first, the host waits for that, and the copy cannot run beside computing.",
            "Pin the memory of the batches and copy without blocking.",
            _PINNED,
        ),
        CHINESE: Text(
            "数据从可分页内存拷贝到设备",
            "驱动要先把数据拷贝到锁页内存，主机为此等待，而且拷贝不能与计算同时进行。",
            "把批次放入锁页内存，并使用非阻塞拷贝。",
            _PINNED,
        ),
    },
    "exposed_copies": {
        ENGLISH: Text(
            "The device waits while its batches are copied to it",
            "The copy out of pinned memory could run beside computing, but the step begins with it and nothing is computed "
            "meanwhile.",
            "Copy the next batch while the device computes this one: on a stream of its own, pinned, without blocking.",
            _AHEAD,
        ),
        CHINESE: Text(
            "设备等待批次拷贝完成",
            "从锁页内存的拷贝本可以与计算同时进行，但步骤以它开始，期间没有任何计算。",
            "在设备计算当前批次时拷贝下一批次：使用单独的流、锁页内存和非阻塞拷贝。",
            _AHEAD,
        ),
    },
}

#: what evidence is about
EVIDENCE: dict[str, dict[str, str]] = {
    "variable_ascend_launch_blocking": {
        ENGLISH: "every launch waits until the task has ended",
        CHINESE: "每次下发都等待任务结束",
    },
    "variable_ascend_global_log_level": {
        ENGLISH: "debug messages, information or warnings are logged",
        CHINESE: "记录调试、信息或告警日志",
    },
    "variable_aclnn_cache_limit": {ENGLISH: "few prepared operators are kept", CHINESE: "缓存的 aclnn 算子较少"},
    "variable_host_cache_capacity": {
        ENGLISH: "preparations for shapes seen before are not kept",
        CHINESE: "不缓存已出现形状的准备结果",
    },
    "variable_pytorch_npu_alloc_conf": {
        ENGLISH: "segments of device memory cannot grow and break into pieces",
        CHINESE: "设备内存段不能扩展，容易碎片化",
    },
    "variable_hccl_rdma_tc": {
        ENGLISH: "traffic class set by hand; it must fit the network card's",
        CHINESE: "手工设置了流量类别，必须与网卡一致",
    },
    "variable_hccl_rdma_sl": {
        ENGLISH: "service level set by hand; it must fit the flow control of the network card",
        CHINESE: "手工设置了服务级别，必须与网卡流控一致",
    },
    "variable_hccl_algo": {
        ENGLISH: "algorithm of collectives set by hand instead of chosen by size and topology",
        CHINESE: "手工指定了集合通信算法，未按数据量和拓扑自动选择",
    },
    "dynamic_tasks": {ENGLISH: "tasks of dynamic shape", CHINESE: "动态形状的任务数"},
    "preparing_operators": {ENGLISH: "host preparing operators", CHINESE: "主机准备算子用时"},
    "compiling_calls": {ENGLISH: "calls that compile and execute", CHINESE: "编译并执行的调用数"},
    "in_compiling_calls": {ENGLISH: "host in these calls", CHINESE: "主机在这些调用中的用时"},
    "idle_while_compiling": {ENGLISH: "device idle meanwhile", CHINESE: "期间设备空闲"},
    "launches_followed_by_waits": {ENGLISH: "launches followed by a wait", CHINESE: "下发后紧接等待的比例"},
    "waits_after_launches": {ENGLISH: "waits", CHINESE: "等待次数"},
    "idle_behind_waits": {ENGLISH: "device idle behind these waits", CHINESE: "等待之后的设备空闲"},
    "quiet_stretches": {ENGLISH: "in stretches without any activity", CHINESE: "没有任何活动的时间"},
    "number_of_stretches": {ENGLISH: "such stretches", CHINESE: "此类区间数"},
    "in_slow_fetches": {ENGLISH: "in slow fetches", CHINESE: "慢批次用时"},
    "slow_fetches": {ENGLISH: "slow fetches", CHINESE: "慢批次数"},
    "usual_fetch": {ENGLISH: "median of all fetches", CHINESE: "全部批次的中位数"},
    "in_allocation_calls": {ENGLISH: "host in calls for device memory", CHINESE: "主机在设备内存调用中的用时"},
    "allocation_calls": {ENGLISH: "such calls", CHINESE: "此类调用数"},
    "idle_while_allocating": {ENGLISH: "device idle meanwhile", CHINESE: "期间设备空闲"},
    "between_tasks_of_sequences": {ENGLISH: "between the tasks of these sequences", CHINESE: "这些序列的任务间隙"},
    "gaps_between_launches": {ENGLISH: "device idle between these kernels", CHINESE: "这些内核之间的设备空闲"},
    "late_kernels": {ENGLISH: "kernels launched onto an idle device", CHINESE: "下发时设备已空闲的内核数"},
    "launch_bound_stretches": {ENGLISH: "stretches of such kernels", CHINESE: "此类区间数"},
    "pageable_copies": {ENGLISH: "copies from pageable memory", CHINESE: "可分页内存拷贝用时"},
    "copied_bytes": {ENGLISH: "copied", CHINESE: "拷贝数据量"},
    "copying_input_alone": {ENGLISH: "copying input while nothing is computed", CHINESE: "拷贝输入且无计算的用时"},
    "copied_input": {ENGLISH: "copied", CHINESE: "拷贝数据量"},
    "input_bandwidth": {ENGLISH: "bandwidth of these copies", CHINESE: "这些拷贝的带宽"},
    "pageable_bandwidth": {ENGLISH: "bandwidth from pageable memory", CHINESE: "可分页内存拷贝带宽"},
    "pinned_bandwidth": {ENGLISH: "bandwidth from pinned memory in this run", CHINESE: "本次运行中锁页内存拷贝带宽"},
}
