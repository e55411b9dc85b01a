"""Samples of the host, against what the program itself measures."""

import json
import operator
import os
import select
import shutil
import signal
import socket
import subprocess
import sys
import threading
import time
from pathlib import Path

import pytest

import steplens
from steplens import HostSystem, _ExperimentalConfig, profile, schedule, tensorboard_trace_handler
from steplens.collect.host import host_sampling, host_sampling_process, osrt

torch = pytest.importorskip("torch")
psutil = pytest.importorskip("psutil")

pytestmark = pytest.mark.skipif(not sys.platform.startswith("linux"), reason="reads /proc")

SOURCE = Path(steplens.__file__).resolve().parents[1]


def handler(folder="out"):
    return tensorboard_trace_handler(folder, analyse_flag=False)


def recorded(work, systems, folder="out"):
    """Record ``work(sampler)`` after a warmup that lets the sampler get up; the content of its file."""
    plan = schedule(wait=0, warmup=1, active=1, repeat=1)
    config = _ExperimentalConfig(host_sys=systems)
    with profile(schedule=plan, on_trace_ready=handler(folder), experimental_config=config) as prof:
        awake(prof)
        prof.step()
        work(psutil.Process(sampler_of(prof).pid))
        prof.step()
    (run,) = Path(folder).glob("*_ascend_pt")
    return run, json.loads((run / "KINETO" / "host_samples.json").read_bytes())


def sampler_of(prof):
    return prof._session.window.recorders._sampler._process


def awake(prof):
    """Wait until the sampler is in its loop."""
    assert sampler_of(prof).stdout.readline() == b"ready\n"


def samples(sampler, count):
    """Wait until the sampler has taken some samples more: it waits before each of them, and else for nothing."""
    enough = sampler.num_ctx_switches().voluntary + count + 2
    until = time.monotonic() + 60
    while sampler.num_ctx_switches().voluntary < enough:
        assert time.monotonic() < until, "nothing is sampled"
        time.sleep(0.005)


def series(content, name):
    """Times and values of a counter."""
    (found,) = [item for item in content["series"] if item["name"] == name]
    assert len(found["time_ns"]) == len(found["value"])
    return found["time_ns"], found["value"]


def total(content, name, start_ns):
    """A rate per second added up from a time on, in the rate's unit times seconds."""
    times, values = series(content, name)
    edges = [min(start_ns, times[0]), *times]
    return sum(value * (edges[index + 1] - edges[index]) / 1e9 for index, value in enumerate(values))


def children():
    return [process for process in psutil.Process().children(recursive=True) if "host_sampling" in " ".join(process.cmdline())]


def test_processor_time(look):
    plan = schedule(wait=0, warmup=1, active=1, repeat=1)
    config = _ExperimentalConfig(host_sys=["cpu"])
    with profile(schedule=plan, on_trace_ready=handler(), experimental_config=config) as prof:
        awake(prof)
        before = time.process_time_ns()
        prof.step()
        begin, begin_ns = time.process_time_ns(), time.time_ns()
        # by processor time: on a busy machine 0.4 s may pass without any
        while time.process_time_ns() - begin < 400_000_000:
            pass
        time.sleep(0.2)
        used, end_ns = time.process_time_ns() - begin, time.time_ns()
        prof.step()
        after, after_ns = time.process_time_ns(), time.time_ns()
    (run,) = look.runs("out")
    content = look.raw(run, "host_samples.json")
    start = json.loads(next(run.glob("profiler_info*.json")).read_bytes())["start_info"]["collectionTimeStart"]
    times, values = series(content, "CPU Usage")
    assert start <= times[0] and times == sorted(times) and end_ns <= times[-1] <= after_ns
    # no more than all processors, to the 0.1 ms by which a time and a running time may be apart
    for value, length in zip(values, map(operator.sub, times, [start, *times]), strict=False):
        assert 0 <= value / 100 * length <= (os.cpu_count() or 1) * length + 100_000
    # percent of a processor times seconds, over the window: what the program used in it, and what opening and closing it took;
    # the first sample reaches back to a moment between the beginning of the window and the end of its opening
    least, most = (total(content, "CPU Usage", edge) / 100 for edge in (begin_ns, start))
    assert used / 1e9 - 0.02 < most
    assert least < (after - before) / 1e9 + 0.02
    # The same once more, told apart by processor.
    processors = [item["name"] for item in content["series"] if item["name"].startswith("CPU ") and item["name"][4:].isdigit()]
    assert 1 <= len(processors) <= (os.cpu_count() or 1)
    assert content["problems"] == {} and content["dropped"] == 0


def test_short_windows_have_a_sample_as_well(look):
    """Also when the sampler is not up yet."""
    with profile(on_trace_ready=handler(), experimental_config=_ExperimentalConfig(host_sys=["cpu", "mem"])):
        begin = time.process_time_ns()
        sum(range(300_000))
        used = time.process_time_ns() - begin
    (run,) = look.runs("out")
    content = look.raw(run, "host_samples.json")
    start = json.loads(next(run.glob("profiler_info*.json")).read_bytes())["start_info"]["collectionTimeStart"]
    # one sample, or several where the machine left the program waiting while the sampler got up
    assert total(content, "CPU Usage", start) / 100 * 1e9 > used * 0.8
    assert series(content, "Memory Usage")


def test_memory():
    kept = []

    def work(sampler):
        samples(sampler, 2)
        kept.append(b"x" * (100 << 20))
        samples(sampler, 2)

    before = psutil.Process().memory_info().rss
    _, content = recorded(work, [HostSystem.MEM])
    _, resident = series(content, "Memory/Resident")
    _, share = series(content, "Memory Usage")
    assert abs(resident[0] * 1024 - before) < 64 << 20
    assert (100 << 10) * 0.95 < max(resident) - resident[0] < (100 << 10) * 1.5
    assert share[-1] == pytest.approx(resident[-1] * 1024 / psutil.virtual_memory().total * 100, abs=0.01)


def test_disk():
    written: list[int] = []

    def look_at_counter():
        written.append(psutil.Process().io_counters().write_bytes)

    def work(sampler):
        # what goes before its first look at the counters is not seen
        samples(sampler, 1)
        look_at_counter()
        with open("written", "wb") as file:
            for _ in range(20):
                file.write(os.urandom(1 << 20))
                file.flush()
                os.fsync(file.fileno())
                look_at_counter()
                time.sleep(0.03)

    run, content = recorded(work, ["disk"])
    if written[-1] == written[0]:
        pytest.skip(f"what is written to {os.getcwd()} goes to no storage that the system counts")
    start = json.loads(next(run.glob("profiler_info*.json")).read_bytes())["start_info"]["collectionTimeStart"]
    start += content["late_ns"]
    counted = written[-1] - written[0]
    slack = 1 << 17
    assert 0.9 * counted - slack <= total(content, "Disk/Write", start) * 1024 <= 1.1 * counted + slack


def test_network():
    def work(sampler):
        # what goes before its first look at the counters is not seen
        samples(sampler, 1)
        first, second = socket.socketpair(socket.AF_UNIX)
        first.close(), second.close()
        with socket.create_server(("127.0.0.1", 0)) as server, socket.create_connection(server.getsockname()) as sender:
            receiver, _ = server.accept()
            thread = threading.Thread(target=lambda: [None for _ in iter(lambda: receiver.recv(1 << 16), b"")])
            thread.start()
            for _ in range(10):
                sender.sendall(bytes(1 << 20))
                time.sleep(0.02)
            sender.shutdown(socket.SHUT_WR)
            thread.join()
            receiver.close()

    run, content = recorded(work, ["network"])
    start = json.loads(next(run.glob("profiler_info*.json")).read_bytes())["start_info"]["collectionTimeStart"]
    within = total(content, "Network/Loopback", start + content["late_ns"]) * 1024
    assert within >= 10 << 20
    for name in ("Network/Speed", "Network/Receive", "Network/Send"):
        assert len(series(content, name)[0]) == len(series(content, "Network/Loopback")[0])


@pytest.mark.skipif(not list(Path("/sys/devices/system/node").glob("node*")), reason="this system has no NUMA nodes")
def test_numa():
    _, content = recorded(lambda _: time.sleep(0.05), ["numa"])
    names = {item["name"] for item in content["series"]}
    assert {"Node 0/Local", "Node 0/Remote"} <= names
    if not content["problems"]:
        memory = sum(item["value"][-1] for item in content["series"] if item["name"].endswith("/Process Memory"))
        assert memory * 1024 == pytest.approx(psutil.Process().memory_info().rss, rel=0.2)


def test_what_sampling_costs_is_kept(look):
    run, content = recorded(lambda sampler: samples(sampler, 10), ["cpu", "mem"])
    cost = content["cost"]
    info = json.loads(next(run.glob("profiler_info*.json")).read_bytes())
    window_ns = info["end_info"]["collectionTimeEnd"] - info["start_info"]["collectionTimeStart"]
    assert 3 <= cost["samples"] <= 2 * window_ns / host_sampling.INTERVAL_NS
    assert 0 < cost["sampling_ns"] < cost["process_ns"]
    assert 1 << 20 < cost["peak_bytes"] < 100 << 20
    kept = json.loads(steplens.open(run).sql("select value from meta where key = 'host_sampler_cost'")["value"][0])
    assert kept == {**cost, "training_ns": look.raw(run, "host_events.json")["collection"]["host_sampler_ns"]}
    assert kept["training_ns"] > 0


def test_costly_samples_are_taken_less_often(tmp_path, monkeypatch):
    sampler = host_sampling.Sampler(os.getpid(), tmp_path, [])

    class Costly(host_sampling.Source):
        def sample(self, now):
            end = time.thread_time_ns() + 2_000_000
            while time.thread_time_ns() < end:
                pass
            return iter(())

    sampler._sources.append(("cpu", Costly(None)))
    for _ in range(30):
        sampler.sample()
    # 2 ms are 3 % of 67 ms
    assert 60_000_000 < sampler.interval_ns < 120_000_000


def test_one_thing_that_fails_costs_itself_alone(tmp_path):
    sampler = host_sampling.Sampler(os.getpid(), tmp_path, ["cpu", "mem"])

    class Broken(host_sampling.Source):
        def sample(self, now):
            raise PermissionError("not allowed")

    sampler._sources.append(("disk", Broken(None)))
    sampler.start(time.time_ns(), time.process_time_ns())
    sampler.sample()
    sampler.stop(time.time_ns(), time.process_time_ns())
    content = json.loads((tmp_path / "host_samples.json").read_bytes())
    assert content["problems"] == {"disk": "not allowed"}
    assert {item["group"] for item in content["series"]} == {"CPU Usage", "Memory Usage"}


def test_without_psutil(look, tmp_path, capfd, monkeypatch):
    (tmp_path / "without").mkdir()
    (tmp_path / "without" / "psutil.py").write_text("raise ImportError('no psutil')")
    monkeypatch.setenv("PYTHONPATH", str(tmp_path / "without"))
    with profile(on_trace_ready=handler(), experimental_config=_ExperimentalConfig(host_sys=["cpu", "disk"])):
        torch.ones(2).add(1)
    (run,) = look.runs("out")
    findings = look.state(run)["health"]
    assert [item["check"] for item in findings] == ["not_collected"] * 2
    assert "host_sys cpu was not collected because psutil is not installed" in findings[0]["message"]
    assert "steplens[host]" in capfd.readouterr().err


# --- the process


def test_nothing_is_left_when_a_window_ends(look):
    prof = profile(
        schedule=schedule(wait=0, warmup=1, active=1),
        on_trace_ready=handler(),
        experimental_config=_ExperimentalConfig(host_sys=["mem"]),
    )
    prof.start()
    first = sampler_of(prof).pid
    assert [process.pid for process in children()] == [first]
    for _ in range(3):
        prof.step()
    assert first not in [process.pid for process in children()]
    # now in a warmup, which ends without a recording
    assert len(children()) == 1
    prof.stop()
    assert children() == []


def test_a_killed_sampler_is_said_and_costs_nothing_else(look):
    with profile(on_trace_ready=handler(), experimental_config=_ExperimentalConfig(host_sys=["mem"])) as prof:
        sampler_of(prof).kill()
        torch.ones(2).add(1)
    (run,) = look.runs("out")
    assert look.state(run)["state"] == "collected"
    (finding,) = look.state(run)["health"]
    assert finding["severity"] == "warning" and "the process that samples ended early: -9" in finding["message"]


def test_a_sampler_that_hangs_is_ended(look, monkeypatch):
    monkeypatch.setattr(host_sampling_process, "_PATIENCE_S", 0.1)
    with profile(on_trace_ready=handler(), experimental_config=_ExperimentalConfig(host_sys=["mem"])) as prof:
        process = sampler_of(prof)
        process.send_signal(signal.SIGSTOP)
    assert process.returncode == -signal.SIGKILL
    (run,) = look.runs("out")
    assert "did not end within 0.1 s" in look.state(run)["health"][0]["message"]


TRAINING = """
import sys, time
from pathlib import Path
from steplens.collect.common.health import Health
from steplens.collect.host.host_sampling_process import HostSampler
from steplens.common.options import HostSystem
sampler = HostSampler([HostSystem(name) for name in sys.argv[1].split(",")], Path("."), Health())
sampler._process.stdout.readline()
sampler.start()
print(sampler._process.pid, flush=True)
time.sleep(600)
"""

needs_strace = pytest.mark.skipif(not shutil.which("strace"), reason="strace is not installed")


@pytest.fixture(params=["cpu,mem", pytest.param("osrt", marks=needs_strace)])
def training(request, tmp_path):
    """A process that is sampled, the process that samples it, and what that has started."""
    environment = {**os.environ, "PYTHONPATH": str(SOURCE)}
    process = subprocess.Popen(
        [sys.executable, "-c", TRAINING, request.param], cwd=tmp_path, env=environment, stdout=subprocess.PIPE
    )
    sampler = psutil.Process(int(process.stdout.readline()))
    helpers = []
    until = time.monotonic() + 60
    while request.param == "osrt" and not (helpers := sampler.children()) and time.monotonic() < until:
        time.sleep(0.02)
    assert len(helpers) == (request.param == "osrt")
    yield process, sampler, helpers
    process.kill()
    process.communicate()


def test_a_killed_training_leaves_no_process(training):
    process, sampler, helpers = training
    process.kill()
    process.wait()
    _, alive = psutil.wait_procs([sampler, *helpers], timeout=60)
    assert not alive


def test_a_killed_sampler_lets_the_training_go(training):
    process, sampler, helpers = training
    sampler.kill()
    _, alive = psutil.wait_procs(helpers, timeout=60)
    assert not alive
    assert process.poll() is None
    assert "TracerPid:\t0" in Path(f"/proc/{process.pid}/status").read_text()


# --- calls to the system


@needs_strace
def test_system_calls(look):
    counts = {}

    def traced():
        return "TracerPid:\t0" not in Path("/proc/self/status").read_text()

    def work(_):
        until = time.monotonic() + 60
        while not traced() and time.monotonic() < until:
            time.sleep(0.01)
        counts["traced"] = traced()
        begin = time.time_ns()
        for _ in range(25):
            os.getppid()
        before = time.time_ns()
        select.select([], [], [], 0.03)
        counts["begin"], counts["end"] = begin, time.time_ns()
        counts["waited"] = counts["end"] - before

    run, content = recorded(work, ["osrt"])
    if not counts["traced"]:
        assert "osrt" in content["problems"]
        pytest.skip("this system does not let strace trace its parents")
    assert not content["problems"]
    calls = steplens.open(run).sql("select name, layer, start_ns, end_ns, pid, tid from api").to_dicts()
    assert {row["layer"] for row in calls} == {"os_runtime"}
    within = [row for row in calls if counts["begin"] <= row["start_ns"] and row["end_ns"] <= counts["end"]]
    asked = [row for row in within if row["name"] == "getppid"]
    assert len(asked) == 25
    assert {row["pid"] for row in asked} == {row["tid"] for row in asked} == {os.getpid()}
    (waited,) = [row for row in within if row["name"] in ("select", "pselect6") and row["tid"] == os.getpid()]
    # strace tells times in us
    assert 30_000_000 <= waited["end_ns"] - waited["start_ns"] <= counts["waited"] + 1000
    assert "TracerPid:\t0" in Path("/proc/self/status").read_text()


def test_without_strace(look, tmp_path, monkeypatch, capfd):
    monkeypatch.setenv("PATH", str(tmp_path))
    with profile(on_trace_ready=handler(), experimental_config=_ExperimentalConfig(host_sys=["osrt"])):
        torch.ones(2).add(1)
    (run,) = look.runs("out")
    (finding,) = look.state(run)["health"]
    assert finding["message"] == "host_sys osrt was not collected because strace is not installed."


def test_strace_that_may_not_trace_says_so(tmp_path, monkeypatch):
    program = tmp_path / "strace"
    program.write_text("#!/bin/sh\necho 'strace: attach: ptrace(PTRACE_SEIZE, 1): Operation not permitted' >&2\nexit 1\n")
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    calls = osrt.SystemCalls(os.getpid(), tmp_path)
    calls._process.wait(60)
    assert "Operation not permitted" in calls.check()
    assert "Operation not permitted" in calls.stop() or calls._process.returncode == 1


def test_the_file_of_strace_is_bounded(tmp_path, monkeypatch):
    program = tmp_path / "strace"
    lines = ("#!/bin/sh", 'while [ "$1" != --output ]; do shift; done', 'head -c 5000 /dev/zero > "$2"', "exec sleep 600")
    program.write_text("\n".join(lines))
    program.chmod(0o755)
    monkeypatch.setenv("PATH", f"{tmp_path}:/bin:/usr/bin")
    monkeypatch.setattr(osrt, "LIMIT_BYTES", 4000)
    calls = osrt.SystemCalls(os.getpid(), tmp_path)
    until = time.monotonic() + 60
    while not (problem := calls.check()) and time.monotonic() < until:
        time.sleep(0.01)
    assert "later ones are missing" in problem
    assert calls._process.returncode is not None
