"""Options: their table, and how wrong values are reset."""

import inspect

import pytest

import steplens
from steplens import AiCMetrics, ExportType, HostSystem, ProfilerActivity, ProfilerLevel, _ExperimentalConfig
from steplens.common import options


@pytest.mark.parametrize(
    ("given", "name", "expected", "warns"),
    [
        ({}, "aic_metrics", AiCMetrics.AiCoreNone, False),
        ({}, "export_type", [ExportType.Text], False),
        ({}, "host_sys", [], False),
        ({}, "data_simplification", True, False),
        ({"profiler_level": "Level1"}, "aic_metrics", AiCMetrics.PipeUtilization, False),
        ({"profiler_level": 3}, "profiler_level", ProfilerLevel.Level0, True),
        ({"profiler_level": ProfilerLevel.Level2}, "profiler_level", ProfilerLevel.Level2, False),
        ({"profiler_level": ProfilerLevel.Level_none}, "mstx", True, False),
        ({"aic_metrics": AiCMetrics.Memory}, "aic_metrics", AiCMetrics.AiCoreNone, True),
        ({"aic_metrics": AiCMetrics.AiCoreNone}, "aic_metrics", AiCMetrics.AiCoreNone, False),
        ({"profiler_level": "Level_none", "aic_metrics": "L2Cache"}, "aic_metrics", AiCMetrics.AiCoreNone, True),
        ({"profiler_level": "Level1", "aic_metrics": "MemoryUB"}, "aic_metrics", AiCMetrics.MemoryUB, False),
        ({"profiler_level": "Level1", "aic_metrics": "all"}, "aic_metrics", AiCMetrics.PipeUtilization, True),
        ({"l2_cache": 1}, "l2_cache", False, True),
        ({"l2_cache": True}, "l2_cache", True, False),
        ({"data_simplification": "no"}, "data_simplification", True, True),
        ({"record_op_args": None}, "record_op_args", False, True),
        ({"op_attr": True}, "op_attr", False, True),
        ({"op_attr": True, "export_type": ["db", "text"]}, "op_attr", True, False),
        ({"op_attr": "yes", "export_type": "db"}, "op_attr", False, True),
        ({"gc_detect_threshold": -1}, "gc_detect_threshold", None, True),
        ({"gc_detect_threshold": "1"}, "gc_detect_threshold", None, True),
        ({"gc_detect_threshold": True}, "gc_detect_threshold", None, True),
        ({"gc_detect_threshold": float("nan")}, "gc_detect_threshold", None, True),
        ({"gc_detect_threshold": 1}, "gc_detect_threshold", 1.0, False),
        ({"export_type": "db"}, "export_type", [ExportType.Db], False),
        ({"export_type": ["text", ExportType.Text, "db"]}, "export_type", [ExportType.Text, ExportType.Db], False),
        ({"export_type": ["csv"]}, "export_type", [ExportType.Text], True),
        ({"export_type": []}, "export_type", [ExportType.Text], True),
        ({"export_type": 1}, "export_type", [ExportType.Text], True),
        ({"host_sys": [HostSystem.CPU, "mem"]}, "host_sys", [HostSystem.CPU, HostSystem.MEM], False),
        ({"host_sys": ["cpu", "gpu"]}, "host_sys", [], True),
        ({"host_sys": "cpu"}, "host_sys", [], True),
        ({"mstx": 0}, "mstx", False, True),
        ({"mstx_domain_include": ["a"]}, "mstx_domain_include", [], True),
        ({"mstx": True, "mstx_domain_include": ["a", "a"]}, "mstx_domain_include", ["a"], False),
        ({"mstx": True, "mstx_domain_include": "a"}, "mstx_domain_include", [], True),
        ({"mstx": True, "mstx_domain_include": ["a"], "mstx_domain_exclude": ["b"]}, "mstx_domain_exclude", [], True),
        ({"mstx": True, "mstx_domain_exclude": [1]}, "mstx_domain_exclude", [], True),
        ({"sys_io": "x"}, "sys_io", False, True),
        ({"sys_interconnection": []}, "sys_interconnection", False, True),
    ],
)
def test_experimental_value(given, name, expected, warns, capfd):
    assert getattr(_ExperimentalConfig(**given), name) == expected
    assert ("WARNING" in capfd.readouterr().err) == warns


def test_msprof_tx_is_deprecated():
    with pytest.warns(FutureWarning, match="msprof_tx"):
        _ExperimentalConfig(msprof_tx=True)


def test_zero_threshold_says_that_all_are_recorded(capfd):
    _ExperimentalConfig(gc_detect_threshold=0)
    assert "[INFO]" in capfd.readouterr().err


@pytest.mark.parametrize("name", ["record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules"])
def test_switch_of_profile_is_reset(name):
    values, warnings = options.resolve_options(options.PROFILE, {name: 1})
    assert values[name] is False
    assert warnings == [f"Parameter {name} is of boolean type, reset it to False."]


def test_handler_flags_are_reset(capfd):
    handler = steplens.tensorboard_trace_handler("x", worker_name=3, analyse_flag="no", async_mode=1)
    assert (handler.worker_name, handler.analyse_flag, handler.async_mode) == (None, True, False)
    assert capfd.readouterr().err.count("WARNING") == 3


@pytest.mark.parametrize(
    ("value", "expected", "warns"),
    [
        (None, None, False),
        ([ProfilerActivity.CPU, ProfilerActivity.CPU], [ProfilerActivity.CPU], False),
        (["NPU"], [ProfilerActivity.NPU], False),
        ([], None, True),
        (["TPU"], None, True),
        (3, None, True),
        ([3], None, True),
    ],
)
def test_activities(value, expected, warns):
    values, warnings = options.resolve_options(options.PROFILE, {"activities": value})
    assert values["activities"] == expected
    assert bool(warnings) == warns


def test_activities_of_torch_are_understood():
    profiler = pytest.importorskip("torch.profiler")
    assert options.to_activity(profiler.ProfilerActivity.CUDA) is ProfilerActivity.CUDA
    assert options.to_activity(profiler.ProfilerActivity.XPU) is None


CALLS = [
    (options.PROFILE, steplens.profile.__init__),
    (options.SCHEDULE, steplens.schedule.__init__),
    (options.EXPERIMENTAL, _ExperimentalConfig.__init__),
    (options.HANDLER, steplens.tensorboard_trace_handler),
    (options.BLACK_BOX, steplens.BlackBox.__init__),
    (options.PROFILE, steplens._KinetoProfile.__init__),
    (options.PROFILE, steplens.profile.enable_profiler_in_child_thread),
]
COMPLETE = CALLS[:4]

#: what the annotation of an argument names, by the type of its option
ANNOTATIONS = {
    **{name: (name,) for name in ("bool", "int", "float", "str")},
    "strings": ("list[str]",),
    "enums": ("Iterable", "list"),
}


@pytest.mark.parametrize(("group", "call"), COMPLETE)
def test_table_has_exactly_the_arguments_of_the_call(group, call):
    assert [option.name for option in options.options_of_group(group)] == [
        name for name in inspect.signature(call).parameters if name != "self"
    ]


@pytest.mark.parametrize(("group", "call"), CALLS)
def test_signature_says_what_the_table_says(group, call):
    table = {option.name: option for option in options.options_of_group(group)}
    others = {option.name: option for option in options.options_of_group(options.PROFILE)}
    parameters = [parameter for name, parameter in inspect.signature(call).parameters.items() if name != "self"]
    names = [parameter.name for parameter in parameters if parameter.name in table]
    assert names == [name for name in table if name in names]
    for parameter in parameters:
        option = table.get(parameter.name) or others[parameter.name]
        if parameter.default is not inspect.Parameter.empty and group != options.EXPERIMENTAL:
            assert parameter.default == option.default
        assert any(part in parameter.annotation for part in ANNOTATIONS.get(option.type, ("",)))
        if option.default is None:
            assert "None" in parameter.annotation or parameter.annotation == "Any"


def test_attributes_of_the_extended_options_are_those_of_the_table():
    assert set(_ExperimentalConfig.__annotations__) == {option.name for option in options.options_of_group(options.EXPERIMENTAL)}


def test_switches_and_limits_are_options_of_profile():
    for names, kinds in ((options.SWITCHES, {"bool"}), (options.LIMITS, {"int", "float"})):
        assert {options.find_option(options.PROFILE, name).type for name in names} == kinds


@pytest.mark.parametrize("option", options.OPTIONS, ids=lambda option: option.name)
def test_default_is_accepted_without_a_warning(option):
    assert option.accept(option.default)[1] == ""
    assert option.help.endswith(".")


def test_unknown_names_are_programming_errors():
    with pytest.raises(TypeError):
        options.resolve_options(options.SCHEDULE, {"steps": 1})
    with pytest.raises(TypeError):
        steplens.profile(record_shape=True)
