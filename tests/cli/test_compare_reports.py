"""``steplens compare --junit`` and ``--markdown``: known programs, bad input, and names that are hostile."""

from __future__ import annotations

from typing import Any
from xml.etree import ElementTree

import pytest

from steplens.cli.text.bars import DEVICE, PHASES
from steplens.comparison.reports.sentences import PART_LABELS

from .test_compare import program

# an old version of rich, which has it, does without
MarkdownIt = pytest.importorskip("markdown_it").MarkdownIt

MARKDOWN = MarkdownIt("commonmark").enable("table")
HOSTILE = "mm|`@user`<img src=x>\u0001]]>\ufffe&*x* #1"


@pytest.fixture
def versions(cli: Any) -> Any:
    cli.trace("before.json", program(4000))
    cli.trace("after.json", program(5000))
    cli.trace("same.json", program(4001, first_us=1007))
    return cli


def read_suites(text: str) -> list[ElementTree.Element]:
    root = ElementTree.fromstring(text)
    assert root.tag == "testsuites"
    for element in (root, *root):
        tests = element.findall(".//testcase")
        assert element.get("tests") == str(len(tests))
        counts = {"failures": "failure", "errors": "error", "skipped": "skipped"}
        for attribute, tag in counts.items():
            assert element.get(attribute) == str(sum(test.find(tag) is not None for test in tests)), attribute
    return list(root)


def outcomes(suite: ElementTree.Element) -> dict[str, str]:
    """Test -> its element: failure, error, skipped, or system-out of one that passed."""
    return {str(test.get("name")): test[0].tag for test in suite.findall("testcase")}


def test_a_test_for_each_limit(versions: Any) -> None:
    limits = ["--fail-on", "step>2%", "--fail-on", "forward>30%", "--fail-on", "memory_peak>1%"]
    text = versions.run("compare", "before.json", "after.json", *limits, "--junit", "junit.xml", expect=1).stdout
    assert "10.0 % slower" in text and "limit step>2%: exceeded" in text
    [suite] = read_suites((versions.folder / "junit.xml").read_text("utf-8"))
    assert outcomes(suite) == {"step>2%": "failure", "forward>30%": "system-out", "memory_peak>1%": "skipped"}
    failure = suite.find("testcase/failure")
    assert failure is not None and str(failure.get("message")).startswith("exceeded: +10.0 %, +7.")
    assert "A step is 10.0 % slower" in str(failure.text)
    skipped = suite.find("testcase/skipped")
    assert skipped is not None and skipped.get("message") == "cannot tell: it was not recorded on either side"


def test_without_limits_the_step_is_the_test(versions: Any) -> None:
    text = versions.run("compare", "before.json", "same.json", "after.json", "--junit", "-").stdout
    same, after = read_suites(text)
    assert outcomes(same) == {"step same.json": "system-out"} and outcomes(after) == {"step after.json": "system-out"}
    assert "A step is as long as before" in str(same.findtext("testcase/system-out"))
    assert "A step is 10.0 % slower" in str(after.findtext("testcase/system-out"))


def test_bad_input_is_an_error_in_every_report(versions: Any) -> None:
    versions.trace("one.json", program(4000, 1))
    reports = ["--junit", "junit.xml", "--markdown", "report.md"]
    versions.run("compare", "one.json", "after.json", "--fail-on", "step>2%", *reports, expect=2)
    [suite] = read_suites((versions.folder / "junit.xml").read_text("utf-8"))
    assert outcomes(suite) == {"step>2%": "skipped", "recordings": "error"}
    assert "one.json: has one step" in str(suite.findtext("testcase/error"))
    text = (versions.folder / "report.md").read_text("utf-8")
    assert "> [!CAUTION]\n> one.json: has one step" in text and "| forward | 4.10 ms | 5.10 ms |" in text
    for arguments, problem in (
        (["missing.json"], "missing.json: does not exist"),
        (["after.json", "--fail-on", "stp>2%"], "did you mean step?"),
        (["after.json", "--fail-on", "operators.mm>5%"], "neither side has an operator"),
    ):
        versions.run("compare", "before.json", *arguments, *reports, expect=2)
        [suite] = read_suites((versions.folder / "junit.xml").read_text("utf-8"))
        assert outcomes(suite) == {"comparison": "error"} and problem in str(suite.findtext("testcase/error"))
        assert "**Nothing was compared.**" in (versions.folder / "report.md").read_text("utf-8")


def test_markdown_has_the_verdict_first_and_then_where(versions: Any) -> None:
    done = versions.run("compare", "before.json", "after.json", "--fail-on", "step>2%", "--markdown", "-", expect=1)
    lines = done.stdout.splitlines()
    assert lines[0] == "### `before.json` → `after.json`"
    assert lines[2].startswith("**Of 1 limit 1 is exceeded.** **A step is 10.0 % slower; the interval of 95 % is +7.")
    assert "| `step>2%` | **exceeded** | +10.0 % | +7." in done.stdout
    assert "| forward | 4.10 ms | 5.10 ms | +1.00 ms | 100 % |  |" in done.stdout
    assert "| What explains the change of a step, time of the host; those beyond chance make up 1" in done.stdout
    [cause] = [line for line in lines if "aten::mm" in line and "100 % |" in line]
    assert "+1.00 ms" in cause and "aten::mm" in cause.split("|")[1]
    assert "| `aten::mm` | 4.00 ms | 5.00 ms | +1.00 ms | +25.0 % | 1 call |  |" in done.stdout
    assert "next:" not in done.stdout and not done.stderr
    # the names of parts are those of the terminal's other pages
    labels = {segment.column: segment.label for segment in (*PHASES, *DEVICE)} | {"backward_ns": "backward"}
    assert {part: labels[part] for part in PART_LABELS} == PART_LABELS


def test_names_of_a_trace_format_nothing(versions: Any) -> None:
    for side, length in (("old", 4000), ("new", 5000)):
        events = [{**item, "name": item["name"].replace("aten::mm", HOSTILE)} for item in program(length)]
        versions.trace(f"{side}.json", events, torch_version=f"{side} @user <b>|")
    limit = f"operators.{HOSTILE}>5%"
    reports = ["--junit", "junit.xml", "--markdown", "report.md"]
    versions.run("compare", "old.json", "new.json", "--fail-on", limit, *reports, expect=1)
    [suite] = read_suites((versions.folder / "junit.xml").read_text("utf-8"))
    assert outcomes(suite) == {limit.replace("\u0001", "\ufffd").replace("\ufffe", "\ufffd"): "failure"}
    text = (versions.folder / "report.md").read_text("utf-8")
    shown = MARKDOWN.render(text)
    assert "<img" not in shown and "<b>" not in shown and "@user" not in shown.replace("&#64;", "@").replace("&#8203;", "")
    assert shown.count("<table>") == 4 and "PyTorch differ" in shown
    for table in shown.split("<table>")[1:]:
        columns = table.count("<th") - table.count("<thead")
        assert all(row.count("<td") == columns for row in table.split("<tr>")[2:])


def test_markdown_fits_into_a_comment(versions: Any) -> None:
    for side, length in (("old", 4000), ("new", 5000), ("newer", 5500)):
        events = program(length, steps=4)
        for number in range(90):
            for step in range(4):
                begin = 1000 + step * (6000 + length) + 110 + number * 20
                events.append({**events[1], "name": "|*" * 45 + str(number), "ts": begin, "dur": length / 400})
        versions.trace(f"{side}.json", events)
    done = versions.run("compare", "old.json", "new.json", "newer.json", "--top", "1000", "--markdown", "-")
    assert 10_000 < len(done.stdout.encode()) <= 60_000
    assert done.stdout.count("### ") == 2 and done.stdout.count("| forward |") == 2
    assert done.stdout.endswith("`steplens compare --json` has everything.*\n")


def test_reports_go_where_they_can(versions: Any) -> None:
    compare = ("compare", "before.json", "after.json")
    assert "only one of --json, --junit and --markdown can go to stdout" in versions.refused(*compare, "--junit", "-", "--json")
    assert "name the same file" in versions.refused(*compare, "--junit", "one", "--markdown", "one")
    assert "lies in a folder that does not exist" in versions.refused(*compare, "--junit", "nosuch/junit.xml")
    (versions.folder / "folder").mkdir()
    assert "is a folder" in versions.refused(*compare, "--markdown", "folder")
    # one document on stdout, the other in a file
    document = versions.json(*compare, "--markdown", "report.md")
    assert document["comparisons"] and (versions.folder / "report.md").exists()
