"""Which line of the user's own code a call stack comes from."""

from __future__ import annotations

import polars as pl
import pytest

from steplens.analysis.tools.source_lines import LIBRARY, UNCLEAR, USER, frame_owner, source_line, user_frame


@pytest.mark.parametrize(
    ("frame", "owner"),
    [
        ("train.py(19): train", USER),
        ("train.py:19(train)", USER),
        ("/home/me/project/model/net.py(3): forward", USER),
        ("/home/me/my_torch/net.py(3): forward", USER),
        ("torch/nn/modules/linear.py(116): forward", LIBRARY),
        ("steplens/collect/profiler.py(7): step", LIBRARY),
        ("/opt/conda/lib/python3.9/site-packages/torch/nn/modules/linear.py:116(forward)", LIBRARY),
        ("/home/me/steplens/.venv/lib/python3.11/site-packages/torch/optim/adam.py(3): step", LIBRARY),
        ("/usr/lib/python3.11/json/decoder.py(3): decode", LIBRARY),
        ("/home/me/accelerate/src/accelerate/data_loader.py(3): send", LIBRARY),
        ("/home/me/torchvision/torchvision/models/resnet.py(3): forward", LIBRARY),
        ("threading.py(1002): _bootstrap", LIBRARY),
        ("<built-in method item of Tensor object at 0x7f>", LIBRARY),
        ("nn.Module: Linear_0", LIBRARY),
        ("/home/me/steplens/train.py(19): train", UNCLEAR),
        ("/home/me/transformers/examples/train.py:19(train)", UNCLEAR),
    ],
)
def test_whose_code_a_frame_is(frame: str, owner: str) -> None:
    assert frame_owner(frame) == owner


def test_the_innermost_frame_of_the_user() -> None:
    stack = "torch/nn/modules/linear.py(116): forward; model.py(7): forward;train.py(19): train;<frozen runpy>(88): _run_code"
    assert user_frame(stack) == "model.py(7): forward"
    assert user_frame("torch/optim/adam.py(3): step;threading.py(1002): _bootstrap") is None


def test_a_project_in_a_folder_called_as_a_framework() -> None:
    stack = (
        "/opt/conda/lib/python3.9/site-packages/torch/nn/modules/linear.py:116(forward);/home/me/transformers/net.py:7(forward);"
        "/home/me/transformers/train.py:19(train)"
    )
    assert user_frame(stack) == "/home/me/transformers/net.py:7(forward)"


def test_a_framework_that_is_used_from_its_sources() -> None:
    assert user_frame("/home/me/pytorch/torch/nn/modules/linear.py:116(forward);/home/me/train.py:19(train)") == (
        "/home/me/train.py:19(train)"
    )


def test_lines_of_a_column() -> None:
    stacks = pl.Series("stack", ["train.py(1): a;train.py(2): b", None, "torch/x.py(1): c", "train.py(1): a;train.py(2): b"])
    assert source_line(stacks).to_list() == ["train.py(1): a", None, None, "train.py(1): a"]
