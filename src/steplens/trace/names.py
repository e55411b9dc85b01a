"""The tables of a ``Trace`` and their columns: the one place where they are named. ``trace.schema`` gives them their types.

For whoever only has to know what there is: without polars, which takes a moment to load.

All times are Unix nanoseconds in columns ending in ``_ns``; sizes are bytes. A table that a source
cannot fill is absent. ``SCHEMA_VERSION`` changes with every change here, and of how tables are kept: it makes every cache stale.
"""

from __future__ import annotations

SCHEMA_VERSION = 17

#: the unit of a column of Unix times in ns; lengths of time have "ns"
MOMENT = "moment"

#: the unit of a column of percentages that are no shares, such as one time of another: 250 is shown as 2.5 times
FACTOR = "factor"


def _table_columns(*texts: str) -> dict[str, str]:
    """Columns in their order, each with its type behind a colon; numbers of 64 bits, as most are, have none."""
    parts = (word.partition(":") for text in texts for word in text.split())
    return {name: kind or "Int64" for name, _, kind in parts}


#: table -> column -> the name of its type
TABLES: dict[str, dict[str, str]] = {
    # One framework operator call or user annotation, sorted by (pid, tid, start_ns, -end_ns).
    # id = row number; parent = id of the enclosing call on the same thread.
    # counted_as = id of the call whose statistics it joins: its own, or, for the only child of a parent with the same
    # name (an operator calling its own out= variant), the parent's, as in PyTorch's tables.
    # arguments = JSON list of the values of a convolution's arguments ("[1, 1]"; "" for a tensor): its output's size follows; of
    # calls that send to or receive from one rank: which.
    # device_self_ns / device_total_ns: device time of the call itself / of it and everything below it (kernels.self_ns).
    "ops": _table_columns(
        "id:Int32 name:Name start_ns end_ns pid tid parent:Int32 depth:Int16 self_ns counted_as:Int32 step scope:UInt8 sequence",
        "forward_tid external_id input_shapes:Name input_types:Name arguments:Name stack:Name module:Name flops device_self_ns",
        "device_total_ns",
    ),
    # One Python frame, C function or module call.
    "python": _table_columns("id name:Name start_ns end_ns pid tid parent module_id"),
    # One sample of the Python stack of a thread: it was to be taken at wanted_ns, and was at time_ns. stack = id of a row of
    # python_stacks, null where it is not known. samples: how many periods it stands for; a sleeping thread has one for several.
    # processor_ns: processor time of the thread since its sample before, null where that is not known.
    "python_samples": _table_columns("time_ns wanted_ns pid tid stack:Int32 samples processor_ns"),
    # One sampled Python stack: its innermost frame, named as in python, and the line that this is at (0 for a module);
    # parent: the stack around it; depth counts from 0, the outermost frame.
    "python_stacks": _table_columns("id:Int32 parent:Int32 depth:Int32 name:Name line"),
    # One runtime or driver call; layer is the source's ("cuda_runtime", "cuda_driver", "acl", "node", "runtime" ...).
    "api": _table_columns("name:Name layer:Name start_ns end_ns pid tid correlation external_id"),
    # One task that the framework handed to its own launching thread (Ascend's task queue).
    "task_queue": _table_columns(
        "name:Name correlation pid enqueue_tid enqueue_start_ns enqueue_end_ns dequeue_tid dequeue_start_ns dequeue_end_ns",
    ),
    # One device task. On a run without accelerator the CPU is the device, and every operator call is a task of it
    # (trace.cpu_device): core "CPU", stream = thread id, op = the call. Tasks of one such stream nest as their calls do.
    # self_ns = how long the task itself kept its device busy: end_ns - start_ns on an accelerator, the self time of the call on
    # the CPU. Sums over tasks are sums of it; when a device is busy follows from the ranges.
    # type = the source's own type (Ascend's OP Type) or, where it has none, the category; category = matmul,
    # convolution, attention ..., see trace.classify. launch_ns = host time of the call that launched it.
    # wait_ns: on CUDA and ROCm from launch to start, on Ascend the device's Wait Time (since the stream's previous task).
    # bytes: of a copy. blocks: thread blocks or AI cores used. task_type: what the device's scheduler calls the task, where
    # a source has that besides the core; older schedulers call every kernel "AI_CORE".
    "kernels": _table_columns(
        "id:Int32 name:Name type:Name kind:Name category:Name core:Name task_type:Name device:Int32 stream start_ns end_ns",
        "self_ns wait_ns launch_ns correlation op:Int32 step bytes task_id model_id context_id state:Name blocks mix_blocks",
        "hf32:Name input_shapes:Name input_types:Name input_formats:Name output_shapes:Name output_types:Name",
        "output_formats:Name",
    ),
    # One measured value of a device task (performance counters, occupancy, registers), in the source's unit and order.
    "kernel_metrics": _table_columns("kernel:Int32 name:Name value:Float64"),
    # One collective or point-to-point operation; kind is "collective", "send" or "receive"; operation = "allreduce" ...;
    # ranks = size of the group; elements and dtype as the library counts them; algorithm = the library's name of it.
    "communication": _table_columns(
        "name:Name kind:Name operation:Name group:Name ranks:Int32 elements bytes dtype:Name algorithm:Name start_ns end_ns",
        "launch_ns correlation device:Int32 stream op:Int32 step peer:Int32",
    ),
    # What the communication library measured of one operation, in its units (ms, MB of 10**6 bytes, GB/s);
    # kind is "collective" or "p2p", group the name or hash that the library gives.
    "communication_times": _table_columns(
        "name:Name group:Name kind:Name step start_ns elapse_ms:Float64 transit_ms:Float64 wait_ms:Float64",
        "synchronization_ms:Float64 idle_ms:Float64",
    ),
    # The same per transport and packet size; package_mb is null where a transport was not used.
    "communication_bandwidth": _table_columns(
        "name:Name group:Name kind:Name step transport:Name size_mb:Float64 transit_ms:Float64 bandwidth_gbps:Float64",
        "large_packet_ratio:Float64 package_mb:Float64 count duration_ms:Float64",
    ),
    # The same per pair of ranks. selection is null for a row of one operation; in a result that holds selected rows only
    # it is "top1", "middle", "bottom1" ... or "total", and name is the type of operation ("allreduce").
    "communication_matrix": _table_columns(
        "name:Name selection:Name op_name:Name group:Name kind:Name step source:Int32 destination:Int32 transport:Name",
        "size_mb:Float64 transit_ms:Float64 bandwidth_gbps:Float64",
    ),
    # One allocator event: bytes > 0 allocates, bytes < 0 frees (event says which, see ALLOCATE, FREE, BLOCK_FREE; null: by
    # sign); device_type "CPU", "CUDA" or "NPU". bytes and address are null where a source records only the totals.
    # allocated, reserved and active are the allocator's totals after the event; op = innermost call around it.
    "memory": _table_columns(
        "time_ns event:Name address bytes allocated reserved active device_type:Name device:Int32 stream pid tid op:Int32",
        "component:Name",
    ),
    # One allocation with its release, in order of allocation; only of sources that record pairs instead of events.
    "allocations": _table_columns(
        "name:Name op:Int32 bytes allocation_ns release_ns active_release_ns allocation_allocated allocation_reserved",
        "allocation_active release_allocated release_reserved release_active stream device_type:Name device:Int32",
        "component:Name",
    ),
    # One training step: from one prof.step() to the next, on the thread that steps.
    "steps": _table_columns("id start_ns end_ns pid tid"),
    # The points of one step as a device records them: the step (or iteration of a loaded model) runs from start_ns to end_ns,
    # its first forward operator starts at forward_ns, its last backward operator ends at backward_ns (null for inference).
    "step_points": _table_columns("step model_id start_ns forward_ns backward_ns end_ns"),
    # The points of one collective in a step, beside step_points; index counts the collectives of a step per stream from 0.
    "step_collectives": _table_columns("step model_id stream index:Int32 name:Name start_ns end_ns"),
    # One operation of a data pipeline. parent: the operation that takes what it puts out, null for the last one before the
    # training loop; queue_capacity: of its output queue, null where it has none (it runs inside its parent's threads).
    "pipeline_ops": _table_columns("id:Int32 type:Name workers:Int32 parent:Int32 queue_capacity"),
    # One sample taken of a data pipeline: scope is "op", "process" or "host", op the operation; name is "queue_size",
    # "user_utilization" ...; unit "batches" (elements of a queue), "%" (of one core for an operation, of all cores for process
    # and host), "MB" or "1"; sample counts from 0; time_ns is null where the source keeps only the order.
    "pipeline_samples": _table_columns("scope:Name op:Int32 name:Name unit:Name sample:Int32 time_ns value:Float64"),
    # One batch at one place: kind "iterate" (the loop takes it from the pipeline), "send" (it goes to the device's queue) or
    # "receive" (the device takes it from there). get_ns: time to get it out of the pipeline; push_ns: to hand it on;
    # total_ns: of the whole batch; wait_ns: the receiver waited; queue_size: elements in the queue before the place. time_ns:
    # when it was taken or handed on, total_ns after its begin; of "receive" when the device asked for it, wait_ns before it came.
    "pipeline_batches": _table_columns(
        "kind:Name name:Name batch time_ns get_ns push_ns total_ns wait_ns queue_size queue_capacity"
    ),
    # One DataLoader of PyTorch. queue_capacity: batches that its workers make ahead, prefetch_factor times workers; null without
    # workers. transform: whether its data set's transforms were timed apart from the rest of reading a sample.
    "pipeline_loaders": _table_columns(
        "loader:Int32 dataset:Name workers:Int32 batch_size prefetch_factor queue_capacity collate:Name start_method:Name",
        "iterable:Boolean persistent_workers:Boolean pin_memory:Boolean in_order:Boolean transform:Boolean",
    ),
    # One pass over a DataLoader, from iter() on; null where it began before it was watched, or did not get so far.
    # workers_ns: its workers had been started (null: they were there); first_batch_ns: the loop got the first batch.
    "pipeline_epochs": _table_columns("loader:Int32 epoch start_ns workers_ns first_batch_ns"),
    # One batch of a DataLoader. Who made it (worker, pid; worker is null for the training process itself) fetched samples from
    # start_ns to collate_ns, transforms of them included (transforms calls that took transform_ns; null in batches
    # whose transforms were not timed, because they are short), collated until end_ns and
    # pickled from pickle_start_ns to pickle_end_ns; cpu_ns: processor time of its process since its previous
    # batch (of the training process: of everything that it did meanwhile, on all its threads). The loop
    # asked for it at next_start_ns and had it at next_end_ns, of which it waited wait_ns for a batch to be there; ready:
    # batches that were made and not taken when it asked. It was received and unpickled from receive_start_ns to
    # receive_end_ns, and pinned until pin_end_ns. step: in which the loop got it. Null is what was not seen or did not happen.
    "pipeline_tasks": _table_columns(
        "loader:Int32 epoch batch worker:Int32 pid start_ns collate_ns end_ns transform_ns transforms failed:Boolean cpu_ns",
        "pickle_start_ns pickle_end_ns next_start_ns next_end_ns wait_ns ready receive_start_ns receive_end_ns pin_end_ns step",
    ),
    # One user mark (end_ns = start_ns) or range; kind is how it was recorded, one of MARK_KINDS, or null.
    "marks": _table_columns("domain:Name message:Name start_ns end_ns pid tid stream correlation kind:Name"),
    # One garbage collection of the Python interpreter.
    "gc": _table_columns("start_ns end_ns pid tid generation:Int32"),
    # One sample of a counter; group is what is sampled ("HBM", "LLC", "NPU MEM", "npu_module_mem" ...).
    "counters": _table_columns("group:Name name:Name unit:Name time_ns value:Float64 device:Int32"),
    # One arrow of the source: kind is the source's category ("fwdbwd", "ac2g", ...).
    "flows": _table_columns("kind:Name flow_id from_ns from_pid from_tid to_ns to_pid to_tid"),
    # One thread of a process: what the viewers call the lane.
    "threads": _table_columns("pid tid name:String"),
    # One row of a table that a source keeps and steplens hands on unchanged (l2_cache, api_statistic, nic ...): record is a
    # JSON object of text, keys in the order of the source's columns.
    "source_tables": _table_columns("table:String row:Int32 record:String"),
    # key/value; the value is JSON text.
    "meta": _table_columns("key:String value:String"),
    # One finding about the data itself; severity "info", "warning" or "error"; count = how many events.
    "health": _table_columns("check:String severity:String count message:String unsafe:String"),
}

#: the names of the tables, in their order
RECORDED_TABLES = tuple(TABLES)
