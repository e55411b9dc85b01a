"""How findings read in the terminal."""

from __future__ import annotations

import io
from typing import Any

from rich.console import Console

from steplens.cli.text.health_text import show_health


def shown(*findings: dict[str, Any], width: int = 200) -> list[str]:
    out = Console(file=io.StringIO(), width=width, highlight=False, markup=False)
    show_health(out, list(findings))
    return out.file.getvalue().splitlines()  # type: ignore[attr-defined]


def finding(check: str, severity: str, message: str, count: int = 1, unsafe: str = "", source: str = "/r/a") -> dict[str, Any]:
    return {"check": check, "severity": severity, "count": count, "message": message, "unsafe": unsafe, "source": source}


def test_nothing_doubtful() -> None:
    assert shown() == ["", "Health: nothing doubtful about the data"]


def test_the_worst_comes_first() -> None:
    lines = shown(
        finding("c", "info", "a note"),
        finding("a", "warning", "a doubt", unsafe="memory"),
        finding("b", "error", "a loss", 3),
        finding("d", "warning", "5 of 9 things", 5),
    )
    assert lines == [
        "",
        "Health of the data: 1 error, 2 warnings, 1 note",
        "  error: a loss (3 times)",
        "  warning: a doubt; doubtful: memory",
        # the message says how many, so the count is not repeated
        "  warning: 5 of 9 things",
        "  info: a note",
    ]


def test_what_several_traces_share_is_said_once() -> None:
    lines = shown(
        finding("a", "warning", "3 of 10 tasks are early, by 5 us", 3, source="/r/rank0"),
        finding("a", "warning", "7 of 12 tasks are early, by 1.2 ms", 7, source="/r/rank1"),
        finding("b", "info", "alone", source="/r/rank1"),
        finding("c", "info", "the ranks differ", source="/r"),
        # another thing of the same check is another finding
        finding("a", "warning", "2 of 4 calls are early, by 5 us", 2, source="/r/rank0"),
    )
    assert lines[2:] == [
        "  warning: 7 of 12 tasks are early, by 1.2 ms, and so in 2 traces",
        "  warning: 2 of 4 calls are early, by 5 us, in rank0",
        "  info: alone, in rank1",
        "  info: the ranks differ",
    ]
    assert lines[1] == "Health of the data: 2 warnings, 2 notes"


def test_long_findings_wrap_and_hostile_ones_stay_text() -> None:
    lines = shown(finding("a", "error", "word " * 30 + "\x1b[31m[red]end"), width=40)
    assert all(len(line) <= 40 for line in lines)
    assert "\x1b" not in "".join(lines)
    assert "[red]end" in "".join(lines)
