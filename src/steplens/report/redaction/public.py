"""What is public and stays in a report without names. This module is the whole rule; docs/report.md says it in words.

A name stays if it has one of the forms below, or consists of the words below where a vendor makes names of words. Nothing is
taken from an installed framework or from the code of steplens: what stays does not depend on where the report is made, and a
name of the user's that happens to be a word in either goes like any other.
"""

from __future__ import annotations

import re

from steplens.trace.schema import DATALOADER_PREFIX, OPTIMIZER_STEP_PREFIX, STEP_PREFIX


def _word_set(text: str) -> frozenset[str]:
    return frozenset(text.split())


# --- operators and ranges

#: namespaces of operators: of PyTorch, of vendors' plugins, of public libraries
NAMESPACES = (
    "aten|prim|prims|c10|c10d|_c10d_functional|_c10d_functional_autograd|autograd|torch|quantized|inductor|sparse|mkldnn|onednn|npu|hccl"
    "|cann|fbgemm|torchvision|torchaudio|xformers|flash_attn|vllm|_C_cache_ops|aiter|symm_mem|rng_prims|quantized_decomposed"
)
OPERATOR = re.compile(
    rf"^(({NAMESPACES})::([a-z_]+::)*[A-Za-z_]\w*|acl(nn|rt|op)[A-Z]\w*|acl_\w+|torch(\.[a-z_]+)+::\w+|[A-Z]\w*Backward\d+"
    r"|(torch::)?(autograd::)?(AccumulateGrad|CopyBackwards|CopySlices|GraphRoot)"
    r"|detach_?|empty_tensor|wait_event|record_event|destroy_event|record_param_comms"
    r"|Optimizer\.closure|DistributedDataParallel\.forward|PyTorch Profiler \(\d+\))$"
)
STEP = re.compile(rf"^{re.escape(STEP_PREFIX)}\d+$")
#: what stands before the name of an operator, or before a class and a method
BACKWARD_PREFIX = "autograd::engine::evaluate_function: "
CLASS_PREFIXES = (DATALOADER_PREFIX, OPTIMIZER_STEP_PREFIX, "Optimizer.zero_grad#")
CLASS_METHODS = frozenset({"step", "zero_grad", "__next__"})
#: collectives of libraries: ``nccl:all_reduce``, ``hcom_allReduce__865_0_1``
COLLECTIVE_RANGE = re.compile(r"^(gloo|nccl|hccl|mpi|ucc|c10d|hcom|Hccl)(::|:|_|)([A-Za-z_]+)([\d_]*)$")
COLLECTIVES = _word_set(
    """
    all reduce allreduce gather allgather scatter reducescatter alltoall alltoallv broadcast send recv receive barrier into
    tensor base coalesced to v object monitored batch group start end single out
    """
)
#: collectives as MindSpore numbers them: ``stream_10_3_AllReduce-op17787``
_COLLECTIVE = "all_?reduce|all_?gather|reduce_?scatter|all_?to_?allv?"
_TRANSFER = f"{_COLLECTIVE}|broadcast|reduce|send|receive|barrier|parallel"
COLLECTIVE_TASK = re.compile(
    rf"^(stream_\d+_(\d+_)?({_TRANSFER})(-op\d+)?|({_TRANSFER})-op\d+|{_COLLECTIVE})(_\d+)*$", re.IGNORECASE
)
#: operators of MindSpore's data pipeline, some with "Op" behind them
PIPELINE_OPERATOR = re.compile(
    r"^(Batch|Map|Shuffle|Repeat|Skip|Take|Zip|Concat|Rename|Project|Filter|Cache|Sync|Barrier|EpochCtrl|Generator"
    r"|DataQueue|DeviceQueue|BucketBatchByLength|TFReader|MindRecord|ImageFolder|Cifar10|Cifar100|Mnist|TextFile|CSV|Album|CelebA|Coco"
    r"|Manifest|VOC|CLUE|RandomData|NumpySlices|PaddedBatch|Transfer)(Op|Dataset)?$"
)

# --- device tasks

#: namespaces in the C++ names of kernels
KERNEL_NAMESPACE = re.compile(
    r"^(at|c10|caffe2|torch|std|cuda|hip|thrust|cub|hipcub|rocprim|at_cuda_detail|cute|cutlass(_\w+)?|cudnn(_\w+)?"
    r"|cask_cudnn(_\w+)?|cask|cublas(Lt)?|cusparse|cusolver|cufft|curand|rocblas|hipblaslt|miopen|ck|ck_tile|nccl|rccl|fbgemm_gpu|flash|pytorch_flash"
    r"|PyTorchMemEffAttention|transformer_engine|vllm|aiter|xformers|dnnl|gemm|xmma|xmma_cudnn)$"
)
#: names of kernels, and of their types, without a namespace
BARE_KERNEL = re.compile(
    r"^((ampere|volta|turing|hopper|maxwell|pascal|sm\d+|cutlass\d*|cudnn|nvjet|Cijk|igemm_(fwd|bwd|wrw)"
    r"|cunn|flash_(fwd|bwd)|fmha)_\w+|cudnn[A-Z]\w*|cublas[A-Z]\w*|(nccl|rccl)(Dev)?Kernel\w*|nccl[A-Z]\w*|triton_(poi|red|per|tem|mm)_fused_\w+"
    r"|(vectorized_|unrolled_)?elementwise_kernel(_\w+)?|reduce_kernel|multi_tensor_apply(_kernel)?"
    r"|softmax_warp_(forward|backward)|cunn_SoftMax(Forward|Backward)\w*|CatArrayBatchedCopy\w*|indexSelect(Large|Small)Index"
    r"|splitKreduce_kernel|gemv2[TN]_kernel\w*|gemvNSP_kernel|gemmk1_kernel|gemmSN_\w+|dot_kernel|reduce_1Block_kernel"
    r"|fft[12]d_\w+|flip_filter|nchwToNhwcKernel|nhwcToNchwKernel|genericTranspose_kernel|[sdhc]gemm_\w+"
    r"|(Trivial)?OffsetCalculator|Array|function_traits|curandState\w*|__hip_bfloat16|(float|int|double|half|uint|char|short|long)[234]?|__half2?|__nv_bfloat16[2]?)$"
)
#: codes of which ROCm's libraries make the names of generated kernels: ``MT64x160x128``, ``GRVWA8``
CODED_KERNEL = re.compile(r"^(Cijk|igemm)_")
KERNEL_CODE = re.compile(r"^([A-Z]{1,8}n?\d*(x\d+)*|[a-z]{1,5}\d+(x\d+)*)$")
#: words of the language; numbers may carry an ending of it
CXX_WORDS = _word_set(
    """
    auto bfloat16 bool char class const decltype double false float half int int16_t int32_t int64_t int8_t lambda long
    nullptr operator short signed size_t static struct true typename uint16_t uint32_t uint64_t uint8_t unsigned void volatile
    """
)
NUMBER = re.compile(r"^\d+(u|l|ul|ll|ull|f|x\d+)?$")
#: what copies say of their two ends
COPY_WORDS = _word_set(
    "HtoD DtoH DtoD HtoH PtoP HtoA AtoH AtoD DtoA AtoA Pageable Pinned Device Array Managed Host Unified Unknown"
)
#: tasks of an NPU: types with a number or an instance, fusions of types, and the device's own
NPU_TASK = re.compile(
    r"^((trans_)?[A-Z][A-Za-z0-9]*(_\d+)*(-op\d+)?|FusionOp(_[A-Z][A-Za-z0-9]*)+|[A-Z][A-Za-z0-9]*_MemSet"
    r"|(EVENT|NOTIFY|MEMCPY|REDUCE|PROFILING|KERNEL|MODEL)(_(RECORD|WAIT|RESET|ASYNC|V2|ENABLE|DISABLE|AICORE|AICPU|EXECUTE))+"
    r"|(Notify|Event)[ _](Wait|Record)|Write[ _]Value|Reduce[ _]Inline|AI_CORE|AI_CPU|SDMA|RDMA)$"
)
#: scopes that MindSpore opens itself
SCOPES = frozenset({"Default", "Gradients", "recompute_Default", ""})
#: words in small letters of which frameworks and vendors make names of kernels and types: "MatMulV2" has two
KERNEL_WORDS = _word_set(
    """
    abs access accessor accumulate acl aclnn activation adadelta adagrad adam adamax adamw adaptive add addcdiv addcmul addmm
    addmv addr adjust afc afem affine agent aicore aicpu ailk alg algo algorithm alibi align alignc aligned alik all allgather
    allreduce alltoall alpha ampere and angle anonymous any apply arange arch area arg argmax argmin args argument arr array
    ascend asem asin assert assign async atan atomic attention auto average avg backprop backward baddbmm bag balance barrier
    base batch batched bbs bcast beam bernoulli beta bfloat bias bicubic bilinear bin binary bincount binomial bins bit
    bitcast bitonic bitwise bjlk bljk block blocked blocks bmm body bool bound bounds broadcast bucket buffer bwd byte cache
    cadd cads calculator cask cast cat categorical ceil cell celu centered channel channels char check cholesky chunk cijk
    clamp clean clip clone clr cmp cnn codegen col collect cols column combination comm common compact compacted compare
    complex compute concat condition conditional configuration congruous conj const constant contig contiguous conv convert
    convolution convolve coop copy core cos count cpy crf crop cross cshuffle cta ctc cub cublas cuda cudnn cufft cum cumprod
    cumsum curand cusolver cusparse cute cutlass data dataset dconv ddim decltype decode default deformable deg delta dense
    depth depthwise dequant dequeue descriptor det detail dev device dfprop dgemm dgrad diag dim dims direct disable discard
    dispatch dist distance distribution div divide division divisor divs dot double drop dropout dsa dto dtod dtoh dtop dual
    dynamic eig einsum elem element elements elementwise elems elu embed embedding embeddings embs empty enable end engine
    engines enqueue enter entropy enum epilogue eps equal equality erf erfc even event exclusive execute exit exp expand
    expert experts extract eye false fast fbgemm fft fill filter final finalize find finite first fixed flash flat flatten
    flip float floor fma fmha fmod fold for foreach forward fprop frac fractional fragment ftrl func function functor fused
    fusion fwd gamma gates gather gating gcd gcgemm geglu gelu gemm gemmk gemv gemvx gen generate generator generic geometric
    get gkgs glob global glu gpu grad gradient gradients grads greater grid gridwise group grouped gru grvwa grvwb gsu gsuamb
    gtcx half hard hardshrink hardsigmoid hardswish hardtanh hccl hcom head height helper hfp hgemm hidden hinge hip histogram
    hmma hopper host hot hswish hto htod huber identity igemm im2col imag image imm impl implicit inclusive incre increment
    index indexed indexing indice indices inf infer info init inline inner inplace input inputs insert inst instance int
    integer integral interior interleaved internal interp into inverse invert iou irfft isa item items iter iterator keras
    kernel kernels key keys kind kreduce kurtosis lamb lambda large largek lars last launch launcher layer layernorm layout
    lbsppa lbsppb lbsppm ldg lds ldsb leaky left len length lengths lerp less level like limits line linear linearize linspace
    list load local log logical logit logits logsoftmax long lookup loop loss low lower lpa lpb lpm lrvw lstm lt luv lwp magic
    major manual map margin mask masked mat matmul matrix max maximum maxpool mean medium mem memcpy memory memset merge meta
    metadata miav min minimum mish miwt mixed mma mod mode model modifier moe moment moments momentum move mse mul muls multi
    multinomial multiple multiplicand multiplies multiply multistage name namespace nan native nccl nchw ndhwc nearest neg
    negative neighbor nepbs nesterov new next nhwc nhwckrsc nlca nlcb nll nms nocast node non none nonfused nonzero norm
    normal normalize not notify nsp nta ntb ntc ntd ntm null nullary nullptr num number numeric numerics nvjet object off
    offset offsets one ones onesweep onll op opaque operation operator ops opt optimal optimized optimizer optional ordered
    other out outer output outputs pack packed pad padding page pageable paged pair param parameter params part partial
    partition pass patch per permute pgr philox pinned pitch pixel pka place plr plus poi point pointer pointwise poisson
    polar policy poly pool pooled pooling pos position pow precision precompiled predicated prefix prelu prepare print problem
    prod product profiling proj projection prompt proximal ptod ptoh ptr ptx put pytorch qkv qparam quant quantize query queue
    rad radix raked rand random randperm range rank rate ratio raw real receive recip reciprocal record rectified recv red
    reduce reduced reducescatter reduction ref reflection regular relu relugrad remainder renorm repeat replace reset reshape
    resize response restrict result reverse rfft rflip right ring rms rmsnorm rmsprop rmspropd rng rnn roi roll root rope rot
    rotary round routing row rows rowwise rsqrt rsub run runtime same sample sampling sav scal scalar scalars scale scaled
    scaling scan scatter scheduler scudnn sdma search searchsorted seed seg segment segmented segments select selection self
    selu semaphore send seq sequence set sgd sgemm shape shared shfl shift shrink shuffle sia sigmoid sign signed silu simple
    simt sin single singleread sinh size sizes skip slice sliced slope small smem smooth softmax softplus softshrink solve
    sort sorted source space sparse specialization split splitk spo sqrt square squeeze src srvw sso stable stack stage stages
    start state stateless static statistics stats std step storage store stream stride strided strides string struct style sub
    subtract sum svd svw swap swi swiglu swish switch swizzle sync tab table tail take tan tanh target tasks tem temp template
    templates tensor tensorop tensors tfloat than thread threadblock threads threshold through tile tiled tiles tilesize
    tiling tlds tma token top topk trace train traits trans transform transpose transposed tree tri triangular tril trilinear
    triplet triton triu trivial true trunc truncated tuple turing two type types unary unfold unified uniform unique unit
    unity unordered unpack unpermute unroll unrolled unsigned unsorted unsqueeze unstack unweighted update upper upsample user
    usfgr val value values var variable vec vector vectorized vectors version view virtual vllm void volta volume vwa vwb wait
    warp warpgroupsize warps warpsize weight weighted weights welford wgmma wgrad where width window winograd wise with
    without word words work workspace wrap wrapper write wrw wsgra wsgrb xdl xdlops xent xmma xor xregs zero zeros
    """
)

# --- calls

CALL = re.compile(
    r"^(AscendCL@|Node@|Model@|Runtime@)?((cuda|cu|hip|acl|aclrt|aclnn|aclop|hccl|nccl)[A-Z][A-Za-z0-9]*(_(v\d+|pt[ds]z?|spt))*"
    r"|launch|node|runtime|model|communication)$|^GE@Infer$|^(Context|Stream|Event|Device) (Sync|Synchronize|Wait Event)$"
)
#: calls that prepare operators of an NPU; the type before it must be public too
PREPARATION = re.compile(r"^(([A-Z][A-Za-z0-9]*)_(Tiling|InferShape)|opCompile|[Ii]nferShape)$")
#: words of which the names of CANN's runtime consist: ``KernelLaunchWithHandle_Big``
RUNTIME_WORDS = _word_set(
    """
    Addr Async Big Compile Context Copy Create Ctx Current Destroy Device Event Ex Ffts Finish Free Get Handle Huge Kernel
    Launch Malloc Mem Memcpy Memset Model Notify Overflow Plus Query Record Reset Set Stars Status Stream Sync Synchronize
    Task Wait With
    """
)

# --- Python

#: public classes of torch.nn, torch.optim and torch.utils.data
CLASSES = _word_set(
    """
    ASGD Adadelta Adafactor Adagrad Adam AdamW Adamax AdaptiveAvgPool1d AdaptiveAvgPool2d AdaptiveAvgPool3d
    AdaptiveLogSoftmaxWithLoss AdaptiveMaxPool1d AdaptiveMaxPool2d AdaptiveMaxPool3d AlphaDropout AvgPool1d AvgPool2d
    AvgPool3d BCELoss BCEWithLogitsLoss BatchNorm1d BatchNorm2d BatchNorm3d BatchSampler Bilinear CELU CTCLoss ChainDataset
    ChannelShuffle CheckpointWrapper CircularPad1d CircularPad2d CircularPad3d ConcatDataset ConstantPad1d ConstantPad2d
    ConstantPad3d Container Conv1d Conv2d Conv3d ConvTranspose1d ConvTranspose2d ConvTranspose3d CosineEmbeddingLoss
    CosineSimilarity CrossEntropyLoss CrossMapLRN2d DFIterDataPipe DataChunk DataLoader DataParallel Dataset
    DistributedDataParallel DistributedOptimizer DistributedSampler Dropout Dropout1d Dropout2d Dropout3d ELU Embedding
    EmbeddingBag FeatureAlphaDropout Flatten Fold FractionalMaxPool2d FractionalMaxPool3d FullyShardedDataParallel GELU GLU
    GRU GRUCell GaussianNLLLoss GroupNorm Hardshrink Hardsigmoid Hardswish Hardtanh HingeEmbeddingLoss HuberLoss Identity
    InstanceNorm1d InstanceNorm2d InstanceNorm3d IterDataPipe IterableDataset KLDivLoss L1Loss LBFGS LPPool1d LPPool2d
    LPPool3d LSTM LSTMCell LayerNorm LazyBatchNorm1d LazyBatchNorm2d LazyBatchNorm3d LazyConv1d LazyConv2d LazyConv3d
    LazyConvTranspose1d LazyConvTranspose2d LazyConvTranspose3d LazyInstanceNorm1d LazyInstanceNorm2d LazyInstanceNorm3d
    LazyLinear LeakyReLU Linear LinearCrossEntropyLoss LinearCrossEntropyOptions LocalResponseNorm LogSigmoid LogSoftmax
    MSELoss MapDataPipe MarginRankingLoss MaxPool1d MaxPool2d MaxPool3d MaxUnpool1d MaxUnpool2d MaxUnpool3d Mish Module
    ModuleDict ModuleList MultiLabelMarginLoss MultiLabelSoftMarginLoss MultiMarginLoss MultiheadAttention Muon NAdam NLLLoss
    NLLLoss2d NonDynamicallyQuantizableLinear OptimizedModule Optimizer PReLU PairwiseDistance ParameterDict ParameterList
    PixelShuffle PixelUnshuffle PoissonNLLLoss RAdam RMSNorm RMSprop RNN RNNBase RNNCell RNNCellBase RReLU RandomSampler ReLU
    ReLU6 ReflectionPad1d ReflectionPad2d ReflectionPad3d ReplicationPad1d ReplicationPad2d ReplicationPad3d Rprop SELU SGD
    Sampler Sequential SequentialSampler SiLU Sigmoid SmoothL1Loss SoftMarginLoss Softmax Softmax2d Softmin Softplus
    Softshrink Softsign SparseAdam StackDataset Subset SubsetRandomSampler SyncBatchNorm Tanh Tanhshrink TensorDataset
    Threshold Transformer TransformerDecoder TransformerDecoderLayer TransformerEncoder TransformerEncoderLayer
    TripletMarginLoss TripletMarginWithDistanceLoss Unflatten Unfold Upsample UpsamplingBilinear2d UpsamplingNearest2d
    WeightedRandomSampler ZeroPad1d ZeroPad2d ZeroPad3d ZeroRedundancyOptimizer _BaseDataLoaderIter _BatchNorm _ConvNd
    _MultiProcessingDataLoaderIter _SingleProcessDataLoaderIter
    """
)
#: functions of torch and methods of its tensors, also with a "_" at the end
TORCH_FUNCTIONS = _word_set(
    """
    _foreach_add _foreach_addcdiv _foreach_addcmul _foreach_div _foreach_lerp _foreach_mul _foreach_sqrt abs absolute acos
    acosh adaptive_avg_pool1d adaptive_avg_pool2d adaptive_avg_pool3d adaptive_max_pool1d adaptive_max_pool2d
    adaptive_max_pool3d add addbmm addcdiv addcmul addmm addmv addr adjoint affine_grid_generator all allclose alpha_dropout
    amax amin aminmax angle any apply arange argmax argmin argsort argwhere as_strided as_strided_scatter as_subclass
    as_tensor asarray asin asinh atan atan2 atanh avg_pool1d avg_pool2d avg_pool3d baddbmm bartlett_window batch_norm
    bernoulli bfloat16 bilinear binary_cross_entropy binary_cross_entropy_with_logits bincount binomial bitwise_and bitwise_or
    blackman_window block_diag bmm bool broadcast_tensors broadcast_to bucketize byte can_cast cartesian_prod cat cauchy cdist
    ceil celu chain_matmul channel_shuffle char cholesky cholesky_inverse cholesky_solve choose_qparams_optimized chunk clamp
    clamp_max clamp_min clip clone coalesce col2im col_indices column_stack combinations complex concat concatenate conj
    conj_physical const_data_ptr constant_pad_nd contiguous conv1d conv2d conv3d conv_depthwise3d conv_tbc conv_transpose1d
    conv_transpose2d conv_transpose3d convolution copy copysign corrcoef cos cosh cosine_embedding_loss cosine_similarity
    count_nonzero cov cpu cross cross_entropy_loss ctc_loss cuda cummax cummin cumprod cumsum cumulative_trapezoid data
    data_ptr deg2rad dense_dim det detach device diag diag_embed diagflat diagonal diagonal_scatter diff digamma dim dim_order
    dist div divide dot double dropout dsmm dsplit dstack dtype eig einsum element_size elu embedding embedding_bag
    embedding_renorm empty empty_like empty_permuted empty_strided eq equal erf erfc erfinv exp exp2 expand expand_as expm1
    exponential eye feature_alpha_dropout feature_dropout fill fill_diagonal fix flatten flatten_dense_tensors flip fliplr
    flipud float float_power floor floor_divide fmax fmin fmod frac fractional_max_pool2d fractional_max_pool3d frexp
    frobenius_norm from_file from_numpy frombuffer full full_like gather gcd ge gelu geometric geqrf ger get_device glu grad
    grad_dtype grad_fn gradient greater greater_equal grid_sampler grid_sampler_2d grid_sampler_3d group_norm gru gru_cell gt
    half hamming_window hann_window hardshrink hardsigmoid hardswish hardtanh hash_tensor heaviside hinge_embedding_loss histc
    histogram histogramdd hsmm hstack huber_loss hypot i0 im2col imag index index_add index_select indices inner instance_norm
    int inverse ipu is_complex is_floating_point isclose isfinite isin isinf isnan isneginf isposinf isreal istft item
    itemsize kaiser_window kl_div kron kthvalue l1_loss layer_norm layout lcm ldexp le leaky_relu lerp less less_equal lgamma
    linalg_vector_norm linear linspace log log10 log1p log2 log_softmax logical_and logical_not logical_or logsumexp long lstm
    lstm_cell lstsq lt lu lu_solve lu_unpack mH mT map map2 margin_ranking_loss masked_fill masked_scatter masked_select
    matmul matrix_exp matrix_power max max_pool1d max_pool1d_with_indices max_pool2d max_pool2d_with_indices max_pool3d
    max_pool3d_with_indices max_unpool2d max_unpool3d maximum mean median meshgrid min minimum mish mm mode module_load
    moveaxis movedim mse_loss msort mtia mul multi_margin_loss multilabel_margin_loss multinomial multiply mv mvlgamma name
    narrow native_batch_norm native_channel_shuffle native_dropout native_group_norm native_layer_norm native_norm nbytes ndim
    ndimension ne neg negative nelement new new_empty new_empty_strided new_full new_ones new_tensor new_zeros nextafter
    nll_loss nll_loss2d nll_loss_nd nonzero nonzero_static norm norm_except_dim normal not_equal nuclear_norm numel numpy
    one_hot ones ones_like orgqr ormqr outer output_nr pad pad_sequence pairwise_distance pdist permute pin_memory pinverse
    pixel_shuffle pixel_unshuffle poisson poisson_nll_loss polar positive pow prelu prod promote_types put qr qscheme rad2deg
    rand rand_like randint randn randn_like random randperm range ravel real reciprocal reflection_pad1d reflection_pad2d
    reflection_pad3d reinforce relu relu6 remainder renorm repeat repeat_interleave replication_pad1d replication_pad2d
    replication_pad3d requires_grad reshape reshape_as resize resize_as resolve_conj resolve_neg result_type rms_norm rnn_relu
    rnn_relu_cell rnn_tanh rnn_tanh_cell roll rot90 round row_indices row_stack rrelu rrelu_with_noise rsqrt rsub saddmm
    scalar_tensor scaled_dot_product_attention scatter scatter_add searchsorted segment_reduce select selu set sgn shape
    share_memory short sigmoid sign signbit silu sin sinc sinh size slogdet slow_conv3d slow_conv_dilated2d
    slow_conv_dilated3d slow_conv_transpose2d slow_conv_transpose3d smm smooth_l1_loss soft_margin_loss softmax softplus
    softshrink solve sort split split_with_sizes spmm sqrt square squeeze sspaddmm stack std std_mean stft storage
    storage_offset storage_type stride sub subtract sum sum_to_size svd swapaxes swapdims take take_along_dim tan tanh tensor
    tensor_split tensordot thnn_conv2d threshold tile to to_dense tolist topk trace transpose trapezoid trapz triangular_solve
    tril tril_indices triplet_margin_loss triu triu_indices true_divide trunc type type_as unbind unflatten
    unflatten_dense_tensors unfold uniform unique unique_consecutive unique_dim unsqueeze untyped_storage upsample_bicubic2d
    upsample_bilinear2d upsample_linear1d upsample_nearest1d upsample_nearest2d upsample_nearest3d upsample_trilinear3d values
    vander var var_mean vdot view view_as view_as_complex view_as_real volatile vsplit vstack where xpu zero zeros zeros_like
    """
)
#: packages below whose folder a file is a framework's
LIBRARIES = ("torch", "torchvision", "mindspore", "lightning", "pytorch_lightning", "transformers", "accelerate", "steplens")
_FILES = """
    : abc ast codecs collections/__init__ contextlib copy copyreg dataclasses enum functools inspect pickle queue random re runpy
      selectors socket socketserver subprocess tempfile threading typing weakref
    concurrent/futures: _base process thread
    importlib: __init__ _bootstrap _bootstrap_external
    json: __init__ decoder encoder
    logging: __init__
    multiprocessing: connection context pool process queues reduction resource_sharer spawn synchronize
    torch: _VF _compile _jit_internal _ops _tensor _utils _utils_internal functional random storage
    torch/_dynamo: eval_frame utils
    torch/_functorch: aot_autograd
    torch/_functorch/_aot_autograd: runtime_wrappers utils
    torch/_inductor: compile_fx output_code utils
    torch/amp: autocast_mode grad_scaler
    torch/autograd: __init__ function grad_mode graph profiler
    torch/cuda: __init__ graphs memory nccl random streams
    torch/distributed: __init__ c10d_logger distributed_c10d utils
    torch/distributed/fsdp: fully_sharded_data_parallel _runtime_utils
    torch/multiprocessing: reductions spawn
    torch/nn: _reduction functional init parameter
    torch/nn/modules: activation batchnorm container conv dropout embedding flatten linear loss module normalization padding
      pooling rnn sparse transformer upsampling utils
    torch/nn/parallel: data_parallel distributed scatter_gather
    torch/nn/utils: clip_grad
    torch/optim: _functional adadelta adagrad adam adamw lr_scheduler optimizer rmsprop sgd
    torch/profiler: profiler
    torch/utils: _contextlib _device _foreach_utils _python_dispatch _pytree checkpoint
    torch/utils/data: dataloader dataset distributed sampler
    torch/utils/data/_utils: collate fetch pin_memory signal_handling worker
"""
#: files of Python and PyTorch, by their path
FILES = frozenset(
    f"{folder.strip()}/{name}.py".lstrip("/")
    for line in _FILES.replace("\n      ", " ").splitlines()
    if ":" in line
    for folder, _, names in [line.partition(":")]
    for name in names.split()
)
#: functions in those files
FUNCTIONS = _word_set(
    """
    <module> <lambda> <listcomp> <genexpr> <dictcomp> __call__ __contains__ __del__ __enter__ __exit__ __format__ __get__
    __getattr__ __getattribute__ __getitem__ __hash__ __init__ __iter__ __len__ __new__ __next__ __setattr__ __setitem__
    __torch_function__ _backward_hook _bootstrap _bootstrap_inner _call_impl _call_with_frames_removed _check_input_dim
    _clear_grad_buffer _conv_forward _engine_run_backward _fn _forward_unimplemented _get_iterator _get_data
    _get_default_group _init_group _lazy_init _main _max_pool2d _multi_tensor_adam _multi_tensor_adamw _multi_tensor_sgd
    _next_data _next_index _optimizer_step_code _poll _post_forward _pre_forward _process_data _rebuild_tensor _recv
    _recv_bytes _run_code _run_ddp_forward _run_module_as_main _run_module_code _send _send_bytes _single_tensor_adam
    _single_tensor_adamw _single_tensor_sgd _sync_buffers _tensor_or_tensors_to_tuple _try_get_data _try_put_index _use_grad
    _wrapped_call_impl acquire adam adamw adaptive_avg_pool2d all_gather all_reduce apply backward barrier batch_norm
    broadcast call_func_at_runtime_with_args checkpoint clone close collate compile_fx copy cross_entropy decorate_context
    default_collate detach dropout dumps embedding fetch forward gelu get get_rank get_world_size group_norm inner
    is_available is_initialized layer_norm linear load loads log_softmax max_pool2d mse_loss named_buffers named_modules
    named_parameters new nll_loss notify pack_hook parameters pin_memory poll profile_hook_step put rebuild_storage_fd
    recv_bytes reduce_storage relu replay reset run runtime_wrapper runner save_for_backward scaled_dot_product_attention
    select send send_bytes sgd softmax spawn_main start step stop submit synchronize to train tree_flatten tree_map
    tree_unflatten unpack_hook update wait worker wrapper zero_grad
    """
)
BUILT_IN = re.compile(r"^<built-in (?P<kind>function|method) (?P<name>\w+)(?: of (?P<owner>[\w.]+) object)?>$")
#: functions that put samples together
COLLATES = frozenset({"default_collate", "default_convert", "pad_sequence", "None", ""})
#: threads of PyTorch by their names, as the system cuts them to 15 characters
THREAD = re.compile(
    r"^(MainThread|python[\d.]*|([Tt]hread|stream|Device) \d+ ?"
    r"|pt_(autograd_\d+|main_thread|data_(worker|pin)(_\d+)?|tcpstore_uv|kineto"
    r"|(nccl|gloo)_(watchd\w?g|heartbt|runloop)|elastic))$"
)

# --- metadata, marks, vendors' tables and counters

#: keys of metadata that profilers and steplens write; what a script adds has a key of its own
META_KEYS = _word_set(
    """
    ENV_VARIABLES INFO accelerator allocator baseTimeNanoseconds base_time_ns bp_end cann_version checkpoint_bytes chip clock_mhz
    config context_mode cpu_processor_num cuda_driver_version cuda_runtime_version cupti_version deviceProperties device_ids
    device_info displayTimeUnit distributedInfo end_info fp_start graph_ids hip_driver_version hip_runtime_version host_name
    host_sampler_cost host_uid hostname metadata model_ids monotonic_offset_ns ms_version operator_recorder parallel_group_info
    parallel_mode
    parallel_strategy partial_steps pid pipeline_sampling_interval_ms process_identity processor processor_time profile_memory
    profiling_options profiling_stop_time python_version rank rank_id rank_size record_shapes results_only roctracer_version
    schemaVersion schema_version session_end_ns session_start_ns source_format stack_sampling_hz stage_num start_info
    steplens_version torch_npu_version torch_version traceName trace_id whole_steps with_flops with_modules with_stack world_size
    """
)
#: keys of metadata, and their parts, whose value says what machines, people and places are called
SECRET_KEY = re.compile(
    r"host|user|path|dir(ectory)?$|file|command|argv|trace_?name|trace_id|machine|addr|uri|url|endpoint|(^|_)(id|ip|key|token)$",
    re.IGNORECASE,
)
#: what builds add to a version: that of CUDA or ROCm stays, that of a company goes
BUILD = re.compile(r"\+(?!(cpu|cu\d+|rocm[\d.]+|xpu)\b)[^\"]*")
GROUPS = frozenset({"default_pg", "default_group", "hccl_world_group", "nccl_world_group", "mccl_world_group", "world", "WORLD",
                    "undefined", ""})  # fmt: skip
DOMAINS = frozenset({"default", "gpu_user_annotation", "user_annotation", "communication", "dataloader", ""})
#: columns of vendors' tables that hold names or types of tasks
NAMES_TASK = re.compile(
    r"(?i)^((full_?)?(op|kernel|task|node|operator|subgraph|aicpu)?[_ ]?(full_?)?(name|type)|owner|op|operator)$"
)
#: types of data as frameworks and vendors write them, and units
TYPE_WORDS = _word_set(
    """
    c10 Half BFloat16 Float Double Long Int Short Char Byte Bool float double int long short signed unsigned char bool complex
    Scalar ScalarList TensorList GenericList Tensor None True False FLOAT FLOAT16 BF16 BFLOAT16 DT_BF16 DT_FLOAT16 DT_FLOAT
    BOOL DOUBLE HALF INT8 INT16 INT32 INT64 UINT8 UINT16 UINT32 UINT64 FP16 FP32 FP64 COMPLEX64 COMPLEX128 UNDEFINED STRING
    Float8_e4m3fn Float8_e5m2 NULL NUMBER TENSOR B KB MB GB MHz s ms us ns value batches
    """
)
#: what Kineto says of a device
DEVICE_KEYS = _word_set(
    """
    id name computeMajor computeMinor maxSharedMemoryPerMultiProcessor maxThreadsPerBlock maxThreadsPerMultiprocessor numSms
    regsPerBlock regsPerMultiprocessor sharedMemPerBlock sharedMemPerBlockOptin sharedMemPerMultiprocessor totalGlobalMem warpSize
    clockRate
    """
)
#: words in small letters of which vendors make names of counters, tables, columns, settings and their values
TERMS = _word_set(
    """
    ac ac2g acc achieved acl aclnn active activities activity addr adetect ai aic aicore aicpu aiv aivector alg algo algorithm
    all allgather alloc allocated allocation allocations allocator allreduce alltoall alltoallv alone aml amp amx analyse
    analysis and any api app args arithmetic ascend ascendckernel ascendcl ascenddk ascendkernel async asys atrace attr
    attributes audio auto average avg avx away backend band bandwidth barrier base batch batches bbox beta bf bfloat bin block
    blocking blocks bool bound bp broadcast bubble budget buffer buffers buffsize bw byte bytes cache callchain callchains
    calls camera cann capacity cce ccecpu chains char chip chn chrome chunk clk clock cluster cnt code collection collective
    collnet combine combined comm common communication complex computation compute computing conf config connect context copy
    core cores cost count counters cpu csv ctrl cu cube cuda cupti current cycles data dataset db ddr deal debug debugsubsys
    default degree delay depth dequeue desc detail detect determinism device devices devmm dim dimension direct direction
    disable disabled disk dispatch dispatcher display distributed domain double dp driver drop drv dss dst dt duration dvpp
    dynamic ecc efficiency eligible enable end energy engine enhance enqueue epoch error errors est event exclude exec
    execution expandable experimental export false fe features fence ffts field file fill first fixpipe flag flat flo float
    flops flow fmk fop format forward fp frac framework free freq frequency fridge full fv fwdbwd gather gb gc ge gflops gid
    global gloo gpu gradient gradients graph graphs grid group groups half hbm hca hccl hccp hccs hd hdc heartbeat height hf
    hiaiengine hicaid hip hit home host hostname hour hp hsm hss html hwc hwts hybrid hz ib icache id idedd idedh idle ids idx
    ifname imp imu include index infer inference info init initialized input inputs int interconnection intermediate interval
    invalid io is isp iter iteration iterations jemalloc job jobs json kb kernel kernels key kind kineto kinetojson lane last
    late latency launch launcher ld legacy length level levelnone libmedia library limit link list ll llc ln load loader local
    log long lookup loop lp mac main major malloc mask master mata matrix max mb mbuff mccl md mdcbswp mdccommon mdcdefault
    mdcfsm mdcfusa mdcfusion mdclocation mdcmap mdcmonitor mdcperception mdcpnc mdcsc me mean mem memcpy memories memory
    memset merged mesh metrics mflo mhz mib microseconds milliseconds mimalloc min minor miss mix mixed mkl mll mlp mmap mode
    model modes module modules monotonic move mpi ms msprof mstx mte multi name nano nanoseconds nc nccl nchw nd ndim network
    nhr nhwc nic nnodes no node none normal not notify nproc npu ns nthreads null num number nvidia nvls occupancy of off
    offset omp on only op operation operator operators ops optimizer optypes order osrt ost others out output outputs overhead
    overlap overlapped p2p pad page pair pairwise paral parallel parallelism part path payload pcie peak pending per percent
    percentage pg phase pipe pipeline pipeutilization pkt plan plane pmu point policy pool port power precision preload
    preloaded preparing process processes processor procmgr prof profile profiler profiling proto proxy ps pynative python
    pytorch qo qos quantized queue queues rank ranks rate ratio raw rdma read receive record recv reduce reducescatter
    registers repeat report request res reserved resource response restart result retry ring ro roce rocm role ros route rows
    rpc rtc rts run runnable running runs runtime sampled sampling scalar scale scatter schedule schema scope sdma second
    seconds segment segments self semi send sequence serial server session set shape shapes shared shm short show side simple
    simplification sio sis size sizes skip sl slice slog slurm sm sms soc socket socketsnthreads sort sq sqe src stack stacks
    stage stages stand star stars start state static statistic statistics stats status step steps stop storage strategy stream
    streams stride string sub subgraph sum summary switch sync sys syscnt sysmonitor system ta tail target task tasks tbe tc
    tcmalloc tcp tdt teeos tefusion tensor text thread threads threshold throughput ti time timeline timelines timeout times
    timestamp tolerance toolkit top torch torchelastic total tprt trace training trans transfer transit transport tree true ts
    tsch tsdump tsync ttl tune tx type types ub ucc udf uid uint undefined unit units unix unknown us usage use used user
    utilization val value vec vector version victim visible vmm wait waiting wall warmup warning warp warps width window with
    without work workspace world write writes xccl yes zero
    """
)

# --- sentences about the data

#: words of the sentences; a name inside one is none of them, or has another form than they
PROSE = _word_set(
    """
    a about above absolute accelerator activity add after again against agree all allocated allocates allocation allocations
    allocator allocators alone also an analyse analysis and anew another answer any anything anywhere are arithmetic arrows as
    ask asked at attributes average averages away back backward bandwidth barrier batch batches be because been before began
    begin beginning begins behind belong belongs below beside between beyond big block blocks both bound break breaks bring
    buffer buffers busy but by byte bytes call called caller calls came can cannot capture captures carries cast categories
    category cause causes cell cells certain change changed changes character characters check choose chunk clock clocks close
    closed collected collection collections collective collectives column columns come comes command common communicates
    communication compared comparison complete completes complex component compressed compute computed computes computing
    concluded converted copied copies copy core cores correct corrected cost costs could count counted counter counterpart
    counters counts cover created current cut damaged data database databases day days deeper delete dense depth description
    detail details device devices did die differ difference differences different differs directly directories directory disk
    distributed distribution do does done doubtful driver due duration durations each early either else empty end ended ending
    ends engine engines enough epoch epochs equal error errors estimated event events every exact except exist exists expand
    expected export exported exports exposed external failed fall falls far fast fetched few field fields file files fill filled
    find finish finished finite first fit fits fix folder folders follow followed follows for form format formats forward found
    frame frames framework free frequency from full function functions further give given gives go goes graph graphs greater
    group groups grow grows guess guessed gzip had half hard hardware has have header held here hidden hides hold holds host
    hosts hour hours how idle if impossible in incomplete index information input inputs inside installation instance instead
    interrupted interval intervals into invalid is issued issues it item items iteration iterations its itself job jobs joined
    journal keep keeps kept kernel kernels key keys kind kinds know known knows lack lacked lacking lacks lane lanes large
    larger largest last late later launch launched launches launching lay layout least leave left length lengths less let level
    levels library lie lies like limit limits line linear lines link linked links list listed little load loaded loader
    loaders loading local log logs long longer loop loops lost lower machine machines made main make makes malformed many mark
    marks match matches matrix maximum may mean meaning means measured measurement measurements median members memory merged
    message messages metadata metrics microseconds middle might milliseconds minimum minutes missing mix mixed model module
    modules moment moments more most mostly move moved much multiple multiples must name named names nanosecond nanoseconds
    nearer nearly need needed needs negative neither nested network never new newer next no node nodes none nor normal not
    nothing notify now number numbered numbers object objects occur occurs of off offset offsets often old older on once one
    ones only open opened operation operations operator operators optimizer option options or order other others out outer
    output outputs outside over overlap overlapped overlaps own page pages parallel parallelism parameter parameters part
    partial parts pass passed past path paths peak peaks peer peers per period periods permissions phase phases pieces
    pipeline pipelines place places plain planned point points positive possible power precedes process processes processor
    processors produced profile profiler profilers profiling program programs properties put python query queue queued queues
    ran range ranges rank ranks rate rates ratio raw reach reached reaches read readable reader readers reading reads real
    reason receive record recorded recorder recording recordings records remain remove removed repeat repeated replaced report
    reported requests reserved resolution rest result results return returned returns reverse room root round rounded row rows
    run running runs runtime same sample sampled samples sampling save saved saves saving say says schedule scheduler scheme
    search second seconds see seen select selected send sense sent separate sequence set sets settings several shape shapes
    share shared shares short shorter should show shown shows side sides since single size sizes skipped slow slower small
    smaller so some something soon source sources space span spans speed split stack stacks stage stages stand stands start
    started starts state states statistics status step steplens steps still stop stopped stops stored stores strategy stream
    streams such sum summary sums supported synchronize system systems table tables take taken takes task tasks tell tells
    tensor tensors text texts than that the their them then there these they third this those though thread threads three
    through throughput tie ties time timeline timelines times to together told too took top total totals trace traces training
    transfer transfers transport tree true truncated try twice two type types unclear under unexpected unfinished unique unit
    units unknown until up usage use used useful user users uses usual utilization valid value values version versions view
    wait waited waiting waits wall want wanted warm warmup warning was way we well went were what when where whether which
    while who whole whose why will window windows with within without word words work worked worker workers works would write
    writes writing written wrong wrote you your yourself zero zeros
    """
)
ACRONYMS = _word_set(
    """
    % .gz AI-CPU Ascend B CANN CPU CSV CUDA CUPTI Chrome DataLoader DataLoaders FLOP/s FLOPs GB GPU GiB HCCL HIP
    JSON KB KiB Kineto MB MiB MindData MindSpore N/A NCCL NPU Parquet Perfetto PyTorch Python RCCL ROCm ROCtracer SQL SQLite
    UTC UTF-8 Unix dur ms ns ph s set_env.sh traceEvents ts us
    """
)
QUANTITY = re.compile(r"^[-+~<>]?\d[\d,.:]*(ns|us|ms|s|B|KB|MB|GB|TB|KiB|MiB|GiB|TiB|%|x|st|nd|rd|th|GB/s|MHz)?$")
FILE = re.compile(r"^[\w.-]+\.(csv|json|db|txt|gz|bin|pb|html|parquet|info|log|data)$")

#: words that analyses look for in names: they are the frameworks', and stay beside a pseudonym so that answers are the same
TELLING = re.compile(
    r"all_?reduce|reduce_?scatter|broadcast|get_?next|_foreach_|_fused_|fused|multi_tensor|tensorop|simt|sgemm|tf32|f16|half|s1688"
    r"|h884|wgmma|ampere_|volta_|turing_|dataloader|syncbatchnorm",
    re.IGNORECASE,
)
