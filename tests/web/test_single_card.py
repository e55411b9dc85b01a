"""The pages of a single card in a browser, on a recorded run and on the shared samples; figures are the server's."""

from __future__ import annotations

import json
import re
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path

import pytest

import steplens
from steplens.analysis.step_trace.step_trace import step_trace
from steplens.collect.dynamic.job import job_folder
from steplens.server.tables.tables import find_table

from ..shared_data import shared
from . import scripts
from .conftest import Site

pytestmark = pytest.mark.slow

SEGMENTS = "return [...document.querySelectorAll('.step-figure title')].map(one => one.textContent)"
FLOW = "return [...document.querySelectorAll('main .flow-box')].map(one => one.innerText.split('\\n'))"
#: how high each line of the menu is, px: one that wraps is twice as high
MENU_LINES = """
return JSON.stringify([...document.querySelectorAll('.menu a, .menu summary')].map(one => one.getBoundingClientRect().height))"""
PRESS_ON = "document.querySelector(arguments[0]).dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', bubbles: true}))"
CARD = """
return [...document.querySelectorAll('main .card')].find(one => one.querySelector('h2')?.innerText.startsWith(arguments[0]))
  ?.innerText ?? ''"""
CHOOSE = """
const labels = [...document.querySelectorAll('main .choice')];
const list = labels.find(one => one.innerText.startsWith(arguments[0])).querySelector('select');
list.value = arguments[1];
list.dispatchEvent(new Event('change'))"""


@pytest.fixture
def sample(look: Callable[[Sequence[Path]], Site]) -> Callable[[str], Site]:
    def show(name: str) -> Site:
        site = look([shared("mindspore", name)])
        site.until(scripts.READY, "the run is open")
        return site

    return show


def card_with(site: Site, title: str, text: str) -> str:
    found = f"{CARD.replace('return ', 'const text = ', 1)};\nreturn text.includes(arguments[1]) && text"
    return str(site.until(found, f"the card {title!r} says {text!r}", title, text))


def test_the_step_figure_is_that_of_the_chosen_step(site: Site, run_of_two_ranks: Path) -> None:
    table = step_trace(steplens.open(run_of_two_ranks).traces[0])
    step = table["step"][3]
    site.open("#/0/steps?rank=0")
    average = site.until(SEGMENTS, "the figure is there")
    assert [one.split(":")[0] for one in average[:4]] == ["Whole step", "Interval", "Forward and backward", "Tail"]
    site.script(CHOOSE, "Step", str(step))
    site.until(
        f"return location.hash.includes('step={step}') && document.body.dataset.ready === location.hash", "the step is chosen"
    )
    shown = site.until(SEGMENTS, "the figure is there")
    assert shown != average
    (total,) = [one for one in shown if one.startswith("Whole step")]
    told = re.search(r"\(([\d.]+) (µs|ms|s)\)", total)
    # four digits, in a unit that is up to the machine
    assert told is not None, total
    assert float(told[1]) * {"µs": 1e3, "ms": 1e6, "s": 1e9}[told[2]] == pytest.approx(table["total_ns"][3], rel=5.1e-4), total
    assert site.count(".step-figure .segment-collective") >= 1, "collectives have rows of their own"
    assert "aten::" in site.text(".points")
    site.open(f"#/0/steps?rank=0&step={step}&forward=aten%3A%3Aaddmm")
    assert site.until(SEGMENTS, "the figure is there") != shown
    # operations with queues between them are MindSpore's: of a DataLoader there is no tab with them, whatever an address says
    site.open("#/0/pipeline?view=processing")
    assert "Data processing" not in site.text("main .tabs") and site.count("main .flow-box") > 1
    assert "num_parallel_workers" not in site.text("main")
    assert site.console() == []


def test_the_golden_step_trace_is_shown(sample: Callable[[str], Site]) -> None:
    """(T1, T2)"""
    site = sample("JOB1")
    site.open("#/0/steps")
    shown = site.until(SEGMENTS, "the figure is there")
    for length in ("130.5 ms", "90.35 ms", "17.09 ms", "23.01 ms", "3.006 ms", "298.6 µs"):
        assert any(f"({length})" in one for one in shown), (length, shown)
    site.script("document.querySelector('.card details:last-of-type').open = true")
    assert "69.3 %" in site.text("main")


def test_the_way_of_a_batch_and_its_charts(sample: Callable[[str], Site]) -> None:
    """(M1 to M3)"""
    site = sample("run_2")
    site.open("#/0/pipeline")
    boxes = site.until(FLOW, "the flow is there")
    assert [box[0] for box in boxes] == ["Data processing", "Host queue", "Transfer", "Data queue", "get_next"]
    assert boxes[1][1].startswith("empty for 1 of 1 batches, 0 of ")
    assert boxes[3][1].startswith("empty for 0 of 3 batches, ")
    assert "push 4 ms" in boxes[2] and "waits 666.7 ns" in boxes[4]
    assert site.count("main [data-chart] canvas") == 4
    # the first tab names the slowest operation, as the others and the advice do
    assert site.text("main .callout") == "ImageFolderOp_3 is the bottleneck: its queue is 0 % full on average. Data processing"
    site.script("document.querySelector('[data-box=get_next]').click()")
    assert site.text(".card.marked h2") == "Wait of get_next"
    # of the tables those without a row are not offered to whoever comes to choose
    offered = "return [...arguments[0].querySelectorAll('option')].map(one => one.value)"
    (chooser,) = [one for one in site.driver.find_elements("css selector", "main .choice") if one.text.startswith("Table")]
    (trace,) = steplens.open(shared("mindspore", "run_2")).traces
    rows = {name: make(trace).height for name in site.script(offered, chooser) if (make := find_table(name).of_trace)}
    assert not all(rows.values())
    site.script("arguments[0].querySelector('select').focus()", chooser)
    site.until("return arguments[0].dataset.counted !== undefined", "their rows are counted", chooser)
    assert site.script(offered, chooser) == [name for name, height in rows.items() if height]
    assert site.console() == []


def test_operations_are_chosen_in_the_graph(sample: Callable[[str], Site]) -> None:
    """(G2) the source holds up the pipeline; the remedies are those of the first guide."""
    site = sample("run_2")
    site.open("#/0/pipeline?view=processing")
    card_with(site, "Selected operation", "ImageFolderOp_3")
    assert site.count(".operation-graph .operation") == 4
    assert site.count(".operation-graph .queue") == 4
    assert site.text(".operation-graph .held") or site.count(".operation-graph .held") == 1
    card_with(site, "Selected operation", "Give the data set more num_parallel_workers.")
    site.script(
        "document.querySelector('.operation-graph .queue[data-op=\"1\"]').dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    )
    chosen = card_with(site, "Selected operation", "if it is written in Python, make its script faster")
    for text in ("MapOp_1", "Between MapOp_2 (8 workers) and BatchOp_0 (4 workers)", "10 ms", "of 128"):
        assert text in chosen
    site.script(PRESS_ON, '.operation-graph .operation[data-op="0"]')
    card_with(site, "Selected operation", "Adjust prefetch_size.")
    assert "op=0" in site.driver.current_url
    assert site.console() == []


@pytest.mark.parametrize("page", ["overview", "advice", "pipeline", "pipeline?view=processing", "pipeline?view=processors"])
def test_an_operation_has_one_name_on_every_page(sample: Callable[[str], Site], page: str) -> None:
    """That of the advice, with its number: two of these operations are maps."""
    site = sample("run_2")
    site.open(f"#/0/{page}")
    site.settle()
    text = site.script("return document.querySelector('main').textContent")
    assert re.search(r"(Op|Folder|Map|Batch)(\(id=| )\d", text) is None
    if "view=" in page:
        assert "MapOp_1" in text


def test_processors_of_some_batches(sample: Callable[[str], Site]) -> None:
    """(M12)"""
    site = sample("run_2")
    site.open("#/0/pipeline?view=processors&first=1&last=1")
    figures = site.until("return document.querySelector('.figures')?.innerText", "the figures are there")
    for text in ("Logical cores\n100", "Host idle\n10 %", "Context switches"):
        assert text in figures
    means = card_with(site, "Means", "MapOp_1")
    assert "Host\tUser\t15 %\t2" in means
    assert site.count("main .chart canvas") >= 3
    site.open("#/0/pipeline?view=processors&first=2")
    site.until("return !document.querySelector('main .chart canvas')", "no sample is of a later batch")


def test_shapes_from_step_to_step(sample: Callable[[str], Site]) -> None:
    """(Y1)"""
    site = sample("profiler")
    site.open("#/0/shapes?rank=0&name=add-op6")
    site.until("return document.querySelectorAll('main .chart canvas').length === 2", "both charts are there")
    assert "Types: 3 of 3" in site.text("main .drop summary")
    assert "9 of 9 runs" in site.text("main")
    site.script("document.querySelector('main .drop').open = true; document.querySelector('.type-boxes input').click()")
    site.until("return /types=/.test(location.hash) && document.body.dataset.ready === location.hash", "a type is left out")
    assert "Types: 2 of 3" in site.text("main .drop summary")
    site.open("#/0/shapes?rank=0&level=kernel")
    site.until("return document.querySelectorAll('main .chart canvas').length === 2", "kernels have charts too")
    assert site.console() == []


def test_arithmetic_of_the_modules(site: Site) -> None:
    site.open("#/0/operators?rank=0")
    card_with(site, "FLOPs by module", "per step, from the operators' shapes")
    site.script(CHOOSE, "Chart type", "sankey")
    site.until("return location.hash.includes('flops=sankey')", "the address keeps the kind")
    assert site.count("main .chart canvas") >= 2
    site.open("#/0/operators?rank=0&of=aten%3A%3Aaddmm")
    site.until("return document.querySelectorAll('.grid-table tbody td.number').length > 20", "the calls are there")
    assert "Calls: aten::addmm" in site.text("main")
    assert site.console() == []


def test_types_lead_to_tasks_and_what_is_known_of_them(sample: Callable[[str], Site]) -> None:
    """(O1) nine products of matrices on the AI Cores."""
    site = sample("run_2")
    site.open("#/0/kernels?by=core&core=AI_CORE&of=MatMul")
    tasks = card_with(site, "Calls: MatMul", "9 of")
    assert "Default/network-TrainOneStepCell" in tasks
    assert "AI_CPU" not in card_with(site, "All kernels", "MatMul")
    site.open("#/0/kernels?more=core_operators")
    site.until(
        "return [...document.querySelectorAll('.grid-table')].some(one => one.innerText.includes('AssignAdd-op142'))",
        "the operators are there",
    )
    site.script(
        "[...document.querySelectorAll('.grid-table tbody tr')].find(one => one.innerText.includes('AssignAdd-op142')).click()"
    )
    info = site.until("return document.querySelector('dialog .tree')?.innerText", "the dialog shows the operator's description")
    assert "input_0:" in info and "data_type: NUMBER_TYPE_UINT8" in info


def test_memory_marks_and_what_is_alive(site: Site, run_of_two_ranks: Path) -> None:
    peak = steplens.open(run_of_two_ranks).memory()["peak_allocated"].max()
    site.open("#/0/memory?rank=0")
    site.until(
        "return /At .*allocations/.test(document.querySelector('main h3')?.innerText ?? '')", "what is alive at the peak is told"
    )
    assert f"{peak / 2**20:.4g} MiB" in site.text(".figures")
    assert "Allocations" in site.text(".figures") and "Releases" in site.text(".figures")
    before = site.driver.current_url
    assert "at=" in before
    assert site.console() == []


def test_a_chart_fills_the_screen(site: Site) -> None:
    site.open("#/0/steps?rank=0")
    site.until("return document.querySelector('main .chart canvas') !== null", "a chart is there")
    if not site.script("return document.fullscreenEnabled"):
        pytest.skip("this browser has no full screen")
    from selenium.webdriver.common.by import By

    site.settle()
    site.driver.find_element(By.CSS_SELECTOR, "main .full-screen").click()
    site.until("return document.fullscreenElement !== null", "the chart fills the screen")
    site.until("return document.querySelector(':fullscreen canvas').clientHeight > 400", "and is drawn again")
    site.script("return document.exitFullscreen()")
    site.until("return document.fullscreenElement === null", "it is taken back")


def test_the_menu_counts_the_advice_and_is_the_same_beside_every_page(site: Site) -> None:
    menus = set()
    for page in ("overview", "steps", "tables"):
        site.open(f"#/0/{page}")
        site.until("return document.querySelector('.menu .count:not([hidden])')?.innerText", "the number of findings is there")
        menus.add(site.script(MENU_LINES))
    assert len(menus) == 1 and all(height < 34 for height in json.loads(menus.pop()))
    assert int(site.text(".menu .count")) == len(site.script(scripts.ASK, "advice")["findings"])


TRAIN = """
import sys, time
import torch
from steplens import dynamic_profile as dp

dp.init(sys.argv[1])
layer = torch.nn.Linear(8, 8)
ends = time.monotonic() + 300
while time.monotonic() < ends:
    layer(torch.randn(4, 8)).sum().backward()
    time.sleep(0.01)
    dp.step()
"""


@pytest.fixture
def training(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """A folder that a running training watches, and nothing recorded in it yet."""
    monkeypatch.setenv(job_folder.DIRECTORY_VARIABLE, str(tmp_path / "state"))
    run, script = tmp_path / "run", tmp_path / "train.py"
    run.mkdir()
    script.write_text(TRAIN)
    running = subprocess.Popen([sys.executable, str(script), str(run)], cwd=tmp_path)
    yield run
    running.kill()
    running.wait()
    shutil.rmtree(run, ignore_errors=True)


def test_the_first_capture_of_a_training_is_asked_for_and_arrives(
    browse: Callable[[Sequence[Path]], Site], training: Path
) -> None:
    site = browse([training])
    site.script("location.hash = '#/0/live'")
    site.until("const form = document.querySelector('.capture-form'); return form && !form.hidden", "the training can be asked")
    assert site.count("main .problem") == 1, "nothing is recorded yet, and the page says so"
    site.script("document.querySelector('.capture-form button').click()")
    site.until("return /Asked for: request [0-9a-f]+/.test(document.querySelector('main').innerText)", "it is asked")
    # it is read by itself once it has been analysed
    site.until(
        "const text = document.querySelector('main').innerText;"
        "return !document.querySelector('main .problem') && /recorded and analysed/.test(text)",
        "it arrives",
    )
    site.until("return document.querySelector('main .chart canvas') !== null", "its steps are shown")
    assert "Steps\n3" in site.text("main")


def test_the_parts_of_a_step_add_up(browse: Callable[[Sequence[Path]], Site]) -> None:
    """A GPU that runs behind the host: the shares of the host's phases and of the device's parts are a whole step each."""
    shown = browse([shared("kineto", "cuda_ns_resolution_rank0.json.gz")])
    shown.until(scripts.READY, "the run is open")
    legends = "return [...document.querySelectorAll('main .scale-legend')].map(one => one.innerText)"
    shown.open("#/0/overview")
    of_page = {"overview": shown.until(legends, "the bars are told")}
    shown.open("#/0/steps")
    of_page["steps"] = card_with(shown, "Mean of steps 103", "On the device").split("On the device")
    for page, bars in of_page.items():
        shown.open(f"#/0/{page}")
        assert len(bars) == 2
        for told in bars:
            parts = [float(share) for share in re.findall(r"\(([0-9.]+)\s?%\)", told)]
            assert len(parts) > 2 and sum(parts) == pytest.approx(100, abs=0.3)
        shown.until("return /median of steps 103.105/i.test(document.querySelector('main').innerText)", "which steps")
    assert "Ranks" not in shown.text("nav[aria-label]").split("\n"), "a single process has no pages about ranks"
