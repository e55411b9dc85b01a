"""Texts of the rules about how a device's units are used: cores, caches, clocks, and kinds of operators."""

from __future__ import annotations

from steplens.advice.texts.text import CHINESE, ENGLISH, Text

_CHANGE = "{change}"

#: where these rules are described
PAGE = "docs/advice_devices.md"

TEXTS: dict[str, dict[str, Text]] = {
    "aicpu_operators": {
        ENGLISH: Text(
            "Operators run on the AI CPU ({operators})",
            "The AI CPU is a general processor; what the AI cores compute in microseconds takes it many times as long.",
            "Give these operators types that the AI cores support (float32 or int32 instead of double or int64, as far as the "
            "program allows), or replace them by others.",
        ),
        CHINESE: Text(
            "有算子在 AI CPU 上执行（{operators}）",
            "AI CPU 是通用处理器；AI Core 几微秒就能完成的计算，在它上面要花许多倍的时间。",
            "为这些算子使用 AI Core 支持的数据类型（在程序允许时以 float32、int32 代替 double、int64），或改用其他算子。",
        ),
    },
    "uneven_blocks": {
        ENGLISH: Text(
            "Blocks of operators do not divide evenly among the cores",
            "The device has {cores} AI cores and {vector_cores} vector cores. In the last round of blocks the cores that are "
            "left over wait for the others.",
            "Choose batch sizes and hidden sizes that give a multiple of that number of blocks; update CANN, whose operators "
            "decide how they are cut.",
        ),
        CHINESE: Text(
            "算子的分块数不是核数的整数倍",
            "设备有 {cores} 个 AI Core、{vector_cores} 个 Vector Core。最后一轮分块时，没有分到任务的核只能等待。",
            "选择能使分块数为核数整数倍的批次大小和隐藏层大小；升级 CANN，分块方式由其算子决定。",
        ),
    },
    "core_frequency": {
        ENGLISH: Text(
            "AI cores run {percent} % below their rated clock",
            "While the operators below ran, the cores were throttled: by temperature, by a power limit, or by another load.",
            "Check the device's temperature, power limit and cooling (npu-smi info), and what else runs on it.",
        ),
        CHINESE: Text(
            "AI Core 的频率比额定频率低 {percent} %",
            "执行下列算子时核心被降频：原因可能是温度、功耗限制或其他负载。",
            "检查设备的温度、功耗限制和散热（npu-smi info），以及设备上是否还有其他任务。",
        ),
    },
    "vector_performance": {
        ENGLISH: Text(
            "Vector operators keep no unit of their core busy ({operators})",
            "Neither the vector unit nor reading nor writing is what limits them; much of their time goes into start-up, scalar "
            "work and waiting of one unit for the other.",
            "Replace them by fused operators, give them larger and aligned tensors, or ask for tuning of the operator.",
        ),
        CHINESE: Text(
            "Vector 算子没有用满核内任何单元（{operators}）",
            "限制它们的既不是向量计算，也不是读写；大量时间花在启动、标量计算和单元之间的等待上。",
            "改用融合算子，使用更大且对齐的张量，或对算子进行调优。",
        ),
    },
    "matmul_performance": {
        ENGLISH: Text(
            "Matrix products stay below what the device can do ({operators})",
            "Neither the matrix unit nor memory is what limits them, or their inner axes fit the unit badly.",
            "Make inner axes multiples of 256 (hidden sizes, vocabulary), use float16 or bfloat16, or tune the operator.",
        ),
        CHINESE: Text(
            "矩阵乘没有达到设备的能力（{operators}）",
            "限制它们的既不是矩阵单元也不是内存，或者内轴长度不适合矩阵单元。",
            "使内轴为 256 的整数倍（隐藏层大小、词表大小），使用 float16 或 bfloat16，或对算子进行调优。",
        ),
    },
    "attention_performance": {
        ENGLISH: Text(
            "Fused attention stays below what the device can do ({operators})",
            "Neither its computing nor its reading or writing is what limits it, or head and sequence fit the unit badly.",
            "Make the size of a head and the length of sequences multiples of 128.",
        ),
        CHINESE: Text(
            "融合注意力没有达到设备的能力（{operators}）",
            "限制它的既不是计算也不是读写，或者 head 大小、序列长度不适合计算单元。",
            "使 head 大小和序列长度为 128 的整数倍。",
        ),
    },
    "unbound_operators": {
        ENGLISH: Text(
            "Operators in which no unit is busy for 80 % of the time ({operators})",
            "Their units wait for one another, so that none of them is what limits the operator.",
            "Tune these operators (AOE, larger or aligned shapes), or replace them by fused ones.",
        ),
        CHINESE: Text(
            "算子中没有任何单元的利用率达到 80 %（{operators}）",
            "各单元互相等待，没有哪个单元是算子的瓶颈。",
            "对这些算子进行调优（AOE、更大或对齐的形状），或改用融合算子。",
        ),
    },
    "memory_bound_sequences": {
        ENGLISH: Text(
            "{count} sequences of operators recur that do little but read and write",
            "Where one of them reads what the one before has written, all of it goes to memory and comes back.",
            "Fuse them: torch.compile, a fused operator of the framework, or an operator of your own.",
        ),
        CHINESE: Text(
            "有 {count} 个反复出现的算子序列主要在读写内存",
            "如果后一个算子读取前一个算子的输出，全部数据都要写入内存再读回。",
            "进行融合：torch.compile、框架的融合算子或自定义算子。",
        ),
    },
    "unfused_operators": {
        ENGLISH: Text(
            "{sequence} could be one operator",
            "The framework has a fused operator for this sequence, which reads and writes the data once and is launched once.",
            "Use {fused}.",
        ),
        CHINESE: Text(
            "{sequence} 可以合并为一个算子",
            "框架为该序列提供了融合算子，只读写一遍数据，只下发一次。",
            "使用 {fused}。",
        ),
    },
    "low_occupancy": {
        ENGLISH: Text(
            "Kernels use only some of the GPU's multiprocessors",
            "They have fewer thread blocks than the device has multiprocessors; the others have nothing to do.",
            "Use larger batches, fuse such kernels, or let independent ones run at the same time (streams, CUDA graphs).",
        ),
        CHINESE: Text(
            "内核只使用了 GPU 的部分多处理器",
            "线程块数少于多处理器数，其余多处理器无事可做。",
            "使用更大的批次，融合这些内核，或让互不依赖的内核同时执行（多流、CUDA graph）。",
        ),
    },
    "outside_matrix_units": {
        ENGLISH: Text(
            "Matrix products run in float32 outside the GPU's matrix units",
            "The tensor cores of this GPU multiply {type} matrices many times as fast. Check that the training bears the lower "
            "precision.",
            "Allow {type} for matrix products.",
            _CHANGE,
        ),
        CHINESE: Text(
            "矩阵乘以 float32 运行，没有使用 GPU 的矩阵单元",
            "该 GPU 的 Tensor Core 计算 {type} 矩阵乘要快许多倍。请确认训练能够接受较低的精度。",
            "允许矩阵乘使用 {type}。",
            _CHANGE,
        ),
    },
}

#: what evidence is about
EVIDENCE: dict[str, dict[str, str]] = {
    "on_aicpu": {ENGLISH: "on the AI CPU", CHINESE: "AI CPU 用时"},
    "aicpu_tasks": {ENGLISH: "tasks on the AI CPU", CHINESE: "AI CPU 任务数"},
    "aicpu_wide_types": {ENGLISH: "of it with double, int64 or complex inputs", CHINESE: "其中输入为 double、int64 或复数的占"},
    "in_uneven_blocks": {ENGLISH: "in operators of uneven blocks", CHINESE: "分块不均的算子用时"},
    "uneven_tasks": {ENGLISH: "tasks of uneven blocks", CHINESE: "分块不均的任务数"},
    "below_rated_clock": {ENGLISH: "below the rated clock", CHINESE: "低于额定频率的时间"},
    "clock": {ENGLISH: "mean clock meanwhile", CHINESE: "期间的平均频率"},
    "rated_clock": {ENGLISH: "rated, or highest, clock", CHINESE: "额定（或最高）频率"},
    "limited_by_nothing": {ENGLISH: "in tasks that no unit limits", CHINESE: "不受任何单元限制的任务用时"},
    "busiest_unit": {ENGLISH: "busiest unit, of what would limit a task", CHINESE: "最忙单元达到瓶颈阈值的"},
    "judged_tasks": {ENGLISH: "in all tasks that were compared", CHINESE: "参与比较的全部任务用时"},
    "awkward_axes": {ENGLISH: "in tasks whose axes fit the unit badly", CHINESE: "轴长不适合计算单元的任务用时"},
    "moving_sequences": {ENGLISH: "in sequences bound by memory", CHINESE: "受内存限制的序列用时"},
    "sequence_tasks": {ENGLISH: "tasks in these sequences", CHINESE: "这些序列的任务数"},
    "unfused_sequences": {ENGLISH: "occurrences", CHINESE: "出现次数"},
    "in_unfused_sequences": {ENGLISH: "in these operators", CHINESE: "这些算子用时"},
    "in_few_blocks": {ENGLISH: "in kernels of few blocks", CHINESE: "线程块过少的内核用时"},
    "kernels_of_few_blocks": {ENGLISH: "such kernels", CHINESE: "此类内核数"},
    "occupancy": {ENGLISH: "their estimated occupancy", CHINESE: "其估计占用率"},
    "in_float32_arithmetic": {ENGLISH: "in float32 arithmetic", CHINESE: "float32 运算用时"},
    "float32_kernels": {ENGLISH: "such kernels", CHINESE: "此类内核数"},
}
