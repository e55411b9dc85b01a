"""Names from traces in GitHub's Markdown: whatever they are, they are text, in one cell of a table."""

from __future__ import annotations

import html.parser
import re

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from steplens.common.display import clean
from steplens.comparison.reports.escaping import code_span, plain_text

# an old version of rich, which has it, does without
MarkdownIt = pytest.importorskip("markdown_it").MarkdownIt

#: what a name may be made of to be more than a name
PIECES = (
    *"\\`*_[]{}()<>#+-=!|~&@$:./\"' \t\n\r\x00\x1b\u2028\u202e\ufffe0aé", "www.", "://", "http", "gh-", "-->",
    "&#42;", "<b>", "``", "\\|",
)  # fmt: skip
MARKDOWN = MarkdownIt("commonmark").enable(["table", "strikethrough"])

HOSTILE = (
    "a|b", "a\\|b", "a\\", "`", "``x`", "`|`", "<img src=x onerror=alert(1)>", "</code></td></tr></table>", "<!-- x",
    "@torvalds", "#1",
    "![x](http://evil/x.png)", "[x](javascript:alert(1))", "*b* _i_ ~~s~~", "a\n\n# heading", "a\u2028b", "$x$", "&lt;b&gt;", "",
    " ",
    "www.evil.org", "https://evil.org/x", "a@b.org", "org/repo#12", "GH-12", "1. x", "- x", "> x", "x" * 500,
)  # fmt: skip


class Shown(html.parser.HTMLParser):
    """The text of each cell, or of all, and the elements that are in it."""

    def __init__(self, markdown: str) -> None:
        super().__init__(convert_charrefs=True)
        self.cells: list[str] = [""]
        self.elements: set[str] = set()
        self.feed(MARKDOWN.render(markdown))
        self.close()

    def handle_starttag(self, tag: str, attrs: object) -> None:
        if tag in ("td", "th"):
            self.cells.append("")
        elif tag not in ("table", "thead", "tbody", "tr", "p"):
            self.elements.add(tag)

    def handle_comment(self, data: str) -> None:
        self.elements.add("comment")

    def handle_data(self, data: str) -> None:
        self.cells[-1] += data


def check_code(name: str) -> None:
    shown = Shown(f"| a | b |\n| --- | --- |\n| {code_span(name)} | end |")
    assert len(shown.cells) == 5 and shown.cells[4].strip() == "end"
    assert shown.elements <= {"code", "span"}
    line = " ".join(clean(name).split())
    expected = line if len(line) <= 100 else f"...{line[-97:].lstrip()}"
    assert shown.cells[3].replace("\u200b", "").strip() == (expected or "(no name)")


def check_text(text: str) -> None:
    written = plain_text(text)
    for before, after in (("", ""), ("- doubtful: ", "doubtful: "), ("> ", "")):
        shown = Shown(before + written)
        assert shown.elements - {"ul", "li", "blockquote"} <= {"span"}
        decoded = "".join(shown.cells)
        line = " ".join(clean(text).split())
        expected = line if len(line) <= 400 else f"{line[:397].rstrip()}..."
        assert decoded.replace("\u200b", "").strip() == (after + expected).strip()
        # GitHub looks for these in the text that it shows
        assert not re.search(r"@\w|#\d|://|www\.|gh-\d", decoded, re.IGNORECASE)


@pytest.mark.parametrize("text", HOSTILE)
def test_a_name_is_text_in_one_cell(text: str) -> None:
    check_code(text)
    check_text(text)


@settings(max_examples=300, deadline=None)
@given(st.lists(st.sampled_from(PIECES), max_size=30).map("".join))
def test_any_name_is_text_in_one_cell(text: str) -> None:
    check_code(text)
    check_text(text)


def test_names_that_can_be_are_read_as_they_are() -> None:
    assert code_span("aten::_convolution") == "`aten::_convolution`"
    assert code_span("void at::vectorized<4, float>(int*, @x)") == "`void at::vectorized<4, float>(int*, @x)`"
    assert plain_text("PyTorch differ: 2.4 before, 2.13 after") == "PyTorch differ: 2.4 before, 2.13 after"
