"""What ``benchmarks/timeline.py`` measures by: a mark when the first events of a timeline are on the canvas."""

from __future__ import annotations

import pytest

from . import scripts
from .conftest import Site

pytestmark = pytest.mark.slow


def test_the_first_picture_of_a_timeline_is_marked_once(site: Site) -> None:
    site.open("#/0/timeline")
    site.until(scripts.TILES_THERE, "the tiles are there")
    assert site.script("return performance.getEntriesByName('timeline painted').length") == 1
    painted = site.script("return performance.getEntriesByName('timeline painted')[0].startTime")
    asked = site.script("return performance.getEntriesByType('resource').map((one) => [one.name, one.responseEnd])")
    tiles = [end for name, end in asked if "/timeline/tile" in name]
    assert painted > min(tiles), "nothing can be painted before the first tile is there"
