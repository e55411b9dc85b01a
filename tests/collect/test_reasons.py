"""Reasons that the collector gives, each in the case it speaks of: those that no test of the part itself brings about."""

import contextlib
import functools
import json
import os
import threading
from types import SimpleNamespace

import pytest

from steplens import BlackBox, ProfilerActivity, _ExperimentalConfig, profile, schedule, tensorboard_trace_handler
from steplens.collect.black_box import black_box_event
from steplens.collect.common.health import Health
from steplens.collect.dynamic import environment, launched_processes, launchers, process_agent, service
from steplens.collect.dynamic.job import job_folder, shared_board
from steplens.collect.dynamic.steps import pytorch
from steplens.collect.handoff import upload
from steplens.collect.host import host_sources, osrt
from steplens.collect.pytorch import budgets, kineto_arguments, kineto_profile, saving
from steplens.collect.torch_internals import child_threads, other_profilers

PLAN = schedule(wait=0, warmup=1, active=1, repeat=1)


def handler(folder="out"):
    return tensorboard_trace_handler(str(folder), analyse_flag=False)


def said(capfd):
    return " ".join(capfd.readouterr().err.split())


def messages(look, run):
    return [finding["message"] for finding in look.state(run)["health"]]


@pytest.mark.parametrize(
    ("cpu", "controlled", "reason"),
    [
        (False, True, "the window does not record the CPU"),
        (True, False, "another profiler of Python, or with_stack, has the thread"),
        (True, True, "another profiler records the thread, or has ended the recording of the window"),
    ],
)
def test_why_a_thread_is_not_recorded(monkeypatch, capfd, cpu, controlled, reason):
    pytest.importorskip("torch")
    if child_threads.torch_threads.load_thread_calls() is None:
        pytest.skip("this PyTorch does not let threads join")
    health = Health()
    window = SimpleNamespace(process=os.getpid(), options={"cpu": cpu}, all_threads=False, owner=0, health=health)
    member = SimpleNamespace(take_control=lambda: controlled, join=lambda: False, window=None)
    monkeypatch.setattr(child_threads, "_own", SimpleNamespace(member=member))
    monkeypatch.setattr(child_threads, "_state", SimpleNamespace(running=True, window=window, members=set()))
    child_threads.enable_thread({})
    (finding,) = health.take()
    assert finding["message"] == f"A child thread is not recorded in the window that is open, because {reason}."
    assert finding["message"] in said(capfd)


def test_a_signal_of_the_black_box_in_another_thread(capfd, tmp_path):
    pytest.importorskip("torch")
    box = BlackBox(tmp_path, record_operators=False, on_signal=10)
    thread = threading.Thread(target=lambda: (box.start(), box.stop()))
    thread.start()
    thread.join()
    assert "on_signal has no effect: only the main thread of a program can handle signals." in said(capfd)


def test_a_folder_full_of_events_of_one_second(monkeypatch, tmp_path):
    monkeypatch.setattr(black_box_event, "_MOST_IN_A_SECOND", 3)
    monkeypatch.setattr(black_box_event.time, "strftime", lambda form: "20260101000000")
    for _ in range(2):
        black_box_event.new_directory(tmp_path, 3, "slow")
    with pytest.raises(OSError, match="is full of events of one second"):
        black_box_event.new_directory(tmp_path, 3, "slow")


def test_limits_that_nobody_could_watch():
    limits = SimpleNamespace(max_seconds=None, max_bytes=1, max_overhead=None)
    size = SimpleNamespace(estimate=lambda steps: None, bytes_per_step=None)
    budget = budgets.Budget(limits, size)
    assert budget.unjudged().startswith("max_bytes was not watched: this system's C library does not say")


def test_a_stop_inside_warmup_and_inside_a_step(train, look, capfd):
    with profile(schedule=schedule(wait=0, warmup=3, active=1), on_trace_ready=handler()) as prof:
        train(1, prof)
    assert "The profiler stopped during warmup: nothing was recorded, the run directory is removed." in said(capfd)
    assert look.runs("out") == []


def test_steps_and_the_end_that_come_from_another_thread(train, look, capfd, with_kineto):
    pytest.importorskip("torch")
    prof = profile(on_trace_ready=handler())
    prof.start()
    for call in (prof.step, prof.stop):
        thread = threading.Thread(target=call)
        thread.start()
        thread.join()
    text = said(capfd)
    assert "step() was called in another thread than the one that is recorded: it does not count in this window." in text
    assert "stop() was called from another thread than start(): recording ends at the next step()." in text
    prof.stop()


def test_what_the_program_turns_off_inside_of_a_window(look, capfd):
    kineto = SimpleNamespace(toggle_collection_dynamic=lambda enable, names: None)
    health = Health()
    session = SimpleNamespace(window=None, _health=health)
    session._toggle_recording = functools.partial(kineto_arguments.KinetoArguments._toggle_recording, session)
    pytest.importorskip("torch")
    toggle = kineto_arguments.KinetoArguments.toggle_collection
    toggle(session, False, ["CPU"])
    assert "toggle_collection_dynamic has no effect, no window is recorded." in said(capfd)
    session.window = SimpleNamespace(recording=True, kineto=kineto)
    toggle(session, False, ["CPU"])
    (finding,) = health.take()
    assert finding["message"] == "The program turned the collection of CPU off inside the window."


def test_what_the_program_turns_off_inside_of_a_window_of_the_recorder(look, capfd):
    torch = pytest.importorskip("torch")
    everything = {ProfilerActivity.CPU, ProfilerActivity.CUDA}
    with profile(on_trace_ready=handler(), profile_memory=True) as prof:
        torch.ones(2)
        prof.toggle_collection_dynamic(False, everything)
        torch.zeros(2)
        prof.toggle_collection_dynamic(True, [ProfilerActivity.CPU])
        torch.full((2,), 3)
        prof.toggle_collection_dynamic(True, [ProfilerActivity.CUDA])
    text = said(capfd)
    assert text.count("toggle_collection_dynamic has no effect on CUDA: this window records the CPU alone.") == 2
    (run,) = look.runs("out")
    names = look.names(run)
    assert [name for name in ("aten::ones", "aten::zeros", "aten::full") if name in names] == ["aten::ones", "aten::full"]
    assert messages(look, run) == [
        f"The program turned the collection of CPU {state} inside the window." for state in ("off", "on")
    ]


def test_a_file_that_arrives_in_part(monkeypatch, tmp_path):
    fsspec = pytest.importorskip("fsspec")
    run = tmp_path / "host_1_20260101000000000_ascend_pt"
    run.mkdir()
    (run / "x").write_text("whole")
    files = type(fsspec.filesystem("memory"))
    monkeypatch.setattr(files, "put_file", lambda self, source, target, **more: self.pipe_file(target, b"wh"))
    with pytest.raises(OSError, match="x arrived with 2 of 5 bytes"):
        upload.move_run(run, "memory://there")
    assert (run / "x").read_text() == "whole"


def test_an_order_of_another_version():
    with pytest.raises(ValueError, match=r"does not hold what steplens run writes: .*unheard_of"):
        launched_processes.Order.parse(json.dumps({"out": "x", "unheard_of": 1}))


def test_loaders_and_recordings_that_fail_name_what_was_raised(monkeypatch):
    pytest.importorskip("torch")
    from steplens.collect.loaders import loader

    complaints = []
    recording = launched_processes.StepRecording(launched_processes.Order("out", "answers", {}, {}, {}), complaints.append)
    monkeypatch.setattr(loader, "profiler_starts", lambda: 1 / 0)
    recording.prepare()
    monkeypatch.setattr(loader, "profiler_stops", lambda: 1 / 0)
    monkeypatch.setattr(launched_processes.StepRecording, "_start", lambda self: 1 / 0)
    recording.on_step()
    recording._leave_loaders()
    closing = launched_processes.StepRecording(launched_processes.Order("out", "answers", {}, {}, {}), complaints.append)
    closing._profiler = SimpleNamespace(stop=lambda: 1 / 0)
    closing.stop()
    raised = "ZeroDivisionError: division by zero"
    assert complaints == [
        f"data loaders are not recorded: {raised}",
        f"recording failed, the training goes on: {raised}",
        f"data loaders are still watched: {raised}",
        f"the recording could not be closed: {raised}",
    ]


def test_a_system_without_memory_nodes_or_times_of_threads(monkeypatch, tmp_path):
    monkeypatch.setattr(host_sources, "_NODES", tmp_path)
    with pytest.raises(OSError, match="the system knows no NUMA nodes"):
        host_sources.Numa(SimpleNamespace(pid=os.getpid()))
    monkeypatch.setattr(host_sources, "_read_file", lambda path: "0 0 0")
    with pytest.raises(OSError, match="the system does not count the running time of threads"):
        host_sources.Processors(SimpleNamespace(pid=os.getpid()))


def test_a_tracer_that_ends_without_a_word():
    tracer = object.__new__(osrt.SystemCalls)
    tracer._process = SimpleNamespace(stderr=None, returncode=3)
    assert tracer._reason() == "strace ended with exit code 3"


def test_a_board_without_room(monkeypatch, tmp_path):
    from steplens.collect.dynamic.job import process

    own = shared_board.Board(tmp_path, "job", process.current_process(), 0)
    monkeypatch.setattr(shared_board, "_ROWS", 1)
    with pytest.raises(OSError, match="has no room for another process"):
        shared_board.Board(tmp_path, "job", process.process_of_pid(os.getppid()), 1)
    own.close()


def test_what_keeps_a_requested_capture_from_beginning(monkeypatch):
    pytest.importorskip("torch")
    form = pytorch.PytorchForm()
    assert form.obstacle() == ""
    monkeypatch.setattr(other_profilers, "another_is_recording", lambda besides=None: True)
    assert form.obstacle() == "another profiler is recording in this process"
    monkeypatch.setenv("PROFILING_MODE", "true")
    assert form.obstacle() == "PROFILING_MODE is set: another profiler is at work in this process"


def test_a_requested_capture_of_which_nothing_was_kept(tmp_path):
    capture = object.__new__(pytorch.WindowCapture)
    capture.directory, capture._profiler = tmp_path, SimpleNamespace(stop=lambda: None, run_directory=None)
    assert capture.finish().problem == "no raw data of it was kept, see its messages"


def test_a_requested_capture_that_does_not_begin(monkeypatch, tmp_path, with_kineto):
    pytest.importorskip("torch")
    settings = SimpleNamespace(
        prof_dir=str(tmp_path), activities=None, warmup=0, active=1, analyse=False, async_mode=False, experimental=None,
        limits={}, recorded={}, metadata={},
    )  # fmt: skip
    monkeypatch.setattr(other_profilers, "another_is_recording", lambda besides=None: True)
    with pytest.raises(RuntimeError, match="the profiler did not begin, see its messages"):
        pytorch.WindowCapture(settings, 3)


def test_a_folder_for_a_requested_capture_that_cannot_be_written(monkeypatch, tmp_path):
    monkeypatch.setattr(pytorch.os, "access", lambda path, mode: False)
    with pytest.raises(OSError, match=f"{tmp_path} cannot be written"):
        pytorch.WindowCapture(SimpleNamespace(prof_dir=str(tmp_path)), 3)


def test_a_request_of_another_program():
    told = []
    watching = object.__new__(service.Service)
    watching._agent = SimpleNamespace(cannot_read=lambda *problem: told.append(problem))
    watching._report(SimpleNamespace(id="x", document={"id": 3}, problem=""), "trigger")
    assert told == [(job_folder.REQUEST_FILE, "does not hold a request of steplens trigger")]


def test_a_variable_that_torch_npu_reads_itself(monkeypatch, capfd, tmp_path):
    monkeypatch.setattr(environment, "_torch_npu_reads_it", lambda: True)
    monkeypatch.setattr(launchers, "is_worker", lambda *arguments: True)
    monkeypatch.setattr(environment, "_watcher", None)
    monkeypatch.delenv(environment.OWN_VARIABLE, raising=False)
    environment.install(str(tmp_path))
    assert f"torch_npu reads {environment.VARIABLE} itself; steplens leaves it to it." in said(capfd)
    assert environment._watcher is None


def test_what_cannot_be_had_without_the_host_and_what_runs_already(monkeypatch, capfd):
    pytest.importorskip("torch")
    options = _ExperimentalConfig(gc_detect_threshold=1.0)
    with profile(on_trace_ready=handler()) as running:
        running.start()
    text = said(capfd)
    assert "start() has no effect, the profiler is already running." in text
    assert "gc_detect_threshold" not in text
    monkeypatch.setattr(kineto_profile, "choose_activities", lambda *wanted: (ProfilerActivity.CUDA,))
    with contextlib.suppress(Exception):
        profile(experimental_config=options)
    assert "gc_detect_threshold needs ProfilerActivity.CPU, no garbage collection is recorded." in said(capfd)


def test_a_pytorch_that_records_no_other_threads(monkeypatch):
    autograd = pytest.importorskip("torch.autograd.profiler")

    class Old:
        def __init__(self, **options):
            """takes nothing"""

    monkeypatch.setattr("torch._C._profiler._ExperimentalConfig", Old)
    monkeypatch.setattr(autograd, "profile", lambda use_cpu=True: SimpleNamespace())
    monkeypatch.setattr(autograd.profile, "__init__", lambda self, use_cpu=True: None, raising=False)
    for name in ("refuse_a_second", "take_recording", "register_session"):
        monkeypatch.setattr(other_profilers, name, lambda *session: None)
    monkeypatch.setattr(kineto_arguments.child_threads, "needs_all_threads", lambda with_stack: True)
    health = Health()
    settings = SimpleNamespace(with_stack=True, categorises_memory=True, profile_memory=False, switches={}, activities=())
    session = kineto_arguments.KinetoArguments()
    monkeypatch.setattr(session, "settings", settings, raising=False)
    monkeypatch.setattr(session, "_health", health, raising=False)
    monkeypatch.setattr(session, "_profiler_arguments", dict)
    session._new_kineto(SimpleNamespace(trace_id=""))
    assert [finding["message"] for finding in health.take()] == ["This version of PyTorch cannot record child threads."]


def test_a_file_of_kineto_that_breaks_off(tmp_path):
    (tmp_path / "trace.json").write_text('{"traceEvents": [{"ph"')
    with pytest.raises(OSError, match=r"Kineto's file is not complete; .* are free now, and Kineto does not say why"):
        saving._check_complete(tmp_path / "trace.json")


def test_a_second_folder_of_dynamic_profile(monkeypatch, tmp_path, capfd):
    running = SimpleNamespace(directory=tmp_path, how="variable", stepper="step()")
    monkeypatch.setattr(process_agent, "agent", running)
    process_agent.start_agent(tmp_path / "other", None, "call", "step()")
    assert f"dynamic_profile is initialised already with {tmp_path}, which stays." in said(capfd)
