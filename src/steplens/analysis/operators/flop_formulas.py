"""Floating-point operations and bytes of one operator call, from the shapes of its inputs.

The formulas are those of ``torch.utils.flop_counter``: a multiplication and an addition are two operations, attention is
counted in full whether it is causal or not. Where it counts the weight's gradient of a grouped convolution once per group,
the work that is really done is counted here.
"""

from __future__ import annotations

import math
from collections.abc import Callable, Sequence
from typing import NamedTuple

from steplens.common import json_text

Shape = tuple[int, ...]


class Work(NamedTuple):
    """What one call does.

    Attributes:
        flops: floating-point operations.
        elements: elements of all tensors that it has to read and write at least once each.
    """

    flops: int
    elements: int


_Formula = Callable[[Sequence[Shape], Sequence[str]], Work]


def _matrix_product(left: Shape, right: Shape) -> Work:
    """``left @ right`` of equal batch dimensions, or of vectors."""
    *batch, rows, inner = left if len(left) > 1 else (1, *left)
    columns = right[-1] if len(right) > 1 else 1
    if (right[-2] if len(right) > 1 else right[0]) != inner or (len(right) > 2 and list(right[:-2]) != batch):
        raise ValueError("shapes do not match")
    count = math.prod(batch)
    result = count * rows * columns
    return Work(2 * result * inner, math.prod(left) + math.prod(right) + result)


def _multiply_inputs(shapes: Sequence[Shape], arguments: Sequence[str]) -> Work:
    return _matrix_product(shapes[0], shapes[1])


def _add_multiply(shapes: Sequence[Shape], arguments: Sequence[str]) -> Work:
    work = _matrix_product(shapes[1], shapes[2])
    return Work(work.flops, work.elements + math.prod(shapes[0]))


def _linear_layer(shapes: Sequence[Shape], arguments: Sequence[str]) -> Work:
    input_shape, weight = shapes[0], shapes[1]
    work = _matrix_product((math.prod(input_shape[:-1]), input_shape[-1]), (weight[1], weight[0]))
    bias = math.prod(shapes[2]) if len(shapes) > 2 and shapes[2] else 0
    return Work(work.flops, work.elements + bias)


def _parse_numbers(text: str) -> list[int]:
    return [int(number) for number in text.strip("[]").split(",")]


def _per_dimension(values: list[int], count: int) -> list[int]:
    """One value per dimension: PyTorch takes one for all."""
    return values * count if len(values) == 1 else values


def _convolution_output(given: Shape, weight: Shape, arguments: Sequence[str]) -> Shape:
    """Shape of what a convolution gives; arguments: stride, padding, dilation, transposed, output padding, groups."""
    count = len(given) - 2
    stride, padding, dilation, extra = (_per_dimension(_parse_numbers(arguments[place]), count) for place in (0, 1, 2, 4))
    size = []
    for place, (length, kernel) in enumerate(zip(given[2:], weight[2:], strict=True)):
        reach = dilation[place] * (kernel - 1)
        if arguments[3] == "True":
            size.append((length - 1) * stride[place] - 2 * padding[place] + reach + extra[place] + 1)
        else:
            size.append((length + 2 * padding[place] - reach - 1) // stride[place] + 1)
    channels = weight[1] * int(arguments[5]) if arguments[3] == "True" else weight[0]
    return (given[0], channels, *size)


def _convolution_operations(given: Shape, output: Shape, weight: Shape, transposed: bool) -> int:
    """Multiplications and additions of a convolution in one direction; both gradients take as many."""
    return 2 * given[0] * math.prod((given if transposed else output)[2:]) * math.prod(weight)


def _convolution_forward(shapes: Sequence[Shape], arguments: Sequence[str]) -> Work:
    input_shape, weight = shapes[0], shapes[1]
    output = _convolution_output(input_shape, weight, arguments[3:9])
    elements = math.prod(input_shape) + math.prod(weight) + math.prod(output)
    bias = math.prod(shapes[2]) if len(shapes) > 2 and shapes[2] else 0
    return Work(_convolution_operations(input_shape, output, weight, arguments[6] == "True"), elements + bias)


def _convolution_backward(shapes: Sequence[Shape], arguments: Sequence[str]) -> Work:
    output, input_shape, weight = shapes[:3]
    once = _convolution_operations(input_shape, output, weight, arguments[7] == "True")
    of_input, of_weight, of_bias = (part.strip() == "True" for part in arguments[10].strip("[]").split(","))
    elements = math.prod(output)
    if of_input:
        elements += math.prod(weight) + math.prod(input_shape)
    if of_weight:
        elements += math.prod(input_shape) + math.prod(weight)
    bias = output[1] if of_bias else 0
    return Work(once * (of_input + of_weight), elements + bias)


def _attention_sizes(query: Shape, key: Shape, value: Shape) -> tuple[int, int, int, int, int]:
    batch, heads, queries, width = query
    if key[-1] != width or key[2] != value[2] or key[0] != batch or heads % key[1]:
        raise ValueError("shapes do not match")
    return batch * heads, queries, key[2], width, value[3]


def _attention_forward(shapes: Sequence[Shape], arguments: Sequence[str]) -> Work:
    count, queries, keys, width, value_width = _attention_sizes(*shapes[:3])
    elements = sum(math.prod(shape) for shape in shapes[:3]) + count * queries * value_width
    return Work(2 * count * queries * keys * (width + value_width), elements)


def _attention_backward(shapes: Sequence[Shape], arguments: Sequence[str]) -> Work:
    count, queries, keys, width, value_width = _attention_sizes(*shapes[1:4])
    # the scores again, then a gradient each of value, scores, query and key
    flops = 2 * count * queries * keys * (3 * width + 2 * value_width)
    tensors = sum(math.prod(shape) for shape in shapes[1:4])
    # in: gradient, query, key, value, output; out: a gradient for each of the three
    return Work(flops, 2 * tensors + 2 * math.prod(shapes[0]))


_ATTENTION = ("efficient_attention", "flash_attention", "cudnn_attention", "flash_attention_for_cpu")

FORMULAS: dict[str, _Formula] = {
    **dict.fromkeys(("mm", "bmm", "mv", "dot", "vdot", "_int_mm", "_scaled_mm"), _multiply_inputs),
    **dict.fromkeys(("addmm", "baddbmm", "addmv", "_addmm_activation"), _add_multiply),
    "linear": _linear_layer,
    **dict.fromkeys(("convolution", "_convolution", "convolution_overrideable"), _convolution_forward),
    "convolution_backward": _convolution_backward,
    **{f"_scaled_dot_product_{name}": _attention_forward for name in _ATTENTION},
    **{f"_scaled_dot_product_{name}_backward": _attention_backward for name in _ATTENTION},
}
#: how PyTorch names them; overloads have the same name
NAMES = {f"aten::{name}": formula for name, formula in FORMULAS.items()}

#: a number beyond this is no size of a tensor that anybody has
_LARGEST = 1 << 62


def work_of(name: str, input_shapes: str | None, arguments: str | None = None) -> Work | None:
    """What a call does; None where its operator has no formula, or its inputs do not tell or do not fit it.

    Args:
        name: of the operator, such as "aten::mm".
        input_shapes: as in ``ops.input_shapes``: "16,32;32,8;".
        arguments: as in ``ops.arguments``; convolutions need it.
    """
    formula = NAMES.get(name)
    if formula is None or not input_shapes:
        return None
    try:
        values = json_text.loads_stored(arguments) if arguments else []
        texts = [value if isinstance(value, str) else "" for value in values] if isinstance(values, list) else []
        shapes = [_parse_shape(text) for text in input_shapes.split(";")]
        work = formula(shapes, texts)
    except (ValueError, IndexError, TypeError, ZeroDivisionError):
        return None
    if min(work) < 0 or max(work) >= _LARGEST:
        return None
    return work


def _parse_shape(text: str) -> Shape:
    """``2,3`` as (2, 3); of a list of tensors, or what else is no shape, nothing, so that a formula that needs it fails."""
    sizes = text.split(",")
    return tuple(int(size) for size in sizes) if all(size.isdecimal() and len(size) < 19 for size in sizes) else ()
