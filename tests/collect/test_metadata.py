"""Metadata of a run."""

import json
import os
import re
import sqlite3
from pathlib import Path

import pytest

import steplens
from steplens.collect.common import metadata

from ..warm_python import run_warm_ranks


@pytest.fixture
def user():
    return metadata.UserMetadata()


@pytest.mark.parametrize(
    ("key", "value", "is_json"),
    [(1, "a", False), ("a", 1, False), ("k" * 4097, "a", False), ("a", "v" * 4097, False), ("a", "{", True), ("a", None, True)],
)
def test_wrong_entry_is_skipped_with_a_warning(user, key, value, is_json, capfd):
    user.add(key, value, is_json=is_json)
    assert user.entries == {}
    assert "WARNING" in capfd.readouterr().err


def test_longest_entry_is_kept(user):
    user.add("k" * 4096, "v" * 4096)
    assert user.entries == {"k" * 4096: "v" * 4096}


def test_total_stays_below_50_kib(user, capfd):
    for number in range(20):
        user.add(f"key{number}", "v" * 4000)
    assert len(user.entries) == 12
    assert "50 KiB" in capfd.readouterr().err


def test_overwriting_warns(user, capfd):
    user.add("a", "1")
    user.add("a", '{"b": 2}', is_json=True)
    assert user.entries == {"a": {"b": 2}}
    assert "overwritten" in capfd.readouterr().err


def test_a_process_is_known_by_more_than_its_number(monkeypatch):
    identity = metadata.process_identity()
    assert metadata.process_identity() == identity
    # a fork has what it was forked from in memory
    monkeypatch.setattr(os, "getpid", lambda: -1)
    assert metadata.process_identity() != identity


@pytest.mark.parametrize("callback", [None, lambda: 3, lambda: "x" * 1025, lambda: 1 / 0])
def test_trace_id_falls_back_to_a_uuid(callback, capfd):
    value = metadata.trace_id(callback)
    assert len(value) == 32
    assert value == value.upper()
    assert ("WARNING" in capfd.readouterr().err) == (callback is not None and not _raises(callback)) or _raises(callback)


def _raises(callback):
    try:
        callback()
    except Exception:
        return True
    return False


def test_trace_id_of_the_callback():
    assert metadata.trace_id(lambda: "x" * 1024) == "x" * 1024


def test_base_time_is_the_last_multiple_of_the_unit():
    unit = 7_889_238 * 10**9
    assert metadata.base_time_ns(5 * unit) == 5 * unit
    assert metadata.base_time_ns(6 * unit - 1) == 5 * unit


def test_files_of_a_run(train, look, tmp_path, monkeypatch, with_kineto):
    monkeypatch.setenv("HCCL_ALGO", "ring")
    monkeypatch.setenv("RANK", "3")
    monkeypatch.setenv("WORLD_SIZE", "8")
    profiler = steplens.profile(
        on_trace_ready=steplens.tensorboard_trace_handler(str(tmp_path / "out"), analyse_flag=False),
        custom_trace_id_callback=lambda: "one",
    )
    profiler.add_metadata('a "quoted" \\ key', "line\nbreak \x01 ü")
    profiler.add_metadata_json("args", '{"tp": 2}')
    with profiler:
        train(2)
        profiler.add_metadata("late", "yes")
    (run,) = look.runs(tmp_path / "out")
    content = json.loads((run / "profiler_metadata.json").read_bytes())
    assert content['a "quoted" \\ key'] == "line\nbreak \x01 ü"
    assert content["args"] == {"tp": 2}
    assert content["late"] == "yes"
    assert len(content["ENV_VARIABLES"]) == 9
    assert content["ENV_VARIABLES"]["HCCL_ALGO"] == "ring"
    assert content["trace_id"] == profiler.get_trace_id() == "one"
    start = look.state(run)["start_ns"]
    assert 0 <= start - content["base_time_ns"] < metadata.BASE_UNIT_NS
    assert content["base_time_ns"] % metadata.BASE_UNIT_NS == 0
    assert look.raw(run)["baseTimeNanoseconds"] == content["base_time_ns"]
    info = json.loads((run / "profiler_info_3.json").read_bytes())
    assert info["rank_id"] == look.state(run)["rank"] == 3
    assert info["world_size"] == 8
    assert info["config"]["common_config"]["activities"] == ["ProfilerActivity.CPU"]
    assert info["config"]["common_config"]["schedule"] is None
    assert info["config"]["experimental_config"]["_export_type"] == ["text"]
    assert info["torch_version"]
    assert info["processor"]["count"] == len(os.sched_getaffinity(0))
    flags = re.findall(r"(?m)^flags\s*:(.*)$", Path("/proc/cpuinfo").read_text())[0].split()
    assert ("avx512_bf16" in info["processor"]["features"]) == ("avx512_bf16" in flags)
    assert ("amx_bf16" in info["processor"]["features"]) == ("amx_tile" in flags)
    assert info["end_info"]["MonotonicTimeEnd"] > info["start_info"]["start_monotonic"]
    assert look.state(run)["pid"] == os.getpid()


def test_the_environment_is_recorded_for_databases_too(train, look, tmp_path, monkeypatch):
    monkeypatch.setenv("HCCL_RDMA_TC", "132")
    with steplens.profile(
        on_trace_ready=steplens.tensorboard_trace_handler(str(tmp_path)),
        experimental_config=steplens._ExperimentalConfig(export_type="db"),
    ):
        train(1)
    (run,) = look.runs(tmp_path)
    assert json.loads((run / "profiler_metadata.json").read_bytes())["ENV_VARIABLES"]["HCCL_RDMA_TC"] == "132"
    (database,) = (run / "ASCEND_PROFILER_OUTPUT").glob("ascend_pytorch_profiler*.db")
    (value,) = sqlite3.connect(database).execute("SELECT value FROM META_DATA WHERE name = 'ENV_VARIABLES'").fetchone()
    assert json.loads(value)["HCCL_RDMA_TC"] == "132"


DISTRIBUTED = """
import os, sys, torch, steplens, torch.distributed as dist
rank, store = int(os.environ["RANK"]), sys.argv[1]
dist.init_process_group("gloo", init_method="file://" + store, rank=rank, world_size=2)
half = dist.new_group([0, 1], group_desc="model")
with steplens.profile(on_trace_ready=steplens.tensorboard_trace_handler("out", analyse_flag=False)):
    value = torch.ones(4)
    dist.all_reduce(value)
    dist.all_reduce(value, group=half)
dist.destroy_process_group()
# torch aborts a process that finalises while a thread of gloo still lets go of its last tensor
os._exit(0)
"""


def test_process_groups_are_recorded(look, tmp_path):
    done = run_warm_ranks(2, "-c", DISTRIBUTED, tmp_path / "store", folder=tmp_path)
    assert done.returncode == 0, done.stderr
    found = look.runs(tmp_path / "out")
    assert len(found) == 2
    for run in found:
        rank = look.state(run)["rank"]
        assert (run / f"profiler_info_{rank}.json").is_file()
        groups = json.loads((run / "profiler_metadata.json").read_bytes())["parallel_group_info"]
        assert sorted((group["group_name"], group["group_rank"], group["global_ranks"]) for group in groups.values()) == [
            ("default_group", rank, [0, 1]),
            ("model", rank, [0, 1]),
        ]
        assert look.raw(run)["distributedInfo"]["world_size"] == 2


IDS = """
import json, sys, torch
import steplens
model = torch.nn.Linear(4, 2)
odd = ["run\\n7", "run=7", 'a "quoted" \\\\ one', "{}", "# 7", "\\x00", "%s%n", "\\ud800", "", "ü" * 1024]
for trace_id in [*odd, "run 7, 8; a:b/c@d+e-f_g.h"]:
    ready = steplens.tensorboard_trace_handler("out", analyse_flag=False)
    with steplens.profile(on_trace_ready=ready, custom_trace_id_callback=lambda: trace_id) as profiler:
        model(torch.ones(3, 4))
    run = profiler.run_directory
    with open(run / "KINETO" / "trace.json", "rb") as trace, open(run / "profiler_metadata.json", "rb") as metadata:
        print(json.dumps([trace_id, profiler.get_trace_id(), json.load(metadata)["trace_id"], json.load(trace).get("trace_id")]))
"""


@pytest.mark.slow
def test_any_id_of_a_window_is_kept_and_ends_nothing(look, tmp_path, with_kineto):
    pytest.importorskip("torch")
    done = look.warm_python(IDS, cwd=tmp_path)
    assert done.returncode == 0, done.stderr
    rows = [json.loads(line) for line in done.stdout.splitlines() if line.startswith("[")]
    assert len(rows) == 11
    assert all(given == told == kept for given, told, kept, _ in rows)
    assert rows[0][3] == "run_7" and rows[1][3] == "run_7"
    assert rows[-1][3] == rows[-1][0]
