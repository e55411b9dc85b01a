"""The types of the pages are those of this server."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

WEB = Path(__file__).resolve().parents[2] / "web"
NODE = shutil.which("node", path=os.pathsep.join([str(Path(sys.executable).parent), os.environ.get("PATH", "")]))


@pytest.fixture(scope="module")
def document() -> bytes:
    return subprocess.run([sys.executable, WEB / "scripts" / "openapi.py"], check=True, capture_output=True).stdout


def test_the_types_of_the_pages_are_made_from_this_server(document: bytes) -> None:
    if NODE is None or not (WEB / "node_modules" / "openapi-typescript").is_dir():
        assert os.environ.get("CI") != "true", "Node.js or openapi-typescript is missing: make web"
        pytest.skip("Node.js or openapi-typescript is missing: make web")
    made = subprocess.run([NODE, WEB / "scripts" / "types.js"], input=document, check=True, capture_output=True).stdout
    message = "web/src/api/schema.d.ts is not made from this server: run 'make web-types' and commit the file"
    assert made == (WEB / "src" / "api" / "schema.d.ts").read_bytes(), message


def test_no_two_models_share_a_name(document: bytes) -> None:
    # those would be called by their modules, and moving one would rename a type of the pages
    names = json.loads(document)["components"]["schemas"]
    assert len(names) > 80
    assert [name for name in names if "__" in name] == []
