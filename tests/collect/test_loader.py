"""Data loaders that are observed: what is measured equals what the program itself measures, and nothing else changes."""

import copy
import gc
import itertools
import json
import os
import pickle
import re
import statistics
import time
from pathlib import Path

import polars as pl
import pytest

import steplens
from steplens.analysis.data_loading import loaders
from steplens.collect.loaders import loader, loader_arena, loader_transforms, loader_watch
from steplens.collect.loaders.loader_ring import COUNT, HEAD_BYTES, Ring, size_bytes

torch = pytest.importorskip("torch")

from ..warm_python import run_warm  # noqa: E402 - as the next
from . import loader_job  # noqa: E402 - needs torch

JOB = Path(loader_job.__file__)
SOURCE = Path(steplens.__file__).resolve().parents[1]


def run(**job):
    """The job in a process of its own; what it says."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    done = run_warm(JOB, json.dumps({"batches": 8, **job}), env=environment, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    return json.loads(done.stdout.splitlines()[-1])


def traces(folder="out"):
    """The traces of all windows, oldest first."""
    return [steplens.open(path).traces[0] for path in sorted(Path(folder).glob("*_ascend_pt"))]


def made(path):
    """What the job wrote down itself: process -> what it did for each of its batches, in order: name -> (begin, end) ns.

    Under ``waited`` is for how long (ns) its thread waited for a processor between those, around the first and the last included.
    """
    found = {}
    for file in Path(path).parent.glob(f"{Path(path).name}.*"):
        batches, before = [{"waited": 0}], 0
        for line in file.read_text().splitlines():
            name, begin, end, had_waited, has_waited = line.split()
            # what lies between two batches may have held up either
            for batch in batches[-1:] if len(batches[-1]) > 1 else batches[-2:]:
                batch["waited"] += int(had_waited) - before
            before = int(has_waited)
            batches[-1].setdefault(name, []).append((int(begin), int(end)))
            if name == "collate":
                batches.append({"waited": 0})
        found[int(file.name.rpartition(".")[2])] = batches[:-1]
    return found


def tasks_with_truth(tasks, path):
    """Rows of ``pipeline_tasks``, each with what the process that made the batch wrote down for it."""
    truth = made(path)
    for (pid,), rows in tasks.sort("start_ns").partition_by("pid", as_dict=True).items():
        # the loop itself makes batches too
        (own,) = [truth[pid]] if pid in truth else truth.values()
        yield from zip(rows.iter_rows(named=True), own, strict=True)


def spent(intervals):
    return sum(end - begin for begin, end in intervals)


def nearly_all(measured, injected, waited, share=0.05):
    """What is measured holds what was injected, and little else but the time that the thread had to wait for a processor.

    Between our look at the clock and the job's another program may take the processor and keep it for any time: so much more
    may be measured as the system counted for that.
    """
    more = [ours - theirs for ours, theirs in zip(measured, injected, strict=True)]
    assert min(more) >= 0
    unexplained = [max(extra - held_up, 0) for extra, held_up in zip(more, waited, strict=True)]
    assert statistics.median(unexplained) <= share * statistics.mean(injected)


def checks(trace):
    return [] if trace.health is None else [check for check in trace.health["check"] if check.startswith("loader")]


DELAYS = {"fetch": 0.005, "transform": 0.005, "collate": 0.02}


@pytest.mark.parametrize(("workers", "method"), [(0, "fork"), (2, "fork"), (2, "spawn"), (1, "forkserver")])
def test_stages_take_what_was_injected(tmp_path, workers, method):
    found = run(out=str(tmp_path / "out"), workers=workers, method=method, log=str(tmp_path / "log"), step=0.002, **DELAYS)
    (trace,) = traces(tmp_path / "out")
    tasks = trace.required("pipeline_tasks").collect()
    measured = {row["stage"]: row for row in loaders.stages(trace).iter_rows(named=True)}
    pairs = list(tasks_with_truth(tasks, tmp_path / "log"))
    assert len(pairs) == 8
    for row, truth in pairs:
        # the borders of the stages lie between what the job did
        assert row["start_ns"] <= truth["fetch"][0][0] and truth["transform"][-1][1] <= row["collate_ns"]
        assert row["collate_ns"] <= truth["collate"][0][0] and truth["collate"][0][1] <= row["end_ns"]
    times = {
        "fetch": [row["collate_ns"] - row["start_ns"] - row["transform_ns"] for row, _ in pairs],
        "transform": [row["transform_ns"] for row, _ in pairs],
        "collate": [row["end_ns"] - row["collate_ns"] for row, _ in pairs],
    }
    waited = [truth["waited"] for _, truth in pairs]
    for stage in DELAYS:
        assert measured[stage]["batches"] == 8
        assert measured[stage]["mean_ns"] == pytest.approx(statistics.mean(times[stage]))
        nearly_all(times[stage], [spent(truth[stage]) for _, truth in pairs], waited)
    assert tasks["transforms"].to_list() == [loader_job.BATCH] * 8
    waits = tasks.sort("batch").select("next_start_ns", "next_end_ns").rows()
    assert all(outer[0] <= inner[0] and inner[1] <= outer[1] for inner, outer in zip(waits, found["waits"], strict=True))
    nearly_all([spent([wait]) for wait in found["waits"]], [spent([wait]) for wait in waits], found["waited"])
    description = trace.required("pipeline_loaders").collect().row(0, named=True)
    assert (description["dataset"], description["workers"], description["transform"]) == ("Samples", workers, True)
    assert found["left"] == []
    assert checks(trace) == []
    if workers:
        assert description["start_method"] == method
        (epoch,) = trace.required("pipeline_epochs").collect().iter_rows(named=True)
        first = found["waits"][0]
        # starting workers is part of the delay, and was over when the loop asked for the first batch
        assert epoch["start_ns"] < epoch["workers_ns"] <= first[0]
        (made_first,) = [truth for row, truth in pairs if row["batch"] == 0]
        assert made_first["collate"][0][1] <= epoch["first_batch_ns"] <= first[1]
        busy = loaders.workers(trace)
        lengths = [row["end_ns"] - row["start_ns"] for row, _ in pairs]
        assert busy["busy_ns"].sum() == sum(lengths)
        nearly_all(lengths, [sum(spent(truth[name]) for name in DELAYS) for _, truth in pairs], waited)
        assert set(busy["worker"]) == set(range(workers))


def test_the_depth_of_the_queue_is_what_lies_in_it(tmp_path):
    found = run(
        out=str(tmp_path / "out"), workers=2, batches=40, collate=0.012, step=0.008, log=str(tmp_path / "log"), persistent=True
    )
    (trace,) = traces(tmp_path / "out")
    ready = loaders.queue_depths(trace)["ready"].to_list()
    batches = [own for process in made(tmp_path / "log").values() for own in itertools.pairwise([*process, None])]
    # When a batch's collation has ended it may lie in the queue; when its worker has begun the next one it does.
    ends = sorted(one["collate"][0][1] for one, _ in batches)
    certain = [following["fetch"][0][0] for _, following in batches if following is not None]
    alike = []
    for number, ((asked, got), seen) in enumerate(zip(found["waits"], ready, strict=False)):
        assert sum(at < asked for at in certain) - number <= seen <= sum(end < got for end in ends) - number
        # a batch that was finished while the loop asked may count or not
        if min(abs(end - asked) for end in ends) > 3_000_000:
            alike.append(seen == sum(end < asked for end in ends) - number)
    assert len(alike) >= 10
    # on a busy machine a worker may wait for a processor between the end of collating and the queue
    assert sum(alike) >= 0.8 * len(alike)
    assert loaders.queue_depths(trace)["capacity"].unique().to_list() == [4]


def test_batches_of_an_epoch_that_was_not_finished_are_not_ready_in_the_next(tmp_path):
    samples = loader_job.Samples({"batches": 8, "fetch": 0.03})
    data = torch.utils.data.DataLoader(samples, batch_size=4, num_workers=2, persistent_workers=True)
    with steplens.profile(on_trace_ready=steplens.tensorboard_trace_handler(str(tmp_path / "out"), analyse_flag=False)):
        unfinished = iter(data)
        next(unfinished)
        # PyTorch receives those that are left when the next epoch begins
        until = time.monotonic() + 60
        while unfinished._worker_result_queue.qsize() < 3 and time.monotonic() < until:
            time.sleep(0.01)
        assert len(list(data)) == 8
    (trace,) = traces(tmp_path / "out")
    tasks = trace.required("pipeline_tasks").filter(pl.col("epoch") == 1).sort("batch").collect()
    assert tasks.height == 8
    for number, (ready, got) in enumerate(zip(tasks["ready"], tasks["next_end_ns"], strict=True)):
        assert ready <= (tasks["end_ns"] < got).sum() - number


def without_pids(text):
    # which of two ways tells PyTorch first that a worker was killed is a matter of luck
    text = text.replace(" is killed by signal: Killed. ", " exited unexpectedly").replace("(pid ", "(pid(s) ")
    return re.sub(r"(?<=pid\(s\) )[\d, ]+", "N", text)


@pytest.mark.parametrize(
    "job",
    [
        {"fault": "raise"},
        {"fault": "raise", "workers": 2},
        # four workers that import PyTorch; that those that are spawned are observed is tested above
        pytest.param({"fault": "raise", "workers": 2, "method": "spawn"}, marks=pytest.mark.long),
        {"fault": "transform", "transform": 0.001},
        {"fault": "transform", "transform": 0.001, "workers": 2},
        {"fault": "collate", "workers": 2},
        {"fault": "collate"},
        {"fault": "kill", "workers": 2},
        {"fault": "exit", "workers": 2, "persistent": True, "before": 0},
        # waits for PyTorch's own time limit, twice
        pytest.param({"fault": "hang", "workers": 2, "options": {"timeout": 6}}, marks=[pytest.mark.slow, pytest.mark.long]),
    ],
    ids=lambda job: "-".join(map(str, job.values())),
)
def test_what_fails_fails_as_it_always_does(tmp_path, job):
    bare = run(**job)
    observed = run(out=str(tmp_path / "out"), **job)
    assert observed["error"][0] == bare["error"][0]
    # whether PyTorch knows the exit code of a dead worker depends on who notices first
    ours, theirs = (without_pids(found["error"][1]).partition(" with exit code ")[0] for found in (observed, bare))
    assert ours == theirs
    # how many batches come before a worker dies is a matter of luck
    least = min(len(observed["batches"]), len(bare["batches"])) if job["fault"] in ("kill", "exit") else None
    assert observed["batches"][:least] == bare["batches"][:least]
    assert observed["left"] == []
    if job.get("fault") == "hang":
        # of the batch that hangs, for ten minutes: both give up after the loader's timeout
        assert min(observed["seconds"], bare["seconds"]) >= job["options"]["timeout"]
        assert observed["seconds"] == pytest.approx(bare["seconds"], abs=2)
    if job.get("workers") or job["fault"] != "transform":
        assert observed["ours"] == 0


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_that_were_there_before_are_observed_in_every_window(tmp_path, method):
    found = run(
        out=str(tmp_path / "out"),
        workers=2,
        method=method,
        persistent=True,
        before=1,
        windows=2,
        epochs=2,
        collate=0.003,
        steps=True,
    )
    windows = traces(tmp_path / "out")
    assert len(windows) == 2
    pids = set()
    for trace in windows:
        tasks = trace.required("pipeline_tasks").collect()
        got = tasks.drop_nulls("next_start_ns")
        assert got.height == 16
        assert got["end_ns"].null_count() == 0
        # the last next() of an epoch finds nothing; each batch belongs to the step that used it
        assert got["step"].null_count() == 0
        assert loaders.step_waits(trace)["batches"].sum() == 16
        assert checks(trace) == []
        pids |= set(tasks["pid"].drop_nulls())
    assert len(pids) == 2
    assert found["left"] == []


@pytest.mark.parametrize(
    "job",
    [
        {"kind": "batched", "workers": 2},
        {"kind": "stream", "workers": 2},
        {"kind": "stream"},
        {"kind": "nested", "workers": 1},
        {"kind": "samples", "workers": 2, "options": {"batch_size": None}, "batches": 3},
        {"kind": "samples", "workers": 2, "options": {"in_order": False}},
    ],
    ids=lambda job: "-".join(map(str, job.values())),
)
def test_every_kind_of_loader(tmp_path, job):
    bare = run(**job, collate=0.002)
    observed = run(out=str(tmp_path / "out"), **job, collate=0.002, log=str(tmp_path / "log"))
    assert sorted(observed["batches"]) == sorted(bare["batches"])
    (trace,) = traces(tmp_path / "out")
    tasks = trace.required("pipeline_tasks").filter(pl.col("loader") == 0).collect()
    assert tasks.drop_nulls("next_start_ns").height == len(observed["batches"])
    assert tasks.drop_nulls("end_ns").height == len(observed["batches"])
    assert not tasks["failed"].any()
    pairs = list(tasks_with_truth(tasks, tmp_path / "log"))
    assert all(row["collate_ns"] <= truth["collate"][0][0] and truth["collate"][0][1] <= row["end_ns"] for row, truth in pairs)
    measured = [row["end_ns"] - row["collate_ns"] for row, _ in pairs]
    nearly_all(measured, [spent(truth["collate"]) for _, truth in pairs], [truth["waited"] for _, truth in pairs], 0.1)
    assert observed["left"] == []
    assert checks(trace) == []


def record(folder, job, **options):
    config = steplens._ExperimentalConfig(**options)
    handler = steplens.tensorboard_trace_handler(str(folder), analyse_flag=False)
    with steplens.profile(on_trace_ready=handler, experimental_config=config):
        return loader_job.main(job)


def test_several_loaders_and_nested_ones_in_the_loop(tmp_path):
    job = {"batches": 3}
    outer = torch.utils.data.DataLoader(loader_job.Nested(job), batch_size=2)
    inner = torch.utils.data.DataLoader(loader_job.Samples(job), batch_size=4, num_workers=1)
    with steplens.profile(on_trace_ready=steplens.tensorboard_trace_handler(str(tmp_path / "out"), analyse_flag=False)):
        for _ in zip(outer, inner, strict=False):
            pass
    (trace,) = traces(tmp_path / "out")
    counts = trace.required("pipeline_tasks").drop_nulls("next_start_ns").group_by("loader").len().sort("loader").collect()
    # each sample of the first one comes from a loader of its own with two batches; made again and again, it counts as one
    assert counts.rows() == [(0, 4), (1, 3), (2, 16)]
    epochs = trace.required("pipeline_epochs").group_by("loader").len().sort("loader").collect()
    assert epochs.rows() == [(0, 1), (1, 1), (2, 8)]
    roots = trace.required("pipeline_ops").filter(pl.col("parent").is_null()).collect()
    assert roots["id"].to_list() == [0, 8, 16]


def test_queues_go_with_their_iterator(tmp_path):
    """They hold files: a program that switched garbage collection off must not run out of them."""
    data = torch.utils.data.DataLoader(loader_job.Samples({"batches": 2}), batch_size=4, num_workers=1)
    with steplens.profile(on_trace_ready=steplens.tensorboard_trace_handler(str(tmp_path / "out"), analyse_flag=False)):
        list(data)
        gc.collect()
        gc.disable()
        try:
            before = len(os.listdir("/proc/self/fd"))
            for _ in range(5):
                list(data)
            # the thread that feeds a queue closes its end of it, when it gets to run
            until = time.monotonic() + 60
            while len(os.listdir("/proc/self/fd")) > before + 2 and time.monotonic() < until:
                time.sleep(0.01)
            assert len(os.listdir("/proc/self/fd")) <= before + 2
        finally:
            gc.enable()


def test_more_loaders_than_are_watched(tmp_path, monkeypatch):
    monkeypatch.setattr(loader_watch, "_MOST_LOADERS", 2)
    data = [torch.utils.data.DataLoader(loader_job.Samples({"batches": 2}), batch_size=4) for _ in range(3)]
    with steplens.profile(on_trace_ready=steplens.tensorboard_trace_handler(str(tmp_path / "out"), analyse_flag=False)):
        assert [len(list(one)) for one in data] == [2, 2, 2]
    (trace,) = traces(tmp_path / "out")
    assert checks(trace) == ["loader_incomplete"]
    assert trace.health is not None
    told = "data loading was not recorded completely: the program has too many data loaders at a time"
    assert trace.health["message"].to_list() == [told]
    assert trace.required("pipeline_tasks").collect()["loader"].unique().to_list() == [0, 1]


def test_it_can_be_turned_off(tmp_path):
    record(tmp_path / "out", {"batches": 2}, data_loader=False)
    (folder,) = (tmp_path / "out").glob("*_ascend_pt")
    assert not (folder / "KINETO" / "loaders.json").exists()
    assert "pipeline_loaders" not in steplens.open(folder).traces[0]
    assert (
        json.loads(next(folder.glob("profiler_info*.json")).read_text())["config"]["experimental_config"]["_data_loader"] is False
    )


def test_batches_beyond_the_ring_are_missed_and_said(tmp_path, monkeypatch):
    monkeypatch.setattr(loader_arena, "CAPACITY", 8)
    monkeypatch.setattr(loader, "CAPACITY", 8)
    record(tmp_path / "out", {"batches": 30, "workers": 1})
    (trace,) = traces(tmp_path / "out")
    assert trace.health is not None
    counts = dict(trace.health.select("check", "count").iter_rows())
    assert counts["loader_overwritten"] == 30 - 8 + 1
    told = "batches at the beginning of the window were overwritten, because loaders made too many of them"
    assert told in trace.health["message"].to_list()
    # those that are left are the newest, and the loop saw all
    tasks = trace.required("pipeline_tasks").collect()
    assert tasks.drop_nulls("end_ns")["batch"].to_list() == list(range(23, 30))
    assert tasks.drop_nulls("next_start_ns").height == 30


def test_workers_that_cannot_be_reached_work_and_are_said(tmp_path, monkeypatch):
    monkeypatch.setattr(loader_arena.Arena, "terms", lambda self, slot: {"path": "/nowhere", "offset": 0, "length": 1,
                                                                         "capacity": 1, "token": 1})  # fmt: skip
    found = record(tmp_path / "out", {"batches": 5, "workers": 2})
    assert len(found["batches"]) == 5
    (trace,) = traces(tmp_path / "out")
    assert checks(trace) == ["loader_records_missing"]
    assert loaders.step_waits(trace).height == 0


def test_a_file_of_somebody_else_is_never_written(tmp_path, monkeypatch):
    other = tmp_path / "other"
    other.write_bytes(bytes(1 << 20))
    real = loader_arena.Arena.terms
    monkeypatch.setattr(loader_arena.Arena, "terms", lambda self, slot: {**real(self, slot), "path": str(other)})
    found = record(tmp_path / "out", {"batches": 5, "workers": 1})
    assert len(found["batches"]) == 5
    assert other.read_bytes() == bytes(1 << 20)


def test_the_black_box_keeps_batches(tmp_path):
    data = torch.utils.data.DataLoader(loader_job.Samples({"batches": 6}), batch_size=4)
    with steplens.BlackBox(str(tmp_path / "box"), keep_steps=3, on_slow_step=False, analyse_flag=False) as box:
        for _ in data:
            box.step()
        box.capture()
    runs = sorted(Path(tmp_path / "box").rglob("loaders.json"))
    assert runs
    batches = sum(json.loads(path.read_text())["batches"] for path in runs)
    assert 3 <= batches <= 6


def test_a_forked_child_is_not_observed(tmp_path):
    with steplens.profile(on_trace_ready=steplens.tensorboard_trace_handler(str(tmp_path / "out"), analyse_flag=False)):
        child = os.fork()
        if not child:
            names = {"_profile_name", "_num_yielded"} & set(vars(torch.utils.data.dataloader._BaseDataLoaderIter))
            os._exit(len(names))
        assert os.waitpid(child, 0)[1] == 0
        assert "_num_yielded" in vars(torch.utils.data.dataloader._BaseDataLoaderIter)


def test_a_function_that_is_timed_pickles_as_itself():
    dataset = loader_job.Samples({"batches": 1})
    dataset.transform = os.path.basename
    assert loader_transforms.install_timing(dataset)
    try:
        timed = loader_transforms.batch_begins()
        assert dataset.transform("a/b") == "b"
        assert dataset.transform is not os.path.basename
        assert pickle.loads(pickle.dumps(dataset.transform)) is os.path.basename
        assert copy.deepcopy(dataset.transform) is os.path.basename
        assert loader_transforms.batch_ends(timed)[1] == 1
    finally:
        loader_transforms.remove_timing()
    assert dataset.transform is os.path.basename
    assert "__call__" not in vars(type("Plain", (), {}))


def test_short_transforms_are_timed_in_one_batch_of_sixteen(tmp_path, monkeypatch):
    # however long the machine keeps one of them waiting
    monkeypatch.setattr(loader_transforms, "_SHORT_NS", 60 * 10**9)

    class Fast:
        def __call__(self, sample):
            return sample

    original = Fast.__call__
    dataset = loader_job.Samples({"batches": 40})
    dataset.transform = Fast()
    with steplens.profile(on_trace_ready=steplens.tensorboard_trace_handler(str(tmp_path / "out"), analyse_flag=False)):
        for _ in torch.utils.data.DataLoader(dataset, batch_size=4):
            pass
    assert Fast.__call__ is original
    (trace,) = traces(tmp_path / "out")
    transforms = trace.required("pipeline_tasks").collect()["transforms"].to_list()
    assert [number for number, count in enumerate(transforms) if count is not None] == [0, 16, 32]
    assert loaders.stages(trace).filter(pl.col("stage") == "fetch")["batches"].item() == 3


def add(ring, *values):
    """Write a row as a worker does; the place of its first cell."""
    count = ring.get(COUNT)
    place = HEAD_BYTES + count % ring.capacity * ring.row_bytes
    ring.pack_into(ring.buffer, place, *values)
    ring.set(COUNT, count + 1)
    return place // 8


def test_the_newest_rows_of_a_ring_are_kept():
    ring = Ring(bytearray(size_bytes(("a", "b"), 4)), ("a", "b"), 4)
    assert ring.rows() == []
    for number in range(3):
        add(ring, number, -number)
    assert ring.rows() == [(0, 0), (1, -1), (2, -2)]
    place = 0
    for number in range(3, 11):
        place = add(ring, number, -number)
    ring.cells[place + 1] = 5
    # the oldest of four may be half overwritten at any time
    assert ring.rows() == [(8, -8), (9, -9), (10, 5)]
    assert ring.get(COUNT) == 11


@pytest.mark.parametrize("workers", [0, 1])
def test_pinning_takes_what_was_injected(tmp_path, monkeypatch, workers):
    """There is no accelerator here: what pins is PyTorch's own thread, but its copy is replaced by a sleep."""
    if not hasattr(torch, "accelerator"):
        pytest.skip("this PyTorch asks for accelerators in other ways")
    pins, waited = [], [0]

    def pin(data, device=None):
        begin = time.time_ns()
        waited.append(loader_job.waited_ns())
        time.sleep(0.01)
        pins.append((begin, time.time_ns()))
        return data

    monkeypatch.setattr(torch.accelerator, "is_available", lambda: True)
    monkeypatch.setattr(torch.accelerator, "current_accelerator", lambda: torch.device("cuda"))
    monkeypatch.setattr(torch.accelerator, "current_device_index", lambda: 0)
    monkeypatch.setattr(torch.accelerator, "set_device_index", lambda index: None)
    monkeypatch.setattr(torch.utils.data._utils.pin_memory, "pin_memory", pin)
    job = {"batches": 10, "workers": workers, "step": 0.002, "options": {"pin_memory": True}}
    found = record(tmp_path / "out", job)
    assert len(found["batches"]) == 10
    assert "_num_yielded" not in vars(torch.utils.data.dataloader._BaseDataLoaderIter)
    (trace,) = traces(tmp_path / "out")
    (pinning,) = loaders.stages(trace).filter(pl.col("stage") == "pin").iter_rows(named=True)
    # the thread may have been waiting inside the queue before it was watched, so that its first batch is not seen
    assert pinning["batches"] >= 9
    tasks = trace.required("pipeline_tasks").drop_nulls("pin_end_ns").sort("batch").collect()
    pinned = list(zip(tasks["receive_end_ns" if workers else "end_ns"], tasks["pin_end_ns"], strict=True))
    seen = pins[-len(pinned) :]
    assert all(outer[0] <= inner[0] and inner[1] <= outer[1] for inner, outer in zip(seen, pinned, strict=True))
    assert pinning["mean_ns"] == pytest.approx(statistics.mean(end - begin for begin, end in pinned))
    # of the thread that pins, from the batch before to the one behind
    waits = [later - earlier for earlier, later in zip(waited, [*waited[2:], waited[-1]], strict=False)][-len(pinned) :]
    nearly_all([spent([pin]) for pin in pinned], [spent([pin]) for pin in seen], waits)
    (verdict,) = loaders.verdicts(trace)
    assert verdict.stage == "pin"
    assert trace.required("pipeline_loaders").collect()["pin_memory"].to_list() == [True]
