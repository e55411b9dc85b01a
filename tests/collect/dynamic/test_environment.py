from __future__ import annotations

import os
import sys
from typing import Any

import pytest

from steplens.collect.dynamic import environment
from steplens.collect.dynamic.launchers import is_worker


@pytest.mark.parametrize(
    ("command", "trains"),
    [
        ("python train.py", True),
        ("python -u -X dev -W ignore train.py --launcher torchrun", True),
        ("python3.12 -m package.train", True),
        ("python -m steplens run train.py", True),
        ("python", True),
        ("python -c from_multiprocessing", True),
        ("python /venv/bin/torchrun --nproc_per_node 2 train.py", False),
        ("python -m torch.distributed.run train.py", False),
        ("python -m torch.distributed.launch train.py", False),
        ("python -m vllm.entrypoints.api_server", False),
        ("python /usr/bin/vllm serve", False),
        ("python /usr/bin/accelerate launch train.py", False),
        ("python -I /venv/lib/torch/_inductor/compile_worker/__main__.py --workers=2", False),
    ],
)
def test_launchers_and_helpers_do_not_train(command: str, trains: bool) -> None:
    assert is_worker(command.split(), {}) is trains


def test_a_rank_trains_whatever_its_command_line_says_unless_it_compiles() -> None:
    assert is_worker(["python", "/venv/bin/torchrun", "train.py"], {"RANK": "1"})
    assert not is_worker(["python", "/venv/lib/torch/_inductor/compile_worker/__main__.py"], {"RANK": "1"})


def test_without_the_variable_nothing_is_loaded(monkeypatch: Any) -> None:
    for name in (environment.VARIABLE, environment.OWN_VARIABLE):
        monkeypatch.delenv(name, raising=False)
    before = set(sys.modules)
    environment.on_torch_import()
    assert set(sys.modules) == before


def test_pytorch_finds_it_by_its_entry_point() -> None:
    from importlib.metadata import entry_points

    found = [point for point in entry_points(group="torch.backends") if point.name == "steplens"]
    assert found, "steplens is installed without its entry point: install it again"
    assert found[0].load() is environment.on_torch_import


def test_a_failure_does_not_reach_the_import_of_pytorch(monkeypatch: Any, capfd: Any) -> None:
    def broken(path: str) -> None:
        raise ZeroDivisionError

    monkeypatch.setenv(environment.VARIABLE, "config")
    monkeypatch.setattr(environment, "install", broken)
    environment.on_torch_import()
    assert "ZeroDivisionError" in capfd.readouterr().err


def test_torch_npu_keeps_its_variable_and_steplens_has_its_own(monkeypatch: Any, folder: Any, capfd: Any) -> None:
    monkeypatch.setattr(sys, "orig_argv", ["python", "train.py"])
    monkeypatch.setattr(environment, "_watcher", None)
    monkeypatch.setattr(environment, "_torch_npu_reads_it", lambda: True)
    installed: list[str] = []
    monkeypatch.setattr(environment.Watcher, "install", lambda self: installed.append(self._path))
    monkeypatch.setenv(environment.VARIABLE, "theirs")
    environment.on_torch_import()
    assert installed == []
    assert "Set STEPLENS_CONFIG_PATH instead" in capfd.readouterr().err
    monkeypatch.setenv(environment.OWN_VARIABLE, "ours")
    environment.on_torch_import()
    assert installed == [os.path.abspath("ours")]
    assert os.environ[environment.VARIABLE] == "theirs"
