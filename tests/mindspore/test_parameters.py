"""Parameters, schedules and configurations: defaults, couplings, and what becomes of wrong values. Without MindSpore."""

from __future__ import annotations

import json
import subprocess
import sys
import types
from typing import Any

import pytest

from steplens.collect.dynamic.plan import NEVER, NEXT
from steplens.collect.mindspore.dynamic.form import TEMPLATE, MindsporeForm
from steplens.collect.mindspore.interfaces.analysis import step_list_of
from steplens.collect.mindspore.interfaces.metadata import TOTAL_LIMIT_2_4, Metadata
from steplens.collect.mindspore.interfaces.parameters import R2_2, R2_4, resolve_parameters, without_effect
from steplens.collect.mindspore.recording.framework import operator_profiler
from steplens.mindspore import AicoreMetrics, ProfilerAction, ProfilerLevel, _ExperimentalConfig, schedule

DEFAULTS_2_4 = {
    "output_path": "data", "op_time": True, "profile_communication": False, "profile_memory": False, "parallel_strategy": False,
    "start_profile": True, "aicore_metrics": 0, "l2_cache": False, "sync_enable": True, "data_process": False,
    "timeline_limit": 500, "profile_framework": None, "profiler_level": None, "hbm_ddr": False, "pcie": False,
    "with_stack": False, "data_simplification": True,
}  # fmt: skip
DEFAULTS_2_2 = {
    "output_path": "data", "op_time": True, "profile_communication": False, "profile_memory": False, "parallel_strategy": True,
    "start_profile": True, "aicore_metrics": 0, "l2_cache": False, "sync_enable": True, "data_process": True,
    "timeline_limit": 500, "profile_framework": "all",
}  # fmt: skip


@pytest.fixture(autouse=True)
def no_variables(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("MS_DIAGNOSTIC_DATA_PATH", raising=False)
    monkeypatch.setenv("RANK", "0")


def test_defaults() -> None:
    assert resolve_parameters({}, R2_4) == (DEFAULTS_2_4, [])
    assert resolve_parameters({}, R2_2) == (DEFAULTS_2_2, [])


def test_the_path_may_come_from_the_environment(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("MS_DIAGNOSTIC_DATA_PATH", "/somewhere else")
    assert resolve_parameters({})[0]["output_path"] == "/somewhere else"
    assert resolve_parameters({"output_path": "given"})[0]["output_path"] == "given"
    values, warnings = resolve_parameters({"output_path": 3})
    assert values["output_path"] == "/somewhere else" and len(warnings) == 1


@pytest.mark.parametrize(
    ("contract", "name", "value", "result"),
    [
        (R2_4, "op_time", 1, True),
        (R2_4, "profile_memory", "yes", False),
        (R2_2, "parallel_strategy", None, True),
        (R2_2, "aicore_metrics", 6, 0),
        (R2_4, "aicore_metrics", 7, 0),
        (R2_4, "aicore_metrics", True, 0),
        (R2_4, "timeline_limit", 0, 500),
        (R2_4, "timeline_limit", True, 500),
        (R2_4, "timeline_limit", 1.5, 500),
        (R2_2, "profile_framework", "everything", "all"),
        (R2_4, "profile_framework", "memory", None),
        (R2_4, "profiler_level", 1, ProfilerLevel.Level0),
    ],
)
def test_wrong_values_are_reset_with_a_warning(contract: str, name: str, value: object, result: object) -> None:
    values, warnings = resolve_parameters({name: value}, contract)
    assert values[name] == result
    assert any(warning.startswith(f"{name} should be") and repr(value) in warning for warning in warnings)


@pytest.mark.parametrize(
    ("contract", "name", "value"),
    [
        (R2_4, "aicore_metrics", 6),
        (R2_2, "aicore_metrics", -1),
        (R2_2, "profile_framework", "memory"),
        (R2_4, "timeline_limit", 1),
    ],
)
def test_right_values_stay(contract: str, name: str, value: object) -> None:
    values, warnings = resolve_parameters({name: value}, contract)
    assert values[name] == value and not warnings


def test_only_a_wrong_start_raises() -> None:
    with pytest.raises(TypeError, match="start_profile should be True or False, not 1"):
        resolve_parameters({"start_profile": 1})


def test_unknown_parameters_are_named() -> None:
    for contract, name in ((R2_4, "nothing"), (R2_2, "profiler_level"), (R2_2, "data_simplification")):
        values, warnings = resolve_parameters({name: True}, contract)
        assert name not in values and warnings == [f"{name} is an invalid param which doesn't work."]


def test_couplings() -> None:
    values, warnings = resolve_parameters({"op_time": False, "profile_memory": True})
    assert values["profile_memory"] is False and warnings == ["profile_memory has no effect when op_time is False."]
    for level, metrics in ((ProfilerLevel.Level0, -1), (ProfilerLevel.Level1, 0)):
        values, warnings = resolve_parameters({"profiler_level": level, "data_process": True})
        assert (values["data_process"], values["aicore_metrics"]) == (False, metrics)
        assert any("data_process is set to False, because profiler_level is" in warning for warning in warnings)
    warnings = resolve_parameters({"profiler_level": ProfilerLevel.Level0, "aicore_metrics": 0})[1]
    assert warnings == ["aicore_metrics is set to -1, because profiler_level is Level0."]
    assert resolve_parameters({"profiler_level": ProfilerLevel.Level2, "data_process": True})[0]["data_process"] is True
    values, warnings = resolve_parameters({"with_stack": True})
    assert values["with_stack"] is False
    assert warnings == ["with_stack is set to False, because it needs profile_framework."]
    assert resolve_parameters({"with_stack": True, "profile_framework": "time"})[0]["with_stack"] is True


def test_what_a_cpu_does_not_have_is_named() -> None:
    given = {"l2_cache": True, "pcie": False, "profile_memory": True, "aicore_metrics": 0, "profile_framework": "all"}
    assert without_effect(given, resolve_parameters(given)[0]) == ["l2_cache", "profile_framework"]


def test_schedule() -> None:
    actions = [schedule(wait=0, warmup=1, active=2, repeat=2, skip_first=1)(step).name for step in range(8)]
    assert actions == ["NONE", "WARM_UP", "RECORD", "RECORD_AND_SAVE", "WARM_UP", "RECORD", "RECORD_AND_SAVE", "NONE"]
    endless = schedule(wait=1, active=1)
    assert [endless(step) for step in range(4)] == [ProfilerAction.NONE, ProfilerAction.RECORD_AND_SAVE] * 2
    with pytest.raises(ValueError, match="negative"):
        endless(-1)


@pytest.mark.parametrize("wrong", [{"active": 0}, {"wait": -1}, {"warmup": True}, {"repeat": 1.0}, {"skip_first": "1"}])
def test_a_wrong_schedule_records_every_step(wrong: dict[str, Any], capsys: pytest.CaptureFixture[str]) -> None:
    made = schedule(**{"wait": 2, "active": 3, **wrong})
    assert [made(step).name for step in range(3)] == ["RECORD_AND_SAVE"] * 3
    assert next(iter(wrong)) in capsys.readouterr().err


def test_experimental_couplings(capsys: pytest.CaptureFixture[str]) -> None:
    assert _ExperimentalConfig().record() == {
        "profiler_level": "Level0", "aic_metrics": "None", "l2_cache": False, "mstx": False, "data_simplification": True,
        "export_type": ["text"], "mstx_domain_include": [], "mstx_domain_exclude": [], "sys_io": False,
        "sys_interconnection": False, "host_sys": [],
    }  # fmt: skip
    assert capsys.readouterr().err == ""
    assert _ExperimentalConfig(profiler_level=ProfilerLevel.Level1).aic_metrics is AicoreMetrics.PipeUtilization
    assert _ExperimentalConfig(aic_metrics=AicoreMetrics.Memory).aic_metrics is AicoreMetrics.AiCoreNone
    assert _ExperimentalConfig(profiler_level=ProfilerLevel.LevelNone).profiler_level is ProfilerLevel.Level0
    made = _ExperimentalConfig(mstx=True, mstx_domain_include=["a"], mstx_domain_exclude=["a", "b"])
    assert [made.wants(domain) for domain in ("a", "b", "default")] == [True, False, False]
    assert [_ExperimentalConfig(mstx=True, mstx_domain_exclude=["a"]).wants(domain) for domain in ("a", "b")] == [False, True]
    assert not _ExperimentalConfig(mstx_domain_include=["a"]).wants("a")
    said = capsys.readouterr().err
    for words in ("aic_metrics is set to AiCoreNone, because profiler_level is Level0",
                  "profiler_level LevelNone needs mstx=True",
                  "mstx_domain_exclude has no effect beside mstx_domain_include",
                  "mstx_domain_include and mstx_domain_exclude have no effect without mstx=True"):  # fmt: skip
        assert words in said


def test_metadata(capsys: pytest.CaptureFixture[str]) -> None:
    metadata = Metadata(TOTAL_LIMIT_2_4)
    metadata.add("key", "value")
    metadata.add_json("list", "[1, {}]")
    assert metadata.values == {"key": "value", "list": [1, {}]} and capsys.readouterr().err == ""
    metadata.add("key", "newer")
    metadata.add_json("broken", "[1,")
    metadata.add(1, "value")
    metadata.add("long", "x" * 4097)
    for number in range(20):
        metadata.add(f"big{number}", "x" * 4096)
    assert metadata.values["key"] == "newer" and not {"broken", "long", 1} & set(metadata.values)
    assert sum(key.startswith("big") for key in metadata.values) == 12
    said = capsys.readouterr().err
    assert len(said.splitlines()) == 4 + 8
    for words in ("the value of 'broken' is no JSON", "key and value must be texts",
                  "a key or value has more than 4096 characters",
                  "all of them together have more than 51200 characters"):  # fmt: skip
        assert words in said


@pytest.mark.parametrize(("given", "result"), [(None, None), ([3, 2, 4], [2, 3, 4]), ([1], [1])])
def test_step_list(given: Any, result: Any) -> None:
    assert step_list_of(given) == result


@pytest.mark.parametrize("given", [3, (1, 2), ["1"], [1.0], [True]])
def test_step_list_of_a_wrong_type(given: Any) -> None:
    with pytest.raises(TypeError, match="list of whole numbers"):
        step_list_of(given)


@pytest.mark.parametrize("given", [[], [0, 1], [1, 3], [2, 2]])
def test_step_list_with_gaps(given: Any) -> None:
    with pytest.raises(ValueError, match="consecutive"):
        step_list_of(given)


@pytest.mark.parametrize(
    ("changes", "start", "steps", "refusal"),
    [
        ({}, NEVER, 1, ""),
        ({"start_step": 10, "stop_step": 12}, 10, 3, ""),
        ({"start_step": 10, "stop_step": 10, "analyse_mode": "async"}, 10, 1, ""),
        ({"start_step": 0, "stop_step": 4}, NEVER, 1, ""),
        ({"start_step": 5, "stop_step": 4}, 5, 1, "stop_step 4 is before start_step 5"),
        ({"start_step": -1, "active": 4}, NEXT, 4, ""),
        ({"start_step": 7, "active": 2}, 7, 2, ""),
        ({"start_step": "7", "stop_step": 9}, NEVER, 1, ""),
    ],
)
def test_plans_of_the_dynamic_monitor(tmp_path: Any, changes: dict[str, Any], start: int, steps: int, refusal: str) -> None:
    plan = MindsporeForm(tmp_path).plan({**TEMPLATE, **changes}, 0)
    assert (plan.start_step, plan.steps, plan.refusal) == (start, steps, refusal)
    assert bool(plan.warnings) == isinstance(changes.get("start_step"), str)


def test_wrong_fields_of_the_dynamic_monitor(tmp_path: Any) -> None:
    wrong = {"start_step": 3, "stop_step": 4, "analyse_mode": 7, "with_stack": 1, "data_simplification": "no", "unknown": {}}
    plan = MindsporeForm(tmp_path).plan(json.loads(json.dumps(wrong)), 0)
    assert plan.start_step == 3 and plan.settings.mode == "" and plan.settings.data_simplification is True
    assert len(plan.warnings) == 3


def test_the_import_is_light() -> None:
    """It runs inside somebody's training: no tables, no framework before the script wants it."""
    code = "import sys, steplens.mindspore; print(sorted({'polars', 'numpy', 'mindspore', 'torch', 'rich'} & set(sys.modules)))"
    made = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert made.stdout.strip() == "[]"


def test_a_mindspore_that_cannot_record_is_said(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "mindspore", None)
    with pytest.raises(RuntimeError, match="MindSpore cannot be imported"):
        operator_profiler()
    package = types.ModuleType("mindspore")
    package._c_expression = types.ModuleType("mindspore._c_expression")  # type: ignore[attr-defined]
    monkeypatch.setitem(sys.modules, "mindspore", package)
    with pytest.raises(RuntimeError, match="this build of MindSpore has no profiler"):
        operator_profiler()


LEGACY = {
    "subgraph": "Gradients", "is_detail": False, "is_show_op_path": True, "optypes_to_deal": "MatMul,ReLU",
    "optypes_not_deal": ["Variable"],
}  # fmt: skip


@pytest.mark.parametrize("contract", [R2_2, R2_4])
def test_parameters_of_mindinsights_profiler_are_taken_and_called_deprecated(contract: str) -> None:
    values, warnings = resolve_parameters(dict(LEGACY), contract)
    assert {name: values[name] for name in LEGACY} == LEGACY
    assert len(warnings) == 1 and "deprecated" in warnings[0] and all(name in warnings[0] for name in LEGACY)
    values, warnings = resolve_parameters({"subgraph": "Loss", "is_detail": "yes", "optypes_to_deal": [3]}, contract)
    assert values["subgraph"] == "all" and values["is_detail"] is True and values["optypes_to_deal"] == ""
    assert sum(" should be " in warning for warning in warnings) == 3


def test_the_public_names_are_those_of_the_table() -> None:
    import steplens.mindspore as public

    exported = [name for names in public._EXPORTS.values() for name in names]
    assert sorted(public.__all__) == sorted([*exported, "mstx"]) and {*public.__all__, "r2_2"} <= set(dir(public))
    # the only one that needs MindSpore, one of whose classes it is
    for name in set(public.__all__) - {"DynamicProfilerMonitor"}:
        assert getattr(public, name).__name__ == ("steplens.mindspore.mstx" if name == "mstx" else name)
    with pytest.raises(AttributeError, match="no attribute 'nothing'"):
        public.nothing  # noqa: B018
