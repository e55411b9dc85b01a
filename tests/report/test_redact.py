"""A report without names holds none of them, and every figure that it would hold with them."""

from __future__ import annotations

import gc
import re
import shutil
import time
from collections import Counter
from pathlib import Path
from typing import Any

import polars as pl
import pytest

import steplens
from steplens.analysis.tools.source_lines import frame_owner
from steplens.report.redaction.pseudonyms import Pseudonyms
from steplens.report.redaction.redact import KEPT, REPLACED, trace_of
from steplens.trace.building.classify import category_of
from steplens.trace.schema import SCHEMA

from .conftest import SECRETS, Held, Make

pytestmark = pytest.mark.slow

#: of the thread's name and the machine's there is no trace in a recording of a CPU by PyTorch 2.13 on its own
_NOT_RECORDED = {"thread", "lambda", "machine"}


@pytest.mark.parametrize("place", sorted(SECRETS))
def test_no_name_of_the_user_is_left(place: str, plain: Held, redacted: Held) -> None:
    secret = SECRETS[place].encode()
    if place not in _NOT_RECORDED:
        assert secret in plain.everything(), "the name was recorded, so that its absence means something"
    assert secret not in redacted.everything()
    assert secret.upper() not in redacted.everything().upper()


def test_no_place_or_machine_is_left(secret_run: Path, plain: Held, redacted: Held) -> None:
    import getpass
    import socket

    whole = redacted.everything()
    assert str(secret_run.parent).encode() in plain.everything()
    for text in (secret_run.parent, secret_run.parents[1], Path.home() / ".", Path(steplens.__file__).parents[2]):
        assert f"{text}/".encode() not in whole, text
    name = socket.gethostname()
    meta = redacted.json("table/0/recorded_meta/all")
    told = {row[0]: row[1] for row in meta["rows"]}
    assert not re.search(rf"\b{re.escape(name)}\b", told["host_name"])
    assert told["host_name"] and told["trace_id"]
    assert f"/{getpass.getuser()}/".encode() not in whole


def test_only_metadata_of_the_script_has_other_keys(plain: Held, redacted: Held) -> None:
    before, after = ([row[0] for row in held.json("table/0/recorded_meta/all")["rows"]] for held in (plain, redacted))
    assert set(before) - set(after) == {SECRETS["key"]}
    assert len(before) == len(after)


#: sums of doubles differ in their last digits by the order of their terms, which follows names
SAME = 1e-9


def numbers(value: Any) -> dict[tuple[str, ...], list[float]]:
    """Every number of an answer, with where it stands: the names of the fields around it. Texts do not count."""
    found: dict[tuple[str, ...], list[float]] = {}

    def walk(one: Any, place: tuple[str, ...]) -> None:
        if isinstance(one, dict):
            for name, item in one.items():
                # of nodes in order of their names, the place of another one
                if name != "parent":
                    walk(item, (*place, name))
        elif isinstance(one, list):
            found.setdefault((*place, "#"), []).append(len(one))
            for item in one:
                walk(item, place)
        elif isinstance(one, (int, float, bool)):
            found.setdefault(place, []).append(one)

    walk(value, ())
    return {place: sorted(numbers) for place, numbers in found.items()}


def test_every_answer_has_the_same_figures(plain: Held, redacted: Held) -> None:
    before, after = plain.answers(), redacted.answers()
    assert set(before) == set(after)
    for question, (status, answer) in before.items():
        assert after[question][0] == status, question
        if question.partition("?")[0] in ("runs/0", "runs/0/tables"):
            continue  # how long the opening took
        found, expected = numbers(after[question][1]), numbers(answer)
        assert set(found) == set(expected), question
        for place, values in expected.items():
            assert found[place] == pytest.approx(values, rel=SAME), (question, place)


def test_what_memory_was_used_for_is_the_same(plain: Held, redacted: Held) -> None:
    before, after = plain.json("table/0/memory_categories/all"), redacted.json("table/0/memory_categories/all")
    assert len(before["rows"]) > 3, "the categories were recorded"
    assert before["rows"] == after["rows"]


def test_damaged_categories_are_told_without_their_place(make: Make, secret_run: Path, tmp_path: Path) -> None:
    copy = shutil.copytree(secret_run, tmp_path / SECRETS["folder"])
    for file in copy.rglob("memory_categories.json"):
        file.write_text(SECRETS["file"])
    told = make(copy, redact=True)
    assert "categories of memory" in told.json("table/0/memory_categories/all")["problem"]["problem"]
    assert SECRETS["folder"].encode() not in told.everything() and SECRETS["file"].encode() not in told.everything()


def columns_of(page: dict[str, Any]) -> dict[str, tuple[Counter[str], list[float]]]:
    """The cells of every column, whatever their order: doubles apart from the others."""
    names = [column["name"] for column in page["columns"]]
    kinds = {column["name"]: column["type"] for column in page["columns"]}
    cells: dict[str, tuple[Counter[str], list[float]]] = {}
    for place, name in enumerate(names):
        values = [row[place] for row in page["rows"]]
        # which of several equal ones stands for a row, follows their names
        others = Counter(
            str(value is None) if kinds[name] == "text" else repr(value) for value in values if not isinstance(value, float)
        )
        cells[name] = others, sorted(value for value in values if isinstance(value, float))
    return cells


def test_every_table_has_the_same_figures(plain: Held, redacted: Held) -> None:
    tables = sorted(name for name in plain.parts if name.startswith("table/"))
    assert len(tables) > 50
    assert tables == sorted(name for name in redacted.parts if name.startswith("table/"))
    for name in tables:
        before, after = plain.json(name), redacted.json(name)
        assert (before.get("total"), before.get("status")) == (after.get("total"), after.get("status")), name
        if "rows" not in before:
            continue
        assert len(before["rows"]) == len(after["rows"]), name
        found = columns_of(after)
        for column, (others, doubles) in columns_of(before).items():
            if (name, column) in (("table/0/recorded_meta/all", "value"), ("table/0/health/all", "message")):
                continue
            assert found[column][0] == others, (name, column)
            assert found[column][1] == pytest.approx(doubles, rel=SAME), (name, column)


def test_the_timeline_has_the_same_events(plain: Held, redacted: Held) -> None:
    details = "details/0/0"
    before, after = plain.json(details), redacted.json(details)
    for column in ("event", "lane", "depth", "start_ns", "end_ns"):
        assert before["briefs"][column] == after["briefs"][column]
    for table, told in before["tables"].items():
        assert told["events"] == after["tables"][table]["events"]
        assert [(link["kind"], link["count"], link["event"]) for link in told["links"]] == [
            (link["kind"], link["count"], link["event"]) for link in after["tables"][table]["links"]
        ]


def test_names_are_consistent_and_of_this_report_only(redacted: Held, redacted_again: Held) -> None:
    pattern = re.compile(rb"(?:module|class|range|region|file|function)_[a-z2-7]{8}")
    first, second = set(pattern.findall(redacted.everything())), set(pattern.findall(redacted_again.everything()))
    assert len(first) == len(second) > 5
    assert not first & second
    known = Pseudonyms(b"key")
    assert known.name("class", "A") == Pseudonyms(b"key").name("class", "A") != known.name("class", "B")


def test_every_text_of_a_trace_is_replaced_or_known_to_be_no_name() -> None:
    special = {("ops", "name"), ("meta", "key"), ("meta", "value")}
    untold = [
        (table, column)
        for table, schema in SCHEMA.items()
        for column, dtype in schema.items()
        if dtype in (pl.String(), pl.Categorical()) and column not in REPLACED.get(table, {})
        and column not in KEPT and (table, column) not in special
    ]  # fmt: skip
    assert untold == []


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("operator", "aten::add_"),
        ("operator", "autograd::engine::evaluate_function: AddmmBackward0"),
        ("operator", "ProfilerStep#3"),
        ("range", "ProfilerStep#3"),
        ("range", "nccl:all_reduce"),
        ("operator", "torch::autograd::AccumulateGrad"),
        ("task", "void at::native::vectorized_elementwise_kernel<4, at::native::FillFunctor<float>>(int)"),
        ("task", "ncclDevKernel_AllReduce_Sum_f32_RING_LL(ncclDevKernelArgsStorage<4096ul>)"),
        ("task", "Memcpy HtoD (Pageable -> Device)"),
        ("frame", "<built-in method add_ of Tensor object>"),
        ("frame", "threading.py(1000): _bootstrap"),
        ("call", "cudaLaunchKernel"),
        ("thread", "thread 12 (pt_autograd_0)"),
        ("device_type", "MatMulV2"),
    ],
)
def test_names_of_frameworks_stay(kind: str, text: str) -> None:
    if text.startswith("threading"):
        source = Path(__import__("threading").__file__).read_text()
        assert "def _bootstrap(" in source
    assert getattr(Pseudonyms(), kind)(text) == text


@pytest.mark.parametrize(
    ("kind", "text"),
    [
        ("operator", "z9qlib::convolution"),
        ("operator", "z9qFunctionBackward"),
        ("operator", "Optimizer.step#z9qOptimizer.step"),
        ("range", "aten::z9q"),
        ("range", "nccl:z9q"),
        ("range", "AddBackward0z9q"),
        ("range", "ProfilerStep#3 z9q"),
        ("operator", "nn.Module: z9q"),
        ("task", "z9q_kernel<float>"),
        ("task", "void at::native::elementwise_kernel<z9q::Functor>()"),
        ("task", "Default/z9q-Net/Conv2d-op1"),
        ("frame", "/home/z9q/train.py(3): main"),
        ("frame", "torch/nn/z9q.py(3): forward"),
        ("frame", "test/z9q.py(3): f"),
        ("frame", "threading.py(3): z9q"),
        ("frame", "<built-in function z9q>"),
        ("frame", "site-packages/z9q/a.py(3): forward"),
        ("frame", "<string>(1): z9q"),
        ("frame", "C:\\z9q\\a.py(3): f"),
        ("thread", "thread 12 (z9q)"),
        ("words", "no step z9q of the run"),
        ("record", '{"z9q": ["z9q", {"a": "z9q"}]}'),
        ("record", "{z9q"),
        ("module", "Network.z9q.0"),
        ("call", "z9qCall"),
        ("stack", "a.py(3): z9q;z9q"),
    ],
)
def test_names_of_users_go(kind: str, text: str) -> None:
    # a key of its own: pseudonyms are letters at random, "z9q" among them
    assert "z9q" not in getattr(Pseudonyms(), kind)(text)


@pytest.mark.parametrize(
    "frame",
    [
        "/home/z9q/train.py(3): main",
        "/home/z9q/threading.py(3): main",
        "/home/z9q/transformers/train.py(3): main",
        "/home/z9q/torch/nn/functional.py(3): relu",
        "/home/z9q/accelerate/src/accelerate/z9q.py(3): send",
        "site-packages/z9q/a.py:3(forward)",
        "torch/nn/functional.py(3): relu",
        "z9q(x.py(3): main",
        ".py(3): main",
    ],
)
def test_the_owner_of_a_frame_stays(frame: str) -> None:
    """Advice names the user's lines, and is the same with and without names."""
    redacted = Pseudonyms().frame(frame)
    assert "z9q" not in redacted
    assert frame_owner(redacted) == frame_owner(frame)


def test_a_trace_without_anything_is_left_as_it_is() -> None:
    from steplens.trace.trace import Trace

    empty = Trace(Path("secret"), {name: pl.DataFrame(schema=columns) for name, columns in SCHEMA.items()})
    found = trace_of(empty, Pseudonyms(), Path("other"))
    for name in SCHEMA:
        table = found.table(name)
        assert table is not None and table.schema == pl.Schema(SCHEMA[name])


KINDS = ("operator", "range", "task", "npu_task", "frame", "thread", "words", "record", "module", "call", "stack", "file",
         "vendor_record", "module_name", "device_type")  # fmt: skip
PIECES = ("x", "::", "Backward", "autograd::engine::evaluate_function: ", "thread 1 (", "[", '{"a":', "/", ".py:1", ".", ";",
          "a::", "_1")  # fmt: skip


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("piece", PIECES)
def test_long_names_take_a_time_that_grows_as_they_do(kind: str, piece: str, request: pytest.FixtureRequest) -> None:
    """A tenfold length may take ten times as long and not a hundred times, and no name is nested too deeply."""

    def cost_s(length: int) -> float:
        text = piece * (length // len(piece))
        begin = time.thread_time()
        getattr(Pseudonyms(), kind)(text)
        return time.thread_time() - begin

    # a collection looks at all objects of the tests so far, and the longer text causes more of them
    gc.disable()
    request.addfinalizer(gc.enable)
    best = [float("inf")] * 2
    for _ in range(5):
        best = [min(least, cost_s(length)) for least, length in zip(best, (30_000, 300_000), strict=True)]
        if best[1] < 40 * best[0]:
            break
    assert best[1] < 40 * best[0]


def test_no_pseudonym_spells_a_category() -> None:
    """Of 3,000 codes of eight letters and digits some spell "rnn", "fft" or "mm"."""
    names = Pseudonyms(b"a key")
    made = {names.operator(f"mine::work{number}") for number in range(3000)}
    assert len(made) == 3000 and {category_of(name) for name in made} == {category_of("mine::work0")} == {"other"}
