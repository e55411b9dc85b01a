from __future__ import annotations

import json
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from steplens.collect.common.experimental_config import _ExperimentalConfig
from steplens.collect.dynamic.configuration import TEMPLATE, Settings, read_plan
from steplens.common.options import AiCMetrics, ExportType, ProfilerActivity, ProfilerLevel


def settings_of(**fields: Any) -> Settings:
    return read_plan({**TEMPLATE, **fields}, 0).settings


def test_the_defaults_are_fine() -> None:
    plan = read_plan(TEMPLATE, -1)
    assert (plan.start_step, plan.steps, plan.warmup, plan.refusal, plan.warnings) == (0, 1, 0, "", ())
    assert read_plan({}, -1).warnings == ()
    assert read_plan({}, -1).settings.experimental is None


@pytest.mark.parametrize(
    ("field", "value", "used"),
    [
        ("active", 0, 1),
        ("active", -1, 1),
        ("active", 1.5, 1),
        ("active", True, 1),
        ("warmup", -1, 0),
        ("warmup", "1", 0),
        ("start_step", -2, 0),
        ("start_step", "5", 0),
        ("start_step", None, 0),
        ("prof_dir", 3, "./"),
        ("prof_dir", "", "./"),
        ("prof_dir", "a\0b", "./"),
        ("analyse", "true", False),
        ("async_mode", 1, False),
        ("metadata", [], {}),
        ("activities", ["GPU"], None),
        ("activities", "TPU", None),
        ("activities", ["CPU", "GPU"], (ProfilerActivity.CPU,)),
        ("activities", [["CPU"]], None),
        ("experimental_config", "Level1", None),
    ],
)
def test_a_wrong_field_is_reset_with_one_warning(field: str, value: Any, used: Any) -> None:
    plan = read_plan({**TEMPLATE, field: value}, 0)
    found = {
        "active": plan.steps - plan.warmup,
        "warmup": plan.warmup,
        "start_step": plan.start_step,
        "experimental_config": plan.settings.experimental,
    }
    assert found.get(field, getattr(plan.settings, field, None)) == used
    assert len(plan.warnings) == 1 and field in plan.warnings[0]


@pytest.mark.parametrize("field", ["record_shapes", "profile_memory", "with_stack", "with_flops", "with_modules"])
def test_a_switch_that_is_no_boolean_is_off(field: str) -> None:
    assert settings_of(**{field: True}).recorded[field] is True
    plan = read_plan({field: "yes"}, 0)
    assert plan.settings.recorded[field] is False
    assert plan.warnings == (f"Parameter {field} is of boolean type, reset it to False.",)


@pytest.mark.parametrize(
    ("given", "used"),
    [
        ({"profiler_level": "Level9"}, {"profiler_level": ProfilerLevel.Level0}),
        ({"profiler_level": "Level1", "aic_metrics": "Pipe"}, {"aic_metrics": AiCMetrics.PipeUtilization}),
        ({"aic_metrics": "Memory"}, {"aic_metrics": AiCMetrics.AiCoreNone}),
        ({"l2_cache": 1}, {"l2_cache": False}),
        ({"data_simplification": "no"}, {"data_simplification": True}),
        ({"record_op_args": 0}, {"record_op_args": False}),
        ({"export_type": ["xml"]}, {"export_type": [ExportType.Text]}),
        ({"gc_detect_threshold": -1}, {"gc_detect_threshold": None}),
        ({"host_sys": ["cpu", "gpu"]}, {"host_sys": []}),
        ({"op_attr": True}, {"op_attr": False}),
        ({"mstx_domain_include": "mine", "mstx": True}, {"mstx_domain_include": []}),
    ],
)
def test_extended_options_follow_their_own_rules(given: dict[str, Any], used: dict[str, Any], capfd: Any) -> None:
    plan = read_plan({"experimental_config": given}, 0)
    assert {name: plan.settings.experimental[name] for name in used} == used
    assert len(plan.warnings) == 1
    # what is handed on is right already, so nothing is said twice
    config = _ExperimentalConfig(**plan.settings.experimental)
    assert {name: getattr(config, name) for name in used} == used
    assert capfd.readouterr().err == ""


def test_only_listed_ranks_take_part() -> None:
    assert read_plan({"is_rank": True, "rank_list": [0, 2]}, 2).refusal == ""
    assert read_plan({"is_rank": True, "rank_list": [0, 2]}, 1).refusal == "rank 1 is not in rank_list"
    # a program that is no distributed job counts as rank 0
    assert read_plan({"is_rank": True, "rank_list": [0]}, -1).refusal == ""
    assert read_plan({"is_rank": True}, 0).refusal == "is_rank is true and rank_list is empty"
    assert read_plan({"is_rank": True, "rank_list": "0"}, 0).refusal == "is_rank is true and rank_list is empty"
    assert read_plan({"is_rank": "yes", "rank_list": [3]}, 0).refusal == ""
    assert read_plan({"is_rank": True, "rank_list": [0, "1", True, -1]}, 1).warnings == (
        "Parameter rank_list holds something else than ranks, which is left out.",
    )


def test_a_listed_rank_analyses_only_beside_the_training() -> None:
    listed = {"is_rank": True, "rank_list": [0], "analyse": True}
    plan = read_plan(listed, 0)
    assert plan.settings.analyse is False
    assert plan.warnings == ("With is_rank the analysis needs async_mode, reset analyse to False.",)
    assert read_plan({**listed, "async_mode": True}, 0).settings.analyse is True
    assert read_plan({**listed, "is_rank": False}, 0).settings.analyse is True


def test_both_activities_mean_everything_there_is() -> None:
    assert settings_of().activities is None
    assert settings_of(activities=["CPU"]).activities == (ProfilerActivity.CPU,)
    assert settings_of(activities=["CUDA", "CPU", "CPU"]).activities == (ProfilerActivity.CUDA, ProfilerActivity.CPU)


def test_a_field_that_does_not_exist_is_named_with_what_was_meant() -> None:
    plan = read_plan({"actve": 3, "experimental_config": {"profile_level": "Level1"}}, 0)
    assert plan.steps == 1
    assert plan.warnings == (
        "There is no parameter experimental_config.profile_level (is experimental_config.profiler_level meant?), it is ignored.",
        "There is no parameter actve (is active meant?), it is ignored.",
    )


values = st.recursive(
    st.none()
    | st.booleans()
    | st.integers(-3, 10)
    | st.floats()
    | st.text(max_size=6)
    | st.sampled_from(["CPU", "Level1", "db"]),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=4), inner, max_size=3),
    max_leaves=6,
)
names = st.sampled_from([*TEMPLATE, "metadata", "something"])
inner_names = st.sampled_from(list(TEMPLATE["experimental_config"]))


@pytest.mark.filterwarnings("ignore:msprof_tx is deprecated")
@given(document=st.dictionaries(names, values), inner=st.none() | st.dictionaries(inner_names, values), rank=st.integers(-1, 3))
def test_any_json_object_is_read(document: dict[str, Any], inner: dict[str, Any] | None, rank: int) -> None:
    if inner is not None:
        document["experimental_config"] = inner
    plan = read_plan(json.loads(json.dumps(document)), rank)
    assert plan.steps >= 1 and plan.warmup >= 0 and plan.start_step >= -1
    assert all(isinstance(value, bool) for value in plan.settings.recorded.values())
    if plan.settings.experimental is not None:
        _ExperimentalConfig(**plan.settings.experimental)
