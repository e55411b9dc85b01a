"""The rules about Ascend's cores and its host, where cause and price are known exactly."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from steplens.advice.facts import Facts
from steplens.advice.rules.device.cores import aicpu_operators, core_frequency, uneven_blocks
from steplens.advice.rules.device.environment import environment_variables
from steplens.advice.rules.device.host_work import allocation_calls, dynamic_shapes, operator_compilation, suspected_collections
from steplens.advice.rules.device.launches import blocking_launches
from steplens.advice.rules.device.units import attention_performance, matmul_performance, unbound_operators, vector_performance
from steplens.advice.texts import TEXTS
from steplens.advice.words import Words
from steplens.run import Run, Source

from ..writers.builder import build
from .device_steps import DEVICE_RULES, STEPS, US, accelerated, call, cuda, evidence, facts, ns, only, operation, saving, task

CORES = {"device_info": [{"id": 0, "ai_core_num": 24, "aiv_num": 48, "aic_frequency": 1800}]}


def variables(**values: str) -> Any:
    return facts([task("Mul", 0, 10)], meta={"ENV_VARIABLES": values})


@pytest.mark.parametrize(
    ("name", "harmful", "harmless"),
    [
        ("ASCEND_LAUNCH_BLOCKING", "1", "0"),
        ("ASCEND_GLOBAL_LOG_LEVEL", "1", "3"),
        ("ASCEND_GLOBAL_LOG_LEVEL", "2", ""),
        ("ACLNN_CACHE_LIMIT", "9999", "10000"),
        ("ACLNN_CACHE_LIMIT", "", "100000"),
        ("HOST_CACHE_CAPACITY", "0", "20"),
        ("HOST_CACHE_CAPACITY", "", "1"),
        ("PYTORCH_NPU_ALLOC_CONF", "max_split_size_mb:50", "max_split_size_mb:50, expandable_segments:True"),
        ("HCCL_RDMA_TC", "132", ""),
        ("HCCL_RDMA_SL", "4", ""),
        ("HCCL_ALGO", "level0:ring", ""),
    ],
)
def test_environment_variables(name: str, harmful: str, harmless: str) -> None:
    finding = only(environment_variables.judge(variables(**{name: harmful})))
    assert finding.id == f"environment_variables:{name}"
    assert finding.evidence[0].places == (f"{name}={harmful}",)
    assert finding.saving is None
    assert list(environment_variables.judge(variables(**{name: harmless}))) == []
    # every variable has its own words, and a remedy
    for language in ("en", "zh"):
        words = Words(language, TEXTS)
        assert words.evidence(finding.evidence[0].what) != finding.evidence[0].what.replace("_", " ")
        assert name in words.of(finding).title and words.of(finding).patch.startswith("+")


@pytest.mark.parametrize("values", [None, [], "x", {"HCCL_ALGO": 3}, {}])
def test_variables_that_were_not_recorded(values: Any) -> None:
    assert list(environment_variables.judge(facts([task("Mul", 0, 10)], meta={"ENV_VARIABLES": values}))) == []


def test_operators_on_the_aicpu() -> None:
    """1 ms on the AI CPU, of which the AI cores work 400 us."""
    slow = task("Index", 1000, 2000, core="AI_CPU", input_types="DOUBLE;INT32", op=0)
    at = {"name": "aten::index", "start": 900, "end": 950, "stack": "model.py(7): forward;train.py(3): <module>"}
    finding = only(aicpu_operators.judge(facts([slow, task("MatMul", 1500, 1900)], operators=[at])))
    assert saving(finding).high_ns == 600 * US
    assert evidence(finding) == {"on_aicpu": 1000 * US, "aicpu_tasks": 1, "aicpu_wide_types": 100}
    assert finding.evidence[1].places == ("model.py(7): forward",)
    assert finding.values["operators"] == "Index"
    # of seven lines with a task each so many are named that the others are less than a third
    tasks = [task("Index", 1000 * at, 1000 * at + 500 + at, core="AI_CPU", op=at) for at in range(7)]
    calls = [{"name": "aten::index", "start": at, "end": at + 1, "stack": f"model.py({at}): forward"} for at in range(7)]
    lines = only(aicpu_operators.judge(facts([*tasks, task("MatMul", 8000, 8400)], operators=calls))).evidence[1]
    assert (lines.value, lines.places_count, lines.other_places) == (7, (1, 1, 1, 1, 1), 2)
    assert lines.places[0] == "model.py(6): forward"
    short = task("Index", 1000, 1019, core="AI_CPU")
    assert list(aicpu_operators.judge(facts([short, task("MatMul", 1500, 1900)]))) == []


def test_blocks_that_do_not_divide_among_the_cores() -> None:
    """25 blocks on 24 cores take two rounds where 25 / 24 would do; 60 on 48 vector cores take two where 1.25 would."""
    tasks = [
        task("MatMul", 0, 960, blocks=25),
        task("Add", 1000, 1960, blocks=60, core="AI_VECTOR_CORE"),
        task("Even", 2000, 3000, blocks=48),
        task("Short", 3000, 3019, blocks=1),
        task("Mixed", 4000, 5000, blocks=23, mix_blocks=96, core="MIX_AIC"),
        task("Host", 6000, 7000, blocks=1, core="AI_CPU"),
    ]
    finding = only(uneven_blocks.judge(facts(tasks, meta=CORES)))
    assert saving(finding).high_ns == pytest.approx((960 * (1 - 25 / 48) + 960 * (1 - 60 / 96)) * US)
    assert evidence(finding) == {"in_uneven_blocks": 1920 * US, "uneven_tasks": 2}
    # nothing is known of the cores, or blocks fit
    assert list(uneven_blocks.judge(facts(tasks))) == []
    assert list(uneven_blocks.judge(facts(tasks[2:], meta=CORES))) == []


def test_uneven_blocks_are_judged_although_nothing_is_static() -> None:
    assert list(uneven_blocks.judge(facts([task("MatMul", 0, 960, blocks=25, state="dynamic")], meta=CORES))) != []


def clock(*samples: tuple[int, float, float]) -> list[dict[str, Any]]:
    return [
        {"group": "AI Core Freq", "name": "AI Core Freq", "unit": "MHz", "time_ns": ns(step, at), "value": mhz, "device": 0}
        for step, at, mhz in samples
    ]


def test_cores_below_their_clock() -> None:
    """At 900 of 1800 MHz for steps 2 and 3: half of the task's time there, a quarter of it per step."""
    tasks = [task("MatMul", 1000, 5000)]
    samples = clock((0, 0, 1800), (1, 5500, 900))
    finding = only(core_frequency.judge(facts(tasks, meta=CORES, counters=samples)))
    assert saving(finding).high_ns == 4000 * US / 2 / 2
    assert finding.evidence[0].steps == (2, 3)
    assert (evidence(finding)["clock"], evidence(finding)["rated_clock"], finding.values["percent"]) == (900, 1800, 50)
    # 4 % below is no throttling; without a rated clock the highest one counts
    assert list(core_frequency.judge(facts(tasks, meta=CORES, counters=clock((0, 0, 1800), (1, 5500, 1730))))) == []
    assert only(core_frequency.judge(facts(tasks, counters=samples))).confidence < finding.confidence
    assert list(core_frequency.judge(facts(tasks, counters=clock((0, 0, 900))))) == []
    assert list(core_frequency.judge(facts(tasks, meta=CORES))) == []


def vector(name: str, start: float, end: float, **shares: float) -> dict[str, Any]:
    return task(name, start, end, core="AI_VECTOR_CORE", metrics={f"aiv_{unit}_ratio": share for unit, share in shares.items()})


def test_vector_operators_that_nothing_limits() -> None:
    """35 % of the reading limit of 70 %: half of the time remains to be explained."""
    tasks = [vector("Cast", 0, 1000, vec=0.1, mte2=0.35, mte3=0.2), vector("Add", 1000, 2000, vec=0.1, mte2=0.7, mte3=0.1)]
    finding = only(vector_performance.judge(facts(tasks)))
    # vec + mte2 + mte3 = 0.65 of 0.9 is nearer to its limit than 0.35 of 0.7
    assert saving(finding).high_ns == pytest.approx(1000 * US * (1 - 0.65 / 0.9))
    assert evidence(finding)["limited_by_nothing"] == 1000 * US
    assert evidence(finding)["judged_tasks"] == 2000 * US
    assert finding.values["operators"] == "Cast"
    assert list(vector_performance.judge(facts(tasks[1:]))) == []
    assert list(vector_performance.judge(facts([task("Cast", 0, 1000, core="AI_VECTOR_CORE")]))) == []


def product(start: float, end: float, *, mac: float, mte2: float, inner: int = 4096) -> dict[str, Any]:
    shapes = {"input_shapes": f"4096,{inner};{inner},4096", "output_shapes": "4096,4096", "input_types": "FLOAT16;FLOAT16"}
    return task("MatMulV2", start, end, metrics={"aic_mac_ratio": mac, "aic_mte2_ratio": mte2}, **shapes)


def test_matrix_products() -> None:
    # 100 MB per shape in the four steps together: 4 * 3 * 4096^2 * 2 bytes
    finding = only(matmul_performance.judge(facts([product(0, 1000, mac=0.4, mte2=0.19)])))
    assert saving(finding).high_ns == pytest.approx(500 * US)
    assert list(matmul_performance.judge(facts([product(0, 1000, mac=0.8, mte2=0.1)]))) == []
    assert list(matmul_performance.judge(facts([product(0, 1000, mac=0.1, mte2=0.95)]))) == []
    small = task("MatMulV2", 0, 1000, input_shapes="16,16;16,16", output_shapes="16,16", metrics={"aic_mac_ratio": 0.1})
    assert list(matmul_performance.judge(facts([small]))) == []
    # and what the other rules leave: the small product is unbound
    assert only(unbound_operators.judge(facts([small]))).values["operators"] == "MatMulV2"


def test_matrix_products_with_awkward_axes() -> None:
    finding = only(matmul_performance.judge(facts([product(0, 1000, mac=0.9, mte2=0.2, inner=4100)])))
    assert (finding.saving, finding.urgency, evidence(finding)) == (None, "medium", {"awkward_axes": 1000 * US})


@pytest.mark.parametrize(
    ("query", "mte2", "vec", "found"),
    [
        ("2,16,4096,128", 0.4, 0.3, True),
        ("2,16,4096,128", 0.8, 0.1, False),
        ("2,16,4096,128", 0.1, 0.75, False),
        ("2,16,4000,128", 0.9, 0.1, True),
        ("2,16,4096,100", 0.9, 0.1, True),
        ("hostile,;,,9,", 0.9, 0.1, False),
    ],
)
def test_attention(query: str, mte2: float, vec: float, found: bool) -> None:
    metrics = {"aic_mte2_ratio": mte2, "aiv_vec_ratio": vec}
    one = task("FlashAttentionScore", 0, 2000, input_shapes=f"{query};{query}", core="MIX_AIC", metrics=metrics)
    findings = list(attention_performance.judge(facts([one])))
    assert bool(findings) == found
    if found and mte2 < 0.8:
        assert saving(findings[0]).high_ns == pytest.approx(2000 * US * 0.5)
    # backward is judged by what it writes, not by vectors
    gradient = {**one, "name": "FlashAttentionScoreGrad", "type": "FlashAttentionScoreGrad"}
    if found and mte2 < 0.8:
        gradient["metrics"] = {"aic_mte2_ratio": 0.1, "aic_fixpipe_ratio": 0.75, "aiv_vec_ratio": 0.0}
        assert list(attention_performance.judge(facts([gradient]))) == []


def test_operators_that_nothing_limits() -> None:
    shares = {"aic_mac_ratio": 0.4, "aic_mte1_ratio": 0.2, "aic_mte2_ratio": 0.3, "aic_scalar_ratio": 0.1}
    finding = only(unbound_operators.judge(facts([task("Conv2D", 0, 1000, metrics=shares)])))
    assert saving(finding).high_ns == pytest.approx(500 * US)
    assert list(unbound_operators.judge(facts([task("Conv2D", 0, 19, metrics=shares)]))) == []
    assert list(unbound_operators.judge(facts([task("Conv2D", 0, 1000, metrics={**shares, "aic_mte1_ratio": 0.8})]))) == []
    # counters of older devices have no kind of core in their names
    older = task("Conv2D", 0, 1000, metrics={"mac_ratio": 0.4, "mte2_ratio": 0.1})
    assert saving(only(unbound_operators.judge(facts([older])))).high_ns == pytest.approx(500 * US)


def test_dynamic_shapes() -> None:
    """Two tasks with 3 ms of nothing between them, in which the host tiles for 1 ms."""
    tasks = [task("MatMul", 0, 1000, state="dynamic"), task("Add", 4000, 9000, state="dynamic")]
    calls = [call("MatMulV2_Tiling", 1500, 2500), call("launch", 3000, 3100)]
    finding = only(dynamic_shapes.judge(facts(tasks, calls)))
    assert saving(finding).high_ns == 1000 * US
    assert evidence(finding) == {"dynamic_tasks": 2, "preparing_operators": 1000 * US}
    assert only(dynamic_shapes.judge(facts(tasks))).saving is None
    assert list(dynamic_shapes.judge(facts([tasks[0], task("Add", 4000, 9000, state="static")]))) == []
    assert list(dynamic_shapes.judge(facts([task("MatMul", 0, 1000)]))) == []


def test_operators_that_the_host_compiles() -> None:
    tasks = [task("MatMul", 0, 1000), task("Add", 4000, 9000)]
    calls = [call("aclopCompileAndExecute", 500, 2000), call("aclopCompileAndExecute", 2500, 3000)]
    finding = only(operator_compilation.judge(facts(tasks, calls)))
    # of 1.5 ms the device works for 500 us
    assert saving(finding).high_ns == (1000 + 500) * US
    assert evidence(finding)["in_compiling_calls"] == 2000 * US
    # while the device works, compiling costs nothing: 5 calls in each of 4 steps are said all the same, 4 are not
    busy = [task("MatMul", 0, 9999)]
    many = [call("aclopCompileAndExecute", 100 * number, 100 * number + 50) for number in range(5)]
    assert only(operator_compilation.judge(facts(busy, many))).saving is None
    assert list(operator_compilation.judge(facts(busy, many[:4]))) == []


def launches(wait: str, waiting: int, count: int = 10) -> list[dict[str, Any]]:
    """Launches 1 ms apart, the first ones followed by a wait of 600 us."""
    name = "launch" if wait.startswith("acl") else "cudaLaunchKernel"
    calls = [call(name, 1000 * number, 1000 * number + 10) for number in range(count)]
    return calls + [call(wait, 1000 * number + 20, 1000 * number + 620) for number in range(waiting)]


@pytest.mark.parametrize("wait", ["cudaStreamSynchronize", "cudaDeviceSynchronize", "aclrtSynchronizeStreamWithTimeout"])
def test_launches_that_block(wait: str) -> None:
    """Tasks of 600 us, launched every 1 ms: six gaps of 400 us begin while the host waits."""
    make = cuda if wait.startswith("cuda") else task
    tasks = [make("kernel", 1000 * number + 15, 1000 * number + 615) for number in range(10)]
    finding = only(blocking_launches.judge(facts(tasks, launches(wait, 6))))
    # the last gap of a step is cut at its end, but the sixth is not the last
    assert saving(finding).high_ns == 6 * 400 * US
    assert evidence(finding)["launches_followed_by_waits"] == 60
    assert list(blocking_launches.judge(facts(tasks, launches(wait, 5)))) == []


def test_quiet_stretches() -> None:
    """300 ms without anything between two tasks of step 1; a call in it, or recorded collections, explain it."""
    first, second = task("MatMul", 0, 1000), task("Add", 400_000, 401_000)
    long = {"id": 1, "start_ns": ns(0, 0), "end_ns": ns(50, 0), "pid": 1000, "tid": 1001}
    kernels = [
        {
            **row,
            "id": number,
            "kind": "compute",
            "device": 0,
            "step": 1,
            "start_ns": ns(0, row["start"]),
            "end_ns": ns(0, row["end"]),
        }
        for number, row in enumerate((first, second))
    ]
    rows = [{key: value for key, value in row.items() if key not in ("start", "end")} for row in kernels]

    def judged(**tables: Any) -> list[Any]:
        return list(suspected_collections.judge(Facts(build(kernels=rows, steps=[long], **tables))))

    finding = only(judged())
    assert saving(finding).high_ns == 399_000 * US
    assert finding.evidence[0].steps == (1,)
    collection = {"start_ns": ns(0, 2000), "end_ns": ns(0, 3000), "pid": 1000, "tid": 1001, "generation": 2}
    assert judged(gc=[collection]) == []
    busy = {"name": "aclrtMemcpy", "start_ns": ns(0, 2000), "end_ns": ns(0, 200_000), "pid": 1000, "tid": 1001}
    assert judged(api=[busy]) == []
    many = [{**busy, "start_ns": ns(0, 2000 + 1000 * at), "end_ns": ns(0, 2001 + 1000 * at)} for at in range(100)]
    assert judged(api=many) == []


@pytest.mark.parametrize(
    "name",
    [
        "cudaMalloc",
        "cudaFree",
        "hipFree",
        "cuMemCreate",
        "aclMallocMemInner",
        "aclrtFreePhysical",
        "aclrtFree",
        "AscendCL@aclrtFree",
    ],
)
def test_calls_for_device_memory(name: str) -> None:
    """3 ms of such calls per step, during 1 ms of which the device has nothing to do."""
    make = task if "acl" in name.lower() else cuda
    tasks = [make("kernel", 0, 4000), make("kernel", 5000, 9000)]
    finding = only(allocation_calls.judge(facts(tasks, [call(name, 2000, 5000)])))
    assert evidence(finding) == {"in_allocation_calls": 3000 * US, "allocation_calls": 1, "idle_while_allocating": 1000 * US}
    assert saving(finding).likely_ns == 1000 * US
    assert list(allocation_calls.judge(facts(tasks, [call(name, 2000, 2090)]))) == []
    assert list(allocation_calls.judge(facts(tasks, [call("aclrtFreeze", 2000, 5000), call("cudaMallocator", 0, 5000)]))) == []


@pytest.mark.parametrize("rule", DEVICE_RULES, ids=lambda rule: rule.name)
def test_nothing_to_say(rule: Any) -> None:
    """An empty trace, one of steps alone, and one of steps that are fine."""
    fine = accelerated([task("MatMul", 0, 9990, state="static", blocks=24)], [call("launch", 0, 10)], meta=CORES)
    reduced = [operation("hcom_allReduce__1_0_1", 100, 200, step) for step in STEPS]
    for trace in (build(), accelerated(), fine, accelerated([task("MatMul", 0, 9990)], communication=reduced)):
        run = Run(Path("run"), [(Source(Path("run")), trace)], [])
        asked = rule.judge(Facts(trace)) if rule.judge_run is None else rule.judge_run(run, [Facts(trace)])
        assert list(asked) == []
