"""What stays in a report without names is public: by its form, not because steplens or an installed framework uses the word."""

from __future__ import annotations

import ast
import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import steplens
from steplens.report.redaction import public, redact
from steplens.report.redaction.pseudonyms import Pseudonyms
from steplens.report.redaction.redact import trace_of
from steplens.trace.schema import SCHEMA, SCOPE_FUNCTION, SCOPE_USER
from steplens.trace.trace import Trace

SOURCE = Path(steplens.__file__).parent
#: names that a user may well have, and that are words in the code of steplens, of PyTorch, or of both
WORDS = ("overview", "verdict", "Trainer", "pseudonym", "advice", "roofline", "bystander", "remedy")
FORMS = (
    "{}", "{}.py(3): forward", "my {}", "{}_1", "{}::attention", "nn.Module: {}_0", "Optimizer.step#{}.step", "{}Backward",
    "## {} ##", "void {}<float>(float*)", "void at::native::f<4, {}>(int)", "Default/network-{}/Conv2D-op1",
    '{{"a": "{}"}}', '{{"{}": "{}"}}', "{}_kernel", "<built-in function {}>", "thread 7 ({})", "/home/{}/{}.py(3): {}",
)  # fmt: skip


def filled(table: str) -> pl.DataFrame:
    """Every word in every form, in every column that has texts of users, as calls and as ranges."""
    texts = [form.format(word, word, word) for word in WORDS for form in FORMS]
    free = {*redact.REPLACED.get(table, {}), *{"ops": ("name",), "meta": ("key", "value")}.get(table, ())}
    columns: dict[str, Any] = {
        name: pl.Series(texts if name in free else [None] * len(texts), dtype=pl.String if name in free else dtype).cast(dtype)
        for name, dtype in SCHEMA[table].items()
    }
    frame = pl.DataFrame(columns)
    if table == "ops":
        scopes = (SCOPE_USER, SCOPE_FUNCTION)
        frame = pl.concat([frame.with_columns(scope=pl.lit(scope, SCHEMA["ops"]["scope"])) for scope in scopes])
    if table == "kernels":
        frame = pl.concat(
            [frame.with_columns(core=pl.lit(core, SCHEMA["kernels"]["core"])) for core in ("CUDA", "AI_CORE", "CPU")]
        )
    return frame


def test_the_words_are_words_of_steplens() -> None:
    text = "".join(file.read_text(encoding="utf-8") for file in SOURCE.rglob("*.py"))
    assert [word for word in WORDS if not re.search(rf"\b{word}\b", text)] == []


@pytest.mark.parametrize("table", [name for name in SCHEMA if name in redact.REPLACED or name in ("ops", "meta")])
def test_a_private_name_goes_although_it_is_a_word_of_steplens(table: str) -> None:
    told = trace_of(Trace(Path("run"), {table: filled(table)}), Pseudonyms(), Path("run_x")).table(table)
    assert told is not None
    left = {
        (column, text)
        for column, dtype in told.schema.items()
        if dtype in (pl.String(), pl.Categorical())
        for text in told[column].cast(pl.String).drop_nulls()
        if any(word.lower() in text.lower() for word in WORDS)
    }
    assert left == set()


@pytest.mark.parametrize(
    ("kind", "text", "private"),
    [
        ("range", "overview", ["overview"]),
        ("operator", "mycorp::attention", ["mycorp", "::"]),
        ("class_name", "Trainer", ["Trainer"]),
        ("operator", "nn.Module: Trainer_0", ["Trainer"]),
        ("task", "verdict", ["verdict"]),
        ("task", "verdict_kernel_0d1d2d", ["verdict", "kernel"]),
        ("task", "void reduce_window_kernel<float>(float*)", ["reduce_window", "window"]),
        ("task", "void (anonymous namespace)::fused_window<float>(float*)", ["window"]),
        ("task", "at::native::vectorized_elementwise_kernel<4, mycorp::SecretFunctor>", ["mycorp", "Secret", "Functor>"]),
        ("task", "void at::native::f<mycorp::Add<float>::Functor, int>(int)", ["mycorp", "Add", "Functor"]),
        ("task", "void cub::DeviceReduceKernel<mycorp::Policy>(mycorp::Policy::Storage)", ["mycorp", "Policy", "Storage"]),
        ("task", "void at::native::f<mycorp::g(int)::{lambda(float)#1}::Window>(int)", ["mycorp", "Window"]),
        ("task", "void at::native::f<mycorp::g() const::Window>(int)", ["mycorp", "Window"]),
        ("task", "void at::native::f<Window>(int)", ["Window"]),
        ("task", "nccl_overview", ["overview"]),
        ("npu_task", "SecretMatMul12", ["Secret"]),
        ("device_type", "TrainerMatMul", ["Trainer"]),
        ("call", "Trainer_Tiling", ["Trainer"]),
        ("file", "/home/me/kernel.py", ["kernel", "home"]),
        ("frame", "kernel.py(3): forward", ["kernel", "forward"]),
        ("frame", "torch/kernel.py(3): forward", ["kernel", "forward"]),
        ("frame", "threading.py(3): overview", ["overview"]),
        ("frame", "<built-in function attend>", ["attend"]),
        ("words", "the range overview of kernel.py takes 3 ms", ["overview", "kernel.py"]),
        ("words", "Trainer takes 3 ms in Memory", ["Trainer", "Memory"]),
        ("record", "memory", ["memory"]),
        ("record", '{"note": "memory of Trainer"}', ["note", "memory", "Trainer"]),
        ("domain", "memory", ["memory"]),
        ("group", "memory", ["memory"]),
        ("collate", "step", ["step"]),
        ("thread", "memory", ["memory"]),
        ("module", "model.head", ["model", "head"]),
    ],
)
def test_private_names_go_whatever_their_words(kind: str, text: str, private: list[str]) -> None:
    told = getattr(Pseudonyms(), kind)(text)
    assert [word for word in private if word in told] == [], told


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("operator", "fbgemm::bounds_check_indices"),
        ("operator", "Optimizer.step#Adam.step"),
        ("operator", "nn.Module: LayerNorm_3"),
        ("operator", "enumerate(DataLoader)#_MultiProcessingDataLoaderIter.__next__"),
        ("operator", "autograd::engine::evaluate_function: AddmmBackward0"),
        ("task", "void (anonymous namespace)::softmax_warp_forward<float, float, 10, true>(float*, float const*)"),
        ("task", "void cub::DeviceReduceByKeyKernel<int, int*, 4ul>(int, cub::ReduceByKeyScanTileState<int, int, true>)"),
        ("task", "void cutlass::Kernel<cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4>"
                 "(cutlass_80_tensorop_s1688gemm_128x128_16x5_nn_align4::Params)"),
        ("task", "void at::native::elementwise_kernel<128, 2, at::native::gpu_kernel_impl<at::native::BinaryFunctor<float, "
                 "at::native::binary_internal::MulFunctor<float> > >(at::TensorIteratorBase&)::{lambda(int)#1}>(int)"),
        ("task", "ncclKernel_Broadcast_RING_LL_Sum_int8_t(ncclDevComm*, unsigned long, ncclWork*)"),
        ("task", "ampere_sgemm_32x128_nt"),
        ("task", "sm80_xmma_fprop_implicit_gemm_tf32f32_tf32f32_f32_nhwckrsc_nhwc_tilesize128x128x16_stage4_warpsize2x2x1_g1"),
        ("task", "Cijk_Ailk_Bljk_BBS_BH_MT64x64x64_MI16x16x16x1_SN_1LDSB0_APM1_ABV0"),
        ("task", "triton_poi_fused__to_copy_1"),
        ("task", "triton_red_fused_native_layer_norm_backward_3"),
        ("task", "Memset (Device)"),
        ("task", "hcom_allReduce__865_0_1"),
        ("npu_task", "aclnnMm_MatMulCommon_MatMulV2"),
        ("npu_task", "Conv2DBackpropFilter6_MemSet"),
        ("npu_task", "EVENT_RECORD"),
        ("npu_task", "stream_10_3_AllReduce-op17787"),
        ("device_type", "MaxPoolGradWithArgmaxV1"),
        ("device_type", "SoftmaxCrossEntropyWithLogits"),
        ("call", "hipModuleLaunchKernel"),
        ("call", "aclnnAddmmGetWorkspaceSize"),
        ("call", "TransData_Tiling"),
        ("frame", "torch/nn/modules/module.py(1743): _call_impl"),
        ("frame", "torch/autograd/__init__.py(200): backward"),
        ("frame", "<built-in function scaled_dot_product_attention>"),
        ("frame", "<built-in method append of list object>"),
        ("term", "aic_mte2_time(us)"),
        ("term", "HBM 1/Write"),
        ("term", "RING_LL"),
        ("group", "17522688603477080586"),
        ("pipeline_operator", "EpochCtrlOp"),
        ("words", "4 of 215 device tasks start before the call that launched them, by up to 6.17 us: the clocks agree"),
    ],
)  # fmt: skip
def test_public_names_stay(kind: str, text: str) -> None:
    assert getattr(Pseudonyms(), kind)(text) == text


def test_what_stays_depends_on_nothing_that_is_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    """Neither a file is read nor a module looked for."""

    def refused(*_: Any, **__: Any) -> Any:
        raise AssertionError("something outside was looked at")

    monkeypatch.setattr(Path, "read_text", refused)
    monkeypatch.setattr("builtins.open", refused)
    monkeypatch.setattr("importlib.util.find_spec", refused)
    names = Pseudonyms()
    assert names.frame("torch/nn/functional.py(3): relu") == "torch/nn/functional.py(3): relu"
    assert names.class_name("Linear") == "Linear" and names.class_name("Trainer") != "Trainer"
    assert names.words("Record this one again") != "" and names.task("void at::native::reduce_kernel<512, 1>(int)")


def looked_up() -> set[str]:
    """The keys of metadata that the code of steplens asks for, by their text or by a constant."""
    texts = [file.read_text(encoding="utf-8") for file in SOURCE.rglob("*.py")]
    constants: dict[str, set[str]] = {}
    for text in texts:
        for name, value in re.findall(r'^([A-Z_]+) = "(\w+)"', text, re.MULTILINE):
            constants.setdefault(name, set()).add(value)
    asked = r'(?:meta(?:_values\(\))?(?:\.get\(|\[)|meta_value\(|pl\.col\("key"\) == )\s*(?:"(\w+)"|([A-Z_]{4,}))'
    found = set()
    for text in texts:
        for key, constant in re.findall(asked, text):
            found |= {key} if key else constants[constant]
    return found


def test_metadata_that_answers_depend_on_stays() -> None:
    keys = looked_up()
    assert {"partial_steps", "whole_steps", "processor", "world_size"} <= keys
    assert keys - public.META_KEYS - {"tables"} == set(), "a key that analyses ask for must stay"


@pytest.mark.parametrize(
    ("key", "value"),
    [
        ("whole_steps", True),
        ("partial_steps", [3, 4]),
        ("processor", {"count": 8, "features": ["avx512_bf16", "amx_bf16"]}),
        ("allocator", {"preloaded": "jemalloc,tcmalloc", "mmap_threshold": "65536"}),
        ("distributedInfo", {"backend": "nccl", "pg_config": [{"pg_name": "0", "pg_desc": "default_pg", "ranks": [0, 1]}]}),
        ("config", {
            "common_config": {"activities": ["ProfilerActivity.CPU"], "schedule": {"skip_first": 0, "skip_first_wait": 0}},
            "experimental_config": {"_aic_metrics": "ACL_AICORE_NONE", "_gc_detect_threshold": None, "_mstx_domain_include": []},
        }),
        ("accelerator", "MTIA"),
        ("clock_mhz", {"processor": 2600.5, "CUDA": 1980.0}),
    ],
)  # fmt: skip
def test_values_of_metadata_that_answers_depend_on_stay(key: str, value: Any) -> None:
    meta = pl.DataFrame([(key, json.dumps(value))], schema=SCHEMA["meta"], orient="row")
    told = trace_of(Trace(Path("run"), {"meta": meta}), Pseudonyms(), Path("run_x")).meta_values()
    assert told == {key: value}


def test_a_group_has_one_pseudonym_in_metadata_and_tables() -> None:
    names = Pseudonyms()
    described = {"mine": {"group_name": "mine", "group_rank": 1, "global_ranks": [0, 1]}}
    group = names.group("mine")
    told = names.setting("parallel_group_info", described)
    assert told == {group: {"group_name": group, "group_rank": 1, "global_ranks": [0, 1]}}
    assert names.setting("distributedInfo", {"pg_name": "mine"}) == {"pg_name": group}


def sentences() -> list[str]:
    """What readers and analyses say about data and files, with a number in place of what they put into it."""

    def text(node: ast.expr) -> str | None:
        if isinstance(node, ast.Constant) and isinstance(node.value, str):
            return node.value
        if isinstance(node, ast.JoinedStr):
            return "".join(str(part.value) if isinstance(part, ast.Constant) else "3" for part in node.values)
        return None

    found = []
    for folder in ("readers", "trace", "analysis"):
        for file in sorted((SOURCE / folder).rglob("*.py")):
            for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
                if isinstance(node, ast.Call):
                    called = node.func.attr if isinstance(node.func, ast.Attribute) else getattr(node.func, "id", "")
                    if called in ("finding", "add", "HealthFinding", "InputError"):
                        found += [told for one in node.args if (told := text(one)) is not None and " " in told and len(told) > 20]
    return found


def test_sentences_of_steplens_stay_readable() -> None:
    """A new sentence with a new word needs the word in ``public.PROSE``, or it would be told with a pseudonym."""
    names, said = Pseudonyms(), sentences()
    assert len(said) > 100
    new = {was for one in said for was, is_now in zip(one.split(), names.words(one).split(), strict=True) if was != is_now}
    # numbers stand for names of files and tables here
    assert {word for word in new if not re.search(r"[\d_<]", word)} == set()


def test_the_rule_fits_into_one_module() -> None:
    assert len(Path(public.__file__).read_text(encoding="utf-8").splitlines()) < 500
