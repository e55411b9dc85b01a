"""The pages of several ranks in a browser: a recorded job of four ranks, MindSpore's samples, and a parallel strategy."""

from __future__ import annotations

import json
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from urllib.parse import quote

import polars as pl
import pytest

import steplens
from steplens.analysis.cluster.joined_operators import rank_steps
from steplens.analysis.steps.summary import usual_device_steps
from steplens.run import Run

from ..shared_data import shared
from . import scripts
from .conftest import Site
from .strategy_files import HOSTILE, LAYERS, write_strategy

pytestmark = pytest.mark.slow

RANKS = 4
RECORDED, PROPOSE, STRATEGY = range(3)


@pytest.fixture(scope="module")
def recorded(job: Path) -> Run:
    return steplens.open(job)


@pytest.fixture(scope="module")
def strategy(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_strategy(tmp_path_factory.mktemp("parallel") / "strategy")


@pytest.fixture
def pages(look: Callable[[Sequence[Path]], Site], job: Path, strategy: Path) -> Iterator[Site]:
    propose = shared("mindspore", "cluster_propose")
    site = look([job, propose, strategy])
    site.until(scripts.READY, "the first run is open")
    site.until(scripts.ALL_OPEN, "all runs are open")
    yield site
    assert site.console() == []
    assert site.foreign() == []


def cells(site: Site, caption: str) -> list[list[str]]:
    """Texts of the rows of the table with a caption."""
    code = """
    const tables = [...document.querySelectorAll('main .scroll > table, dialog .scroll > table')];
    const table = tables.find(one => one.caption?.textContent === arguments[0]);
    return [...(table?.tBodies[0].rows ?? [])].map(row => [...row.cells].map(cell => cell.innerText.trim()))"""
    found: list[list[str]] = site.script(code, caption)
    return found


def choose(site: Site, label: str, value: str) -> None:
    """Pick from the list with a label."""
    code = """
    const places = [...document.querySelectorAll('main .choice')];
    const list = places.find(one => one.querySelector('span').innerText === arguments[0]).querySelector('select');
    list.value = arguments[1];
    list.dispatchEvent(new Event('change'))"""
    site.script(code, label, value)


def ms(text: str) -> float:
    number, unit = text.split()
    return float(number.replace(",", "")) * {"ns": 1e-6, "µs": 1e-3, "ms": 1, "s": 1e3}[unit]


def test_ranks_by_parallel_mode_sorted_and_by_stage(pages: Site) -> None:
    pages.open(f"#/{PROPOSE}/ranks")
    rows = cells(pages, "Parts of a step by parallel mode")
    assert [row[0] for row in rows] == ["Rank 0", "Rank 1", "Rank 2", "Rank 3"]
    assert [row[1] for row in rows] == ["1", "1", "2", "2"]
    assert [ms(row[2]) for row in rows] == [1.572, 1.559, 2.432, 2.395]
    figures = pages.text(".figures")
    assert "Pipeline parallel" in figures and "25.8 %" in figures and "60.3 %" in figures and "23.4 %" in figures
    pages.script("document.querySelector('[data-sort=interval_ns]').click()")
    pages.until("return document.querySelector('th[aria-sort=descending] [data-sort=interval_ns]') !== null", "it is sorted")
    assert [row[0] for row in cells(pages, "Parts of a step by parallel mode")] == ["Rank 2", "Rank 3", "Rank 0", "Rank 1"]
    choose(pages, "Stage", "2")
    pages.until("return /stage=2/.test(location.hash)", "the address has the stage")
    pages.until("return document.body.dataset.ready === location.hash", "it is shown")
    assert {row[1] for row in cells(pages, "Parts of a step by parallel mode")} == {"2"}
    link = pages.script(
        "return [...document.querySelectorAll('main tbody a')].find(one => one.innerText === 'Details').getAttribute('href')"
    )
    assert link == f"#/{PROPOSE}/steps?rank=2"


def test_the_late_rank_is_named_with_its_proof(pages: Site, recorded: Run) -> None:
    for page in ("ranks", "communication"):
        pages.open(f"#/{RECORDED}/{page}")
        assert f"Rank {RANKS - 1} holds up the others." in pages.text(".callout")
    proof = pages.script("return document.querySelector('.callout a').getAttribute('href')")
    pages.open(proof)
    pages.until("return document.querySelectorAll('.grid-table tbody td.number').length > 10", "every arrival is there")
    total = int(re.sub(r"\D", "", pages.text(".table-foot").splitlines()[0]))
    assert total == recorded.arrivals().height


def test_heat_maps_colour_each_rank_and_lead_to_it(pages: Site) -> None:
    pages.open(f"#/{PROPOSE}/ranks?heat=flops")
    code = "return [...document.querySelectorAll('.heat-square')].map(one => Number(one.dataset.class))"
    assert pages.script(code) == [0.3, 0.3, 0.9, 0.9]
    assert "107.1 GFLOP" in pages.text(".heat-ranks") and "32.5 %" in pages.text(".heat-ranks")
    choose(pages, "Granularity", "0.05")
    assert pages.script(code) == [0.3, 0.3, 0.95, 0.95]
    choose(pages, "Granularity", "0.02")
    assert pages.script(code) == [0.32, 0.32, 0.98, 0.98]
    pages.until("return location.hash.includes('granularity=0.02')", "the address keeps the granularity")
    choose(pages, "Metric", "step_time")
    assert pages.count(".heat-square") == 4
    pages.open(f"#/{RECORDED}/ranks?heat=memory_peak")
    links = pages.script("return [...document.querySelectorAll('.heat-ranks a')].map(one => one.getAttribute('href'))")
    assert links == [f"#/{RECORDED}/memory?rank={trace}" for trace in range(RANKS)]


def test_links_as_graph_matrix_and_table(pages: Site) -> None:
    pages.open(f"#/{PROPOSE}/communication")
    assert pages.count(".link-graph .link-line") == 4 and pages.count(".link-graph .link-rank") == 4
    widths = dict(pages.script(WIDTHS))
    assert max(widths, key=widths.get) == "2-3" and min(widths, key=widths.get) == "0-1"
    costs = cells(pages, "Communication of each rank")
    assert [ms(row[3]) for row in costs] == [2.269, 2.281, 4.779, 4.787]
    for row in costs:
        assert ms(row[1]) == pytest.approx(ms(row[2]) + ms(row[3]), rel=1e-3)
    assert pages.count(".matrix-cell") == 8
    choose(pages, "Colour by", "bytes_per_s")
    values = pages.script("return [...document.querySelectorAll('.matrix-cell')].map(one => Number(one.dataset.value))")
    assert [round(value / 1e3) for value in values][1:3] == [5_055_173, 20_934_047]
    pages.script("document.querySelector('[data-link=\"1-0\"]').dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    pages.until("return /source=1/.test(location.hash) && document.body.dataset.ready === location.hash", "the link is picked")
    rows = cells(pages, "All links")
    assert [row[:3] for row in rows] == [["Rank 1", "Rank 0", "SDMA"]]
    choose(pages, "Step", "3")
    pages.until("return /step=3/.test(location.hash) && document.body.dataset.ready === location.hash", "the step is shown")
    assert [row[0] for row in cells(pages, "Communication of each rank")] == ["Rank 0", "Rank 1"]
    assert "No data of this step on ranks 2, 3." in pages.text("main")


def test_details_of_a_rank_by_operation_and_link(pages: Site) -> None:
    pages.open(f"#/{PROPOSE}/communication?step=1")
    pages.script("document.querySelector('[data-operations=\"0\"]').click()")
    pages.until("return document.querySelector('dialog tbody tr') !== null", "the operations are there")
    rows = cells(pages, "Operations")
    assert len(rows) == 97
    assert sum(ms(row[2]) for row in rows) == pytest.approx(2.60018, rel=1e-3)
    pages.script("document.querySelector('dialog tbody button').click()")
    pages.until("return document.querySelectorAll('dialog table').length === 2", "the links of an operation are there")
    assert cells(pages, "Links")[0][:3] == ["1", "0", "SDMA"]
    pages.script("document.querySelector('dialog header button').click()")
    pages.until("return document.querySelector('dialog') === null", "the dialog is closed")
    pages.script("document.querySelector('[data-links=\"3\"]').click()")
    pages.until("return document.querySelector('dialog tbody tr') !== null", "the links are there")
    assert {tuple(row[:2]) for row in cells(pages, "Links")} == {("2", "3"), ("3", "2"), ("3", "3")}


def test_waits_are_links_where_no_link_was_measured(pages: Site) -> None:
    pages.open(f"#/{RECORDED}/communication")
    assert "Who waits for whom" in pages.text("main")
    lines = pages.script(WIDTHS)
    longest = [link for link, width in sorted(lines, key=lambda line: -line[1])[: RANKS - 1]]
    assert {link.split("-")[1] for link in longest} == {str(RANKS - 1)}


#: how many operators the page says there are in its window
MATCHING = r"return Number(/(?:of|All) ([\d,]+) operators/.exec(document.querySelector('main').innerText)[1].replaceAll(',', ''))"


def test_operators_across_ranks(pages: Site, recorded: Run) -> None:
    pages.open(f"#/{RECORDED}/marey")
    steps = rank_steps(recorded.traces)
    assert pages.count(".steps-overview .marey-step") == steps.height
    step = steps["step"].unique().sort().to_list()[2]
    pages.script(
        f"document.querySelector('.marey-step[data-step=\"{step}\"]').dispatchEvent(new MouseEvent('click', {{bubbles: true}}))"
    )
    pages.until(
        f"return /step={step}/.test(location.hash) && document.body.dataset.ready === location.hash", "the step is chosen"
    )
    assert pages.count(".marey-step.chosen") == RANKS
    whole = pages.script(drawn := "return document.querySelectorAll('svg.marey:not(.steps-overview) .marey-operator').length")
    assert whole > 10
    ranks = pages.script("return document.querySelectorAll('[data-operator=\"0:allreduce\"] rect').length")
    assert ranks == RANKS
    pages.script(
        "document.querySelector('[data-operator=\"0:allreduce\"]').dispatchEvent(new MouseEvent('click', {bubbles: true}))"
    )
    rows = pages.until(OPERATOR_ROWS, "the operator is told")
    own = recorded.communication_operations().filter((pl.col("step") == step) & (pl.col("number") == 0))
    lengths = dict(own.select("rank", "duration_ns").iter_rows())
    assert {int(row[0].split()[1]): pytest.approx(ms(row[2]), rel=1e-3) for row in rows} == {
        rank: ns / 1e6 for rank, ns in lengths.items()
    }
    choose(pages, "Overlay", "memory")
    assert pages.count(".marey-load") > RANKS
    choose(pages, "Overlay", "flops")
    assert pages.count(".marey-load") > 0
    matching = pages.script(MATCHING)
    pages.script(BRUSH)
    pages.until("return /start=\\d+/.test(location.hash) && /end=\\d+/.test(location.hash)", "a window is chosen")
    pages.until(f"{MATCHING} < {matching}", "only its operators are there")
    pages.until(WHOLE, "it is whole again")
    pages.until(f"{MATCHING} === {matching}", "all operators are there again")
    pages.until(f"return ({drawn.removeprefix('return ')}) === {whole}", "everything is drawn again")


WIDTHS = """
return [...document.querySelectorAll('.link-line')].map(one => [one.dataset.link, Number(one.getAttribute('stroke-width'))])"""
OPERATOR_ROWS = """
const rows = document.querySelectorAll('[role=status] tbody tr');
return [...rows].map(row => [...row.cells].map(cell => cell.innerText))"""
WHOLE = """
if (!/start=/.test(location.hash)) return true;
[...document.querySelectorAll('main button')].find(one => one.innerText === 'Whole step').click()"""
SEARCH = """
const form = document.querySelector('.strategy-search');
form.querySelector('input').value = arguments[0];
form.requestSubmit()"""
BRUSH = """
const diagram = document.querySelector('svg.marey:not(.steps-overview)');
const box = diagram.getBoundingClientRect();
const at = (type, share) => diagram.dispatchEvent(
  new PointerEvent(type, {clientX: box.left + box.width * share, clientY: box.top + 40, bubbles: true}));
at('pointerdown', 0.15);
at('pointermove', 0.18);
at('pointerup', 0.2)"""


def nodes(site: Site) -> list[str]:
    found: list[str] = site.script("return [...document.querySelectorAll('.strategy-node')].map(one => one.dataset.node)")
    return found


def test_a_strategy_opens_closes_and_is_searched(pages: Site) -> None:
    pages.open(f"#/{STRATEGY}/ranks")
    assert pages.script(
        "return [...document.querySelectorAll('main a')].some(one => one.getAttribute('href').endsWith('/strategy'))"
    )
    menu = "return [...document.querySelectorAll('.menu a')].map(one => one.getAttribute('href'))"
    assert f"#/{STRATEGY}/strategy" in pages.script(menu)
    pages.open(f"#/{STRATEGY}/strategy")
    assert nodes(pages) == ["Default", "Gradients"]
    assert pages.count(".stage-box") == 2
    boxes = pages.text(".stages")
    assert "17 operators, 9 with a strategy" in boxes and f"{LAYERS} redistributions, {LAYERS} gradient aggregations" in boxes
    assert cells(pages, "What stages send to each other") == [["1 → 2", "0", "Default/Send-op90", "Default/Receive-op1"]]
    pages.script("document.querySelector('[data-node=Default]').dispatchEvent(new MouseEvent('click', {bubbles: true}))")
    pages.until("return document.querySelector('[data-node=\"#1\"]') !== null", "the scope is open")
    assert set(nodes(pages)) == {"#1", "Default/network", "#90", "Gradients"}
    pages.script("document.querySelector('[data-close=Default]').click()")
    pages.until("return document.querySelector('[data-node=Default]') !== null", "the scope is closed")
    pages.script(SEARCH, "matmul")
    pages.until(f"return document.querySelectorAll('.strategy-hits a').length === {LAYERS}", "operators are found")
    pages.script("document.querySelector('.strategy-hits a').click()")
    pages.until("return document.querySelector('.strategy-node.chosen[data-node=\"#10\"]') !== null", "the operator is shown")
    assert pages.text(".strategy-panel h3") == "Default/network/layer0/MatMul-op10"
    assert cells(pages, "Strategy: parts per dimension") == [["0", "2", "1"], ["1", "1", "1"]]
    assert "group0, group1" in pages.text(".strategy-panel")
    assert pages.count(".strategy-node.redistribution") == 1
    assert "2×1 | 1×1" in pages.script("return document.querySelector('.strategy-graph').textContent")
    keys = (
        "document.querySelector('[data-node=\"#12\"]').dispatchEvent(new KeyboardEvent('keydown', {key: 'Enter', bubbles: true}))"
    )
    pages.script(keys)
    pages.until("return document.querySelector('.strategy-node.chosen[data-node=\"#12\"]') !== null", "Enter picks too")


def test_names_of_a_strategy_are_text(pages: Site) -> None:
    pages.open(f"#/{STRATEGY}/strategy?stage=2&node=90&open={quote(json.dumps(['Default']))}")
    assert HOSTILE in pages.text(".strategy-panel")
    assert pages.count("main img") == 0
    assert "owned" not in pages.driver.title


def test_two_runs_lead_to_their_own_pages(pages: Site) -> None:
    pages.open(f"#/{RECORDED}/compare?before={RECORDED}&after={PROPOSE}")
    assert "4 ranks" in pages.text("main .figures")
    assert cells(pages, "Operators with the largest change")
    links: list[str] = pages.script("return [...document.querySelectorAll('main .card a')].map(one => one.getAttribute('href'))")
    assert any(link.startswith(f"#/{RECORDED}/timeline?") and "find=" in link for link in links)
    assert f"#/{PROPOSE}/steps" in links
    # a side of which nothing but its strategy is there
    pages.open(f"#/{RECORDED}/compare?before={RECORDED}&after={STRATEGY}")
    assert "too few steps" in pages.text("main .verdict")
    pages.script("[...document.querySelectorAll('main button')].find(one => one.innerText === 'Swap').click()")
    pages.until(f"return location.hash.includes('before={STRATEGY}')", "they are swapped")


def test_pages_of_one_rank_say_what_is_missing(pages: Site, browse: Callable[[Sequence[Path]], Site]) -> None:
    # (run, page, what is missing of it, the option that records it)
    for run, page, part, option in (
        (PROPOSE, "strategy", "Parallel strategy", "parallel_strategy=True"),
        (STRATEGY, "marey", "Steps", "profiler.step()"),
        (STRATEGY, "communication", "Communication", "ProfilerLevel.Level1"),
    ):
        pages.open(f"#/{run}/{page}")
        ((name, *options),) = cells(pages, "This was not recorded")
        assert name == part and options[-1].endswith(option)
        assert pages.count(f".menu a[href$='/{page}']") == 0
        assert pages.count("main .card") == 1
    # which all stands on one page
    pages.open(f"#/{STRATEGY}/health")
    assert {"Steps", "Communication", "Memory"} < {row[0] for row in cells(pages, "What was not recorded")}


def test_pages_of_several_runs_and_of_a_strategy_break_no_rule(pages: Site, axe: str) -> None:
    pages.driver.execute_script(axe)
    found: list[str] = []
    for address in (f"#/{PROPOSE}/compare?before={RECORDED}", f"#/{STRATEGY}/strategy", f"#/{PROPOSE}/ranks?seen=1"):
        pages.open(address)
        pages.settle()
        for colours in ("light", "dark"):
            pages.theme(colours)
            found += [f"{address}, {colours}: {one}" for one in pages.driver.execute_async_script(scripts.AXE, None, None)]
    pages.theme("light")
    assert found == []


@pytest.fixture
def ascend(look: Callable[[Sequence[Path]], Site]) -> Site:
    """Two of eight ranks on an Ascend device, as the communication library measured them."""
    site = look([shared("ascend_pytorch", "text_level1")])
    site.until(scripts.ALL_OPEN, "the ranks are open")
    return site


def test_what_to_change_is_said_to_its_end_and_with_its_code(ascend: Site) -> None:
    ascend.open("#/0/overview")
    cut = """
    const isCut = one => one.clientHeight && one.scrollHeight > one.clientHeight + 1;
    return [...document.querySelectorAll('.change > *')].filter(isCut).map(one => one.innerText)"""
    assert ascend.count(".changes > .change") == 3
    assert ascend.script(cut) == []
    assert "`" not in ascend.text("main")
    assert ascend.text(".changes code") == "if rank == 0"
    remedies = ascend.script("return [...document.querySelectorAll('.change > .note')].map(one => one.innerText)")
    ascend.open("#/0/advice")
    assert "`" not in ascend.script("return document.querySelector('main').textContent")
    whole = ascend.script("return [...document.querySelectorAll('.finding-card')].map(one => one.textContent)")
    assert all(any(remedy in one for one in whole) for remedy in remedies)


HEADS = """
const tables = [...document.querySelectorAll('main table')];
return tables.map(one => [...one.querySelectorAll('thead th')].map(head => head.innerText.trim())).filter(one => one.length)"""
#: what the communication of a rank consists of, and the start of a collective
NAMES = {
    "en": ("Wait", "Transfer", "In flight, cause unknown", "Start in own step"),
    "zh": ("等待", "传输", "进行中，原因未知", "自身迭代内开始"),
}


@pytest.mark.parametrize("language", NAMES)
def test_parts_of_communication_have_one_name_in_every_table(ascend: Site, language: str) -> None:
    if language != ascend.spoken():
        ascend.language(language)
    ascend.open("#/0/communication?table=communication")
    ascend.until("return document.querySelectorAll('.grid-table tbody td.number').length > 5", "the raw table has rows")
    parts, start = NAMES[language][:3], NAMES[language][3]
    collectives, of_ranks, *_ = tables = ascend.script(HEADS)
    (raw,) = [heads for heads in tables if len(set(parts) & set(heads)) == len(parts) and heads not in (collectives, of_ranks)]
    for heads in (collectives, of_ranks, raw):
        assert [head for head in heads if head in parts] == list(parts)
    # ranks begin a step at different times: what is on one clock and what is not is said
    assert start in collectives
    notes = ascend.text(".card .note")
    assert f"{start}{':' if language == 'en' else '：'}" in notes
    assert ("on one clock" if language == "en" else "同一时钟") in notes


def test_a_link_that_takes_longer_than_its_ranks_transfer_is_explained(ascend: Site) -> None:
    ascend.open("#/0/communication")
    costs = {row[0]: ms(row[3]) for row in cells(ascend, "Communication of each rank")}
    links = cells(ascend, "All links")
    assert any(ms(row[3]) > costs[row[0]] for row in links)
    notes = ascend.script("return [...document.querySelectorAll('main .card > .note')].map(one => one.innerText)")
    assert sum("the library counts" in note for note in notes) == 2, "beside transfer, and beside the time of links"
    ascend.script("document.querySelector('[data-operations=\"0\"]').click()")
    ascend.until("return document.querySelectorAll('dialog tbody button').length === 4", "the operations are there")
    ascend.script("document.querySelector('dialog tbody button').click()")
    shown = ascend.until(
        "return document.querySelector('dialog [role=status] .note')?.innerText", "what is known of one is there"
    )
    assert shown.startswith("Which links this operation used is not known")


def test_figures_of_a_step_say_of_which_steps_they_are(pages: Site, recorded: Run) -> None:
    usual = {tuple(usual_device_steps(trace)["step"]) for trace in recorded.traces}
    # a step that stands out on one rank may not on another
    mean = f"mean of steps {next(iter(usual))[0]}" if len(usual) == 1 else "mean of the steps of each rank"
    pages.open(f"#/{RECORDED}/communication")
    notes = pages.script("return [...document.querySelectorAll('main .card > .note')].map(one => one.innerText)")
    # wait and transfer, communication of each rank, who waits for whom as a picture and as a table
    assert sum(mean in note for note in notes) == 4, notes
    pages.open(f"#/{RECORDED}/overview")
    text = pages.text("main")
    assert len(re.findall(r"exposed [\d.]+ \S+ \(mean\)", text)) == RANKS
    assert re.search(r"Savings per step, of [\d.,]+ \S+ \(median\)", text)
    pages.open(f"#/{PROPOSE}/communication")
    assert pages.text("main").count("Mean over all steps that the library measured") == 3
