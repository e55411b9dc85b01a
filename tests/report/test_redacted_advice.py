"""The advice about a run without names is the advice about the run: the same rules, savings and evidence, figure by figure."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from steplens.report.ask import InProcessClient
from steplens.report.redaction import redact
from steplens.report.redaction.pseudonyms import Pseudonyms
from steplens.server.runs import RunLibrary

from ..shared_data import shared
from .test_redact import SAME, numbers

pytestmark = pytest.mark.slow

#: an NPU with the calls that prepare its operators, a GPU, and a job of MindSpore
SAMPLES = ("ascend_pytorch/text_level1", "kineto/cuda_sampled_rank0.json.gz", "mindspore/cluster_propose")
#: fields of a finding that do not come from names of the run
_WORDLESS = ("rule", "confidence", "urgency", "step_ns", "saving")


def advice(path: Path, *, without_names: bool) -> list[dict[str, Any]]:
    """What is answered about the whole run and about each of its traces."""
    library = RunLibrary([path])
    library.runs[0].open()
    if without_names:
        redact.redact_runs(library.runs)
    with InProcessClient(library) as asker:
        traces = range(len(library.runs[0].run.traces))
        answers = [asker.get("runs/0/advice", query) for query in ({}, *({"trace": one} for one in traces))]
    assert all(one.ok for one in answers)
    return [one.json for one in answers]


def compare(path: Path) -> int:
    """The findings that were compared."""
    found = 0
    for plain, redacted in zip(advice(path, without_names=False), advice(path, without_names=True), strict=True):
        assert set(plain) == set(redacted)
        for one, other in zip(plain["findings"], redacted["findings"], strict=True):
            assert {name: one.get(name) for name in _WORDLESS} == {name: other.get(name) for name in _WORDLESS}
            told = [[(each["what"], each["unit"], len(each["places"])) for each in both["evidence"]] for both in (one, other)]
            assert told[0] == told[1], one["rule"]
            found += 1
        expected, figures = numbers(plain), numbers(redacted)
        assert set(figures) == set(expected)
        for place, values in expected.items():
            assert figures[place] == pytest.approx(values, rel=SAME), place
    return found


@pytest.mark.parametrize("sample", SAMPLES)
def test_advice_about_a_sample_is_the_same_without_names(sample: str) -> None:
    assert compare(shared(sample)) > 0


def test_advice_about_a_recorded_run_of_a_cpu_is_the_same_without_names(secret_run: Path) -> None:
    assert compare(secret_run) > 0


@pytest.mark.parametrize(
    "name",
    [
        "TransData_Tiling", "MaxPoolWithArgmaxV1_Tiling", "opCompile", "aclnnAddmmGetWorkspaceSize", "hcom_allReduce_",
        "KernelLaunchWithHandle_Big", "StreamSyncTaskFinish", "AscendCL@aclrtSynchronizeDevice", "Node@launch", "launch",
    ],
)  # fmt: skip
def test_calls_of_vendors_stay(name: str) -> None:
    assert Pseudonyms().call(name) == name


@pytest.mark.parametrize("name", ["z9q_Tiling", "z9qInferShape", "KernelZ9qLaunch", "_", "AscendCL@z9qSet"])
def test_other_calls_go_but_for_what_is_looked_for(name: str) -> None:
    told = Pseudonyms().call(name)
    assert "z9q" not in told.lower()
    assert told.endswith("_Tiling") == name.endswith("_Tiling") and ("InferShape" in told) == ("InferShape" in name)


@pytest.mark.parametrize(
    ("kind", "name", "stays"),
    [
        ("operator", "z9q::_fused_adam_mine", "_fused_"),
        ("operator", "z9q::my_foreach_add", "_foreach_"),
        ("range", "z9q all_reduce", "all_reduce"),
        ("task", "z9q_tensorop_f16_s1688", "tensorop"),
        ("class_name", "Z9qFusedAdam", "Fused"),
        ("scope", "GetNext_z9q", "GetNext"),
    ],
)
def test_words_that_analyses_look_for_stay(kind: str, name: str, stays: str) -> None:
    told = getattr(Pseudonyms(), kind)(name)
    assert stays in told and "z9q" not in told.lower()
