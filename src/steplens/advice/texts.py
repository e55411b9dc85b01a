"""The words of all findings, in every language, in one catalogue. Rules say figures; only this module says sentences."""

from __future__ import annotations

from dataclasses import dataclass

ENGLISH, CHINESE = "en", "zh"
LANGUAGES = (ENGLISH, CHINESE)


@dataclass(frozen=True)
class Text:
    """What is said of one rule; ``{name}`` stands for a value of the finding.

    Attributes:
        title: the cause, in a few words.
        cause: what happens, and why it costs.
        remedy: what to change.
        patch: the change as lines of a diff, where it is small; empty otherwise.
    """

    title: str
    cause: str
    remedy: str
    patch: str = ""


_WORKERS = "-DataLoader(dataset, ...)\n+DataLoader(dataset, ..., num_workers={workers}, persistent_workers=True)"
_COLLECT = "+gc.collect(); gc.freeze(); gc.disable()   # once, when model and data are set up\n+if step % 1000 == 0: gc.collect()"
_FUSED = "-optimizer = {optimizer}(parameters, ...)\n+optimizer = {optimizer}(parameters, ..., fused=True)"
_SAVE = "-torch.save(state, path)\n+torch.distributed.checkpoint.async_save(state, checkpoint_id=path)"

TEXTS: dict[str, dict[str, Text]] = {
    "loader_without_workers": {
        ENGLISH: Text(
            "The training loop loads the data itself",
            "The DataLoader has no workers, so the model waits while each batch is fetched, transformed and collated.",
            "Load in {workers} worker processes. With fewer processors than that, make the transform cheaper.",
            _WORKERS,
        ),
        CHINESE: Text(
            "训练循环自己加载数据",
            "DataLoader 没有工作进程，每个批次的读取、变换和拼接都在训练循环里进行，模型只能等待。",
            "用 {workers} 个工作进程加载数据；处理器不够时，先降低数据变换的开销。",
            _WORKERS,
        ),
    },
    "loader_too_slow": {
        ENGLISH: Text(
            "The workers of the loader are too slow",
            "Batches are used faster than the workers produce them, so the model waits.",
            "Make loading {faster} times as fast: more workers, a cheaper transform, a faster source, or cached samples.",
        ),
        CHINESE: Text(
            "数据加载的工作进程太慢",
            "模型消耗批次的速度超过工作进程产生批次的速度，模型在等待数据。",
            "加载速度需要提高到 {faster} 倍：增加工作进程、降低变换开销、更换更快的数据源或缓存样本。",
        ),
    },
    "slow_rank": {
        ENGLISH: Text(
            "Rank {rank} keeps the others waiting",
            "Rank {rank} arrived last at the collectives in {times} of {of} steps; none can begin before the last rank is there.",
            "Look at what rank {rank} does more than the others (below), and at what else runs on its machine and its device.",
        ),
        CHINESE: Text(
            "rank {rank} 拖慢了其他 rank",
            "{of} 个步骤中有 {times} 个步骤里 rank {rank} 最后到达集合通信；最后一个 rank 到达之前通信无法开始。",
            "查看 rank {rank} 比其他 rank 多做了什么（见下），以及它所在的机器和设备上还运行着什么。",
        ),
    },
    "device_waits_for_host": {
        ENGLISH: Text(
            "The device waits for the host",
            "Tasks end before the host has launched the next ones: Python and dispatch take longer than the work on the device.",
            "Launch less often: torch.compile, CUDA graphs, larger batches, fused operators and a fused optimizer.",
            "-model = Model()\n+model = torch.compile(Model(), mode='reduce-overhead')",
        ),
        CHINESE: Text(
            "设备在等待主机",
            "主机下发下一批任务之前，设备上的任务已经执行完：Python 和算子分发比设备上的计算更慢。",
            "减少下发次数：torch.compile、CUDA graph、更大的批次、融合算子和融合优化器。",
            "-model = Model()\n+model = torch.compile(Model(), mode='reduce-overhead')",
        ),
    },
    "allocation_stalls": {
        ENGLISH: Text(
            "Device memory is requested inside the step",
            "Calls such as cudaMalloc wait for the device and keep the host from launching; a warm allocator needs none.",
            "Keep shapes constant or pad them, warm up with the largest batch, and let segments grow.",
            "+PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py",
        ),
        CHINESE: Text(
            "在步骤中申请设备内存",
            "cudaMalloc 等调用会等待设备并阻止主机下发任务；预热后的分配器不需要它们。",
            "保持形状不变或补齐，用最大的批次预热，并允许内存段扩展。",
            "+PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True python train.py",
        ),
    },
    "checkpoint_stalls": {
        ENGLISH: Text(
            "Training stops while checkpoints are written",
            "torch.save runs in the training loop, and every step that saves waits for the disk.",
            "Copy the state and write it in the background, or save less often.",
            _SAVE,
        ),
        CHINESE: Text(
            "写检查点时训练停止",
            "torch.save 在训练循环中执行，保存检查点的步骤都要等待磁盘。",
            "复制状态后在后台写入，或者降低保存频率。",
            _SAVE,
        ),
    },
    "garbage_collection": {
        ENGLISH: Text(
            "Python's garbage collector stops the training",
            "A collection walks over all objects of the program while everything waits.",
            "Collect rarely, at a moment of your choice; freeze what was created at the start.",
            _COLLECT,
        ),
        CHINESE: Text(
            "Python 垃圾回收打断训练",
            "每次回收都要遍历程序的全部对象，期间一切都在等待。",
            "降低回收频率，并在自己选定的时刻回收；把启动时创建的对象冻结。",
            _COLLECT,
        ),
    },
    "single_tensor_optimizer": {
        ENGLISH: Text(
            "{optimizer} updates its {parameters} parameters one by one",
            "Every parameter costs several small operators, each of which reads and writes the parameter's data again.",
            "Use the fused form, which updates all parameters in one pass.",
            _FUSED,
        ),
        CHINESE: Text(
            "{optimizer} 逐个更新 {parameters} 个参数",
            "每个参数都要执行若干小算子，每个算子都重新读写一遍参数数据。",
            "使用融合优化器，一次遍历更新全部参数。",
            _FUSED,
        ),
    },
    "tiny_operators": {
        ENGLISH: Text(
            "A loop of tiny operators ({operator})",
            "Hundreds of operators of a few microseconds follow one another; nearly all of their time is Python and dispatch.",
            "Replace the loop by operators over whole tensors, or compile it (torch.compile).",
        ),
        CHINESE: Text(
            "循环中的大量微小算子（{operator}）",
            "连续执行数百个几微秒的算子，时间几乎全部花在 Python 和算子分发上。",
            "用整张量运算代替循环，或者编译这段代码（torch.compile）。",
        ),
    },
    "scalar_reads": {
        ENGLISH: Text(
            "The loop reads single numbers out of tensors",
            "Each .item(), float(tensor) or `if tensor:` waits for everything that was launched before it.",
            "Keep the values as tensors and read them every some steps, or after the loop.",
            "-total += loss.item()\n+total += loss.detach()",
        ),
        CHINESE: Text(
            "循环从张量中读取标量",
            "每次 .item()、float(tensor) 或 `if tensor:` 都要等待之前下发的全部任务完成。",
            "保留为张量，每隔若干步或在循环之后再读取。",
            "-total += loss.item()\n+total += loss.detach()",
        ),
    },
    "memory_growth": {
        ENGLISH: Text(
            "Memory of {device} grows from step to step",
            "What the operators below allocate is never freed; something still refers to it.",
            "Look for lists, caches or metrics that keep tensors with their graph: append loss.detach(), not loss.",
            "-history.append(loss)\n+history.append(loss.detach())",
        ),
        CHINESE: Text(
            "{device} 的内存逐步增长",
            "下列算子申请的内存从未释放，仍被某处引用。",
            "检查保存张量（连同计算图）的列表、缓存或指标：保存 loss.item() 或 loss.detach()，不要保存 loss 本身。",
            "-history.append(loss)\n+history.append(loss.detach())",
        ),
    },
}

#: words of ``Evidence.what``
EVIDENCE: dict[str, dict[str, str]] = {
    "loading_in_the_loop": {ENGLISH: "loading in the loop", CHINESE: "在循环中加载数据"},
    "waiting_for_workers": {ENGLISH: "waiting for workers", CHINESE: "等待工作进程"},
    "holds_others_up": {ENGLISH: "holds the others up", CHINESE: "让其他 rank 等待"},
    "more_data": {ENGLISH: "more time waiting for data", CHINESE: "等待数据的时间更长"},
    "more_forward": {ENGLISH: "more time in forward", CHINESE: "前向时间更长"},
    "more_backward": {ENGLISH: "more time in backward", CHINESE: "反向时间更长"},
    "more_optimizer": {ENGLISH: "more time in the optimizer", CHINESE: "优化器时间更长"},
    "more_other": {ENGLISH: "more time outside forward, backward and optimizer", CHINESE: "前向、反向、优化器之外的时间更长"},
    "idle_for_host": {ENGLISH: "device idle for the host", CHINESE: "设备等待主机的空闲"},
    "idle_calls": {ENGLISH: "of it in operator and runtime calls", CHINESE: "其中算子与运行时调用"},
    "idle_python": {ENGLISH: "of it in Python", CHINESE: "其中 Python"},
    "idle_launch": {ENGLISH: "of it on the way to the device", CHINESE: "其中下发途中"},
    "idle_allocation": {ENGLISH: "device idle while memory is requested", CHINESE: "申请内存时的设备空闲"},
    "device_tasks": {ENGLISH: "device tasks", CHINESE: "设备任务数"},
    "task_length": {ENGLISH: "median length of a task", CHINESE: "任务长度中位数"},
    "saving_checkpoints": {ENGLISH: "saving checkpoints", CHINESE: "保存检查点"},
    "one_checkpoint": {ENGLISH: "one checkpoint", CHINESE: "每个检查点"},
    "collecting": {ENGLISH: "collecting", CHINESE: "垃圾回收"},
    "collections": {ENGLISH: "collections", CHINESE: "回收次数"},
    "optimizer_time": {ENGLISH: "in the optimizer", CHINESE: "优化器用时"},
    "optimizer_calls": {ENGLISH: "operators of the optimizer", CHINESE: "优化器的算子数"},
    "storms": {ENGLISH: "in storms of tiny operators", CHINESE: "微小算子用时"},
    "storm_calls": {ENGLISH: "tiny operators", CHINESE: "微小算子数"},
    "reading": {ENGLISH: "reading scalars", CHINESE: "读取标量"},
    "idle_after_reads": {ENGLISH: "device idle after reads", CHINESE: "读取后设备空闲"},
    "waiting_in_reads": {ENGLISH: "host waiting in reads", CHINESE: "主机等待读取"},
    "reads": {ENGLISH: "reads", CHINESE: "读取次数"},
    "growth": {ENGLISH: "growth", CHINESE: "增长"},
    "allocated_at_the_end": {ENGLISH: "allocated at the end", CHINESE: "结束时已分配"},
}

#: the frame around findings
FRAME: dict[str, dict[str, str]] = {
    "saves": {
        ENGLISH: "saves about {likely} of a step ({share}; between {low} and {high})",
        CHINESE: "每步约可节省 {likely}（{share}；{low} 至 {high}）",
    },
    "step": {ENGLISH: "{count} findings; a step takes {step}", CHINESE: "{count} 条建议；每步 {step}"},
    "step_one": {ENGLISH: "1 finding; a step takes {step}", CHINESE: "1 条建议；每步 {step}"},
    "nothing": {ENGLISH: "Nothing to change was found; a step takes {step}", CHINESE: "没有发现需要修改之处；每步 {step}"},
    "confidence": {ENGLISH: "confidence {percent}", CHINESE: "置信度 {percent}"},
    "evidence": {ENGLISH: "evidence", CHINESE: "证据"},
    "per_step": {ENGLISH: "a step", CHINESE: "每步"},
    "steps": {ENGLISH: "steps", CHINESE: "步骤"},
    "change": {ENGLISH: "change", CHINESE: "修改"},
    "not_judged": {
        ENGLISH: "not judged: {rule}, because {conclusion} is unsafe ({reason})",
        CHINESE: "未判断：{rule}，因为“{conclusion}”不可靠（{reason}）",
    },
    "high": {ENGLISH: "high", CHINESE: "高"},
    "medium": {ENGLISH: "medium", CHINESE: "中"},
    "low": {ENGLISH: "low", CHINESE: "低"},
    "cured": {ENGLISH: "cured", CHINESE: "已解决"},
    "remaining": {ENGLISH: "still there", CHINESE: "仍然存在"},
    "new": {ENGLISH: "new", CHINESE: "新出现"},
    "since": {
        ENGLISH: "a step took {before}, now {after}: {saved} less ({promised} were expected of what was cured)",
        CHINESE: "每步由 {before} 变为 {after}：减少 {saved}（已解决的建议预计可减少 {promised}）",
    },
}
