"""Names of device kernels that vendors and frameworks bring: what in them is theirs, and what a user put into them."""

from __future__ import annotations

import functools
import re
from collections.abc import Callable
from pathlib import Path

from steplens.trace import classify

_KERNEL = re.compile(
    r"^(void |at::|cub::|thrust::|cudnn::|cutlass|flash_|fmha_|nccl(Dev)?Kernel|rccl|cublas|cudnn_|ampere_|sm\d\d_"
    r"|volta_|turing_|hopper_"
    r"|Memcpy |Memset |Cijk_|gemm|sgemm|hgemm|dgemm|splitK|nvjet_|multi_tensor_apply|elementwise|reduce_kernel|softmax_)"
)
#: a word in the name of a kernel: ``CUDAFunctor_add`` has three
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|[^\W\d_a-zA-Z]+")
_SEGMENT = re.compile(r"[A-Za-z0-9]+|[^\W\d_a-zA-Z]+")
#: numbers with a letter or two, as names of kernels have them: ``128x64``, ``f32f32``, ``s16816``, ``2D``
_CODE = re.compile(r"^(\d+[A-Za-z]{0,2}|(\d+x)+\d+|([A-Za-z]{1,2}\d+)+|r2c|c2r|[nd]2[sd])$")
_LONGEST_CODE = 40
#: what the names are made of, besides words of ``trace.classify``: vendors', frameworks', and switches of generated kernels
_WORDS = """
    accessor accumulate activation adagrad adam adamw adaptive add addcdiv addcmul adjust afc afem affine agent ailk alg
    algo algorithm alibi align alignc aligned alik all alpha ampere and anonymous any apply arange arch arg argmax argmin
    args arr array asem asin assign async atan atomic attention auto average avg backward balance barrier base batch batched
    bcast beta bias bicubic bilinear bin binary binomial bins bitonic bitwise bjlk bljk block blocked blocks bmm body bool
    bound bounds broadcast bucket buffer bwd byte cache cadd cads calculator cask cast cat ceil channel channels char check
    chunk cijk clamp clr cmp cnn codegen col cols column combination comm common compact compacted compare complex compute
    concat condition configuration congruous const constant contig contiguous conv convert convolution convolve coop copy
    core cos count cpy cross cta ctc cub cublas cuda cudnn cufft cumprod cumsum curand cusolver cusparse custom cute cutlass
    data dconv ddim decltype decode default deg delta dense depth depthwise detail dev device dfprop dgemm dgrad diag dim
    dims direct discard dispatch dist distance distribution div divide divisor dot double dropout dto dtod dtoh dtop dual
    dynamic elem element elements elementwise elems elu embedding embeddings embs empty enable end engine entropy epilogue
    eps equality erf even exclusive execute exp expand extract false fast fbgemm fft fill filter final find first fixed
    flash flat flatten flip float floor fma fmha fmod fold for foreach forward fprop fractional fragment func function
    functor fused fusion fwd gamma gather gcd gcgemm geglu gelu gemm gemmk gemv gemvx generate generator generic geometric
    get glob global glu gpu grad gradient gradients grid group grouped grvwa grvwb gsu gsuamb half hardshrink hardsigmoid
    hardswish hardtanh head height helper hfp hgemm histogram hmma hopper host hswish hto htod huber identity im2col image
    imm impl implicit inclusive increment index indexed indexing indice indices infer info init inner input inputs insert
    inst instance int integer interior interleaved internal interp into inverse isa item items iter iterator kernel kernels
    key keys kind kreduce kurtosis lamb lambda large largek last launch launcher layer layernorm layout lbsppa lbsppb lbsppm
    ldg lds ldsb leaky left len length lengths lerp less level limits line linear linearize linspace list load local log
    logical logit logits logsoftmax long loop loss low lower lpa lpb lpm lrvw lstm lt lwp major map mask masked mat matmul
    matrix max maximum maxpool mean medium mem memcpy memory memset merge meta metadata miav min minimum mish miwt mixed mma
    mode modifier moment moments momentum mse mul multi multinomial multiplicand multiplies multiply multistage name
    namespace nan native nccl nchw ndhwc neg negative nepbs nesterov new nhwc nhwckrsc nlca nlcb nll nocast node none
    nonfused nonzero norm normal normalize not notify nsp nta ntb ntc ntd ntm null nullary nullptr num number numeric nvjet
    object offset offsets one ones onesweep onll op opaque operation operator ops opt optimal optimized optimizer optional
    ordered other out outer output pack packed pad padding pageable pair param parameter params part partial partition pass
    patch per permute pgr philox pinned pitch pixel pka place plr plus point pointer pointwise poisson policy poly pool
    pooled pooling pos position pow precision predicated prefix prelu prepare problem prod product proj projection ptod ptoh
    ptr ptx put qkv qparam quant quantize query rad radix raked rand random randperm range rank rate ratio raw recip
    reciprocal rectified recv reduce reduced reduction ref reflection regular relu remainder renorm repeat replace reset
    reshape resize restrict result reverse rflip right ring rms rmsprop rng rnn roi roll root rope rot rotary round row rows
    rowwise rsqrt rsub run runtime same sample sampling sav scal scalar scalars scale scaled scaling scan scatter scudnn
    searchsorted seg segment segmented segments select selection self selu semaphore send seq sequence set sgd sgemm shape
    shared shfl shift shuffle sia sigmoid sign signed silu simple simt sin single singleread sinh size sizes skip slice
    sliced slope small smem smooth softmax softplus softshrink sort source space sparse split splitk spo sqrt square src
    srvw sso stable stage stages start state static stats std step storage store stream stride strided strides string struct
    style sub subtract sum svw swap swish swizzle sync tab table take tan tanh target tasks temp template templates tensor
    tensorop tensors tfloat than thread threadblock threads threshold tile tiled tiles tilesize tlds topk trace train traits
    transform transpose transposed tree tri tril triton triu trivial true trunc tuple turing two type types unary unfold
    uniform unique unit unity unordered unroll unrolled unsigned unweighted upper upsample user usfgr val value values var
    vec vector vectorized vectors view void volta volume vwa vwb warp warps warpsize weight weighted weights welford wgmma
    wgrad where width window winograd with without word words work workspace wrap wrapper write wsgra wsgrb xent xmma xor
    xregs zero zeros
"""


def is_kernel(text: str) -> bool:
    """Whether a name has the form of a vendor's or a framework's kernel."""
    return _KERNEL.match(text) is not None


def replaced(text: str, name: Callable[[str, str], str]) -> str:
    """A name of this form with pseudonyms for its words that are not known.

    A template has types of the user between its brackets, and whoever writes a kernel may call it ``softmax_`` and more.

    Args:
        text: the name.
        name: gives the pseudonym for a kind of name and a name.
    """
    return _SEGMENT.sub(lambda found: found[0] if _is_known(found[0]) else name("word", found[0]), text)


def _is_known(segment: str) -> bool:
    found = _WORD.findall(segment)
    if any(len(word) > 2 for word in found):
        return all(len(word) <= 2 or word.lower() in words() for word in found)
    return segment.isalpha() or (len(segment) <= _LONGEST_CODE and _CODE.match(segment) is not None)


@functools.cache
def words() -> frozenset[str]:
    """Words, in small letters, of which vendors and frameworks make names of kernels."""
    told = Path(classify.__file__).read_text(encoding="utf-8")
    return frozenset((*_WORDS.split(), *(word.lower() for word in _WORD.findall(told))))
