"""Sequences of operators that one fused operator replaces: on hand-built calls, and on what PyTorch really calls."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import steplens
from steplens.advice.facts import Facts
from steplens.advice.finding import Finding
from steplens.advice.rules.device.fusion import unfused_operators
from steplens.advice.rules.device.operator_patterns import LETTERS, OTHER, PATTERNS
from steplens.trace.health import INFO, OPERATOR_DEVICE_TIMES, WARNING, finding, frame_of
from steplens.trace.schema import SCOPE_USER
from steplens.trace.trace import Trace

from .device_steps import US, accelerated, cuda, evidence, facts, only, saving, task


def calls(names: str, each: float = 100, device: float = 80, **values: Any) -> list[dict[str, Any]]:
    """Operators one behind the other, each of ``each`` us and as many us of device time as ``device``."""
    return [
        {"name": f"aten::{name}", "start": each * at, "end": each * at + 50, "device_total_ns": int(device * US), **values}
        for at, name in enumerate(names.split())
    ]


def found(names: str, *, npu: bool = True, **values: Any) -> dict[str, Finding]:
    make = task if npu else cuda
    return {one.subject: one for one in unfused_operators.judge(facts([make("k", 0, 1000)], operators=calls(names, **values)))}


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("attention", "matmul div masked_fill softmax dropout matmul"),
        ("attention", "baddbmm softmax bmm"),
        ("rms_norm", "pow mean add rsqrt mul mul"),
        ("rms_norm", "to pow mean add rsqrt mul to mul"),
        ("rotary_embedding", "slice slice neg cat mul add"),
        ("rotary_embedding", "chunk neg cat mul add"),
        ("swiglu", "chunk silu mul"),
        ("swiglu", "linear silu linear mul"),
        ("geglu", "chunk gelu mul"),
        ("masked_softmax", "masked_fill softmax"),
        ("group_norm_silu", "group_norm silu"),
        ("add_layer_norm", "add layer_norm"),
        ("matmul_add", "matmul add"),
        ("moe_permute", "argsort argsort index_select"),
        ("moe_unpermute", "index_select mul sum"),
        ("transpose_reshape", "transpose reshape"),
        ("transpose_reshape", "permute contiguous view"),
        ("gelu", "linear gelu linear"),
        ("clip_grad_norm", " ".join(["norm"] * 20)),
    ],
)
def test_patterns(pattern: str, names: str) -> None:
    one = found(names)[pattern]
    assert evidence(one)["unfused_sequences"] == 1
    assert one.id == f"unfused_operators:{pattern}"


@pytest.mark.parametrize(
    "names",
    [
        "matmul softmax add matmul",
        "mean pow add rsqrt",
        "neg cat mul add",
        "silu mul",
        "softmax masked_fill",
        "layer_norm add",
        "transpose view",
        "transpose contiguous matmul",
        "linear relu linear",
        " ".join(["norm"] * 19),
        "sub exp log",
    ],
)
def test_what_is_no_pattern(names: str) -> None:
    assert found(names) == {}


def test_what_a_pattern_saves() -> None:
    # of attention the two products stay
    assert saving(found("matmul div softmax matmul")["attention"]).high_ns == 160 * US
    # without a part that stays, one of n does
    assert saving(found("pow mean add rsqrt mul")["rms_norm"]).high_ns == pytest.approx(5 * 80 * US * 4 / 5)
    assert found("matmul div softmax matmul")["attention"].values == {
        "sequence": "matmul > div > softmax > matmul",
        "fused": "torch_npu.npu_fusion_attention",
    }
    assert (
        found("matmul div softmax matmul", npu=False)["attention"].values["fused"]
        == "torch.nn.functional.scaled_dot_product_attention"
    )
    # a GPU has no fast_gelu, and what takes no time on it is not worth a word
    assert found("gelu", npu=False) == {}
    assert found("matmul div softmax matmul", npu=False, device=0) == {}


def test_device_times_that_are_not_to_be_trusted() -> None:
    trace = accelerated([task("k", 0, 1000)], operators=calls("matmul div softmax matmul"))
    tables = {name: table for name in trace if (table := trace.table(name)) is not None}

    def judged(severity: str) -> Finding:
        doubt = frame_of([finding("unmatched", severity, 5, "arrows without an end", OPERATOR_DEVICE_TIMES)])
        return only(unfused_operators.judge(Facts(Trace(Path("x"), {**tables, "health": doubt}))))

    assert (judged(WARNING).saving, evidence(judged(WARNING))) == (None, {"unfused_sequences": 1})
    assert judged(INFO).saving is not None


def test_what_lies_between() -> None:
    """Calls inside other calls, of another thread or of another step are no neighbours."""
    inner = calls("matmul div softmax matmul")
    nested = [inner[0], {**inner[1], "start": 101, "end": 149}, {**inner[2], "start": 102, "end": 140, "parent": 1}, inner[3]]
    assert list(unfused_operators.judge(facts([task("k", 0, 1000)], operators=nested))) == []
    halves = [{**one, "only": (at // 2,)} for at, one in enumerate(inner)]
    assert list(unfused_operators.judge(facts([task("k", 0, 1000)], operators=halves))) == []


def optimizer(name: str, *inside: str, device_us: float = 2000) -> list[dict[str, Any]]:
    whole = {
        "name": f"Optimizer.step#{name}.step",
        "start": 0,
        "end": 900,
        "scope": SCOPE_USER,
        "device_total_ns": int(device_us * US),
    }
    return [
        whole,
        *({"name": f"aten::{one}", "start": 10 * at, "end": 10 * at + 5, "parent": 0} for at, one in enumerate(inside, 1)),
    ]


def test_optimizers() -> None:
    many = (
        "_foreach_add_",
        "_foreach_mul_",
        "_foreach_addcmul_",
        "_foreach_sqrt",
        "_foreach_div_",
        "_foreach_add_",
        "_foreach_lerp_",
        "x",
    )
    on_gpu = only(unfused_operators.judge(facts([cuda("k", 0, 1000)], operators=optimizer("Adam", *many))))
    # two of seven passes over the data stay
    assert saving(on_gpu).high_ns == pytest.approx(2000 * US * 5 / 7)
    assert on_gpu.values["fused"] == "torch.optim.Adam(..., fused=True)" and on_gpu.part == "computing_ns"
    # where the device idles while the host launches them, the host's time counts, as far as the device idles
    idle = facts([cuda("k", 0, 100), cuda("k", 700, 1000)], operators=optimizer("Adam", *many, device_us=60))
    for_host = only(unfused_operators.judge(idle))
    assert (saving(for_host).high_ns, for_host.part) == (pytest.approx(600 * US * 5 / 7), "optimizer_ns")
    assert evidence(for_host)["idle_while_updating"] == 600 * US
    on_npu = only(unfused_operators.judge(facts([task("k", 0, 1000)], operators=optimizer("Adam", *many))))
    assert on_npu.values["fused"] == "torch_npu.optim.NpuFusedAdam"
    for name, inside in (("Adam", ("_fused_adam_",)), ("LBFGS", many), ("Adam", ("add_", "mul_"))):
        assert list(unfused_operators.judge(facts([cuda("k", 0, 1000)], operators=optimizer(name, *inside)))) == []
    assert list(unfused_operators.judge(facts([task("k", 0, 1000)], operators=optimizer("Adam", "npu_apply_adam")))) == []


#: so often a program is recorded, at most
ATTEMPTS = 5


def recorded(program: Callable[[], object], folder: Path) -> dict[str, Finding]:
    """What is said of a program on a CPU, three steps of it."""
    threads = torch.get_num_threads()
    # several threads on a busy machine take any time for a product
    torch.set_num_threads(1)
    try:
        with torch.profiler.profile(record_shapes=True) as prof:
            for number in range(3):
                with torch.profiler.record_function(f"ProfilerStep#{number}"):
                    program()
    finally:
        torch.set_num_threads(threads)
    prof.export_chrome_trace(str(folder / "trace.json"))
    judged = unfused_operators.judge(Facts(steplens.open(folder / "trace.json").trace()))
    return {one.subject: one for one in judged}


def found_once(program: Callable[[], object], folder: Path, subject: str) -> Finding:
    """What is said of a subject, by its share of the time; a product that the machine interrupts leaves the rest hardly any."""
    for _ in range(ATTEMPTS):
        found = recorded(program, folder)
        if subject in found:
            return found[subject]
    raise AssertionError(f"{subject} is not found, but {set(found)}")


def test_attention_that_was_written_out(tmp_path: Path) -> None:
    query = torch.randn(4, 4, 128, 32)

    def written_out() -> torch.Tensor:
        return torch.softmax(query @ query.transpose(-2, -1) / 32**0.5, -1) @ query

    one = found_once(written_out, tmp_path, "attention")
    assert evidence(one)["unfused_sequences"] == 1
    assert 0 < saving(one).high_ns < evidence(one)["in_unfused_sequences"]

    def fused() -> torch.Tensor:
        return torch.nn.functional.scaled_dot_product_attention(query, query, query)

    assert recorded(fused, tmp_path) == {}


def test_a_bias_that_is_added(tmp_path: Path) -> None:
    # a large sum after a small product
    left, right, bias = torch.randn(1024, 4), torch.randn(4, 1024), torch.randn(1024)
    found_once(lambda: left @ right + bias, tmp_path, "matmul_add")
    assert recorded(lambda: torch.addmm(bias, left, right), tmp_path) == {}


@pytest.mark.parametrize("name", PATTERNS)
@given(st.data())
def test_a_pattern_needs_what_every_match_has(name: str, data: st.DataObject) -> None:
    pattern = PATTERNS[name]
    text = data.draw(st.from_regex(pattern.expression, alphabet=st.sampled_from([*LETTERS, OTHER, "\n"])))
    assert set(pattern.needs) <= set(text)
