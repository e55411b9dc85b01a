"""Every page of twelve captures, three widths, both languages, both colours: nothing empty, cut, impossible or out of reach."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path

import pytest

from ..shared_data import shared
from . import scripts
from .conftest import Site
from .labels import repeated_events
from .walk import CAPTURES, LANGUAGES, WIDTHS, walk_pages

# an hour of a processor
pytestmark = pytest.mark.long


@pytest.mark.parametrize("capture", CAPTURES)
def test_every_page_of_a_capture_is_whole(browse: Callable[[Sequence[Path]], Site], axe: str, capture: str) -> None:
    site = browse([shared(*capture.split("/"))])
    site.until(scripts.READY, "the run is open")
    try:
        assert list(walk_pages(site, axe, WIDTHS, LANGUAGES)) == []
        assert list(repeated_events(shared(*capture.split("/")))) == []
    finally:
        site.driver.set_window_size(1280, 900)
        site.script("localStorage.clear()")
