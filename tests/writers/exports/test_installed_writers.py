"""Writers of installed packages: steplens exports to their formats as to its own; defects name the package."""

from __future__ import annotations

import json
import sys
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest
from typer.testing import CliRunner

import steplens
from steplens.cli.main import app
from steplens.common.errors import DefectError, InputError
from steplens.common.extensions import load_extensions
from steplens.writers.exports.formats import FORMATS, all_formats

#: what docs/extending.md shows
WRITER = (Path(__file__).parents[3] / "docs" / "extending.md").read_text().split("```python\n")[2].split("```")[0]


@pytest.fixture
def install(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Puts a package on the path whose ``WRITER`` is an entry point of steplens."""

    def put(code: str) -> None:
        (tmp_path / "names_writer.py").write_text(code)
        information = tmp_path / "steplens_names-1.0.dist-info"
        information.mkdir()
        (information / "METADATA").write_text("Metadata-Version: 2.1\nName: steplens-names\nVersion: 1.0\n")
        (information / "entry_points.txt").write_text("[steplens.writers]\nnames = names_writer:WRITER\n")
        monkeypatch.syspath_prepend(tmp_path)
        load_extensions.cache_clear()

    yield put
    sys.modules.pop("names_writer", None)
    load_extensions.cache_clear()


@pytest.fixture
def trace(tmp_path: Path) -> Path:
    event = {"ph": "X", "cat": "cpu_op", "name": "aten::add", "ts": 1, "dur": 2, "pid": 1, "tid": 1}
    path = tmp_path / "kineto.json"
    path.write_text(json.dumps({"schemaVersion": 1, "traceEvents": [event]}))
    return path


def test_the_format_of_an_installed_package_is_offered(install: Callable[[str], None], trace: Path) -> None:
    assert list(all_formats()) == list(FORMATS)
    install(WRITER)
    assert list(all_formats()) == [*FORMATS, "names"]
    target = trace.parent / "out.names.txt"
    shown = CliRunner().invoke(app, ["export", str(trace), "--to", "names", "--output", str(target)])
    assert shown.exit_code == 0 and "the names of operators, one a line" in shown.output
    assert target.read_text() == "aten::add"
    assert steplens.export(trace, "names", trace.parent / "again.txt") == [trace.parent / "again.txt"]
    shown = CliRunner().invoke(app, ["export", str(trace), "--to", "nothing"])
    assert shown.exit_code == 2 and "'names'" in shown.output


def test_a_name_of_steplens_stays_its_own(install: Callable[[str], None]) -> None:
    install(WRITER.replace('"names"', '"kineto"'))
    assert all_formats() == FORMATS


def test_a_defect_of_a_package_is_named(install: Callable[[str], None], trace: Path) -> None:
    install(WRITER.replace("    ops =", "    raise KeyError('nobody')\n    ops ="))
    target = trace.parent / "out.txt"
    with pytest.raises(DefectError, match=r"exported as names: KeyError: 'nobody'; this is a defect of steplens-names 1\.0"):
        steplens.export(trace, "names", target)
    assert not target.exists()


def test_what_a_package_says_is_passed_on(install: Callable[[str], None], trace: Path) -> None:
    install(WRITER.replace("    ops =", "    raise NothingToWriteError('it is Monday')\n    ops ="))
    with pytest.raises(InputError, match="cannot be exported as names: it is Monday"):
        steplens.export(trace, "names", trace.parent / "out.txt")
