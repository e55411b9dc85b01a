"""No hint from another framework: every rule said of PyTorch, of MindSpore, and of a run that does not tell."""

from __future__ import annotations

from pathlib import Path

import polars as pl
import pytest

from steplens.advice import Finding
from steplens.advice.frameworks import VOCABULARY, is_about_another
from steplens.advice.registry import built_in_rules
from steplens.advice.texts import CATALOGUES, LANGUAGES, TEXTS
from steplens.advice.words import Words
from steplens.trace.building.build import build_trace
from steplens.trace.building.framework import MINDSPORE, PYTORCH, UNKNOWN, trace_framework
from steplens.trace.health import HealthLog
from steplens.trace.trace import Trace

#: rule -> the only framework whose programs can break it
ONLY_OF = {rule.name: rule.framework for rule in built_in_rules() if rule.framework}
#: figures that rules give with names of PyTorch in them
VALUES = {"fused": "torch_npu.npu_swiglu", "change": "+export PYTORCH_NPU_ALLOC_CONF=expandable_segments:True"}


@pytest.mark.parametrize("language", LANGUAGES)
@pytest.mark.parametrize("rule", sorted(TEXTS))
@pytest.mark.parametrize("of", [PYTORCH, MINDSPORE, UNKNOWN])
def test_no_words_of_another_framework(rule: str, language: str, of: str) -> None:
    if ONLY_OF.get(rule, of) != of:
        assert of == UNKNOWN or is_about_another(of, Finding(rule, 1.0, ()), ONLY_OF[rule])
        return
    values = VALUES if rule != "environment_variables" else {"variable": "HCCL_ALGO", "change": "+unset HCCL_ALGO"}
    text = Words(language, TEXTS).of(Finding(rule, 1.0, (), values=values, framework=of))
    said = "\n".join((text.title, text.cause, text.remedy, text.patch))
    foreign = {name: found[0] for name, words in VOCABULARY.items() if name != of and (found := words.search(said))}
    assert not foreign
    assert text.title and text.cause and text.remedy


def test_variants_belong_to_rules_in_every_language() -> None:
    """A rule of one framework alone needs no words for the other."""
    for name in TEXTS:
        entries = [CATALOGUES[language].rules[name] for language in LANGUAGES]
        for variant in ("neutral", "mindspore"):
            assert len({getattr(entry, variant) is None for entry in entries}) == 1, name
            assert entries[0].mindspore is None or ONLY_OF.get(name, MINDSPORE) == MINDSPORE
    assert set(ONLY_OF.values()) == {PYTORCH, MINDSPORE}


def test_a_variable_of_pytorch_is_no_matter_of_mindspore() -> None:
    of_pytorch, of_all = (
        Finding("environment_variables", 0.9, (), values={"variable": name}) for name in ("PYTORCH_NPU_ALLOC_CONF", "HCCL_ALGO")
    )
    assert is_about_another(MINDSPORE, of_pytorch)
    assert not is_about_another(MINDSPORE, of_all)
    assert not is_about_another(PYTORCH, of_pytorch)


def trace(name: str = "", source: str = "made", **meta: str) -> Trace:
    ops = pl.DataFrame({"name": [name or "step"], "start_ns": [0], "end_ns": [10], "pid": [1], "tid": [1], "scope": [0]})
    texts = [f'"{value}"' for value in meta.values()]
    rows = pl.DataFrame({"key": list(meta), "value": texts}, schema={"key": pl.String, "value": pl.String})
    return build_trace(Path(source), {"ops": ops, "meta": rows}, HealthLog(), cpu_is_device=False)


@pytest.mark.parametrize(
    ("made", "expected"),
    [
        (trace(source_format="mindspore_flat"), MINDSPORE),
        (trace("MatMul", ms_version="2.10"), MINDSPORE),
        (trace("aten::mm", source="run/host_1_2_ascend_ms"), MINDSPORE),
        (trace("Default/net/MatMul-op0"), MINDSPORE),
        (trace("MatMul", torch_version="2.13"), PYTORCH),
        (trace("MatMul", source="run/host_1_2_ascend_pt"), PYTORCH),
        (trace("aten::mm"), PYTORCH),
        (trace("MatMul"), UNKNOWN),
    ],
)
def test_the_framework_of_a_trace(made: Trace, expected: str) -> None:
    assert trace_framework(made) == expected
