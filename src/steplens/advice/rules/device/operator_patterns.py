"""Sequences of operators for which frameworks have one fused operator, and what it is called on which device."""

from __future__ import annotations

import re
from collections.abc import Mapping
from dataclasses import dataclass

from steplens.trace.building.devices import NPU
from steplens.trace.schema import CORE_CPU, CORE_CUDA, CORE_ROCM

#: one letter per operator; an operator in place and out of place are one
LETTERS: dict[str, str] = {
    "m": "matmul bmm baddbmm mm einsum",
    "L": "linear addmm",
    "s": "softmax _softmax",
    "d": "dropout native_dropout",
    "F": "masked_fill where",
    "a": "add __iadd__",
    "*": "mul",
    "/": "div",
    "S": "silu",
    "G": "gelu",
    "c": "chunk split split_with_sizes tensor_split",
    "l": "slice narrow",
    "n": "neg",
    "C": "cat concat",
    "p": "pow square",
    "M": "mean",
    "r": "rsqrt",
    "N": "layer_norm",
    "Q": "group_norm",
    "T": "transpose permute swapaxes",
    "v": "view",
    "V": "reshape",
    "k": "contiguous clone",
    "A": "argsort",
    "i": "index_select index gather",
    "u": "sum",
    "f": "norm linalg_vector_norm",
}
LETTER_OF: dict[str, str] = {
    f"aten::{name}{end}": letter for letter, names in LETTERS.items() for name in names.split() for end in ("", "_")
}
#: what is looked through: casts and changes of shape that move nothing
TRANSPARENT = tuple(f"aten::{name}" for name in ("to", "type_as", "_to_copy", "expand", "unsqueeze", "squeeze", "expand_as"))
#: anything else
OTHER = "."


@dataclass(frozen=True)
class Pattern:
    """One sequence.

    Attributes:
        expression: of letters.
        needs: letters without any of which it is found nowhere.
        fused: device -> what to call instead; see ``fused_on``.
        keeps: letters whose work the fused operator still does; without any it does one part in n.
    """

    expression: re.Pattern[str]
    needs: str
    fused: Mapping[str, str]
    keeps: str = ""

    def fused_on(self, device: str) -> str:
        """What to call instead on a device; empty where nothing is known.

        What PyTorch has on the CPU it has for every accelerator: an operator of its own for each, or one made of smaller ones.
        """
        return self.fused.get(device, "" if device in (NPU, CORE_CUDA, CORE_ROCM) else self.fused.get(CORE_CPU, ""))


def _on_gpus(name: str) -> dict[str, str]:
    return {CORE_CUDA: name, CORE_ROCM: name}


_COMPILED = _on_gpus("torch.compile")
_ATTENTION = "torch.nn.functional.scaled_dot_product_attention"
_BIAS = "torch.addmm, torch.baddbmm"
_CLIPPED = "torch.nn.utils.clip_grad_norm_(..., foreach=True)"
#: earlier ones take their operators first
PATTERNS: dict[str, Pattern] = {
    "attention": Pattern(
        re.compile(r"m[*/aF]{0,4}sd?m"),
        "ms",
        {NPU: "torch_npu.npu_fusion_attention", CORE_CPU: _ATTENTION, **_on_gpus(_ATTENTION)},
        "m",
    ),
    "rms_norm": Pattern(re.compile(r"pMar\*{1,2}"), "pMr*", {NPU: "torch_npu.npu_rms_norm", **_COMPILED}),
    "rotary_embedding": Pattern(re.compile(r"(c|l{1,2})nC\*{0,2}a"), "nCa", {NPU: "torch_npu.npu_rotary_mul", **_COMPILED}),
    "swiglu": Pattern(re.compile(r"(c|l{1,2})(S\*|\*S)|(?<=L)S(?=L\*)"), "S*", {NPU: "torch_npu.npu_swiglu", **_COMPILED}),
    "geglu": Pattern(re.compile(r"(c|l{1,2})(G\*|\*G)"), "G*", {NPU: "torch_npu.npu_geglu", **_COMPILED}),
    "masked_softmax": Pattern(re.compile(r"\*?Fs"), "Fs", {NPU: "torch_npu.npu_scaled_masked_softmax", **_COMPILED}),
    "group_norm_silu": Pattern(re.compile(r"QS"), "QS", {NPU: "torch_npu.npu_group_norm_silu", **_COMPILED}, "Q"),
    "add_layer_norm": Pattern(re.compile(r"aN"), "aN", {NPU: "torch_npu.npu_add_layer_norm", **_COMPILED}, "N"),
    "matmul_add": Pattern(re.compile(r"ma"), "ma", {NPU: _BIAS, CORE_CPU: _BIAS, **_on_gpus(_BIAS)}, "m"),
    "moe_permute": Pattern(re.compile(r"AAi"), "Ai", {NPU: "mindspeed.ops.npu_moe_token_permute"}),
    "moe_unpermute": Pattern(re.compile(r"i\*u"), "i*u", {NPU: "mindspeed.ops.npu_moe_token_unpermute"}),
    "transpose_reshape": Pattern(re.compile(r"Tk?V|Tkv"), "T", {NPU: "torch_npu.npu_confusion_transpose"}),
    "gelu": Pattern(re.compile(r"G"), "G", {NPU: "torch_npu.fast_gelu"}),
    "clip_grad_norm": Pattern(
        re.compile(r"f{20,}"), "f", {NPU: "optimizer.clip_grad_norm_fused_", CORE_CPU: _CLIPPED, **_on_gpus(_CLIPPED)}
    ),
}
#: optimizers that update all parameters in one kernel per type: in PyTorch with ``fused=True``, and of torch_npu
FUSED_OPTIMIZERS: dict[str, tuple[str, ...]] = {
    NPU: ("Adadelta", "Adam", "AdamP", "AdamW", "BertAdam", "Lamb", "RMSprop", "RMSpropTF", "SGD"),
    CORE_CUDA: ("Adagrad", "Adam", "AdamW", "SGD"),
    CORE_ROCM: ("Adagrad", "Adam", "AdamW", "SGD"),
}
#: PyTorch's that take ``fused=True`` on other accelerators, too
FUSED_ELSEWHERE = ("Adam", "AdamW", "SGD")
