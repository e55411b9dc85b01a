"""Whoever looks for a user's words in a report without names finds none, in whatever form and place they were recorded."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

import polars as pl
import pytest

from steplens.common.errors import InputError
from steplens.report.redaction import redact
from steplens.report.redaction.pseudonyms import Pseudonyms
from steplens.report.redaction.redact import trace_of
from steplens.run import Run, Source
from steplens.server.runs import Opened, OpenedRun
from steplens.trace.schema import SCHEMA, SCOPE_FUNCTION, SCOPE_USER
from steplens.trace.trace import Trace

from ..web import hostile
from .conftest import Make

#: no word of steplens, of a framework or of a pseudonym (which have no 1, 8, 9 or 0)
SECRET = "zq9secret"
FORMS = (
    "{}", "{}_1", "my {} name", "{}::op", "{}.py(3): {}", "/home/{}/site-packages/{}/a.py(3): {}", "torch/{}.py(3): {}",
    "threading.py(3): {}", "nn.Module: {}_0", "nn.Module: a.{}.b", "Optimizer.step#{}.step", "enumerate(DataLoader)#{}.__next__",
    "autograd::engine::evaluate_function: {}Backward", "{}Backward", "X{}Backward0Backward", "{}Backward2Backward",
    "ProfilerStep#1 {}", "nccl:{}", "gloo:all_reduce_{}", "## {} ##", "<built-in function {}>",
    "<built-in method {} of Tensor object>", "<built-in method {} of type object>", "<built-in method add of {} object>",
    "gemm_{}", "softmax_{}_kernel", "reduce_kernel_{}", "elementwise{}", "cutlass_{}", "flash_{}_fwd", "sm80_xmma_{}",
    "void at::native::elementwise_kernel<128, {}>(int)", "void at::native::f<at::native::{}::G>()", "ampere_{}_128x64",
    "Memcpy HtoD ({})", "multi_tensor_apply<{}>", "nccl{}", "ncclDevKernel_{}", "triton_{}_fused", "cub::{}", "at::{}",
    "Default/{}-Net/Conv2D-op1", "Default/network/{}", "Gradients/{}", "thread 7 ({})", "pt_{}", "python {}", "stream 7 {}",
    '{{"a": "{}"}}', '{{"{}": 1}}', '["{}", {{"b": "{}"}}]', '"{}"', "{{{}", "C:\\{}\\a.py", "{}@host", "http://{}/x?{}",
    "[1, '{}']", "{}, float", "GPU {}", "CPU Usage {}", "{}\x00{}", "\u202e{}", "ÄÖ{}", "1{}", "a;{};b", "_{}_", "node-{}",
)  # fmt: skip
#: what cannot be told from a framework's, as the documentation says: operators in the frameworks' own namespaces
NOT_TOLD = ("aten::{}", "aclnnZ{}")
#: and on an NPU the types of custom operators
CUSTOM_TYPE = re.compile(r"^[A-Z]\w*$")
ADDRESSES = ("10.213.77.9", "fe80:0:0:0:1ff:fe23:4567:890a", "02:42:ac:11:00:02")


def texts() -> list[str]:
    named = [form.replace("{{", "\0").replace("}}", "\1").replace("{}", SECRET) for form in FORMS]
    return [one.replace("\0", "{").replace("\1", "}") for one in named]


def filled(table: str, *, npu: bool) -> pl.DataFrame:
    """A table with every form in every column of texts that a user's words can get into, and nothing in the others."""
    forms = texts()
    free = {*redact.REPLACED.get(table, {}), *{"ops": ("name",), "meta": ("key", "value")}.get(table, ())}
    columns: dict[str, Any] = {}
    for name, dtype in SCHEMA[table].items():
        if name in free:
            columns[name] = pl.Series(forms, dtype=pl.String).cast(dtype)
        elif name == "core" and table == "kernels":
            columns[name] = pl.Series(["AI_CORE" if npu else "CUDA"] * len(forms), dtype=pl.String).cast(dtype)
        else:
            columns[name] = pl.Series([None] * len(forms), dtype=dtype)
    frame = pl.DataFrame(columns)
    if table == "ops":
        both = [frame.with_columns(scope=pl.lit(scope, SCHEMA["ops"]["scope"])) for scope in (SCOPE_USER, SCOPE_FUNCTION)]
        frame = pl.concat(both)
    if table == "meta":
        frame = frame.with_columns(value=pl.Series([json.dumps(one) for one in forms]))
    return frame


@pytest.mark.parametrize("npu", [False, True], ids=["gpu", "npu"])
@pytest.mark.parametrize("table", [*SCHEMA])
def test_no_form_of_a_name_is_left_in_a_table(table: str, npu: bool) -> None:
    tables = {"kernels": filled("kernels", npu=npu), table: filled(table, npu=npu)}
    found = trace_of(Trace(Path(SECRET), tables), Pseudonyms(), Path("run_x"))
    assert SECRET not in str(found.source)
    frame = found.table(table)
    assert frame is not None
    for column, dtype in frame.schema.items():
        if dtype in (pl.String(), pl.Categorical()):
            every = frame[column].cast(pl.String).drop_nulls()
            left = [one for one in every if "9secret" in one.lower() and not (npu and CUSTOM_TYPE.match(one))]
            assert left == [], (table, column)


def test_names_and_addresses_of_machines_go_wherever_they_stand() -> None:
    names = Pseudonyms()
    for address in ADDRESSES:
        for text in (address, f"tcp://{address}", f"connected to {address}, again", f"a={address};"):
            assert address not in names.words(text), text
    assert names.words("torch 2.13.0 on CUDA 12.4, 3 of 10") != names.words("10.213.77.9")
    assert "2.13.0" in names.words("steplens 2.13.0"), "a version is no address"
    assert "12:30:45" in names.words("at 12:30:45"), "a time is none"
    assert names.words(ADDRESSES[0]) == names.words(ADDRESSES[0]), "one address has one pseudonym"


@pytest.mark.parametrize("address", ADDRESSES)
def test_addresses_go_as_keys_terms_and_beside_other_signs(address: str) -> None:
    names = Pseudonyms(b"k")
    assert address not in json.dumps(names.setting("distributedInfo", {"nodes": {address: "x"}, f"addr {address}": 2}))
    assert address not in names.record(json.dumps({address: "x"}))
    assert address not in names.term(address) and address not in names.term(f"rank {address}")
    for method in (names.words, names.term, names.module, names.record):
        assert address not in method(address)
    # the end of a sentence, and what is no part of four numbers
    for text in ("{}.", "{}_60000", "gloo:{}", "rank{}", "({})"):
        if "." in address:
            assert address not in names.words(text.format(address)), text
            assert address not in names.setting("note", text.format(address)), text


def test_short_words_and_other_scripts_are_no_vendors() -> None:
    names = Pseudonyms(b"k")
    for text in ("FusionOp_LiYu", "LiYu", "ZoRbV2"):
        assert text.split("_")[-1] not in names.npu_task(text)
    for text in ("void at::native::张伟<int>", "triton_poi_fused_张伟_0", "cutlass::Ünïcø::Kernel"):
        told = names.task(text)
        assert "张伟" not in told and "Ünïcø" not in told


def test_of_a_device_only_what_is_looked_up_stays() -> None:
    told = {"id": 0, "name": "NVIDIA H100", "numSms": 132, "host": f"{SECRET}.example", SECRET: 1, "warpSize": SECRET}
    rows = pl.DataFrame({"key": ["deviceProperties"], "value": [json.dumps([told])]}, schema=SCHEMA["meta"])
    made = trace_of(Trace(Path("x"), {"meta": rows}), Pseudonyms(b"k"), Path("y"))
    (device,) = made.meta_values()["deviceProperties"]
    assert device["name"] == "NVIDIA H100" and (device["id"], device["numSms"]) == (0, 132)
    assert SECRET not in json.dumps(device)


def test_values_of_metadata_and_environments_go() -> None:
    told = {
        "MASTER_ADDR": "10.213.77.9", "HOSTNAME": SECRET, "LD_LIBRARY_PATH": f"/opt/{SECRET}/lib", "PYTORCH_CUDA_ALLOC_CONF":
        "expandable_segments:True", "HCCL_BUFFSIZE": "4", "USER": "root", SECRET: {SECRET: [SECRET, 1, None, {"x": SECRET}]},
    }  # fmt: skip
    rows = [
        ("ENV_VARIABLES", json.dumps(told)), ("host_name", json.dumps("node")),
        ("torch_version", json.dumps(f"2.13.0+{SECRET}.1")), ("steplens_version", json.dumps("1.0")),
        ("trace_id", json.dumps("a1b2")), (SECRET, json.dumps(SECRET)),
    ]  # fmt: skip
    meta = pl.DataFrame(rows, schema=SCHEMA["meta"], orient="row")
    found = trace_of(Trace(Path("run"), {"meta": meta}), Pseudonyms(), Path("run_x")).table("meta")
    assert found is not None
    text = json.dumps(found.rows())
    for secret in (SECRET, "10.213.77.9", '"node"', '"root"', "a1b2"):
        assert secret not in text, secret
    for kept in ("2.13.0", "expandable_segments:True", "PYTORCH_CUDA_ALLOC_CONF", "1.0"):
        assert kept in text, kept


def test_words_in_other_columns_of_vendors_tables_are_no_names_of_tasks() -> None:
    record = {
        "group": "Zq9secret",
        "host": "Zq9secret",
        "label": "Zq9secret",
        "op_type": "MatMulV2",
        "name": "MatMul12",
        "user_name": "Zq9user",
    }
    told = json.loads(Pseudonyms().vendor_record(json.dumps(record)))
    assert (told["op_type"], told["name"]) == ("MatMulV2", "MatMul12")
    # two letters may stand in a pseudonym by chance
    assert "zq9" not in json.dumps(list(told.values())).lower()


def test_paths_of_runs_that_could_not_be_read_go() -> None:
    trace = Trace(Path(f"/{SECRET}/a"), {})
    shown = OpenedRun(0, Path(f"/{SECRET}"))
    lost = InputError(Path(f"/{SECRET}/b"), f"{SECRET}.json is no trace", f"Remove {SECRET}")
    shown.opened = Opened(Run(shown.path, [(Source(trace.source, "x", SECRET, (SECRET,)), trace)], [lost]), (0,), 1, {})
    redact.redact_runs([shown])
    run = shown.run
    everything = [str(shown.path), shown.opening.what, str(run.path), *map(str, run.sources), *map(str, run.unreadable)]
    everything += [str(one.source) for one in run.traces] + [str(run.health().rows())]
    assert not [one for one in everything if SECRET in one]


def test_what_cannot_be_told_from_a_framework_is_documented() -> None:
    text = (Path(__file__).parents[2] / "docs" / "report.md").read_text(encoding="utf-8")
    assert "aten::mine" in text and re.search(r"custom\s+operator of an NPU", text)
    for form in NOT_TOLD:
        name = form.format(SECRET)
        assert Pseudonyms().operator(name) == name


def test_no_form_is_left_in_a_report_of_a_run_full_of_them(make: Make, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(hostile, "NAMES", tuple(texts()))
    monkeypatch.setattr(hostile, "LONG", f"{SECRET} " * 1000)
    run = hostile.run_directory(tmp_path / SECRET)
    trace = run / "KINETO" / "trace.json"
    # what a device is called is no user's word
    trace.write_text(json.dumps({**json.loads(trace.read_text()), "deviceProperties": [{"id": 0, "name": "A100"}]}))
    assert SECRET.encode() in make(run, rows=20).everything()
    held = make(run, rows=100_000, redact=True)
    left = {name for name, data in held.parts.items() if b"9secret" in data.lower()}
    assert left == set()
    assert b"9secret" not in held.everything().lower()
