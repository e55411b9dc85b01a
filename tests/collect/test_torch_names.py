"""Scripts for ``torch_npu.profiler`` and ``torch.profiler`` with their import changed, and figures that agree with PyTorch's."""

from __future__ import annotations

import importlib
import json
import shutil

import pytest
import torch

import steplens
from steplens.collect.common import paths
from steplens.collect.handoff import path_creator
from steplens.collect.pytorch import saving


@pytest.fixture(autouse=True)
def nothing_set(monkeypatch):
    monkeypatch.setattr(path_creator.ProfPathCreator, "folder", None)
    monkeypatch.setattr(path_creator.ProfPathCreator, "worker_name", None)
    monkeypatch.setattr(paths, "_warned", set())


def test_the_names_of_the_samples():
    profiler = importlib.import_module("steplens.profiler")
    assert steplens.profiler is profiler
    assert profiler.profile is steplens.profile and profiler._ExperimentalConfig is steplens._ExperimentalConfig
    assert importlib.import_module("steplens.profiler.profiler").analyse is steplens.analyse
    from steplens.profiler import dynamic_profile
    from steplens.profiler._profiler_path_creator import ProfPathCreator

    assert dynamic_profile is steplens.dynamic_profile and ProfPathCreator is path_creator.ProfPathCreator
    with pytest.raises(AttributeError):
        getattr(profiler, "nothing")  # noqa: B009


def test_a_handler_of_the_program_itself(train, tmp_path, capfd):
    from steplens.profiler._profiler_path_creator import ProfPathCreator

    local, shared = tmp_path / "local", tmp_path / "shared"

    def handler(dir_name, worker_name):
        ProfPathCreator().init(worker_name=worker_name, dir_name=dir_name)

        def call(profiler):
            profiler.prof_if.analyse()
            shared.mkdir()
            for item in local.iterdir():
                shutil.move(item, shared / item.name)

        return call

    with steplens.profile(on_trace_ready=handler(str(local), "mine")) as prof:
        train(1)
    (run,) = shared.iterdir()
    assert run.name.startswith("mine_") and not list(local.iterdir())
    assert (run / "ASCEND_PROFILER_OUTPUT" / "analyse.done").exists()
    assert "failed" not in capfd.readouterr().err
    assert prof.prof_if.analyse() is None
    assert "there is no recorded window" in capfd.readouterr().err


@pytest.mark.parametrize("with_stack", [False, True])
def test_key_averages_agree_with_pytorch(tmp_path, monkeypatch, with_stack, with_kineto):
    autograd = importlib.import_module("torch.autograd.profiler")
    configuration = importlib.import_module("torch._C._profiler")

    class WithEvents(configuration._ExperimentalConfig):
        def __init__(self, **options):
            options.pop("trace_only", None)
            super().__init__(**options)

    # without this PyTorch has no events of its own to compare with
    WithEvents.__init__.__doc__ = configuration._ExperimentalConfig.__init__.__doc__
    monkeypatch.setattr(configuration, "_ExperimentalConfig", WithEvents)
    results = []
    save = saving.save_trace
    monkeypatch.setattr(saving, "save_trace", lambda result, *where: (results.append(result), save(result, *where))[1])
    network = torch.nn.Sequential(torch.nn.Linear(8, 16), torch.nn.ReLU(), torch.nn.Linear(16, 4))
    optimizer = torch.optim.SGD(network.parameters(), lr=0.1)
    options = {"record_shapes": True, "profile_memory": True, "with_stack": with_stack}
    with steplens.profile(
        schedule=steplens.schedule(wait=1, warmup=1, active=3, repeat=1),
        on_trace_ready=steplens.tensorboard_trace_handler(str(tmp_path), analyse_flag=False),
        **options,
    ) as prof:
        for _ in range(6):
            network(torch.randn(4, 8)).sum().backward()
            optimizer.step()
            optimizer.zero_grad()
            prof.step()
    owner = autograd.profile(use_kineto=True, **options)
    expected = autograd.EventList(owner._parse_kineto_results(results[0]), profile_memory=True)
    expected._build_tree()
    assert len(prof.events()) == len(expected)
    assert prof.key_averages().table(sort_by="self_cpu_time_total").startswith("-")

    def rows(events, *groups):
        averages = events.key_averages(*groups)
        return sorted(
            (
                item.key,
                str(item.input_shapes),
                item.count,
                item.self_cpu_memory_usage,
                item.cpu_memory_usage,
                item.self_cpu_time_total,
                item.cpu_time_total,
            )
            for item in averages
        )

    for groups in ((), (True,), (False, 3)):
        shown, wanted = rows(prof.events(), *groups), rows(expected, *groups)
        assert [row[:5] for row in shown] == [row[:5] for row in wanted]
        # sums of doubles that count from another beginning: equal but for their last digits, far below a ns
        for place in (5, 6):
            assert [row[place] for row in shown] == pytest.approx([row[place] for row in wanted], abs=1e-4)


def test_without_a_window_the_lists_are_empty(tmp_path, capfd):
    prof = steplens.profile(on_trace_ready=steplens.tensorboard_trace_handler(str(tmp_path)))
    assert len(prof.events()) == 0 and prof.key_averages().table() == ""
    assert "there is no recorded window" in capfd.readouterr().err


def test_metadata_in_advance_and_collection_switched_off_inside(train, look, tmp_path):
    prof = steplens.profile(on_trace_ready=steplens.tensorboard_trace_handler(str(tmp_path), analyse_flag=False))
    prof.preset_metadata_json("mine", json.dumps({"a": 1}))
    prof.toggle_collection_dynamic(False, [steplens.ProfilerActivity.CPU])
    with prof:
        torch.ones(3).exp()
        prof.toggle_collection_dynamic(False, [steplens.ProfilerActivity.CPU])
        torch.ones(3).sin()
        prof.toggle_collection_dynamic(True, [steplens.ProfilerActivity.CPU])
        torch.ones(3).cos()
    (run,) = look.runs(tmp_path)
    names = {event.get("name") for event in look.raw(run)["traceEvents"]}
    assert "aten::exp" in names and "aten::cos" in names and "aten::sin" not in names
    assert look.raw(run)["mine"] == json.loads((run / "profiler_metadata.json").read_bytes())["mine"] == {"a": 1}
