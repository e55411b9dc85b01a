"""The built front end in one HTML file: script, styles and data inside it, and a policy that lets it load nothing."""

from __future__ import annotations

import base64
import hashlib
import html
import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from urllib.parse import quote

from steplens.common.errors import InputError
from steplens.server.http.built_pages import check_built, how_to_build

_SCRIPT = re.compile(r'<script type="module"[^>]* src="\./([^"]+)"></script>')
_STYLES = re.compile(r'<link rel="stylesheet"[^>]* href="\./([^"]+)">')
_ICON = re.compile(r'<link rel="icon" href="\./([^"]+)"([^>]*?)/?>')


@dataclass(frozen=True)
class FrontEnd:
    """The files of the build: its one script, its one file of styles, and its icon."""

    script: str
    styles: str
    icon: str


def front_end(folder: Path) -> FrontEnd:
    """Read the built front end.

    Raises:
        InputError: it is not built, or not of one script.
    """
    check_built(folder)
    page = folder / "index.html"
    text = page.read_text(encoding="utf-8")
    script, styles, icon = _SCRIPT.findall(text), _STYLES.findall(text), _ICON.findall(text)
    scripts = [file for file in folder.rglob("*.js") if file.is_file()]
    if len(script) != 1 or len(styles) != 1 or len(icon) != 1 or len(scripts) != 1:
        raise InputError(page, "is not the page of a build with one script and one file of styles", how_to_build(folder))
    read = [(folder / file).read_text(encoding="utf-8") for file in (script[0], styles[0], icon[0][0])]
    return FrontEnd(*read)


def compose_page(built: FrontEnd, title: str, language: str | None, pieces: Mapping[str, bytes]) -> bytes:
    """The file of a report.

    Args:
        built: the front end.
        title: shown until the pages have theirs.
        language: in which it opens; None leaves it to the browser.
        pieces: name -> data, compressed (zlib).
    """
    script, styles = _in_script(built.script), built.styles.replace("</", "<\\/")
    policy = "; ".join(
        (
            "default-src 'none'",
            f"script-src '{_policy_hash(script)}'",
            f"style-src '{_policy_hash(styles)}'",
            # charts place their labels with style attributes; that allows no <style> element and no stylesheet
            "style-src-attr 'unsafe-inline'",
            "img-src data:",
            "base-uri 'none'",
            "form-action 'none'",
        )
    )
    lang = f' data-language="{html.escape(language)}"' if language else ""
    head = [
        "<!doctype html>",
        f'<html lang="{html.escape(language or "en")}"{lang}>',
        "<head>",
        '<meta charset="utf-8">',
        f'<meta http-equiv="Content-Security-Policy" content="{html.escape(policy)}">',
        '<meta name="referrer" content="no-referrer">',
        '<meta name="viewport" content="width=device-width, initial-scale=1">',
        '<meta name="color-scheme" content="light dark">',
        f"<title>{html.escape(title)}</title>",
        f'<link rel="icon" type="image/svg+xml" href="data:image/svg+xml,{quote(built.icon)}">',
        f"<style>{styles}</style>",
        "</head>",
        "<body>",
        "<noscript>This page needs JavaScript. / 本页面需要 JavaScript。</noscript>",
        '<div id="app"></div>',
    ]
    # no browser runs or loads a script of a type that it does not know
    kind = "application/vnd.steplens.part"
    data = [
        f'<script type="{kind}" data-part="{html.escape(name)}">{base64.b64encode(piece).decode()}</script>'
        for name, piece in pieces.items()
    ]
    tail = [f'<script type="module">{script}</script>', "</body>", "</html>", ""]
    return "\n".join([*head, *data, *tail]).encode()


def _in_script(text: str) -> str:
    """A script without what would end its element; in its strings and patterns the escapes mean the same."""
    return re.sub(r"<(?=/script|script)", r"\\x3C", text, flags=re.IGNORECASE).replace("<!--", "\\x3C!--")


def _policy_hash(text: str) -> str:
    return f"sha256-{base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()}"
