"""Texts of the rules about the data pipeline."""

from __future__ import annotations

from steplens.advice.texts.text import CHINESE, ENGLISH, Text

_WORKERS = "-DataLoader(dataset, ...)\n+DataLoader(dataset, ..., num_workers={workers}, persistent_workers=True)"

#: where these rules are described
PAGE = "docs/advice.md"

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
    "loader_slow_collate": {
        ENGLISH: Text(
            "Putting samples together into batches holds up the loader",
            "collate_fn is the longest stage of the workers, and the model waits for them.",
            "Let samples come in the form of the batch: stack tensors once instead of item by item, pad less, move work into "
            "__getitems__, or convert the data beforehand.",
        ),
        CHINESE: Text(
            "把样本拼接成批次拖慢了数据加载",
            "collate_fn 是工作进程中最耗时的阶段，模型在等待它们。",
            "让样本接近批次的形式：一次性堆叠张量而不是逐个处理，减少填充，把工作移到 __getitems__，或提前转换数据。",
        ),
    },
    "loader_too_many_workers": {
        ENGLISH: Text(
            "The loader has too many workers",
            "Workers that rest take memory and time to start; workers beyond the processors take these from the training.",
            "Use {workers} worker processes.",
            "-DataLoader(dataset, ...)\n+DataLoader(dataset, ..., num_workers={workers})",
        ),
        CHINESE: Text(
            "数据加载的工作进程过多",
            "空闲的工作进程占用内存和启动时间；超过处理器数量的工作进程会与训练争抢处理器。",
            "使用 {workers} 个工作进程。",
            "-DataLoader(dataset, ...)\n+DataLoader(dataset, ..., num_workers={workers})",
        ),
    },
    "loader_slow_start": {
        ENGLISH: Text(
            "Every epoch starts the workers of the loader again",
            "The first batch of an epoch comes only after processes were started and the data set was given to them.",
            "Keep the workers between epochs.",
            "-DataLoader(dataset, ...)\n+DataLoader(dataset, ..., persistent_workers=True)",
        ),
        CHINESE: Text(
            "每个轮次都重新启动数据加载的工作进程",
            "每个轮次的第一个批次要等到进程启动并得到数据集之后才会到来。",
            "在轮次之间保留工作进程。",
            "-DataLoader(dataset, ...)\n+DataLoader(dataset, ..., persistent_workers=True)",
        ),
    },
    "loader_slow_pin": {
        ENGLISH: Text(
            "Copying batches to pinned memory holds up the loader",
            "One thread pins all batches, and it is busier than the workers; it shares the interpreter with the training.",
            "Put fewer and larger tensors into a batch, pin only what goes to the device, or turn pin_memory off and compare.",
        ),
        CHINESE: Text(
            "把批次复制到锁页内存拖慢了数据加载",
            "所有批次由一个线程锁页，它比工作进程更忙，并与训练共用解释器。",
            "让批次包含更少、更大的张量，只锁页需要送往设备的数据，或关闭 pin_memory 后比较。",
        ),
    },
    "loader_without_pinning": {
        ENGLISH: Text(
            "Batches go to the GPU from memory that is not pinned",
            "The driver copies them to a buffer of its own first, and the program waits until that is done.",
            "Let the loader pin batches, and copy them with non_blocking=True.",
            "-DataLoader(dataset, ...)\n+DataLoader(dataset, ..., pin_memory=True)",
        ),
        CHINESE: Text(
            "批次从非锁页内存复制到 GPU",
            "驱动程序要先把数据复制到自己的缓冲区，程序等待其完成。",
            "让数据加载器锁页，并用 non_blocking=True 复制。",
            "-DataLoader(dataset, ...)\n+DataLoader(dataset, ..., pin_memory=True)",
        ),
    },
}

#: words of ``Evidence.what``
EVIDENCE: dict[str, dict[str, str]] = {
    "loader_fetch": {ENGLISH: "slowest stage: reading its samples", CHINESE: "最慢的阶段：读取一个批次的样本"},
    "loader_transform": {
        ENGLISH: "slowest stage: transforming the samples of a batch",
        CHINESE: "最慢的阶段：变换一个批次的样本",
    },
    "loader_collate": {ENGLISH: "slowest stage: collating a batch", CHINESE: "最慢的阶段：拼接一个批次"},
    "loader_transfer": {
        ENGLISH: "slowest stage: bringing a batch from a worker to the loop",
        CHINESE: "最慢的阶段：把一个批次从工作进程传到训练循环",
    },
    "loader_pin": {ENGLISH: "slowest stage: pinning a batch", CHINESE: "最慢的阶段：锁页一个批次"},
    "loader_stage_share": {ENGLISH: "share of the time of all stages", CHINESE: "占所有阶段时间的比例"},
    "loader_queue": {ENGLISH: "queue of ready batches full", CHINESE: "就绪批次队列的占用率"},
    "loader_busy": {ENGLISH: "workers busy", CHINESE: "工作进程忙碌的比例"},
    "loader_cpu": {ENGLISH: "processor that a worker uses", CHINESE: "每个工作进程使用的处理器"},
    "loader_workers": {ENGLISH: "worker processes", CHINESE: "工作进程数"},
    "loader_enough_workers": {ENGLISH: "workers that would be enough", CHINESE: "足够的工作进程数"},
    "loader_processors": {ENGLISH: "processors for this process", CHINESE: "本进程可用的处理器数"},
    "loader_lacks_processors": {
        ENGLISH: "processors that so many workers and the loop need, more than there are",
        CHINESE: "这些工作进程和训练循环需要的处理器数，多于现有数量",
    },
    "loader_first_batch": {ENGLISH: "from iter() to the first batch", CHINESE: "从 iter() 到第一个批次"},
    "loader_starting": {ENGLISH: "of it starting workers", CHINESE: "其中启动工作进程"},
    "loader_epochs": {ENGLISH: "epochs that started workers", CHINESE: "启动工作进程的轮次"},
    "pageable_copies": {ENGLISH: "copies to the device from memory that is not pinned", CHINESE: "从非锁页内存到设备的复制"},
    "pageable_bytes": {ENGLISH: "copied so", CHINESE: "以此方式复制"},
}
