"""Texts of the rules about MindSpore's data pipelines: queues, operations, processors."""

from __future__ import annotations

from steplens.advice.texts.text import CHINESE, ENGLISH, Text

_WORKERS = "num_parallel_workers"

#: where these rules are described
PAGE = "docs/advice_ranks.md"

TEXTS: dict[str, dict[str, Text]] = {
    "iteration_interval": {
        ENGLISH: Text(
            "The device waits between steps",
            "From the end of a step to the first forward operator of the next passes more than {threshold} ms.",
            "Improve the way of the data to the device: look at the queues of the data pipeline, sink the data, and keep work of "
            "the host out of the loop.",
        ),
        CHINESE: Text(
            "设备在步骤之间等待",
            "一个步骤结束到下一步骤第一个前向算子之间的间隔超过 {threshold} ms。",
            "改进数据到设备的通路：查看数据流水线的队列，使用数据下沉，并减少训练循环中主机侧的工作。",
        ),
    },
    "data_processing": {
        ENGLISH: Text(
            "Data processing is too slow",
            "Batches are taken faster than the data pipeline makes them: its last queue on the host is often empty.",
            "Make the operation faster that the rules about single operations name; without one, start at the source.",
        ),
        CHINESE: Text(
            "数据处理太慢",
            "批次被取走的速度快于数据流水线产生批次的速度：主机侧的最后一个队列经常为空。",
            "加速下面指出的瓶颈算子；没有指出时，从数据源开始优化。",
        ),
    },
    "data_transfer": {
        ENGLISH: Text(
            "Sending data to the device is slow",
            "The queue on the host has batches, and the one on the device runs empty.",
            "Look at what a batch costs to send (below): smaller or narrower data types, fewer columns, fewer processes that "
            "share the way to the device.",
        ),
        CHINESE: Text(
            "数据下发到设备较慢",
            "主机侧队列中有批次，而设备侧队列为空。",
            "查看发送一个批次的耗时（见下）：使用更小的数据类型、更少的数据列，减少共用下发通路的进程。",
        ),
    },
    "data_pipeline_healthy": {
        ENGLISH: Text(
            "The data pipeline keeps up",
            "Its queues were filled when the training took from them.",
            "Nothing needs to be changed.",
        ),
        CHINESE: Text("数据流水线正常", "训练取数据时队列中有数据。", "无需修改。"),
    },
    "busy_host": {
        ENGLISH: Text(
            "The processors of the host are {percent} % busy",
            "Preparing data competes with everything else on the host, and may become slow.",
            "See what else runs there; do part of the preparation offline, on the device, or with fewer workers than processors.",
        ),
        CHINESE: Text(
            "主机处理器占用率为 {percent} %",
            "数据准备与主机上的其他工作争用处理器，可能变慢。",
            "查看主机上运行的其他任务；将部分预处理离线完成或放到设备上，工作线程数不要超过处理器数。",
        ),
    },
    "slow_source": {
        ENGLISH: Text(
            "Reading samples holds up the data pipeline: {operations}",
            "All queues behind it are nearly empty.",
            f"Change {_WORKERS} of {{operations}} (now {{workers}}): more of them as a rule, fewer where the storage is the "
            "limit.",
        ),
        CHINESE: Text(
            "读取样本是数据流水线的瓶颈：{operations}",
            "其后的队列几乎都是空的。",
            f"调整 {{operations}} 的 {_WORKERS}（现为 {{workers}}）：通常增大；存储成为瓶颈时减小。",
        ),
    },
    "slow_generator": {
        ENGLISH: Text(
            "The Python generator holds up the data pipeline: {operations}",
            "The queues behind it are nearly empty.",
            f"Raise {_WORKERS} (now {{workers}}), make the Python code faster, or convert the samples to MindRecord once and "
            "read them with MindDataset.",
        ),
        CHINESE: Text(
            "Python 生成器是数据流水线的瓶颈：{operations}",
            "其后的队列几乎都是空的。",
            f"增大 {_WORKERS}（现为 {{workers}}），优化 Python 代码，或将样本转换为 MindRecord 后用 MindDataset 读取。",
        ),
    },
    "slow_map": {
        ENGLISH: Text(
            "A transformation holds up the data pipeline: {operations}",
            "Its input queue is full and its output queue is not.",
            f"Raise {_WORKERS} of {{operations}} (now {{workers}}); if the function is Python, make it faster, or use the "
            "operations that MindSpore has in C++.",
        ),
        CHINESE: Text(
            "数据变换是数据流水线的瓶颈：{operations}",
            "其输入队列是满的，而输出队列不满。",
            f"增大 {{operations}} 的 {_WORKERS}（现为 {{workers}}）；若为 Python 函数，优化其实现或改用 MindSpore 的 C++ 算子。",
        ),
    },
    "slow_batch": {
        ENGLISH: Text(
            "Making batches holds up the data pipeline: {operations}",
            "Its input queue is full, or all queues are: then what takes the batches may be the slow part.",
            "Raise the size of its queue (mindspore.dataset.config.set_prefetch_size), and look at per_batch_map.",
        ),
        CHINESE: Text(
            "组批是数据流水线的瓶颈：{operations}",
            "其输入队列是满的；若所有队列都满，则取走批次的一方可能更慢。",
            "增大队列长度（mindspore.dataset.config.set_prefetch_size），并检查 per_batch_map。",
        ),
    },
    "slow_operation": {
        ENGLISH: Text(
            "An operation holds up the data pipeline: {operations}",
            "Its input queue is full and its output queue is not.",
            "Shuffle smaller buffers, or move what it does to an operation that runs in several workers.",
        ),
        CHINESE: Text(
            "数据流水线的瓶颈算子：{operations}",
            "其输入队列是满的，而输出队列不满。",
            "减小 shuffle 的缓冲区，或把其工作移到可以多线程执行的算子中。",
        ),
    },
    "queue_drop": {
        ENGLISH: Text(
            "The queue behind {operations} is emptier than the one before",
            "What goes in comes out more slowly. The queues are neither full nor empty, so this is a weak sign.",
            f"If the pipeline is too slow, raise {_WORKERS} there first.",
        ),
        CHINESE: Text(
            "{operations} 之后的队列比之前的空",
            "输出慢于输入。队列既不满也不空，因此只是较弱的迹象。",
            f"若流水线太慢，先在此处增大 {_WORKERS}。",
        ),
    },
    "busy_workers": {
        ENGLISH: Text(
            "The workers of {operations} are busy",
            "Each of them uses more than 75 % of a processor.",
            f"Raise {_WORKERS} of {{operations}}, as far as there are processors.",
        ),
        CHINESE: Text(
            "{operations} 的工作线程很忙",
            "每个线程占用一个处理器的 75 % 以上。",
            f"在处理器数量允许的范围内增大 {{operations}} 的 {_WORKERS}。",
        ),
    },
    "idle_workers": {
        ENGLISH: Text(
            "{operations} has more workers than it needs",
            "Each of them uses less than 20 % of a processor.",
            f"Lower {_WORKERS} of {{operations}}; the processors and the memory are of more use elsewhere.",
        ),
        CHINESE: Text(
            "{operations} 的工作线程过多",
            "每个线程占用一个处理器的不到 20 %。",
            f"减小 {{operations}} 的 {_WORKERS}，处理器和内存可用于别处。",
        ),
    },
    "underfilled_source": {
        ENGLISH: Text(
            "The source {operations} hardly fills its queue",
            "Its queue is less than half full on average: reading is limited by the storage or by too few workers.",
            f"Raise {_WORKERS} of {{operations}}, cache the samples, or use a faster storage.",
        ),
        CHINESE: Text(
            "数据源 {operations} 的队列填充不足",
            "其队列平均不到半满：受存储限制或工作线程太少。",
            f"增大 {{operations}} 的 {_WORKERS}、缓存样本或使用更快的存储。",
        ),
    },
    "starved_device_queue": {
        ENGLISH: Text(
            "The queue in front of {operations} is mostly empty",
            "The host does not make batches as fast as the device takes them.",
            "Make the data pipeline faster, beginning with the operation that the other findings name.",
        ),
        CHINESE: Text(
            "{operations} 之前的队列大多为空",
            "主机产生批次的速度跟不上设备取走的速度。",
            "加速数据流水线，先从其他建议指出的算子开始。",
        ),
    },
    "slower_than_input": {
        ENGLISH: Text(
            "{operations} is slower than what feeds it",
            "Its output queue is emptier than its input queue by more than half of the capacity.",
            f"Raise {_WORKERS} of {{operations}}; where its workers rest, raise the size of its queue (set_prefetch_size).",
        ),
        CHINESE: Text(
            "{operations} 慢于其输入",
            "其输出队列比输入队列空出容量的一半以上。",
            f"增大 {{operations}} 的 {_WORKERS}；若其线程空闲，则增大队列长度（set_prefetch_size）。",
        ),
    },
}

#: words of ``Evidence.what``
EVIDENCE: dict[str, dict[str, str]] = {
    "interval": {ENGLISH: "interval", CHINESE: "迭代间隔"},
    "interval_share": {ENGLISH: "share of the step", CHINESE: "占步骤时间"},
    "median_interval": {ENGLISH: "median interval", CHINESE: "迭代间隔中位数"},
    "wait_for_data": {ENGLISH: "waiting for data", CHINESE: "等待数据"},
    "queue_empty": {ENGLISH: "batches that found the host's queue empty:", CHINESE: "取批次时主机队列为空的次数："},
    "queue_full": {ENGLISH: "batches that found it full:", CHINESE: "队列为满的次数："},
    "queue_batches": {ENGLISH: "batches in all:", CHINESE: "批次总数："},
    "queue_empty_share": {ENGLISH: "queue empty", CHINESE: "队列为空的比例"},
    "no_device_queue": {ENGLISH: "the queue on the device was not recorded", CHINESE: "未记录设备侧队列"},
    "device_queue_empty": {ENGLISH: "batches for which the device's queue was empty:", CHINESE: "设备侧队列为空的次数："},
    "device_batches": {ENGLISH: "batches that the device took:", CHINESE: "设备取走的批次数："},
    "transfer": {ENGLISH: "sending a batch takes", CHINESE: "发送一个批次耗时"},
    "device_waits_for_batch": {ENGLISH: "the device waits for a batch", CHINESE: "设备等待一个批次"},
    "last_queue_usage": {ENGLISH: "the last queue is full to", CHINESE: "最后一个队列的填充率"},
    "busy_time": {ENGLISH: "processors busy", CHINESE: "处理器占用"},
    "user_time": {ENGLISH: "in programs", CHINESE: "用户态"},
    "sys_time": {ENGLISH: "in the operating system", CHINESE: "内核态"},
    "io_time": {ENGLISH: "waiting for storage", CHINESE: "等待 I/O"},
    "process_time": {ENGLISH: "in this training", CHINESE: "本训练进程"},
    "output_usage": {ENGLISH: "output queue full to", CHINESE: "输出队列填充率"},
    "input_usage": {ENGLISH: "input queue full to", CHINESE: "输入队列填充率"},
    "workers": {ENGLISH: "workers:", CHINESE: "工作线程数："},
    "usage_drop": {ENGLISH: "input queue fuller than output queue by", CHINESE: "输入队列比输出队列多填充"},
    "worker_load": {ENGLISH: "of a processor per worker", CHINESE: "每线程占用处理器"},
    "slowest_operation": {ENGLISH: "the slowest operation of the pipeline", CHINESE: "流水线中最慢的算子"},
}
