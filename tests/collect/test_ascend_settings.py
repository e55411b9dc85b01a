"""Options of a profiler to the mask, the metrics and the config values that CANN gets; the numbers are CANN's."""

import itertools

import pytest

from steplens import _ExperimentalConfig
from steplens.collect.ascend.settings import ConfigType, Data, DeviceOptions, plan_recording
from steplens.common.options import AiCMetrics, HostSystem, ProfilerLevel

LEVEL0, LEVEL1, LEVEL2 = 0x801, 0x27, 0x12F


def mask(options, features=()):
    return int(plan_recording(options, features.__contains__).mask)


def never(feature):
    raise AssertionError(f"nobody needs to know whether CANN has {feature}")


@pytest.mark.parametrize(
    ("level", "expected"),
    [
        (ProfilerLevel.Level_none, 0),
        (ProfilerLevel.Level0, LEVEL0),
        (ProfilerLevel.Level1, LEVEL1),
        (ProfilerLevel.Level2, LEVEL2),
        (None, 0),
    ],
)
def test_levels(level, expected):
    chosen = plan_recording(DeviceOptions(level=level), never)
    assert int(chosen.mask) == expected
    assert chosen.metrics == 0xFF
    assert chosen.configs == chosen.dropped == ()


@pytest.mark.parametrize("level", [ProfilerLevel.Level1, ProfilerLevel.Level2])
@pytest.mark.parametrize(
    ("metrics", "expected"),
    [
        (AiCMetrics.ArithmeticUtilization, 0),
        (AiCMetrics.PipeUtilization, 1),
        (AiCMetrics.Memory, 2),
        (AiCMetrics.MemoryL0, 3),
        (AiCMetrics.ResourceConflictRatio, 4),
        (AiCMetrics.MemoryUB, 5),
        (AiCMetrics.L2Cache, 6),
        (AiCMetrics.MemoryAccess, 8),
        (AiCMetrics.AiCoreNone, 255),
    ],
)
def test_metrics(level, metrics, expected):
    chosen = plan_recording(DeviceOptions(level=level, metrics=metrics), {"MemoryAccess"}.__contains__)
    assert chosen.metrics == expected
    assert int(chosen.mask) == {ProfilerLevel.Level1: LEVEL1, ProfilerLevel.Level2: LEVEL2}[level]
    assert not chosen.dropped


def test_every_metric_has_a_number():
    for metrics in AiCMetrics:
        plan_recording(DeviceOptions(metrics=metrics), lambda _: True)


def test_metrics_add_their_bit_where_the_level_has_none():
    assert mask(DeviceOptions(level=ProfilerLevel.Level0, metrics=AiCMetrics.Memory)) == LEVEL0 | 0x4


def test_memory_access_without_the_feature():
    chosen = plan_recording(DeviceOptions(level=ProfilerLevel.Level1, metrics=AiCMetrics.MemoryAccess), lambda _: False)
    assert chosen.metrics == 1
    assert int(chosen.mask) == LEVEL1
    assert chosen.dropped == ("aic_metrics MemoryAccess (PipeUtilization is recorded)",)


SWITCHES = {
    "l2_cache": (0x10, ()),
    "mstx": (0x80, ()),
    "memory": (0x1000, ((3, "50"),)),
    "sys_io": (0, ((5, "100"),)),
    "sys_interconnection": (0, ((6, "50"),)),
    "op_attr": (0x4000, ()),
}


@pytest.mark.parametrize("level", list(ProfilerLevel))
def test_every_combination_of_switches(level):
    base = mask(DeviceOptions(level=level))
    for chosen in itertools.product([False, True], repeat=len(SWITCHES)):
        options = {name: on for name, on in zip(SWITCHES, chosen, strict=True) if on}
        result = plan_recording(DeviceOptions(level=level, **options), {"ATTR"}.__contains__)
        expected = base
        configs = []
        for name in options:
            expected |= SWITCHES[name][0]
            configs += SWITCHES[name][1]
        assert int(result.mask) == expected
        assert [(int(kind), value) for kind, value in result.configs] == configs


@pytest.mark.parametrize(
    ("systems", "value"),
    [
        ((HostSystem.CPU,), "cpu"),
        ((HostSystem.CPU, HostSystem.MEM), "cpu,mem"),
        (tuple(HostSystem), "cpu,mem,disk,network,osrt,numa"),
    ],
)
def test_host_systems(systems, value):
    chosen = plan_recording(DeviceOptions(host_sys=systems), never)
    assert chosen.configs == ((8, value),)
    assert int(chosen.mask) == LEVEL0


def test_attributes_without_the_feature():
    chosen = plan_recording(DeviceOptions(op_attr=True), lambda _: False)
    assert int(chosen.mask) == LEVEL0
    assert chosen.dropped == ("op_attr",)


@pytest.mark.parametrize(
    ("level", "features", "expected", "dropped"),
    [
        (ProfilerLevel.Level0, {"AICORE_SHAPE"}, LEVEL0 | 0x8_0000_0000, 0),
        (ProfilerLevel.Level0, set(), LEVEL0, 1),
        (ProfilerLevel.Level1, {"AICORE_SHAPE"}, LEVEL1, 0),
        (ProfilerLevel.Level2, {"AICORE_SHAPE"}, LEVEL2, 0),
        (ProfilerLevel.Level_none, {"AICORE_SHAPE"}, 0, 0),
    ],
)
def test_shapes(level, features, expected, dropped):
    chosen = plan_recording(DeviceOptions(level=level, shapes=True), features.__contains__)
    assert int(chosen.mask) == expected
    assert len(chosen.dropped) == dropped


def test_bits_and_frequency_of_another_framework():
    options = DeviceOptions(level=None, data=Data.ACL_API | Data.TASK_TIME | Data.TRAINING_TRACE, memory=True, memory_hz=100)
    chosen = plan_recording(options, never)
    assert int(chosen.mask) == 0x1 | 0x2 | 0x40 | 0x1000
    assert chosen.configs == ((ConfigType.SYS_HARDWARE_MEM_FREQ, "100"),)


def test_options_of_a_profiler():
    experimental = _ExperimentalConfig(
        profiler_level="Level2",
        aic_metrics="MemoryUB",
        l2_cache=True,
        mstx=True,
        op_attr=True,
        export_type="db",
        sys_io=True,
        sys_interconnection=True,
        host_sys=["mem", "osrt"],
    )
    chosen = plan_recording(DeviceOptions.of(experimental, profile_memory=True, record_shapes=True), lambda _: True)
    assert int(chosen.mask) == LEVEL2 | 0x10 | 0x80 | 0x1000 | 0x4000
    assert chosen.metrics == 5
    assert [(int(kind), value) for kind, value in chosen.configs] == [(3, "50"), (8, "mem,osrt"), (5, "100"), (6, "50")]


def test_default_options_of_a_profiler():
    chosen = plan_recording(DeviceOptions.of(_ExperimentalConfig(), profile_memory=False, record_shapes=False), never)
    assert (int(chosen.mask), chosen.metrics, chosen.configs) == (LEVEL0, 0xFF, ())


def test_level_none_records_marks():
    experimental = _ExperimentalConfig(profiler_level="Level_none")
    assert mask(DeviceOptions.of(experimental, profile_memory=False, record_shapes=True)) == 0x80


def test_deprecated_name_of_mstx():
    with pytest.warns(FutureWarning):
        experimental = _ExperimentalConfig(msprof_tx=True)
    assert mask(DeviceOptions.of(experimental, profile_memory=False, record_shapes=False)) == LEVEL0 | 0x80
