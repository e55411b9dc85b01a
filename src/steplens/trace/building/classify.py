"""What kind of work a device task does: matmul, convolution, attention ... by its name, its type and its operator.

One table has all patterns. A category is found once per distinct (name, type, kind, operator), so the number of tasks
does not matter.
"""

from __future__ import annotations

import re
from collections.abc import Callable
from functools import lru_cache
from typing import NamedTuple

import polars as pl

from steplens.trace.building.distinct import number_distinct
from steplens.trace.schema import KIND_COMMUNICATION, KIND_COPY, KIND_OTHER, NAME

COPY = "copy"
MEMSET = "memset"
COMMUNICATION = "communication"
SYNCHRONIZATION = "synchronization"
OTHER = "other"


class Rule(NamedTuple):
    """How one category is recognised; an empty pattern matches nothing.

    Attributes:
        category: the category.
        kernel: regular expression, searched in the name of a kernel without letter case.
        operator: the same for the name of an operator (without ``aten::`` and the like) or an operator type of Ascend or
            MindSpore.
        owns: whether the operator decides before the name of the kernel: all that a convolution launches belongs to it,
            matrix multiplications and changes of layout included.
    """

    category: str
    kernel: str
    operator: str
    owns: bool = False


def _operator_name_pattern(text: str) -> str:
    """A pattern for the whole name of an operator: one of the words, in place (``_``) or of an overload or not."""
    return rf"^_?({'|'.join(text.split())})(_?(out|tensor|mode|like|copy|forward|backward|grad|v\d|d|n))*_?$"


#: a word ends where no small letter follows: types are words without spaces, each with a capital, or names with ``_``
_WORD_ENDS = r"(?-i:(?![a-z]))"


def _type_prefix_pattern(text: str) -> str:
    """A pattern for operator types: they begin with one of the words, in a plural or a participle or not."""
    return rf"^({'|'.join(text.split())})(s|d|ed|ing)?{_WORD_ENDS}"


def _whole_word_pattern(text: str) -> str:
    """A pattern for a whole word anywhere in an operator type or a name: ``sort`` is in ``ArgSort``, not in ``Unsorted``."""
    return rf"((?<![a-z]){text}|(?-i:{text.capitalize()})){_WORD_ENDS}"


#: the first rule that matches decides
TABLE: tuple[Rule, ...] = (
    Rule(
        COMMUNICATION,
        r"^(void )?(nccl|rccl|hccl|hcom_|msccl|nvshmem)|all_?reduce_kernel|cross_device_reduce|one_?shot_all_?reduce",
        r"^(nccl|gloo|mpi|ucc|hccl|c10d|_?c10d_functional)(:|$)|^hcom|record_param_comms"
        r"|^all_?2_?all|^_?(all_?reduce|all_?gather|reduce_?scatter|all_?to_?all|broadcast_coalesced)(v|_into_tensor|_tensor|_coalesced|_base|_?single)*_?$",
    ),
    Rule(MEMSET, r"^memset|fillbuffer|^__amd_rocclr_fill", r"^memset(async)?$|^atomicaddrclean$"),
    Rule(COPY, r"^memcpy|copybuffer|^__amd_rocclr_copy|^dma", r"^memcpy(_?async)?$"),
    Rule(
        "attention",
        r"flash_?(attn|fwd|bwd|attention)|fmha|mem_?eff|attention|(\b|_)mha(_|\b)|sdpa",
        r"attention|flash_?attn|deformable_?attn|scaled_dot_product|multi_?head|fmha|\bsdpa",
        owns=True,
    ),
    Rule(
        "convolution",
        r"conv(?!ert|erg)|implicit_?gemm|winograd|(?<![a-z])[dw]grad|computewgrad|fprop|scudnn|cudnn::cnn|im2col|col2im|vol2col|computeb?offsets|igemm_"
        r"|miopensp3asm|nchwtonhwc|nhwctonchw",
        r"conv(?!ert|erg)|im2col|col2im|\bunfold|\bfold$|deform",
        owns=True,
    ),
    Rule(
        "recurrent",
        r"\blstm|_lstm|fwdlstm|bwdlstm|\bgru|_gru_|rnn",
        r"lstm|(\b|_|dynamic)gru(\b|_|v\d|grad)|rnn",
        owns=True,
    ),
    Rule(
        "loss",
        r"nll_loss|cross_?entropy|mse_(kernel|loss|backward)|smooth_l1|(?<![0-9a-f])bce(?![0-9a-f])|ctc_|kl_div|huber|_loss_",
        r"loss(?!less)|cross_?entropy|kl_div",
    ),
    Rule(
        "embedding", r"embedding|embs_kernel|bounds_check_indices", r"(?<!position)(?<!position_)embedding|embed_|_embs\b|\btbe\b"
    ),
    Rule(
        "optimizer",
        r"multi_tensor_apply|fused_?adam|fused_?sgd|adamw?_|lamb_|sgd_kernel|adagrad|optimizer",
        r"^_?foreach|^_?fused_?(adam|sgd|adagrad|lamb)|^(sparse|fused\w*)?apply_?(adam|momentum|adagrad|rms|grad|ada|ftrl|proximal)|optimizer\."
        r"|^(adam|adamw|lamb|sgd|momentum|rmsprop|adagrad|adafactor)(v\d|_?weight_?decay)?_?$|^npu_apply_adam",
    ),
    Rule(
        "normalization",
        r"batch_?norm|layer_?norm|group_?norm|instance_?norm|rms_?norm|\bln_(fwd|bwd)|bn_(fw|bw|inf)|rowwisemoments|gammabeta|computefusedparams"
        r"|welford|local_response",
        r"(batch|layer|group|instance|rms|weight|spectral|deep)_?norm|^norm_except|^bn|lrn|moments",
    ),
    Rule("softmax", r"soft_?max", r"soft_?max"),
    Rule("pooling", r"pool(?!ed)", r"pool(?!ed)"),
    Rule(
        "interpolation",
        r"upsample|grid_sampler|interp(?!ret)|resize_",
        r"upsample|grid_sampl|affine_grid|interpolate|^resize(bi|near|area|d$|grad)",
    ),
    Rule("fft", r"fft", r"fft|^stft$|^istft$"),
    Rule(
        "linear algebra",
        r"cusolver|potrf|getrf|getrs|geqrf|syev|gesvd|magma|trsm",
        r"linalg_(?!(vector_|matrix_)?norm|cross|multi_dot|vecdot)|cholesky|^_?(lu|qr|svd|det|logdet|slogdet|geqrf|orgqr|ormqr|inverse|pinverse|triangular_solve)"
        r"(_|$)|^matrix_(exp|power)|solve$|^(qr|svd|matrixinverse|matrixsolve)",
    ),
    Rule(
        "matmul",
        r"(?<!fb)gemm|gemv|splitk_?reduce|^cijk_|cublas|rocblas|hipblas|cutlass|matmul|_mm_|_bmm|\bdot_kernel|xmma|epilogue::impl::globalkernel"
        r"|nvjet|\btensile|syrk|scal_kernel",
        _operator_name_pattern(
            r"""
            mm bmm vmm addmm addbmm baddbmm addmv addr mv dot vdot outer inner ger linear bilinear einsum
            tensordot kron chain_matmul addmm_activation mkldnn_linear mkldnn_linear_backward_\w+ dense hspmm
            smm sspaddmm
            """
        )
        + r"|matmul|(?<!fb)gemm|(^|_)(add)?mm(_|$)|^_?linear_|^cube|multi_dot|vecdot",
    ),
    Rule(
        "random",
        r"distribution_|dropout|philox|curand|(?<![a-z])rand(om|perm|int|n)?_|bernoulli|multinomial|uniform_kernel|normal_kernel",
        r"drop_?out|bernoulli|multinomial|stateless|philox|random|dsagenbitmask|^poisson$|^binomial$|"
        + _operator_name_pattern(
            r"""
            rand randn randint randperm normal uniform exponential log_normal geometric cauchy standard_gamma
            sample_dirichlet
            """
        ),
    ),
    Rule(
        "sort",
        # a tensor that is transformed, and segments that are unsorted, are not
        r"(?<!ten)(?<!un)sort|topk|\bunique|kthvalue|searchsorted|bucketize|reducebykey|runlength",
        _whole_word_pattern("sort")
        + r"|argsort|^msort|top_?k|^_?unique|kthvalue|search_?sorted|bucketize|median|^mode$|quantile",
    ),
    Rule(
        "indexing",
        r"(?<!with_)index|gather|scatter|masked_(select|scatter)|\btake_|nonzero|one_?hot|permute_(1d|2d|indices|pooled)|jagged|offsets_range"
        r"|lengths_range|compactinit|devicecompact|deviceselect",
        r"index|gather|scatter|masked_(select|scatter)|non_?zero|^take|one_?hot|^permute_(1d|2d|sparse)|permute_?pooled|jagged|offsets_range|^put_?$"
        r"|token_?(un)?permute|routing|lookup|" + _whole_word_pattern("moe"),
    ),
    Rule(
        "allocation",
        "",
        _operator_name_pattern(
            r"""
            empty empty_strided new_empty new_empty_strided resize resize_as pin_memory
            """
        ),
    ),
    Rule(
        "layout",
        r"copy_kernel|direct_copy|catarray|transpose|permute|nchw|nhwc|contig|tensor_?transform|cast_|_cast|reorder|concat|chunk_cat|split_with"
        r"|roll_|flip_|repeat|\bpad_|_pad|triu_tril|tensor_move|compute_cuda_kernel|fp8|quantize",
        _operator_name_pattern(
            r"""
            copy to_copy to clone contiguous cat concat stack \w?stack \w+_stack transpose permute pad
            constant_pad_nd reshape flip fliplr flipud rot90 roll repeat repeat_interleave tril triu copy_from t
            adjoint view unsafe_view reshape_alias as_strided alias detach narrow slice squeeze unsqueeze expand
            expand_as view_as view_as_\w+ unbind chunk unsafe_chunk split unsafe_split \w?split tensor_split
            split_with_sizes movedim moveaxis swapaxes swapdims diagonal diag diagflat diag_embed ravel flatten
            unflatten resolve_conj resolve_neg lift lift_fresh set type_as meshgrid pixel_shuffle
            pixel_unshuffle channel_shuffle native_channel_shuffle block_diag conj_physical m?h m?t numpy_t
            values indices data
            """
        )
        + "|"
        + _type_prefix_pattern(
            r"""
            cast transdata trans_?pose tensor_?move concat split slice strided_?slice pad tile pack unpack
            reshape expand squeeze unsqueeze identity data_?move format viewcopy asstrided broadcast_?to
            copy(?!sign) reverse roll concatenate padding invert_?permutation
            """
        )
        + r"|to_dense|to_sparse|to_mkldnn|mkldnn_reorder|quant|^select(_backward|_copy)?$",
    ),
    Rule(
        "reduction",
        r"reduce|scan|cumsum|cumprod|norm_?kernel|normtwo|sum_kernel|mean_kernel|max_kernel|min_kernel|argm(ax|in)|histogram|triton_(red|per)_",
        _operator_name_pattern(
            r"""
            sum mean max min amax amin aminmax prod norm std var var_mean std_mean all any argmax argmin cumsum
            cumprod cummax cummin logsumexp count_nonzero nansum nanmean histc histogram bincount
            linalg_vector_norm linalg_norm linalg_matrix_norm trace logcumsumexp dist cdist pdist
            local_scalar_dense item is_nonzero sum_to_size
            """
        )
        + r"|segment_?(reduce|sum|mean|max|min|prod)"
        r"|^reduce|^arg_?(max|min)|cumsum|cumprod|^lp_?norm|^l2_?norm|^square_?sum|clip_?by_?norm"
        r"|bias_?add_?grad|histogram|sum_backward|mean_backward",
    ),
    Rule(
        "elementwise",
        r"elementwise|elemwise|pointwise|triton_poi_|unrolled|vectorized|threshold|relu|gelu|silu|sigmoid|tanh|fill|arange|functor|activation"
        r"|scalepackedtensor|op_?tensor|addtensor|rotary|rope(?!rt)|swiglu|geglu",
        _operator_name_pattern(
            r"""
            add sub rsub mul div subtract multiply divide true_divide floor_divide remainder fmod pow
            float_power exp exp2 expm1 log log2 log10 log1p sqrt rsqrt square reciprocal neg negative positive
            abs absolute sign sgn signbit floor ceil round trunc fix frac a?sinh? a?cosh? a?tanh? arc\w+ atan2
            sinc erf erfc erfinv lgamma digamma polygamma i0 igamma igammac special_\w+ clamp clamp_min
            clamp_max clip maximum minimum fmax fmin eq ne lt le gt ge equal not_equal less greater less_equal
            greater_equal logical_\w+ bitwise_\w+ __\w+__ isnan isinf isfinite is\w+inf isclose nan_to_num where
            lerp addcmul addcdiv fill fill_diagonal zero zeros ones full arange range linspace logspace eye
            new_zeros new_ones new_full hypot masked_fill polar complex real imag conj angle softplus softshrink
            elu celu selu mish glu prelu rrelu leaky_relu relu relu6 gelu silu hard\w+ sigmoid log_sigmoid tanh
            threshold xlogy bias_?add heaviside cross copysign nextafter ldexp deg2rad rad2deg gcd lcm diff
            accumulategrad
            """
        )
        + "|"
        + _type_prefix_pattern(
            r"""
            add sub(?!_?graph) mul div real_?div floor_?div exp log sqrt rsqrt pow square abs neg maximum minimum equal
            not_?equal less greater logical select sigmoid relu gelu fast_?gelu swish swi_?glu tanh muls adds
            axpy fill zeros ones range sign mod power inv assign masked_?fill is_?finite is_?nan is_?inf
            reciprocal bitwise erf floor ceil round rotary rope apply_?rotary geglu mish elu leaky softplus hard
            cos sin lerp nan _?amp_\w* clip_?by_?value addc(mul|div) log(add)?exp logical logit erfcx? invert cosine
            """
        )
        + r"|triton|rotary|activation",
    ),
    Rule(
        SYNCHRONIZATION,
        r"^(stream|event|context|device) (sync|wait)|^(event|notify)_(record|wait|reset)|barrier",
        r"^(event|notify)_(record|wait|reset)|barrier|streamsync",
    ),
)

CATEGORIES: tuple[str, ...] = (*dict.fromkeys(rule.category for rule in TABLE), OTHER)

#: characters of a name that are looked at; what follows are arguments of templates, or an attack on the patterns
_LONGEST = 2000

_NAMESPACE = re.compile(
    r"^(?:autograd::engine::evaluate_function: )?(?:(?:aten|prims|torch(?:::autograd)?|mkldnn|quantized|npu|mindspore)::)?"
)
_BACKWARD = re.compile(r"(Backward\d*|_backward)$")


#: pairs of category and pattern: for names of kernels, for operators, and for operators that decide before the kernel
_KERNELS = [(rule.category, rule.kernel) for rule in TABLE if rule.kernel]
_OPERATORS = [(rule.category, rule.operator) for rule in TABLE if rule.operator]
_OWNERS = [(rule.category, rule.operator) for rule in TABLE if rule.operator and rule.owns]

_Matcher = Callable[[str], str | None]


def _compile_matcher(patterns: list[tuple[str, str]]) -> _Matcher:
    """Category of the first pattern that is found in a text; None where none is, and for an empty text."""

    @lru_cache(maxsize=1)
    def compile_patterns() -> list[tuple[str, re.Pattern[str]]]:
        # not before there is a name: of many ranks only results were kept, which have none
        return [(category, re.compile(pattern, re.IGNORECASE)) for category, pattern in patterns]

    @lru_cache(maxsize=1 << 14)
    def match_category(text: str) -> str | None:
        return next((category for category, pattern in compile_patterns() if pattern.search(text)), None) if text else None

    return match_category


def _matcher_of(texts: set[str], patterns: list[tuple[str, str]], rest: _Matcher) -> _Matcher:
    """The same as ``rest`` for texts that are known, all at once: networks may name every operator differently."""
    # the end of a line is not the end of a text for both kinds of patterns
    left = pl.Series(sorted(text for text in texts if text and "\n" not in text), dtype=pl.String)
    if len(left) < _MANY:
        # which knows what other traces of the run have named
        return rest
    category_of_name: dict[str, str | None] = {}
    for category, pattern in patterns:
        hits = left.filter(left.str.contains(f"(?i){_NEGATIVE.sub('', pattern)}"))
        if _NEGATIVE.search(pattern):
            exact = re.compile(pattern, re.IGNORECASE)
            hits = pl.Series([text for text in hits if exact.search(text)], dtype=pl.String)
        category_of_name |= dict.fromkeys(hits, category)
        left = left.filter(~left.is_in(hits.implode()))
    category_of_name |= dict.fromkeys(left)
    return lambda text: category_of_name[text] if text in category_of_name else rest(text)


_by_kernel, _by_operator, _by_owner = _compile_matcher(_KERNELS), _compile_matcher(_OPERATORS), _compile_matcher(_OWNERS)
#: from so many texts on looking at all at once is quicker
_MANY = 500
#: what the quick patterns cannot say: that something must not come before or behind; without it they match more
_NEGATIVE = re.compile(r"\(\?<?!(?:[^()]|\([^()]*\))*\)")
#: the type at the end of the full name of an operator in a graph of MindSpore
TYPE_IN_GRAPH = r"(?:^|/)([A-Za-z]\w*)-op\d+$"
_IN_GRAPH = re.compile(TYPE_IN_GRAPH)
#: a name of this form is one of an operator: kernels have arguments
_OPERATOR_NAME = re.compile(r"^(\w+:{1,2})+\w+$")


def classify_tasks(kernels: pl.DataFrame, ops: pl.DataFrame | None) -> pl.Series:
    """Category of every device task: a column of ``CATEGORIES``.

    What decides, in this order: the ``kind`` of communication and copies; the operator, for the categories that own all
    that they launch; the source's own type; the name of the kernel; the operator.

    Args:
        kernels: device tasks with ``name`` and any of ``type``, ``kind`` and ``op``.
        ops: calls with ``name``; ``op`` is the number of a row.
    """
    keys = kernels.select(
        pl.col("name"),
        *(pl.col(name) if name in kernels.columns else pl.lit(None, dtype=NAME).alias(name) for name in ("type", "kind")),
    )
    operator = pl.Series("operator", [None], dtype=NAME).new_from_index(0, kernels.height)
    if ops is not None and "op" in kernels.columns:
        op_row = pl.when((pl.col("op") >= 0) & (pl.col("op") < ops.height)).then(pl.col("op"))
        operator = ops["name"].gather(kernels.select(op_row).to_series()).alias("operator")
    keys = keys.with_columns(operator)
    some_rows, combinations = number_distinct(keys.get_columns())
    rows = [
        _normalize_task(name, type_, kind, launcher)
        for name, type_, kind, launcher in keys[some_rows].cast(pl.String).iter_rows()
    ]
    kernel = _matcher_of({name for name, *_ in rows}, _KERNELS, _by_kernel)
    operators = {text for name, type_, _, launcher in rows for text in (_base_operator_name(name), type_, launcher)}
    owner = _matcher_of({row[3] for row in rows}, _OWNERS, _by_owner)
    matchers = kernel, _matcher_of(operators, _OPERATORS, _by_operator), owner
    categories = [_task_category(*row, *matchers) for row in rows]
    category: pl.Series = pl.Series("category", categories, dtype=NAME).gather(combinations)
    return category


@lru_cache(maxsize=1 << 14)
def category_of(name: str | None, type_: str | None = None, kind: str | None = None, operator: str | None = None) -> str:
    """Category of a task by its name, the source's type of it, its kind, and the name of the operator that launched it."""
    return _task_category(*_normalize_task(name, type_, kind, operator), _by_kernel, _by_operator, _by_owner)


def is_in_graph(name: str) -> bool:
    """Whether a name is that of an operator in a graph of MindSpore, which ends in its type."""
    return _IN_GRAPH.search(name) is not None


def _normalize_task(
    name: str | None, type_: str | None, kind: str | None, operator: str | None
) -> tuple[str, str, str | None, str]:
    name = (name or "")[:_LONGEST]
    if in_graph := _IN_GRAPH.search(name):
        # the scopes before it are words of the program
        name = in_graph[1]
        type_ = type_ or name
    return name, _base_operator_name(type_), kind, _base_operator_name(operator)


def _task_category(
    name: str, type_: str, kind: str | None, operator: str, by_kernel: _Matcher, by_operator: _Matcher, by_owner: _Matcher
) -> str:
    if kind == KIND_COMMUNICATION:
        return COMMUNICATION
    if kind == KIND_COPY:
        return MEMSET if name.lower().startswith("memset") or type_.lower().startswith(("memset", "gpu_memset")) else COPY
    category_expression = (
        by_owner(operator)
        or by_operator(type_)
        or (by_operator(_base_operator_name(name)) if _OPERATOR_NAME.match(name) else None)
        or by_kernel(name)
        or by_operator(operator)
        or by_operator(_base_operator_name(name))
    )
    if category_expression:
        return category_expression
    return SYNCHRONIZATION if kind == KIND_OTHER and re.search(r"(?i)event|notify|wait|sync", name) else OTHER


def _base_operator_name(operator: str | None) -> str:
    """The name of an operator without its namespace; that of a backward call without the word for it."""
    return _BACKWARD.sub("", _NAMESPACE.sub("", (operator or "")[:_LONGEST]))
