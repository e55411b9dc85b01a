"""The operators of a transformer layer, as PyTorch calls them on a GPU, and how long their kernels usually take.

Sizes are those of what one rank has: with tensor parallelism the layer is the wider for it.
"""

from __future__ import annotations

from dataclasses import dataclass

#: sizes of the model: rows of a micro-batch, width, rows of the vocabulary on a rank
TOKENS, WIDTH, VOCABULARY = 4096, 2048, 8192
#: bytes of an element (BFloat16)
ELEMENT_BYTES = 2
#: parameters of a layer, as far as they lie on a rank
LAYER_PARAMETERS = 12 * WIDTH * WIDTH

_GEMM = "sm80_xmma_gemm_bf16bf16_bf16f32_f32_{}_n_tilesize256x128x64_stage3_warpsize2x4x1_tensor16x8x16_kernel"
_ELEMENTWISE = "void at::native::vectorized_elementwise_kernel<4, {}, std::array<char*, {}ul> >(int, {}, std::array<char*, {}ul>)"


def elementwise(functor: str, arrays: int) -> str:
    return _ELEMENTWISE.format(functor, arrays, functor, arrays)


ADD = elementwise("at::native::CUDAFunctor_add<c10::BFloat16>", 3)
_NORM = (
    "void at::native::(anonymous namespace)::vectorized_layer_norm_kernel<c10::BFloat16, float>"
    "(int, float, c10::BFloat16 const*, c10::BFloat16 const*, c10::BFloat16 const*, float*, float*, c10::BFloat16*)"
)
_NORM_BACKWARD = (
    "void at::native::(anonymous namespace)::layer_norm_grad_input_kernel_vectorized<c10::BFloat16, float>(c10::BFloat16 const*, "
    "c10::BFloat16 const*, float const*, float const*, c10::BFloat16 const*, c10::BFloat16*, int)"
)
_FLASH = "void pytorch_flash::flash_fwd_kernel<Flash_fwd_kernel_traits<128, 128, 64, 4, false, false, cutlass::bfloat16_t> >"
_FLASH_BACKWARD = (
    "void pytorch_flash::flash_bwd_dq_dk_dv_loop_seqk_parallel_kernel<Flash_bwd_kernel_traits<128, 64, 128, 8, 4, 4>>"
)


@dataclass(frozen=True)
class Operator:
    """A differentiable operator.

    Attributes:
        calls: its nested calls, from outside to inside.
        kernel, kernel_ns: what the innermost one launches, and how long that usually takes.
        node: of backward; empty where it launches nothing there.
        backward: innermost call, kernel and ns of what the node launches.
        shapes: of the inputs.
    """

    calls: tuple[str, ...]
    kernel: str
    kernel_ns: int
    node: str = ""
    backward: tuple[tuple[str, str, int], ...] = ()
    shapes: tuple[tuple[int, ...], ...] = ((TOKENS, WIDTH),)

    @property
    def name(self) -> str:
        return self.calls[-1]


def _linear(inputs: int, outputs: int, ns: int) -> Operator:
    return Operator(
        ("aten::linear", "aten::addmm"),
        _GEMM.format("tn"),
        ns,
        "AddmmBackward0",
        (("aten::mm", _GEMM.format("nn"), ns), ("aten::mm", _GEMM.format("nt"), ns)),
        ((outputs,), (TOKENS, inputs), (inputs, outputs)),
    )


_LAYER_NORM = Operator(
    ("aten::layer_norm", "aten::native_layer_norm"),
    _NORM,
    24_000,
    "NativeLayerNormBackward0",
    (("aten::native_layer_norm_backward", _NORM_BACKWARD, 52_000),),
    ((TOKENS, WIDTH), (WIDTH,), (WIDTH,)),
)
_RESIDUAL = Operator(("aten::add",), ADD, 18_000, shapes=((TOKENS, WIDTH), (TOKENS, WIDTH)))

#: of a layer, in order; where tensor parallelism reduces: behind the two that are marked
LAYER: tuple[Operator, ...] = (
    _LAYER_NORM,
    _linear(WIDTH, 3 * WIDTH, 190_000),
    Operator(
        (
            "aten::scaled_dot_product_attention",
            "aten::_scaled_dot_product_flash_attention",
            "aten::_flash_attention_forward",
        ),
        _FLASH,
        170_000,
        "ScaledDotProductFlashAttentionBackward0",
        (("aten::_flash_attention_backward", _FLASH_BACKWARD, 410_000),),
        ((4, 16, 1024, 128),) * 3,
    ),
    _linear(WIDTH, WIDTH, 70_000),
    _RESIDUAL,
    _LAYER_NORM,
    _linear(WIDTH, 4 * WIDTH, 250_000),
    Operator(
        ("aten::gelu",),
        elementwise("at::native::GeluCUDAKernelImpl(at::TensorIteratorBase&, at::native::GeluType)::{lambda()#2}", 2),
        40_000,
        "GeluBackward0",
        (("aten::gelu_backward", elementwise("at::native::GeluBackwardCUDAKernelImpl(at::TensorIteratorBase&)", 3), 55_000),),
        ((TOKENS, 4 * WIDTH),),
    ),
    _linear(4 * WIDTH, WIDTH, 250_000),
    _RESIDUAL,
)
#: which of a layer's operators are reduced over the tensor parallel ranks
REDUCED = (3, 8)
#: in this order operators are kept where a layer shall have fewer
_WEIGHT = (6, 8, 2, 1, 3, 0, 7, 5, 4, 9)

EMBEDDING = Operator(
    ("aten::embedding", "aten::index_select"),
    "void at::native::(anonymous namespace)::indexSelectLargeIndex<c10::BFloat16, long, unsigned int, 2, 2, -2, true>",
    30_000,
    "EmbeddingBackward0",
    (("aten::embedding_dense_backward", "void at::native::(anonymous namespace)::sum_and_scatter<c10::BFloat16, long>", 60_000),),
    ((VOCABULARY, WIDTH), (TOKENS,)),
)
HEAD: tuple[Operator, ...] = (
    _linear(WIDTH, VOCABULARY, 60_000),
    Operator(
        ("aten::cross_entropy_loss", "aten::log_softmax", "aten::_log_softmax"),
        "void at::native::(anonymous namespace)::cunn_SoftMaxForward<8, c10::BFloat16, float, float>",
        20_000,
        "LogSoftmaxBackward0",
        (("aten::_log_softmax_backward_data", "void at::native::(anonymous namespace)::cunn_SoftMaxBackward<8, float>", 25_000),),
        ((TOKENS, VOCABULARY),),
    ),
    Operator(
        ("aten::nll_loss_nd", "aten::nll_loss", "aten::nll_loss_forward"),
        "void at::native::(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>",
        8_000,
        "NllLossBackward0",
        (("aten::nll_loss_backward", "void at::native::(anonymous namespace)::nll_loss_backward_reduce_cuda_kernel_2d", 6_000),),
        ((TOKENS, VOCABULARY), (TOKENS,)),
    ),
)


def layer_operators(count: int | None) -> list[tuple[int, Operator]]:
    """So many operators of a layer in their order, each with its place in ``LAYER``: the heaviest where they are fewer than it
    has, all of it again and again where they are more."""
    if count is None or count == len(LAYER):
        return list(enumerate(LAYER))
    whole, rest = divmod(max(count, 1), len(LAYER))
    return [*list(enumerate(LAYER)) * whole, *((place, LAYER[place]) for place in sorted(_WEIGHT[:rest]))]


def known_operators() -> set[str]:
    """The operators whose work can be slowed down by their names."""
    layer = (*LAYER, EMBEDDING, *HEAD)
    return {operator.name for operator in layer} | {name for operator in layer for name, _, _ in operator.backward}
