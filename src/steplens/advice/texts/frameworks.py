"""What is said of a finding where it depends on the framework of the run.

The catalogue speaks of PyTorch where a remedy has to name something of a framework. Here are the words for MindSpore, and those
for a run of which nothing tells the framework; and the rules that only one framework can break.
"""

from __future__ import annotations

import re
from dataclasses import dataclass

from steplens.advice.texts import minddata, pipeline
from steplens.advice.texts.text import CHINESE, ENGLISH, Text
from steplens.trace.building.framework import MINDSPORE, PYTORCH, UNKNOWN

#: what only one framework has; a text of the other one that has it is a mistake
VOCABULARY = {
    PYTORCH: re.compile(
        r"torch|DistributedDataParallel|DataLoader|autocast|bucket_cap_mb|fused=True|set_to_none|zero_grad|\.item\(\)|\.detach\(\)"
        r"|non_blocking|pin_memory|num_workers|persistent_workers|prefetch_factor|collate_fn|__getitems__"
        r"|PYTORCH_|gc_detect_threshold",
        re.IGNORECASE,
    ),
    MINDSPORE: re.compile(
        r"mindspore|all_reduce_fusion_config|num_parallel_workers|MindRecord|MindDataset|set_prefetch_size|per_batch_map"
        r"|jit_level|async_save=",
        re.IGNORECASE,
    ),
}

_OF_BOTH = {"iteration_interval", "data_processing", "data_transfer", "data_pipeline_healthy", "busy_host"}

#: rule -> the framework whose programs alone can break it
ONLY_OF: dict[str, str] = {
    **dict.fromkeys((rule for rule in minddata.TEXTS if rule not in _OF_BOTH), MINDSPORE),
    **dict.fromkeys(pipeline.TEXTS, PYTORCH),
    **dict.fromkeys(("recompilation", "gradient_zeroing", "single_tensor_optimizer", "slow_fetches"), PYTORCH),
}


@dataclass(frozen=True)
class Instead:
    """What replaces parts of a text; None leaves a part as it is. The patch goes, unless there is another."""

    remedy: str | None = None
    patch: str = ""
    cause: str | None = None


#: rule -> language -> what is said where nothing tells the framework, and of MindSpore where it has no words of its own
NEUTRAL: dict[str, dict[str, Instead]] = {
    "device_waits_for_host": {
        ENGLISH: Instead("Launch less often: compiled graphs, larger batches, fused operators and a fused optimizer."),
        CHINESE: Instead("减少下发次数：编译为图、更大的批次、融合算子和融合优化器。"),
    },
    "allocation_stalls": {ENGLISH: Instead(), CHINESE: Instead()},
    "checkpoint_stalls": {
        ENGLISH: Instead(cause="Checkpoints are saved in the training loop, and every step that saves waits for the disk."),
        CHINESE: Instead(cause="检查点在训练循环中保存，保存检查点的步骤都要等待磁盘。"),
    },
    "tiny_operators": {
        ENGLISH: Instead("Replace the loop by operators over whole tensors, or compile it."),
        CHINESE: Instead("用整张量运算代替循环，或者编译这段代码。"),
    },
    "scalar_reads": {
        ENGLISH: Instead(cause="Each number that Python takes out of a tensor waits for everything that was launched before it."),
        CHINESE: Instead(cause="Python 每次从张量中取出数值都要等待之前下发的全部任务完成。"),
    },
    "memory_growth": {
        ENGLISH: Instead("Look for lists, caches or metrics that keep tensors: keep numbers instead."),
        CHINESE: Instead("检查保存张量的列表、缓存或指标，改为保存数值。"),
    },
    "synchronising_calls": {ENGLISH: Instead(), CHINESE: Instead()},
    "python_in_the_loop": {
        ENGLISH: Instead(
            "Do it less often, in another thread or process, or after the loop; read data in workers of their own.",
            cause="The step's thread does something other than operators or loading data, and the training waits for it.",
        ),
        CHINESE: Instead(
            "降低频率，放到其他线程或进程，或放到循环之后；用单独的工作进程读取数据。",
            cause="步骤所在线程在执行算子和数据加载之外的工作，训练只能等待。",
        ),
    },
    "float32_matmul": {ENGLISH: Instead(), CHINESE: Instead()},
    "exposed_gradients": {
        ENGLISH: Instead("Exchange gradients in several parts while backward still runs, each as soon as it is ready."),
        CHINESE: Instead("把梯度分成若干部分，各部分就绪后立即在反向计算的同时通信。"),
    },
    "dynamic_shapes": {ENGLISH: Instead(), CHINESE: Instead()},
    "operator_compilation": {ENGLISH: Instead(), CHINESE: Instead()},
    "suspected_collections": {
        ENGLISH: Instead(
            "Record collections to be sure; freeze what was created at the start.",
            "+gc.collect(); gc.freeze()   # once, when model and data are set up",
        ),
        CHINESE: Instead(
            "采集垃圾回收事件以确认；把启动时创建的对象冻结。",
            "+gc.collect(); gc.freeze()   # once, when model and data are set up",
        ),
    },
    "allocation_calls": {ENGLISH: Instead(), CHINESE: Instead()},
    "host_bound_sequences": {
        ENGLISH: Instead("Fuse them into fewer launches: compiled graphs, or a fused operator of the framework."),
        CHINESE: Instead("融合以减少下发次数：编译为图，或使用框架的融合算子。"),
    },
    "launch_bound": {
        ENGLISH: Instead("Capture the step as a graph that is launched at once."),
        CHINESE: Instead("把步骤捕获为一次下发的图。"),
    },
    "pageable_copies": {ENGLISH: Instead(), CHINESE: Instead()},
    "exposed_copies": {ENGLISH: Instead(), CHINESE: Instead()},
    "memory_bound_sequences": {
        ENGLISH: Instead("Fuse them: a compiler of graphs, a fused operator of the framework, or an operator of your own."),
        CHINESE: Instead("进行融合：图编译器、框架的融合算子或自定义算子。"),
    },
    "unfused_operators": {
        ENGLISH: Instead("Use the framework's fused operator for this sequence."),
        CHINESE: Instead("使用框架为该序列提供的融合算子。"),
    },
    "outside_matrix_units": {ENGLISH: Instead(), CHINESE: Instead()},
    "small_packets": {
        ENGLISH: Instead("Communicate more at a time: fewer and larger collectives, gradient accumulation."),
        CHINESE: Instead("每次传输更多数据：更少更大的集合通信、梯度累积。"),
    },
    "data_parallel_communication": {
        ENGLISH: Instead(
            "Tune how all-reduces are fused, so that the exchange runs beside backward; accumulate gradients over several "
            "batches."
        ),
        CHINESE: Instead("调整 AllReduce 融合，使通信与反向计算并行；或在多个批次上累积梯度。"),
    },
    "first_steps": {ENGLISH: Instead(), CHINESE: Instead()},
}

_FUSION = "mindspore.set_auto_parallel_context(comm_fusion=...) or all_reduce_fusion_config"
_FUSION_ZH = "mindspore.set_auto_parallel_context(comm_fusion=...) 或 all_reduce_fusion_config"

#: the same of MindSpore
OF_MINDSPORE: dict[str, dict[str, Instead]] = {
    "device_waits_for_host": {
        ENGLISH: Instead("Launch less often: graph mode or mindspore.jit, data sinking, larger batches, fused operators."),
        CHINESE: Instead("减少下发次数：图模式或 mindspore.jit、数据下沉、更大的批次、融合算子。"),
    },
    "checkpoint_stalls": {
        ENGLISH: Instead(
            "Write in the background, or save less often.",
            "-mindspore.save_checkpoint(net, path)\n+mindspore.save_checkpoint(net, path, async_save=True)",
            NEUTRAL["checkpoint_stalls"][ENGLISH].cause,
        ),
        CHINESE: Instead(
            "在后台写入，或者降低保存频率。",
            "-mindspore.save_checkpoint(net, path)\n+mindspore.save_checkpoint(net, path, async_save=True)",
            NEUTRAL["checkpoint_stalls"][CHINESE].cause,
        ),
    },
    "tiny_operators": {
        ENGLISH: Instead("Replace the loop by operators over whole tensors, or compile it (mindspore.jit, graph mode)."),
        CHINESE: Instead("用整张量运算代替循环，或者编译这段代码（mindspore.jit、图模式）。"),
    },
    "host_bound_sequences": {
        ENGLISH: Instead("Fuse them into fewer launches: graph mode or mindspore.jit, or a fused operator of the framework."),
        CHINESE: Instead("融合以减少下发次数：图模式、mindspore.jit 或框架的融合算子。"),
    },
    "memory_bound_sequences": {
        ENGLISH: Instead("Fuse them: graph mode with jit_level O1, a fused operator of the framework, or one of your own."),
        CHINESE: Instead("进行融合：jit_level 为 O1 的图模式、框架的融合算子或自定义算子。"),
    },
    "exposed_gradients": {
        ENGLISH: Instead(f"Let all-reduces run beside backward: more parts ({_FUSION})."),
        CHINESE: Instead(f"让 AllReduce 与反向计算并行：分成更多部分（{_FUSION_ZH}）。"),
    },
    "small_packets": {
        ENGLISH: Instead(f"Communicate more at a time: fuse all-reduces ({_FUSION}), fewer and larger collectives."),
        CHINESE: Instead(f"每次传输更多数据：融合 AllReduce（{_FUSION_ZH}）、更少更大的集合通信。"),
    },
    "data_parallel_communication": {
        ENGLISH: Instead(
            f"Tune how all-reduces are fused ({_FUSION}), so that the exchange runs beside backward; accumulate gradients over "
            "several batches."
        ),
        CHINESE: Instead(f"调整 AllReduce 融合（{_FUSION_ZH}），使通信与反向计算并行；或在多个批次上累积梯度。"),
    },
}


def for_framework(rule: str, language: str, text: Text, framework: str) -> Text:
    """The text of a rule as it is said of a framework; ``text`` is that of the catalogue."""
    if framework == PYTORCH:
        return text
    own = OF_MINDSPORE.get(rule) if framework == MINDSPORE else None
    words = (own or NEUTRAL.get(rule) or {}).get(language)
    if words is None:
        return text
    return Text(
        text.title,
        text.cause if words.cause is None else words.cause,
        text.remedy if words.remedy is None else words.remedy,
        words.patch,
    )


def is_about_another(framework: str, rule: str, values: str) -> bool:
    """Whether a finding is of a framework that is known not to be that of the run."""
    if framework == UNKNOWN:
        return False
    others = [other for other in VOCABULARY if other != framework]
    return ONLY_OF.get(rule, framework) != framework or (
        rule == "environment_variables" and any(VOCABULARY[other].search(values) for other in others)
    )
