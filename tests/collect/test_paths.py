"""Paths that other tools refuse are used, with one warning."""

from __future__ import annotations

import os

import pytest

import steplens
from steplens.collect.common import paths
from steplens.common import rundir


@pytest.fixture(autouse=True)
def nothing_warned(monkeypatch):
    monkeypatch.setattr(paths, "_warned", set())
    monkeypatch.delenv("RANK", raising=False)


@pytest.mark.parametrize("name", ["result", "a/b_1.2-x", "\u7ed3\u679c", "~/my results"])
def test_usual_paths_are_used_without_a_word(tmp_path, monkeypatch, capfd, name):
    monkeypatch.chdir(tmp_path)
    paths.warn_if_unusual(name, "dir_name")
    assert not capfd.readouterr().err


def test_a_link_and_strange_signs_are_named_once(train, tmp_path, monkeypatch, capfd):
    (tmp_path / "real").mkdir()
    (tmp_path / "sym").symlink_to("real")
    monkeypatch.chdir(tmp_path)
    for _ in range(2):
        handler = steplens.tensorboard_trace_handler("sym/out*x", analyse_flag=False)
    warnings = [line for line in capfd.readouterr().err.splitlines() if "WARNING" in line]
    assert len(warnings) == 1
    assert "dir_name of tensorboard_trace_handler 'sym/out*x'" in warnings[0]
    assert "through the link sym" in warnings[0] and "holds '*': other tools take only letters" in warnings[0]
    with steplens.profile(on_trace_ready=handler):
        train(1)
    assert len(list((tmp_path / "real" / "out*x").iterdir())) == 1


def test_exports_and_offline_analysis_warn_too(train, look, tmp_path, capfd):
    with steplens.profile(on_trace_ready=steplens.tensorboard_trace_handler(str(tmp_path / "q?"), analyse_flag=False)) as prof:
        train(1)
    prof.export_chrome_trace(tmp_path / "a|b.json")
    assert steplens.analyse(tmp_path / "q?")[0].ok
    said = capfd.readouterr().err
    assert "output_path of export_chrome_trace" in said and "a|b.json" in said
    assert said.count("'?'") == 1


@pytest.mark.parametrize(
    "name", ["a\\b", "a\nb", 'a"b', os.fsdecode(b"caf\xe9")], ids=["backslash", "newline", "quote", "no text"]
)
def test_a_name_that_kineto_does_not_take_holds_windows_all_the_same(train, look, capfd, name):
    with steplens.profile(on_trace_ready=steplens.tensorboard_trace_handler(name, worker_name="w\\\n", analyse_flag=False)):
        train(1)
    (run,) = look.runs(name)
    assert "ERROR" not in capfd.readouterr().err
    assert look.state(run)["state"] == "collected" and not look.checks(run)
    assert "aten::addmm" in look.names(run)
    assert not list((run / "KINETO").glob(".steplens-*"))


@pytest.mark.slow
def test_the_analysis_of_a_run_whose_name_is_no_text(train, look, capfd):
    with steplens.profile(on_trace_ready=steplens.tensorboard_trace_handler(os.fsdecode(b"caf\xe9"))):
        train(1)
    (run,) = look.runs(os.fsdecode(b"caf\xe9"))
    assert "ERROR" not in capfd.readouterr().err
    assert (run / "ASCEND_PROFILER_OUTPUT" / "analyse.done").is_file()


def test_a_name_that_kineto_does_not_take_is_refused_where_it_has_no_other(train, tmp_path, monkeypatch, capfd):
    monkeypatch.setattr(rundir, "_OPEN_FILES", tmp_path / "nowhere")
    with steplens.profile(on_trace_ready=steplens.tensorboard_trace_handler("a\\b", analyse_flag=False)) as prof:
        train(1)
    assert prof.off
    (line,) = (line for line in capfd.readouterr().err.splitlines() if "ERROR" in line)
    assert f"Kineto cannot write below such a name, and there is no {tmp_path / 'nowhere'} to name it otherwise" in line
    assert not (tmp_path / "a\\b").exists()
