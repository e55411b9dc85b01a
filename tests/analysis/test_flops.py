"""Arithmetic of operators: against PyTorch's own counter on real models, forward and backward, and by hand."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import polars as pl
import pytest

from steplens.analysis.device.device_peaks import device_peak, peak_of
from steplens.analysis.operators.flop_formulas import work_of
from steplens.analysis.operators.flops import COMPUTE, MEMORY, counted_calls, flops
from steplens.run import open_run
from steplens.trace.trace import Trace

from ..writers.builder import BASE_NS, MAIN, PID, build, op

GPU = [{"name": "gemm", "kind": "compute", "core": "CUDA", "device": 0, "start_ns": BASE_NS, "end_ns": BASE_NS + 1}]


def models() -> dict[str, Any]:
    """Name -> a function that builds a model and its input."""
    torch = pytest.importorskip("torch")
    nn = torch.nn

    class Attention(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.layer = nn.TransformerEncoderLayer(32, 4, 64, batch_first=True, dropout=0.0)

        def forward(self, x: Any) -> Any:
            return self.layer(x)

    class Products(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.weight = nn.Parameter(torch.randn(5, 8, 6))

        def forward(self, x: Any) -> Any:
            y = torch.baddbmm(torch.zeros(5, 3, 6), x, self.weight)
            return y @ y.transpose(1, 2) @ torch.ones(3)

    sequential = nn.Sequential
    return {
        "linear": (sequential(nn.Linear(20, 30), nn.ReLU(), nn.Linear(30, 7, bias=False)), (4, 20)),
        "linear of a batch": (nn.Linear(20, 30), (2, 3, 20)),
        "convolution": (sequential(nn.Conv2d(3, 8, 3, padding=1), nn.Conv2d(8, 6, (3, 2), stride=2, dilation=2)), (2, 3, 16, 17)),
        "convolution of one dimension": (nn.Conv1d(4, 6, 5, padding="same"), (2, 4, 20)),
        "convolution of three dimensions": (nn.Conv3d(2, 3, 3, stride=(1, 2, 1)), (2, 2, 6, 7, 8)),
        "transposed convolution": (nn.ConvTranspose2d(4, 6, 3, stride=2, padding=1, output_padding=1), (2, 4, 8, 9)),
        "attention": (Attention(), (2, 8, 32)),
        "products of batches": (Products(), (5, 3, 8)),
    }


@pytest.mark.parametrize("number", range(8))
def test_forward_and_backward_like_pytorch(tmp_path: Path, number: int) -> None:
    torch = pytest.importorskip("torch")
    counter = pytest.importorskip("torch.utils.flop_counter")
    model, shape = list(models().values())[number]
    aten = torch.ops.aten
    # PyTorch's counter leaves out attention on the CPU; its own formulas are those of the other devices
    custom = {
        aten._scaled_dot_product_flash_attention_for_cpu: lambda *args, **kwargs: counter.sdpa_flop_count(*args[:3]),
        aten._scaled_dot_product_flash_attention_for_cpu_backward: (
            lambda *args, **kwargs: counter.sdpa_backward_flop_count(*args[:4])
        ),
        aten.mv: lambda a, b, *args, out_shape=None, **kwargs: 2 * a[0] * a[1],
    }
    given = torch.randn(*shape, requires_grad=True)
    with counter.FlopCounterMode(display=False, custom_mapping=custom) as counted:
        model(given).sum().backward()
    with torch.profiler.profile(record_shapes=True, activities=[torch.profiler.ProfilerActivity.CPU]) as profiler:
        model(given).sum().backward()
    path = tmp_path / "trace.json"
    profiler.export_chrome_trace(str(path))
    found = flops(open_run(path).trace())
    assert found["flops"].sum() == counted.get_total_flops() > 0
    assert found["flops_percent"].sum() == pytest.approx(100)
    assert found["flops_per_second"].min() > 0
    calls = counted_calls(open_run(path).trace())
    assert calls["bytes"].null_count() == 0
    by_operator: dict[str, int] = {}
    for operator, number in counted.get_flop_counts()["Global"].items():
        short = str(operator).removeprefix("aten.")
        by_operator[short] = by_operator.get(short, 0) + number
    # _convolution is what convolution calls
    ours = {row["name"].removeprefix("aten::").replace("_convolution", "convolution"): row["flops"] for row in found.to_dicts()}
    assert ours == {name: number for name, number in by_operator.items() if number}


def test_the_weight_gradient_of_groups_is_counted_once() -> None:
    """By hand: 8 output channels of 3 inputs each, 3 x 3 positions of a 3 x 3 kernel; PyTorch's counter has it twice."""
    once = 2 * 2 * 8 * 3 * 9 * 9
    arguments = '["", "", "", "[8]", "[1, 1]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "2", "[%s]"]'
    shapes = "2,8,3,3;2,6,5,5;8,3,3,3"
    for mask, times in (("True, True, False", 2), ("False, True, True", 1), ("False, False, True", 0)):
        work = work_of("aten::convolution_backward", shapes, arguments % mask)
        assert work is not None
        assert work.flops == times * once


@pytest.mark.parametrize(
    ("name", "shapes", "arguments"),
    [
        ("aten::mm", None, None),
        ("aten::mm", "", None),
        ("aten::mm", "2,3", None),
        ("aten::mm", "2,3;4,5", None),
        ("aten::mm", "[2,3;4,5]", None),
        ("aten::mm", "2,x;3,4", None),
        ("aten::mm", "2,-3;-3,4", None),
        ("aten::mm", "9223372036854775807,9223372036854775807;9223372036854775807,9223372036854775807", None),
        ("aten::mm", ";", None),
        ("aten::bmm", "2,3,4;5,4,6", None),
        ("aten::convolution", "1,3,8,8;4,3,3,3;4", None),
        ("aten::convolution", "1,3,8,8;4,3,3,3;4", "{}"),
        ("aten::convolution", "1,3,8,8;4,3,3,3;4", "[" * 5000),
        ("aten::convolution", "1,3,8,8;4,3,3,3;4", '["", "", "", "[0, 0]", "[0, 0]", "[1, 1]", "False", "[0, 0]", "1"]'),
        ("aten::_scaled_dot_product_flash_attention", "2,4,8;2,4,8;2,4,8", None),
        ("aten::add", "2,3;2,3", None),
    ],
)
def test_nothing_is_guessed(name: str, shapes: str | None, arguments: str | None) -> None:
    assert work_of(name, shapes, arguments) is None


def gpu(device: str, **values: Any) -> Trace:
    """A product of 1024 x 1024 matrices in 10 ms of device time."""
    call = op("aten::mm", 0, 10, input_shapes="1024,1024;1024,1024", input_types="c10::Half;c10::Half", step=1)
    call["device_total_ns"] = 10_000_000
    steps = [{"id": 1, "start_ns": BASE_NS, "end_ns": BASE_NS + 40_000_000, "pid": PID, "tid": MAIN}]
    return build(meta={"deviceProperties": [{"id": 0, "name": device}]}, ops=[{**call, **values}], kernels=GPU, steps=steps)


def test_the_roofline_by_hand() -> None:
    row = flops(gpu("NVIDIA A100-SXM4-40GB")).row(0, named=True)
    assert row["flops"] == 2 * 1024**3
    assert row["bytes"] == 3 * 1024**2 * 2
    assert row["flops_per_second"] == pytest.approx(2 * 1024**3 / 0.01)
    assert row["flops_per_byte"] == pytest.approx(1024 / 3)
    # 341 FLOP per byte x 1555 GB/s is more than the 312 TFLOP/s of the device
    assert (row["limit"], row["attainable_flops_per_second"]) == (COMPUTE, 312e12)
    assert row["attained_percent"] == pytest.approx(100 * 2 * 1024**3 / 0.01 / 312e12)
    narrow = flops(gpu("NVIDIA A100-SXM4-40GB", input_shapes="1024,1;1,1024")).row(0, named=True)
    assert narrow["limit"] == MEMORY
    assert narrow["attainable_flops_per_second"] == pytest.approx(narrow["flops_per_byte"] * 1555e9)


def test_the_utilization_of_a_step() -> None:
    row = flops(gpu("Tesla V100-SXM2-32GB"), by="step").row(0, named=True)
    assert (row["step"], row["time_ns"]) == (1, 40_000_000)
    assert row["attained_percent"] == pytest.approx(100 * 2 * 1024**3 / 0.04 / 125e12)


def test_an_unknown_device_has_no_peak() -> None:
    row = flops(gpu("AMD Radeon Graphics")).row(0, named=True)
    assert (row["attainable_flops_per_second"], row["attained_percent"], row["limit"]) == (None, None, None)
    assert row["best_percent"] == 100
    assert device_peak(build(ops=[op("aten::mm", 0, 1)])) is None
    mixed = [{"id": 0, "name": "NVIDIA H100 80GB HBM3"}, {"id": 1, "name": "Tesla T4"}]
    assert device_peak(build(meta={"deviceProperties": mixed}, kernels=GPU)) is None


def test_float32_beyond_its_peak_was_tf32() -> None:
    peak = peak_of("NVIDIA A100-PG509-200")
    assert peak is not None
    assert peak.flops_per_second("float") == 19.5e12
    assert peak.flops_per_second("float", 60e12) == 156e12
    assert peak.flops_per_second("double") is None
    assert peak_of("NVIDIA H100 PCIe") != peak_of("NVIDIA H100 80GB HBM3")


def test_recorded_figures_win_and_count_once() -> None:
    trace = build(
        ops=[
            op("aten::linear", 0, 10, flops=999),
            op("aten::mm", 1, 9, parent=0, depth=1, input_shapes="2,3;3,4"),
            op("aten::mul", 20, 30, flops=7),
            op("aten::mm", 40, 50, input_shapes="2,3;3,4", flops=5),
        ]
    )
    found = counted_calls(trace).select("op", "flops", "source").rows()
    assert found == [(1, 48, "shapes"), (2, 7, "recorded"), (3, 5, "recorded")]


def test_nothing_to_count() -> None:
    for by in ("name", "shape", "module", "line", "step"):
        for trace in (build(), build(ops=[op("aten::add", 0, 1)])):
            empty = flops(trace, by)
            assert empty.is_empty()
            assert empty.schema["flops"] == pl.Int64
    with pytest.raises(ValueError, match="must be one of"):
        flops(build(), "size")
