"""Device time matched by call path: renamed, fused and split operators, and a model on GPUs of two makers."""

from __future__ import annotations

import csv
from collections.abc import Sequence

import pytest

import steplens
from steplens.comparison.call_tree import DeviceTimeByPath, match_device_time, measure_paths
from steplens.trace.trace import Trace

from ..shared_data import shared
from ..writers.builder import build, kernel, op


def convolutions(inner: str, kernel_us: float, *, module: str | None = None) -> Trace:
    """aten::conv2d, which calls ``inner``, which launches a kernel; and aten::mul, which launches one of 10 us."""
    ops = [
        op("aten::conv2d", 0, 100, module=module, device_total_ns=round(kernel_us * 1000)),
        op(inner, 10, 90, parent=0, depth=1, module=module, device_self_ns=round(kernel_us * 1000)),
        op("aten::mul", 200, 210, device_self_ns=10_000),
    ]
    kernels = [kernel("conv", 20, 20 + kernel_us, op=1), kernel("mul", 300, 310, op=2)]
    return build(ops=ops, kernels=kernels)


def match(before: Sequence[Trace], after: Sequence[Trace]) -> DeviceTimeByPath:
    return match_device_time(measure_paths(before), measure_paths(after))


def test_what_has_another_name_below_counts_where_the_paths_are_the_same() -> None:
    found = match([convolutions("aten::miopen_convolution", 50)], [convolutions("aten::cudnn_convolution", 30)])
    assert found.matched == 1.0
    first, second = found.rows.to_dicts()
    assert (first["path"], first["before_ns"], first["after_ns"]) == ("aten::conv2d", 50_000, 30_000)
    assert (first["before_launched_by"], first["after_launched_by"]) == ("aten::miopen_convolution", "aten::cudnn_convolution")
    assert (second["path"], second["difference_ns"]) == ("aten::mul", 0)
    # the same path to the end is named by its end
    alike = match([convolutions("aten::conv", 50)], [convolutions("aten::conv", 40)])
    assert alike.rows["path"].to_list() == ["aten::conv2d > aten::conv", "aten::mul"]


def test_modules_tell_paths_apart_and_what_is_on_one_side_alone_is_not_matched() -> None:
    found = match([convolutions("aten::conv", 50, module="net.0")], [convolutions("aten::conv", 50, module="net.1")])
    assert found.rows["path"].to_list() == ["aten::mul"]
    assert found.matched == pytest.approx(20 / 120)
    nothing = match([build(ops=[op("aten::mul", 0, 1)])], [build(ops=[op("aten::mul", 0, 1)])])
    assert nothing.matched is None and nothing.rows.is_empty()


def test_several_ranks_and_calls_add_up() -> None:
    """Rows of several traces keep their own parents; without steps times are those of the whole recordings."""
    two = [convolutions("aten::conv", 50), convolutions("aten::conv", 70)]
    found = match(two, [convolutions("aten::conv", 30)])
    assert found.rows.select("path", "before_ns", "after_ns").rows()[0] == ("aten::conv2d > aten::conv", 120_000, 30_000)


def test_one_model_on_gpus_of_two_makers() -> None:
    """Nearly all of the device time has its counterpart, and operators take what TraceLens says of the same traces."""
    folders = [shared("tracelens", gpu, "Falconsai_nsfw_image_detection__1016002") for gpu in ("mi300", "h100")]
    runs = [steplens.open(folder / "trace.json.gz") for folder in folders]
    found = match(*(run.traces for run in runs))
    assert found.matched is not None and found.matched >= 0.95
    rows = {row["name"]: row for row in found.rows.to_dicts()}
    for side, folder in zip(("before_ns", "after_ns"), folders, strict=True):
        with (folder / "ops_summary.csv").open() as file:
            expected = {row["name"]: float(row["total_direct_kernel_time_sum"]) for row in csv.DictReader(file)}
        common = [name for name in expected if name in rows]
        assert {"aten::addmm", "aten::gelu", "aten::native_layer_norm"} <= set(common)
        assert {name: rows[name][side] / 1000 for name in common} == pytest.approx(
            {name: expected[name] for name in common}, abs=0.5
        )
    assert rows["aten::_convolution"]["before_launched_by"].startswith("aten::miopen_convolution")
    assert rows["aten::_convolution"]["after_launched_by"].startswith("aten::cudnn_convolution")
