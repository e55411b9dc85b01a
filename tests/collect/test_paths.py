"""Paths that other tools refuse are used, with one warning."""

from __future__ import annotations

import pytest

import steplens
from steplens.collect import paths


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
