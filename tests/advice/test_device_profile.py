"""What is known of a device, from what drivers say while recording."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

import steplens
from steplens.advice.device_profile import device_profile
from steplens.readers.ascend.prof_directory import device_info, open_prof

from ..shared_data import shared
from ..writers.builder import build


@pytest.mark.parametrize(
    ("file", "name", "cores", "capability", "memory_gbps"),
    [
        ("cuda_nccl_distributed", "NVIDIA A100-PG509-200", 108, 8, 1555),
        ("cuda_ns_resolution_rank0", "Tesla V100-SXM2-32GB", 80, 7, 900),
        ("rocm_mi250_minitoy", "AMD Radeon Graphics", 104, None, None),
        ("cuda_sampled_rank0", None, None, None, None),
    ],
)
def test_recorded_gpus(file: str, name: str | None, cores: int | None, capability: int | None, memory_gbps: float | None) -> None:
    profile = device_profile(steplens.open(shared("kineto", f"{file}.json.gz")).trace())
    assert (profile.name, profile.cube_cores, profile.capability) == (name, cores, capability)
    assert (profile.peak.memory if profile.peak else None) == (None if memory_gbps is None else memory_gbps * 1e9)


def test_a_recorded_ascend_device_without_its_side_file() -> None:
    profile = device_profile(steplens.open(shared("ascend_pytorch", "db_level2")).trace())
    assert (profile.name, profile.cube_cores, profile.core_mhz) == ("Ascend910B", None, None)
    assert (profile.link_gbps("HCCS"), profile.link_gbps("RDMA"), profile.link_gbps("SIO")) == (18, 12.5, None)


def test_the_side_file_of_a_recorded_ascend_device() -> None:
    (prof, *_) = sorted(shared("mindspore", "profiler").glob("PROF_*"))
    profile = device_profile(steplens.open(prof).trace())
    # aiv_num is 0 on this generation: its AI cores have the vector units
    assert (profile.cube_cores, profile.vector_cores, profile.core_mhz) == (32, None, 1000)


def test_the_side_file_beside_a_result(tmp_path: Path) -> None:
    run = tmp_path / "w_1_ascend_pt"
    source = shared("ascend_pytorch", "text_level1", "rank0_ascend_pt")
    for file in [*source.glob("*.json"), *(source / "ASCEND_PROFILER_OUTPUT").iterdir()]:
        target = run / file.relative_to(source)
        target.parent.mkdir(parents=True, exist_ok=True)
        target.write_bytes(file.read_bytes())
    device = run / "PROF_000001_20250109_ABC" / "device_0"
    device.mkdir(parents=True)
    (device / "info.json.0").write_text(
        json.dumps({"DeviceInfo": [{"id": 0, "ai_core_num": 24, "aiv_num": 48, "aic_frequency": "1800"}]})
    )
    profile = device_profile(steplens.open(run).trace())
    assert (profile.cube_cores, profile.vector_cores, profile.core_mhz) == (24, 48, 1800)


@pytest.mark.parametrize("content", ["", "[]", "{", '{"DeviceInfo": 3}', '{"DeviceInfo": [7, {"ai_core_num": "many"}]}'])
def test_a_damaged_side_file(tmp_path: Path, content: str) -> None:
    device = tmp_path / "PROF_000001_20250109_ABC" / "device_0"
    device.mkdir(parents=True)
    (device / "info.json").write_text(content)
    assert device_info([open_prof(device.parent)]) in ([], [{}])
    odd = {"ai_core_num": -3, "aiv_num": True, "aic_frequency": "1e9"}
    profile = device_profile(build(meta={"device_info": [odd], "chip": "Ascend310", "device_ids": [0]}))
    assert (profile.name, profile.cube_cores, profile.vector_cores, profile.core_mhz, profile.peak) == (
        "Ascend310", None, None, None, None,
    )  # fmt: skip
