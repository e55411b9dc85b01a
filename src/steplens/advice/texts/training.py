"""Texts of the rules about the training program itself."""

from __future__ import annotations

from steplens.advice.texts.text import CHINESE, ENGLISH, Text

_COLLECT = "+gc.collect(); gc.freeze(); gc.disable()   # once, when model and data are set up\n+if step % 1000 == 0: gc.collect()"
_FUSED = "-optimizer = {optimizer}(parameters, ...)\n+optimizer = {optimizer}(parameters, ..., fused=True)"
_SAVE = "-torch.save(state, path)\n+torch.distributed.checkpoint.async_save(state, checkpoint_id=path)"

#: where these rules are described
PAGE = "docs/advice.md"

TEXTS: dict[str, dict[str, Text]] = {
    "device_waits_for_host": {
        ENGLISH: Text(
            "The device waits for the host",
            "Tasks end before the host has launched the next ones: Python and dispatch take longer than the work on the device.",
            "Launch less often: torch.compile, graphs launched at once, larger batches, fused operators and a fused optimizer.",
            "-model = Model()\n+model = torch.compile(Model())",
        ),
        CHINESE: Text(
            "设备在等待主机",
            "主机下发下一批任务之前，设备上的任务已经执行完：Python 和算子分发比设备上的计算更慢。",
            "减少下发次数：torch.compile、一次下发的图、更大的批次、融合算子和融合优化器。",
            "-model = Model()\n+model = torch.compile(Model())",
        ),
    },
    "allocation_stalls": {
        ENGLISH: Text(
            "Device memory is requested inside the step",
            "Calls that ask for memory wait for the device and keep the host from launching; a warm allocator needs none.",
            "Keep shapes constant or pad them, warm up with the largest batch, and let segments grow.",
            "{change}",
        ),
        CHINESE: Text(
            "在步骤中申请设备内存",
            "向驱动申请内存的调用会等待设备并阻止主机下发任务；预热后的分配器不需要它们。",
            "保持形状不变或补齐，用最大的批次预热，并允许内存段扩展。",
            "{change}",
        ),
    },
    "checkpoint_stalls": {
        ENGLISH: Text(
            "Training stops while checkpoints are written",
            "torch.save runs in the training loop, and every step that saves waits for the disk.",
            "Copy the state and write the copy in the background, or save less often.",
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
    "synchronising_calls": {
        ENGLISH: Text(
            "The host waits for the device inside the step ({call})",
            "The call returns when all that was launched before is done; then the device has nothing to do until the next one.",
            "Leave it out, or do it after the loop. A copy to the host can go on beside the training, into pinned memory.",
            "-values = tensor.cpu()\n+values = tensor.to('cpu', non_blocking=True)   # read it some steps later",
        ),
        CHINESE: Text(
            "步骤中主机等待设备（{call}）",
            "该调用要等之前下发的全部任务完成才返回；之后直到下一次下发，设备无事可做。",
            "去掉它，或放到循环之后。向主机的复制可以在训练的同时写入锁页内存。",
            "-values = tensor.cpu()\n+values = tensor.to('cpu', non_blocking=True)   # read it some steps later",
        ),
    },
    "python_in_the_loop": {
        ENGLISH: Text(
            "Python runs in the loop while nothing computes",
            "The step's thread does something other than operators or loading with a DataLoader, and the training waits for it.",
            "Do it less often, in another thread or process, or after the loop; read data with a DataLoader that has workers.",
        ),
        CHINESE: Text(
            "循环中运行 Python，期间没有计算",
            "步骤所在线程在执行算子和 DataLoader 加载之外的工作，训练只能等待。",
            "降低频率，放到其他线程或进程，或放到循环之后；用带工作进程的 DataLoader 读取数据。",
        ),
    },
    "recompilation": {
        ENGLISH: Text(
            "torch.compile compiles again in the middle of the training",
            "A compiled function is used only while its guards hold; a new shape, number or object makes another version of it.",
            "Find what changes with TORCH_LOGS=recompiles; pad to a few shapes, or compile for changing ones.",
            "-model = torch.compile(model)\n+model = torch.compile(model, dynamic=True)",
        ),
        CHINESE: Text(
            "训练过程中 torch.compile 反复编译",
            "编译结果只在守卫条件成立时可用；新的形状、数值或对象都会触发重新编译。",
            "用 TORCH_LOGS=recompiles 查明变化之处；把形状补齐为少数几种，或编译为支持动态形状。",
            "-model = torch.compile(model)\n+model = torch.compile(model, dynamic=True)",
        ),
    },
    "changing_shapes": {
        ENGLISH: Text(
            "New input shapes in {steps} of {of} steps",
            "Libraries choose and prepare their code per shape; the first call of a shape is slower than the later ones.",
            "Pad batches to a few fixed shapes, or sort samples into buckets of similar size.",
        ),
        CHINESE: Text(
            "{of} 个步骤中有 {steps} 个步骤出现新的输入形状",
            "计算库按形状选择并准备代码；某个形状的第一次调用比之后的调用慢。",
            "把批次补齐为少数固定形状，或把大小相近的样本分到同一个桶。",
        ),
    },
    "gradient_zeroing": {
        ENGLISH: Text(
            "Gradients are filled with zeros instead of dropped",
            "zero_grad(set_to_none=False) writes every gradient, which backward reads and adds to; else it writes only.",
            "Drop the gradients. Code that expects zeros must expect None.",
            "-optimizer.zero_grad(set_to_none=False)\n+optimizer.zero_grad()",
        ),
        CHINESE: Text(
            "梯度被清零而不是释放",
            "zero_grad(set_to_none=False) 要写一遍全部梯度，反向时还要读出并累加；没有梯度时只需写一次。",
            "释放梯度；依赖零梯度的代码需要改为处理 None。",
            "-optimizer.zero_grad(set_to_none=False)\n+optimizer.zero_grad()",
        ),
    },
    "float32_matmul": {
        ENGLISH: Text(
            "Large matrix products in float32; this CPU has {feature}",
            "The CPU multiplies bfloat16 at a multiple of the rate of float32.",
            "Multiply in bfloat16 where the training bears it; the parameters stay float32. Compare the loss with and without.",
            "-loss = model(batch)\n+with torch.autocast('cpu', dtype=torch.bfloat16):\n+    loss = model(batch)",
        ),
        CHINESE: Text(
            "大矩阵乘法使用 float32，而该 CPU 支持 {feature}",
            "该 CPU 的 bfloat16 乘法速率是 float32 的数倍。",
            "在训练可以承受的地方使用 bfloat16 乘法，参数保持 float32；对比前后的损失。",
            "-loss = model(batch)\n+with torch.autocast('cpu', dtype=torch.bfloat16):\n+    loss = model(batch)",
        ),
    },
    "exposed_gradients": {
        ENGLISH: Text(
            "Gradients are exchanged after backward instead of beside it",
            "The first gradients are ready long before the last; exchanged in buckets, most of it is hidden behind backward.",
            "Use DistributedDataParallel. Where it is in use already, its buckets are too large: lower bucket_cap_mb.",
            "-for p in model.parameters(): dist.all_reduce(p.grad)\n"
            "+model = DistributedDataParallel(model, bucket_cap_mb={bucket}, gradient_as_bucket_view=True)",
        ),
        CHINESE: Text(
            "梯度在反向之后才通信，没有与反向重叠",
            "最先算出的梯度远早于最后的梯度；按桶通信可以把大部分通信隐藏在反向计算之后。",
            "使用 DistributedDataParallel；若已使用，则桶过大：减小 bucket_cap_mb。",
            "-for p in model.parameters(): dist.all_reduce(p.grad)\n"
            "+model = DistributedDataParallel(model, bucket_cap_mb={bucket}, gradient_as_bucket_view=True)",
        ),
    },
    "small_copies": {
        ENGLISH: Text(
            "The input goes to the device in many small copies",
            "Each copy costs a launch, and for pageable memory a wait, however little it moves.",
            "Collate the parts into one tensor on the host, copy it once from pinned memory, and split it on the device.",
        ),
        CHINESE: Text(
            "输入通过大量小拷贝送到设备",
            "无论数据多小，每次拷贝都有一次下发开销，非锁页内存还要等待。",
            "在主机上合并为一个张量，从锁页内存一次拷贝，再在设备上拆分。",
        ),
    },
    "large_blocks": {
        ENGLISH: Text(
            "Blocks above 32 MiB are mapped and unmapped in every step",
            "The C library never keeps blocks of this size, so each is given out page by page again when it is first written.",
            "Tell the C library to keep them, use an allocator that does (tcmalloc, jemalloc), or write into tensors that stay.",
            "-python train.py\n+MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=17179869184 python train.py",
        ),
        CHINESE: Text(
            "每个步骤都在映射和释放 32 MiB 以上的内存块",
            "C 库从不保留这种大小的内存块，每次首次写入都要逐页分配。",
            "让 C 库保留它们，或使用会保留内存的分配器（tcmalloc、jemalloc），或写入长期存在的张量。",
            "-python train.py\n+MALLOC_MMAP_THRESHOLD_=4294967296 MALLOC_TRIM_THRESHOLD_=17179869184 python train.py",
        ),
    },
    "growth_over_windows": {
        ENGLISH: Text(
            "Memory of {device} is higher in every one of {windows} windows",
            "Within a window it does not grow in every step, but what it falls back to rises: something is kept now and then.",
            "Look at what runs every some steps: evaluation, logging, checkpoints, caches by shape.",
        ),
        CHINESE: Text(
            "{device} 的内存在 {windows} 个窗口中逐个升高",
            "单个窗口内并非每步都增长，但回落后的水平在升高：偶尔有内容被保留下来。",
            "检查每隔若干步执行的内容：评估、日志、检查点、按形状的缓存。",
        ),
    },
    "outlier_steps": {
        ENGLISH: Text(
            "{count} of {of} steps take {times} times as long as the others",
            "Averages hide them, and with several ranks all wait for the slowest.",
            "Look at what the evidence says grew in them; where the same work took longer, at what else ran on the machine.",
        ),
        CHINESE: Text(
            "{of} 个步骤中有 {count} 个步骤的耗时是其他步骤的 {times} 倍",
            "平均值会掩盖它们；多 rank 训练时，所有 rank 都要等待最慢的一个。",
            "依据中列出了其中增长的部分；如果同样的工作变慢，检查机器上还运行着什么。",
        ),
    },
    "first_steps": {
        ENGLISH: Text(
            "Recording began before the training had warmed up",
            "The steps recorded first ({count}) are much longer than the others; averages over all are {percent} % too high.",
            "Record later, or skip more steps first.",
            "-steplens.schedule(wait=0, warmup=0, active=10)\n+steplens.schedule(wait=5, warmup=1, active=10)",
        ),
        CHINESE: Text(
            "训练尚未预热就开始记录",
            "最先记录的 {count} 个步骤比其他步骤长得多，使全部步骤的平均值偏高 {percent} %。",
            "晚一些开始记录，或先跳过更多步骤。",
            "-steplens.schedule(wait=0, warmup=0, active=10)\n+steplens.schedule(wait=5, warmup=1, active=10)",
        ),
    },
}

#: what evidence is about
EVIDENCE: dict[str, dict[str, str]] = {
    "doubted_part": {
        ENGLISH: "the figures of this part of the step are in doubt, see the health of the data",
        CHINESE: "该部分的数据存疑，详见数据健康检查",
    },
    "loading_in_the_loop": {ENGLISH: "loading in the loop", CHINESE: "在循环中加载数据"},
    "waiting_for_workers": {ENGLISH: "waiting for workers", CHINESE: "等待工作进程"},
    "holds_others_up": {ENGLISH: "holds the others up", CHINESE: "让其他 rank 等待"},
    "on_ranks": {ENGLISH: "ranks where this was seen", CHINESE: "出现该问题的 rank 数"},
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
    "checkpoint_size": {ENGLISH: "size of a checkpoint", CHINESE: "检查点大小"},
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
    "idle_after_waits": {ENGLISH: "device idle after waits", CHINESE: "等待后设备空闲"},
    "waits": {ENGLISH: "waits", CHINESE: "等待次数"},
    "waiting_for_device": {ENGLISH: "host waiting for the device", CHINESE: "主机等待设备"},
    "python_alone": {ENGLISH: "Python alone", CHINESE: "仅运行 Python"},
    "stretches": {ENGLISH: "stretches", CHINESE: "段数"},
    "compiling": {ENGLISH: "compiling", CHINESE: "编译"},
    "compiled_versions": {ENGLISH: "compiled versions in use", CHINESE: "使用中的编译版本"},
    "new_shapes_cost": {ENGLISH: "new shapes take longer by", CHINESE: "新形状多用的时间"},
    "new_shapes": {ENGLISH: "operators with new shapes", CHINESE: "新形状的算子数"},
    "zeroing_gradients": {ENGLISH: "filling gradients with zeros", CHINESE: "梯度清零"},
    "adding_to_zeros": {ENGLISH: "adding to them", CHINESE: "累加梯度"},
    "float32_products": {ENGLISH: "float32 products", CHINESE: "float32 矩阵乘"},
    "products": {ENGLISH: "products", CHINESE: "矩阵乘次数"},
    "float32_rate": {ENGLISH: "rate", CHINESE: "速率"},
    "exchange_alone": {ENGLISH: "exchanging while nothing computes", CHINESE: "无计算时的通信"},
    "backward_beside": {ENGLISH: "backward, beside which it could run", CHINESE: "可与之重叠的反向"},
    "exchanged": {ENGLISH: "exchanged", CHINESE: "通信量"},
    "exchanges": {ENGLISH: "exchanges", CHINESE: "通信次数"},
    "copying_alone": {ENGLISH: "copying while nothing computes", CHINESE: "无计算时的拷贝"},
    "copies": {ENGLISH: "copies", CHINESE: "拷贝次数"},
    "bytes_of_a_copy": {ENGLISH: "median size of a copy", CHINESE: "拷贝大小中位数"},
    "large_blocks": {ENGLISH: "blocks above 32 MiB", CHINESE: "32 MiB 以上的内存块"},
    "bytes_of_large_blocks": {ENGLISH: "their size", CHINESE: "总大小"},
    "operators_of_large_blocks": {ENGLISH: "operators that allocate them", CHINESE: "申请它们的算子用时"},
    "window_growth": {ENGLISH: "growth from window to window", CHINESE: "窗口之间的增长"},
    "outliers_excess": {ENGLISH: "longer than the median step", CHINESE: "超出中位步骤"},
    "median_step": {ENGLISH: "median step", CHINESE: "步骤中位数"},
    "grew_collections": {ENGLISH: "more garbage collection in each of them", CHINESE: "每个其中多出的垃圾回收"},
    "grew_checkpoints": {ENGLISH: "more checkpoint writing in each of them", CHINESE: "每个其中多出的检查点写入"},
    "grew_data": {ENGLISH: "more waiting for data in each of them", CHINESE: "每个其中多出的数据等待"},
    "grew_other": {
        ENGLISH: "more outside forward, backward and optimizer in each of them",
        CHINESE: "每个其中前向、反向、优化器之外多出的时间",
    },
    "grew_work": {ENGLISH: "more operators in each of them", CHINESE: "每个其中多出的算子"},
    "grew_same_work": {ENGLISH: "the same operators took longer in each of them", CHINESE: "每个其中相同算子变慢"},
    "first_steps_take": {ENGLISH: "these steps take", CHINESE: "这些步骤用时"},
    "other_steps_take": {ENGLISH: "the others take", CHINESE: "其他步骤用时"},
    "explained_elsewhere": {ENGLISH: "explained by other findings", CHINESE: "其他建议已解释"},
    "allocated_at_the_end": {ENGLISH: "allocated at the end", CHINESE: "结束时已分配"},
}
