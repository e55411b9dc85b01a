"""Clock rates of processors, and comparisons of sides that were clocked otherwise."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from steplens.analysis.device.clock_rates import clock_rates
from steplens.collect.common import metadata
from steplens.comparison.comparison import compare_runs
from steplens.run import Run, Source

from ..writers.builder import BASE_NS, MAIN, PID, build, op


def clocked(clock: dict[str, Any], samples: list[tuple[int, float]] | None = None) -> Any:
    rows = [op("aten::mm", 1000 * step, 1000 * step + 900, step=step) for step in range(8)]
    marks = [
        {"id": step, "start_ns": BASE_NS + 1_000_000 * step, "end_ns": BASE_NS + 1_000_000 * (step + 1), "pid": PID, "tid": MAIN}
        for step in range(8)
    ]
    counters = [
        {"group": "AI Core Freq", "name": "AI Core Freq", "unit": "MHz", "time_ns": time_ns, "value": mhz, "device": 0}
        for time_ns, mhz in samples or []
    ]
    return build(meta={"rank": 0, "pid": PID, "clock_mhz": clock}, ops=rows, steps=marks, counters=counters)


def test_a_sample_holds_until_the_next_one() -> None:
    assert clock_rates(clocked({}, [(0, 1000.0), (30, 1800.0), (40, 500.0)])) == {"AI core": 1200.0}
    assert clock_rates(clocked({}, [(7, 1500.0)])) == {"AI core": 1500.0}
    assert clock_rates(clocked({"processor": 2600.5, "CUDA": 1980})) == {"processor": 2600.5, "CUDA": 1980.0}


@pytest.mark.parametrize("mhz", [None, "fast", -3.0, 0, 1e300, float("nan"), float("inf"), [1], {}])
def test_damage_says_nothing(mhz: object) -> None:
    assert clock_rates(clocked({"processor": mhz}, [(0, float("nan"))])) == {}


def test_other_clock_rates_make_a_comparison_doubtful() -> None:
    def doubts(before: float, after: float) -> list[str]:
        runs = [
            Run(Path(name), [(Source(Path(name)), clocked({"processor": mhz}))], [])
            for name, mhz in (("a", before), ("b", after))
        ]
        return [text for text in compare_runs(*runs).doubts if "clock" in text]

    assert doubts(2600.0, 2640.0) == []
    assert doubts(2600.0, 1300.0) == ["clock rates differ: processor 2,600 MHz before, 1,300 MHz after"]


def test_the_host_says_the_rate_of_its_fastest_processor(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    cpuinfo = tmp_path / "cpuinfo"
    cpuinfo.write_text("processor\t: 0\ncpu MHz\t\t: 1200.123\n\nprocessor\t: 1\ncpu MHz\t\t: 3400.5\n")
    monkeypatch.setattr(metadata, "_CPUFREQ", tmp_path)
    monkeypatch.setattr(metadata, "_CPUINFO", cpuinfo)
    assert metadata.clock_rates()["processor"] == 3400.5
    for number, khz in enumerate(("800000", "2900000", "nonsense")):
        (tmp_path / f"cpu{number}" / "cpufreq").mkdir(parents=True)
        (tmp_path / f"cpu{number}" / "cpufreq" / "scaling_cur_freq").write_text(f"{khz}\n")
    assert metadata.clock_rates()["processor"] == 2900.0
    monkeypatch.setattr(metadata, "_CPUFREQ", tmp_path / "none")
    monkeypatch.setattr(metadata, "_CPUINFO", tmp_path / "none")
    assert "processor" not in metadata.clock_rates()
