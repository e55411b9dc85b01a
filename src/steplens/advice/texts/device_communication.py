"""Texts of the rules about how devices communicate, and what that costs their computing."""

from __future__ import annotations

from steplens.advice.texts.text import CHINESE, ENGLISH, Text

#: where these rules are described
PAGE = "docs/advice_devices.md"

TEXTS: dict[str, dict[str, Text]] = {
    "synchronized_batchnorm": {
        ENGLISH: Text(
            "SyncBatchNorm exchanges statistics with all ranks in every layer",
            "Each layer waits for a collective, forward and backward, which nothing can overlap.",
            "Use BatchNorm of each rank's own batch, which large batches bear, or GroupNorm or LayerNorm.",
        ),
        CHINESE: Text(
            "SyncBatchNorm 的每一层都要与所有 rank 交换统计量",
            "每层的前向和反向都要等待一次集合通信，无法与其他计算重叠。",
            "批次较大时使用各 rank 自己的 BatchNorm，或改用 GroupNorm、LayerNorm。",
        ),
    },
    "byte_alignment": {
        ENGLISH: Text(
            "Sizes of transfers are no multiples of {unit} bytes",
            "The last piece of such a collective is cut at an odd place; transfers of an odd size may be slower.",
            "Pad what is communicated (buckets, shards, hidden sizes) to a multiple of {unit} bytes for every rank.",
        ),
        CHINESE: Text(
            "传输的数据量不是 {unit} 字节的整数倍",
            "这类集合通信的最后一片没有对齐；未对齐的传输可能更慢。",
            "把通信数据（bucket、分片、隐藏层大小）补齐，使每个 rank 的数据量为 {unit} 字节的整数倍。",
        ),
    },
    "small_packets": {
        ENGLISH: Text(
            "Many operations communicate little ({limit})",
            "Each operation has a fixed cost, and links reach their bandwidth with large transfers only.",
            "Communicate more at a time: larger buckets (bucket_cap_mb), fewer and larger collectives, gradient accumulation.",
        ),
        CHINESE: Text(
            "许多通信算子的数据量很小（{limit}）",
            "每次通信都有固定开销，只有大块传输才能达到链路带宽。",
            "每次传输更多数据：更大的 bucket（bucket_cap_mb）、更少更大的集合通信、梯度累积。",
        ),
    },
    "retransmission": {
        ENGLISH: Text(
            "Operations over RDMA probably sent their data again",
            "They take as long as a network card waits for an answer (4 s) on every rank, and so do their transfers.",
            "Check cables, switches and flow control (PFC) between the machines, and the setting of HCCL_RDMA_TIMEOUT.",
        ),
        CHINESE: Text(
            "RDMA 通信可能发生了重传",
            "这些算子在每个 rank 上都不短于网卡等待应答的时间（4 秒），其传输也是如此。",
            "检查机器之间的线缆、交换机和流控（PFC），以及 HCCL_RDMA_TIMEOUT 的设置。",
        ),
    },
    "bandwidth_contention": {
        ENGLISH: Text(
            "Communication is slower beside matrix products",
            "Transfers and products want the bandwidth of the same memory, and transfers get the smaller share.",
            "Let communication overlap with something that needs less of memory, or accept it where the overlap saves more.",
        ),
        CHINESE: Text(
            "与矩阵乘同时进行的通信更慢",
            "传输和矩阵乘争用同一内存的带宽，传输得到的份额较小。",
            "让通信与较少访问内存的计算重叠；若重叠节省的时间更多，可以接受。",
        ),
    },
    "contended_matmuls": {
        ENGLISH: Text(
            "Matrix products are slower beside communication",
            "The kernels of collectives hold multiprocessors and bandwidth that the products then lack.",
            "Give collectives fewer channels (NCCL_MAX_NCHANNELS, NCCL_MAX_CTAS), or let them overlap with smaller kernels.",
        ),
        CHINESE: Text(
            "与通信同时进行的矩阵乘更慢",
            "集合通信的内核占用了多处理器和带宽，矩阵乘因此变慢。",
            "减少集合通信的通道数（NCCL_MAX_NCHANNELS、NCCL_MAX_CTAS），或让其与较小的内核重叠。",
        ),
    },
    "slow_group": {
        ENGLISH: Text(
            "Collectives of the ranks {ranks} are slower than those of other groups",
            "Groups of the same size move their data faster in the same operation; a link among these ranks is slow.",
            "Compare how these ranks are connected (nvidia-smi topo -m, switches, cables) with the others.",
        ),
        CHINESE: Text(
            "rank {ranks} 的集合通信比其他组慢",
            "同样大小的组以更快的速度完成同样的操作；这些 rank 之间有一条慢链路。",
            "比较这些 rank 与其他 rank 的连接方式（nvidia-smi topo -m、交换机、线缆）。",
        ),
    },
}

#: what evidence is about
EVIDENCE: dict[str, dict[str, str]] = {
    "batchnorm_calls": {ENGLISH: "calls of SyncBatchNorm", CHINESE: "SyncBatchNorm 调用数"},
    "batchnorm_collectives": {ENGLISH: "collectives that they launch", CHINESE: "其下发的集合通信用时"},
    "odd_transfers": {ENGLISH: "transfers of odd sizes", CHINESE: "未对齐传输用时"},
    "operations_with_odd_transfers": {ENGLISH: "operations with such transfers", CHINESE: "含此类传输的通信算子数"},
    "odd_bandwidth": {ENGLISH: "their bandwidth", CHINESE: "其带宽"},
    "even_bandwidth": {ENGLISH: "bandwidth of aligned transfers", CHINESE: "对齐传输的带宽"},
    "small_operations": {ENGLISH: "small operations, of all", CHINESE: "小数据量通信算子占比"},
    "small_operations_per_step": {ENGLISH: "small operations", CHINESE: "小数据量通信算子数"},
    "in_small_operations": {ENGLISH: "in small operations, waiting included", CHINESE: "小数据量通信用时（含等待）"},
    "small_bandwidth": {ENGLISH: "their bandwidth", CHINESE: "其带宽"},
    "large_bandwidth": {ENGLISH: "bandwidth of large ones, or of the link", CHINESE: "大数据量（或链路）的带宽"},
    "long_rdma": {ENGLISH: "transfers over RDMA of 4 s and more", CHINESE: "超过 4 秒的 RDMA 传输"},
    "long_rdma_operations": {ENGLISH: "such operations", CHINESE: "此类通信算子数"},
    "slowed_operations": {ENGLISH: "operations beside matrix products that are slower", CHINESE: "与矩阵乘并行而变慢的通信数"},
    "slowed_bandwidth": {ENGLISH: "their bandwidth", CHINESE: "其带宽"},
    "undisturbed_bandwidth": {ENGLISH: "bandwidth without products, or peak of the link", CHINESE: "无矩阵乘时（或峰值）带宽"},
    "slowed_kernels": {ENGLISH: "products beside communication", CHINESE: "与通信并行的矩阵乘数"},
    "longer_beside_communication": {ENGLISH: "longer than without", CHINESE: "比无通信时更长"},
    "in_slow_group": {ENGLISH: "in collectives of this group", CHINESE: "该组的集合通信用时"},
    "group_bandwidth": {ENGLISH: "bandwidth of this group", CHINESE: "该组带宽"},
    "median_bandwidth": {ENGLISH: "median of the groups", CHINESE: "各组带宽中位数"},
    "compared_groups": {ENGLISH: "groups compared", CHINESE: "参与比较的组数"},
}
