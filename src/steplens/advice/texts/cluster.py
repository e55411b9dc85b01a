"""Texts of the rules about many ranks."""

from __future__ import annotations

from steplens.advice.texts.text import CHINESE, ENGLISH, Text

#: where these rules are described
PAGE = "docs/advice_ranks.md"

TEXTS: dict[str, dict[str, Text]] = {
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
    "slow_interval": {
        ENGLISH: Text(
            "Rank {rank} waits longer for its data",
            "Between two steps rank {rank} waits {interval} ms, {percent} % more than the mean of the ranks.",
            "Look at the data of rank {rank}: its share of the samples, its storage, the processors of its host.",
        ),
        CHINESE: Text(
            "rank {rank} 等待数据的时间更长",
            "rank {rank} 在两个步骤之间等待 {interval} ms，比各 rank 的平均值多 {percent} %。",
            "检查 rank {rank} 的数据准备：样本划分、存储以及所在主机的处理器。",
        ),
    },
    "slow_card": {
        ENGLISH: Text(
            "Rank {rank} computes more slowly than the others",
            "Rank {rank} does {percent} % fewer floating-point operations per second than the mean of the ranks.",
            "Compare the clock, the temperature and the other jobs of its device with those of the others.",
        ),
        CHINESE: Text(
            "rank {rank} 的计算比其他 rank 慢",
            "rank {rank} 每秒完成的浮点运算比各 rank 的平均值少 {percent} %。",
            "将该设备的频率、温度以及其上的其他任务与其他设备进行比较。",
        ),
    },
    "slow_link": {
        ENGLISH: Text(
            "The link from rank {source} to rank {target} is slow",
            "Over {transport} it moves data {percent} % more slowly than the mean of such links (bytes / time).",
            "Look at how much each transfer over it moves, since small ones cannot be fast, and at the cable, switch and "
            "topology between the two.",
        ),
        CHINESE: Text(
            "rank {source} 到 rank {target} 的链路较慢",
            "该 {transport} 链路的带宽（字节数 / 时间）比同类链路的平均值低 {percent} %。",
            "检查每次传输的数据量（数据量小则带宽上不去），以及两端之间的线缆、交换机和拓扑。",
        ),
    },
    "data_parallel_communication": {
        ENGLISH: Text(
            "Exchanging gradients takes {percent} % of the steps alone",
            "The ranks hold the same model; while they exchange gradients, nothing is computed. Up to {threshold} % would be "
            "usual.",
            "Tune how all-reduces are fused (bucket_cap_mb of DistributedDataParallel), "
            "so that the exchange runs beside backward; accumulate gradients over several batches.",
        ),
        CHINESE: Text(
            "梯度通信独占步骤时间的 {percent} %",
            "各 rank 持有相同的模型，交换梯度期间没有计算。一般不超过 {threshold} %。",
            "调整 AllReduce 融合（DistributedDataParallel 的 bucket_cap_mb），使通信与反向计算并行；或在多个批次上累积梯度。",
        ),
    },
    "model_parallel_communication": {
        ENGLISH: Text(
            "Communication takes {percent} % of the steps alone",
            "The ranks hold parts of every layer and exchange activations; meanwhile nothing is computed. Up to {threshold} % "
            "would be usual.",
            "Revisit how operators are split: fewer ranks per layer, or a split with fewer redistributions.",
        ),
        CHINESE: Text(
            "通信独占步骤时间的 {percent} %",
            "各 rank 持有每一层的一部分并交换激活值，其间没有计算。一般不超过 {threshold} %。",
            "重新考虑算子的切分策略：减少每层使用的 rank，或选择重排布更少的切分方式。",
        ),
    },
    "unknown_parallel_communication": {
        ENGLISH: Text(
            "Communication takes {percent} % of the steps alone",
            "The recording does not say what the ranks exchange; meanwhile nothing is computed. Up to {threshold} % would be "
            "usual.",
            "Find out what is exchanged: operators in the timeline above the launches of the collectives, or a recording with "
            "the CPU's operators too. Gradients: run their exchange beside backward, accumulate them over several batches. "
            "Parts of layers: fewer ranks per layer.",
        ),
        CHINESE: Text(
            "通信独占步骤时间的 {percent} %",
            "采集数据没有说明各 rank 交换的内容，其间没有计算。一般不超过 {threshold} %。",
            "先确定交换的内容：在时间线中查看下发集合通信的算子，或同时采集 CPU 算子。"
            "若为梯度：使通信与反向计算并行，或在多个批次上累积；若为层的切分：减少每层使用的 rank。",
        ),
    },
    "stage_waits": {
        ENGLISH: Text(
            "The stages of the pipeline wait for each other {percent} % of the time",
            "They receive what other stages send, and compute nothing meanwhile. Up to {threshold} % would be usual.",
            "Look at the receives in the timeline: more micro-batches shorten the bubbles, equal stages the rest.",
        ),
        CHINESE: Text(
            "流水线各阶段有 {percent} % 的时间在相互等待",
            "等待接收其他阶段发送的数据，其间没有计算。一般不超过 {threshold} %。",
            "在时间线中查看 Receive：增加 micro-batch 数可缩短空泡，均衡各阶段的计算量可减少其余等待。",
        ),
    },
    "stage_collectives": {
        ENGLISH: Text(
            "Collectives take {percent} % of the time of stage {stage} alone",
            "The ranks of stage {stage} communicate with each other and compute nothing meanwhile. Up to {threshold} % would be "
            "usual.",
            "Look at the longest collectives of stage {stage}: fuse small ones, split its operators otherwise, and check whether "
            "they only wait for another stage.",
        ),
        CHINESE: Text(
            "阶段 {stage} 有 {percent} % 的时间只在做集合通信",
            "阶段 {stage} 的各 rank 相互通信，其间没有计算。一般不超过 {threshold} %。",
            "查看阶段 {stage} 中最长的集合通信：融合小的通信，改变该阶段的算子切分，并确认它们是否只是在等待其他阶段。",
        ),
    },
    "stage_balance": {
        ENGLISH: Text(
            "Stage {stage} of the pipeline has the most to compute",
            "A rank of stage {stage} does {percent} % more arithmetic than the mean of the stages; the other stages wait for it.",
            "Move layers from stage {stage} to the others, until all compute for about as long.",
        ),
        CHINESE: Text(
            "流水线阶段 {stage} 的计算量最大",
            "阶段 {stage} 的每个 rank 的计算量比各阶段平均值多 {percent} %，其他阶段在等待它。",
            "把阶段 {stage} 的部分层移到其他阶段，使各阶段的计算时间接近。",
        ),
    },
}

#: words of ``Evidence.what``
EVIDENCE: dict[str, dict[str, str]] = {
    "mean_of_all": {ENGLISH: "mean of all", CHINESE: "全部的平均值"},
    "median_of_all": {ENGLISH: "median of all", CHINESE: "全部的中位数"},
    "deviation_of_all": {ENGLISH: "median deviation from the median", CHINESE: "绝对中位差"},
    "above_mean": {ENGLISH: "above the mean by", CHINESE: "高于平均值"},
    "below_mean": {ENGLISH: "below the mean by", CHINESE: "低于平均值"},
    "missing_ranks": {ENGLISH: "ranks that are not here", CHINESE: "缺少的 rank 数"},
    "work_rate": {ENGLISH: "arithmetic per second", CHINESE: "每秒浮点运算"},
    "bandwidth": {ENGLISH: "bandwidth", CHINESE: "带宽"},
    "moved_bytes": {ENGLISH: "moved", CHINESE: "传输量"},
    "communication_rate": {ENGLISH: "share of communication alone", CHINESE: "独占通信占比"},
    "communication_alone": {ENGLISH: "communication alone", CHINESE: "独占通信时间"},
    "moving_share": {
        ENGLISH: "share of it in which data moved, not waiting for late ranks",
        CHINESE: "其中传输数据（而非等待迟到的 rank）的占比",
    },
    "waiting_unknown": {
        ENGLISH: "without the traces of the other ranks nothing tells how much of it waits for them",
        CHINESE: "缺少其他 rank 的数据，无法判断其中有多少是在等待它们",
    },
    "receive_rate": {ENGLISH: "share of receives alone", CHINESE: "独占接收占比"},
    "receive_alone": {ENGLISH: "receives alone", CHINESE: "独占接收时间"},
    "collective_rate": {ENGLISH: "share of collectives alone", CHINESE: "独占集合通信占比"},
    "collectives_alone": {ENGLISH: "collectives alone", CHINESE: "独占集合通信时间"},
    "waits_for_stage": {
        ENGLISH: "the stage that computes longest, for which this one waits:",
        CHINESE: "计算最久、被本阶段等待的阶段：",
    },
    "stage_work": {ENGLISH: "arithmetic of a rank", CHINESE: "每个 rank 的计算量"},
}
