"""Categories of device tasks: names that libraries and frameworks really use, what decides, and hostile names."""

from __future__ import annotations

import time

import polars as pl
import pytest

from steplens.trace.building import classify as classification
from steplens.trace.building.classify import CATEGORIES, TABLE, category_of, classify_tasks
from steplens.trace.schema import NAME

NATIVE = "void at::native::"
#: kernel names of CUDA, ROCm and Triton
KERNELS = {
    "matmul": [
        "ampere_sgemm_32x128_nt",
        "volta_sgemm_64x32_sliced1x4_nn",
        "sm90_xmma_gemm_bf16bf16_bf16f32_f32_tn_n_tilesize128x128x64_warpgroupsize1x1x1_execute_segment_k_off_kernel__5x_cublas",
        "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_256x64_16x4_nn_align4>(cutlass_80_tensorop_s1688gemm::Params)",
        "void cublasLt::splitKreduce_kernel<32, 16, int, float, true, false>(cublasLt::cublasSplitKParams)",
        "nvjet_tst_128x256_64x4_2x1_v_bz_coopA_TNT",
        "Cijk_Ailk_Bjlk_SB_Bias_AS_SAV_UserArgs_MT64x16x16_MI16x16x1_SN_LDSB0",
        "void gemvNSP_kernel<float, float, float, float, 1, 32, 4, 1024, cublasGemvParams<float>>(cublasGemvParams<float>)",
        "triton_tem_fused_mm_3",
    ],
    "convolution": [
        "cudnn_infer_volta_scudnn_128x64_relu_medium_nn_v1",
        "sm80_xmma_fprop_implicit_gemm_indexed_tf32f32_tf32f32_f32_nhwckrsc_nchw_tilesize128x128x16_execute_kernel_cudnn",
        "void cudnn::winograd_nonfused::winogradForwardData4x4<float, float>(cudnn::winograd_nonfused::WinogradDataParams)",
        "_ZN19cutlass_cudnn_train6KernelINS_4conv6kernel23ImplicitGemmConvolutionINS1_11threadblock22ImplicitGemmMultistageE",
        "miopenSp3AsmConv_v30_3_1_gfx90a_fp32_stride1",
        "naive_conv_ab_nonpacked_fwd_nchw_float_double_float.kd",
        "void im2col_kernel<float>(long, float const*)",
    ],
    "attention": [
        "void pytorch_flash::flash_fwd_kernel<pytorch_flash::Flash_fwd_kernel_traits<64, 128>>(pytorch_flash::Flash_fwd_params)",
        "fmha_cutlassF_bf16_aligned_64x64_rf_sm80(PyTorchMemEffAttention::AttentionKernel<cutlass::bfloat16_t>::Params)",
        "cudnn_generated_fort_native_sdpa_sm90_flash_fprop_wgmma_f16_knob_7_64x128x128_4x1x1_cga1x1x1_kernel0_0",
        "attn_fwd.kd_flash_attention",
    ],
    "normalization": [
        "void cudnn::bn_fw_tr_1C11_singleread<float, 512, true, 1, 2, 0>(cudnn::bn_fw_tr_1C11_args<float>)",
        f"{NATIVE}(anonymous namespace)::vectorized_layer_norm_kernel<float, float>(int, float, float const*)",
        f"{NATIVE}batch_norm_collect_statistics_kernel<at::native::InvStd, float, float, float, int>()",
        f"{NATIVE}(anonymous namespace)::RowwiseMomentsCUDAKernel<float, float>(long, float, float const*, float*, float*)",
    ],
    "softmax": ["void (anonymous namespace)::softmax_warp_forward<float, float, float, 10, true, false>(float*, float const*)"],
    "embedding": [
        f"{NATIVE}(anonymous namespace)::embedding_backward_feature_kernel<float, float, long>(long const*, float const*)",
        "void split_embedding_backward_codegen_rowwise_adagrad_unweighted_kernel_cta_per_row_1<c10::Half, float>(at::Tensor)",
    ],
    "optimizer": [
        f"{NATIVE}(anonymous namespace)::multi_tensor_apply_kernel<at::native::TensorListMetadata<2>, at::native::BinaryOp>()",
    ],
    "reduction": [
        f"{NATIVE}reduce_kernel<512, 1, at::native::ReduceOp<float, at::native::MeanOps<float>, float, 4>>()",
        "void at_cuda_detail::cub::DeviceScanKernel<at_cuda_detail::cub::AgentScanPolicy<128, 15, long>>()",
        "triton_red_fused_sum_3",
    ],
    "sort": [
        "void cub::DeviceRadixSortOnesweepKernel<cub::DeviceRadixSortPolicy<long, int, int>::Policy800, false, long, int>()",
        f"{NATIVE}sbtopk::gatherTopK<float, unsigned int, 2, false>()",
    ],
    "indexing": [
        f"{NATIVE}(anonymous namespace)::indexSelectLargeIndex<long, long, unsigned int, 1, 1, -2, true>()",
        f"{NATIVE}index_elementwise_kernel<128, 4, at::native::gpu_index_kernel<at::native::index_put_kernel_impl>>()",
        f"{NATIVE}_scatter_gather_elementwise_kernel<128, 4>()",
    ],
    "random": [
        f"{NATIVE}(anonymous namespace)::fused_dropout_kernel_vec<float, float, unsigned int, 1, 4, bool>()",
        f"{NATIVE}(anonymous namespace)::distribution_elementwise_grid_stride_kernel<float, 4>()",
    ],
    "pooling": [f"{NATIVE}(anonymous namespace)::max_pool_forward_nchw<float, float>(int, float const*, long)"],
    "interpolation": [f"{NATIVE}(anonymous namespace)::upsample_bilinear2d_out_frame<float, float>(int, float, float, bool)"],
    "fft": ["void vector_fft<256u, 8u, 32u, 2, EPT>()"],
    "linear algebra": ["void getrf_pivot<float, 256>(cusolver::getrf_params)"],
    "loss": [f"{NATIVE}(anonymous namespace)::nll_loss_forward_reduce_cuda_kernel_2d<float, float, long>()"],
    "recurrent": ["void LSTM_elementWise_fp<float, float, float>(int, int, int)", "RNN_blockPersist_fp_LSTM<float>"],
    "layout": [
        f"{NATIVE}(anonymous namespace)::CatArrayBatchedCopy<float, unsigned int, 2, 128, 1>(float*)",
        f"{NATIVE}elementwise_kernel<128, 2, at::native::gpu_kernel_impl<at::native::direct_copy_kernel_cuda()>>()",
    ],
    "elementwise": [
        f"{NATIVE}vectorized_elementwise_kernel<4, at::native::CUDAFunctor_add<float>, at::detail::Array<char*, 3>>()",
        f"{NATIVE}(anonymous namespace)::elementwise_kernel_with_index<int, at::native::arange_cuda_out>()",
        "triton_poi_fused_add_mul_7",
    ],
    "communication": [
        "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevComm*, unsigned long, ncclWork*)",
        "ncclKernel_SendRecv_RING_SIMPLE_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)",
        "void mscclKernel_Sum_half_Simple(ncclDevComm*)",
        "void vllm::cross_device_reduce_2stage<__nv_bfloat16, 8>(vllm::RankData*)",
    ],
    "copy": ["Memcpy HtoD (Pageable -> Device)", "CopyBuffer", "__amd_rocclr_copyBuffer.kd"],
    "memset": ["Memset (Device)", "__amd_rocclr_fillBufferAligned.kd"],
    "other": ["my_kernel(int)", "", "quux"],
}
#: operators and operator types
OPERATORS = {
    "matmul": "aten::mm aten::addmm aten::bmm aten::baddbmm aten::linear aten::matmul aten::einsum MmBackward0 MatMulV2 "
    "MatMulV3 BatchMatMul GroupedMatmul WeightQuantBatchMatmulV2 mkldnn::_linear_pointwise",
    "convolution": "aten::conv2d aten::convolution_backward aten::mkldnn_convolution aten::cudnn_convolution "
    "ConvolutionBackward0 Conv2D Conv2DBackpropFilter DepthwiseConv2D aten::slow_conv3d_forward",
    "attention": "aten::_scaled_dot_product_flash_attention aten::_efficient_attention_forward FlashAttentionScore "
    "FlashAttentionScoreGrad PromptFlashAttention flash_attn::_flash_attn_forward",
    "normalization": "aten::native_layer_norm aten::native_batch_norm aten::group_norm LayerNormV3 RmsNorm BNTrainingUpdate "
    "AddRmsNorm",
    "softmax": "aten::_softmax aten::_log_softmax_backward_data SoftmaxV2",
    "reduction": "aten::sum aten::mean aten::argmax aten::cumsum aten::linalg_vector_norm ReduceSum ReduceMean ArgMaxV2 "
    "BiasAddGrad",
    "embedding": "aten::embedding aten::embedding_dense_backward EmbeddingDenseGradV2 "
    "fbgemm::split_embedding_codegen_lookup_function",
    "indexing": "aten::index aten::index_put_ aten::gather aten::scatter_add_ aten::nonzero GatherV2 GatherElements "
    "ScatterNdUpdate OneHot",
    "sort": "aten::sort aten::topk aten::_unique2 TopKV2 Sort",
    "random": "aten::dropout aten::bernoulli_ aten::normal_ aten::randn aten::uniform_ DropOutDoMask DSAGenBitMask "
    "StatelessRandomUniformV2",
    "optimizer": "aten::_foreach_add_ aten::_fused_adam_ ForeachAddList ApplyAdamW ApplyMomentum Optimizer.step#SGD.step",
    "pooling": "aten::max_pool2d_with_indices aten::_adaptive_avg_pool2d MaxPoolWithArgmaxV1 AvgPoolV2",
    "interpolation": "aten::upsample_nearest2d aten::grid_sampler_2d ResizeBilinearV2Grad",
    "layout": "aten::copy_ aten::_to_copy aten::cat aten::transpose aten::view aten::select aten::t Cast TransData "
    "TransposeD ConcatD StridedSliceD PadV3 BroadcastTo",
    "elementwise": "aten::add aten::add_ aten::mul aten::relu_ aten::gelu_backward aten::where aten::fill_ "
    "aten::threshold_backward Add Mul RealDiv Relu SwiGlu SelectV2 Equal RotaryMul "
    "torch::autograd::AccumulateGrad ClipByValueV2",
    "loss": "aten::nll_loss_forward aten::mse_loss SparseSoftmaxCrossEntropyWithLogits NLLLoss",
    "linear algebra": "aten::linalg_cholesky_ex aten::linalg_solve aten::_linalg_svd",
    "fft": "aten::_fft_r2c",
    "recurrent": "aten::_cudnn_rnn aten::lstm DynamicRNN DynamicGRUV2",
    "allocation": "aten::empty aten::empty_strided aten::resize_",
    "communication": "record_param_comms c10d::allreduce_ nccl:all_reduce hcom_allReduce_ "
    "_c10d_functional::all_gather_into_tensor",
    "memset": "MemSet AtomicAddrClean",
    "synchronization": "EVENT_RECORD NOTIFY_WAIT_SQE",
    "other": "aten::record_stream my::own_operator",
}


@pytest.mark.parametrize(("category", "name"), [(category, name) for category, names in KERNELS.items() for name in names])
def test_kernels(category: str, name: str) -> None:
    assert category_of(name) == category
    # an operator that does not own its tasks changes nothing that the name says
    if category != "other":
        assert category_of(name, operator="aten::add") == category


@pytest.mark.parametrize(
    ("category", "name"), [(category, name) for category, text in OPERATORS.items() for name in text.split()]
)
def test_operators_and_types(category: str, name: str) -> None:
    assert category_of("some_kernel_0", operator=name) == category
    assert category_of("some_kernel_0", type_=name) == category
    if ":" in name:
        assert category_of(name) == category


def test_every_category_is_tested() -> None:
    assert set(CATEGORIES) == set(KERNELS) | set(OPERATORS)
    assert len({rule.category for rule in TABLE}) == len(TABLE)


def test_what_decides() -> None:
    gemm = "volta_sgemm_64x64_nt"
    # all that a convolution launches belongs to it; a matrix product is its own kernel wherever it is launched
    assert category_of(gemm, operator="aten::cudnn_convolution") == "convolution"
    assert category_of(gemm, operator="aten::_scaled_dot_product_efficient_attention_backward") == "attention"
    assert category_of(gemm, operator="aten::native_layer_norm") == "matmul"
    # the source's type comes before the name
    assert category_of("aclnnMatmul_TransposeAiCore_Transpose", type_="Transpose") == "layout"
    # and the kind before both
    assert category_of(gemm, type_="MatMulV2", kind="communication") == "communication"
    assert category_of("Memset (Device)", "gpu_memset", "copy", "aten::conv2d") == "memset"
    assert category_of("anything", "Memcpy DtoD", "copy") == "copy"
    assert category_of("task wait", None, "other") == "synchronization"
    assert category_of("my_kernel", operator="aten::mm") == "matmul"


def test_columns() -> None:
    ops = pl.DataFrame({"name": ["aten::conv2d", "aten::add"]}, schema={"name": NAME})
    kernels = pl.DataFrame(
        {"name": ["volta_sgemm_64x64_nt"] * 4 + [None], "op": [0, 1, None, 99, 0], "kind": ["compute"] * 4 + [None]},
        schema={"name": NAME, "op": pl.Int32, "kind": NAME},
    )
    found = classify_tasks(kernels, ops)
    assert found.name == "category"
    assert found.dtype == NAME
    assert found.cast(pl.String).to_list() == ["convolution", "matmul", "matmul", "matmul", "convolution"]
    assert classify_tasks(kernels.drop("op", "kind"), None).cast(pl.String).to_list() == ["matmul"] * 4 + ["other"]
    assert classify_tasks(kernels.clear(), ops).len() == 0


@pytest.mark.parametrize(
    "name",
    [
        "a" * 1_000_000,
        "special_" + "a" * 100_000 + "!",
        "add" + "_out" * 50_000 + "!",
        "_" * 200_000,
        "logical_" * 50_000,
        "\x00\ud7ff\U0001f600" * 10_000,
        "(((((" * 50_000,
    ],
)
def test_hostile_names_take_no_time(name: str, million_steps_s: float) -> None:
    begin = time.process_time()
    assert category_of(name, name, None, name) in CATEGORIES
    assert time.process_time() - begin < 50 * million_steps_s


def test_a_category_costs_once_per_name(monkeypatch: pytest.MonkeyPatch) -> None:
    count, asked = 300_000, []
    judge = classification._task_category
    monkeypatch.setattr(classification, "_task_category", lambda *names: (asked.append(names[0]), judge(*names))[1])
    kernels = pl.DataFrame({"name": [f"kernel{number % 100}_gemm" for number in range(count)]}, schema={"name": NAME})
    assert classify_tasks(kernels, None).cast(pl.String).unique().to_list() == ["matmul"]
    assert len(asked) == len(set(asked)) == 100


def test_many_names_at_once_are_judged_as_each_alone() -> None:
    """Thousands of names take another way, in other regular expressions; both must agree on every form of name."""
    plain = [name for names in KERNELS.values() for name in names]
    ends = ["", "\n", " ", "_12", "\n_forward", "Backward0", "É", "Kſ", "\u2028", "/op7", "_kernel", "K"]
    names = [before + name + end for before in ("", "aten::", "Default/net/", "X") for name in plain for end in ends]
    words = [
        "mm",
        "MatMul",
        "conv2d",
        "Convolution",
        "_softmax",
        "AllReduce",
        "allreduce_",
        "streamsync",
        "copy_",
        "Add",
        "x\n",
        "",
    ]
    rows = [
        {
            "name": name,
            "type": words[place % 12] or None,
            "kind": ("compute", "other", "copy", None)[place % 7 % 4],
            "op": place % 12,
        }
        for place, name in enumerate(names)
    ]
    schema = {"name": NAME, "type": NAME, "kind": NAME, "op": pl.Int64}
    ops = pl.DataFrame({"name": [f"aten::{word}" for word in reversed(words)]}, schema={"name": NAME})
    found = classify_tasks(pl.DataFrame(rows, schema=schema), ops).cast(pl.String).to_list()
    launchers = ops["name"].cast(pl.String).to_list()
    expected = [category_of(row["name"], row["type"], row["kind"], launchers[row["op"]]) for row in rows]
    assert len(set(names)) > 2000
    assert len(set(expected)) > 8
    assert found == expected


@pytest.mark.parametrize(
    ("name", "category"),
    [
        # a word of a pattern inside another word
        ("UnsortedSegmentSum", "reduction"),
        ("UnsortedSegmentMax", "reduction"),
        ("TensorToScalar", "other"),
        ("RemainderTensorTensor", "elementwise"),
        ("SignalWaitUntil", "other"),
        ("aten::is_inference", "other"),
        ("export::access_subclass_inner_tensor", "other"),
        ("aten::logdet", "linear algebra"),
        ("InvertPermutation", "layout"),
        ("MultiScaleDeformableAttn", "attention"),
        ("fbgemm::permute_pooled_embs_auto_grad", "indexing"),
        ("All2All_Pooled_Req", "communication"),
        ("SubGraph", "other"),
        ("ModulePart", "other"),
        # the same words as words of their own
        ("aten::argsort", "sort"),
        ("aten::msort", "sort"),
        ("aten::sort_out", "sort"),
        ("SortExt", "sort"),
        ("ArgSort", "sort"),
        ("Sign", "elementwise"),
        ("Muls", "elementwise"),
        ("SquaredDifference", "elementwise"),
        ("Padding", "layout"),
        ("aten::concatenate", "layout"),
        ("ConcatD", "layout"),
        ("AddN", "elementwise"),
        ("MoeGatingTopKSoftmax", "softmax"),
        ("MoeTokenDispatch", "indexing"),
        ("DeformableOffsets", "convolution"),
        ("MaxUnpool2D", "pooling"),
        ("FusedMulApplyMomentum", "optimizer"),
    ],
)
def test_types_are_told_by_whole_words(name: str, category: str) -> None:
    assert category_of(name, name) == category


@pytest.mark.parametrize(
    ("name", "category"),
    [
        ("void cudnn::tensorTransformGeneric<float>(cudnn::Params)", "layout"),
        ("void unsorted_segment_kernel<float>(float*)", "other"),
        ("void bitonicSortKVInPlace<-2, -1, 16, 16, float>(float)", "sort"),
        ("void kernel<Operand_A>(int)", "other"),
        ("triton_bceadf01_kernel", "elementwise"),
    ],
)
def test_kernels_are_told_by_words(name: str, category: str) -> None:
    assert category_of(name) == category


def test_the_type_at_the_end_of_a_full_name_decides() -> None:
    """The scopes before it are words of the program: a network that is called after its attention computes more than that."""
    name = "Default/network-TrainOneStepCell/attention-Reducer/UnsortedSegmentSum-op12"
    assert category_of(name) == "reduction"
    assert category_of(name, "MatMul") == "matmul"
    assert category_of("Default/attention/softmax/Nothing-op1") == "other"
    many = pl.DataFrame({"name": [f"{scope}/Mul-op{number}" for number in range(600) for scope in ("sort", "a/pool")]})
    assert set(classify_tasks(many.cast(NAME), None)) == {"elementwise"}
