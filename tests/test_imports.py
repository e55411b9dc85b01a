from __future__ import annotations

import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parent.parent
HEAVY = ("torch", "polars", "numpy", "msgspec", "typer", "rich")


def modules_after(code: str) -> set[str]:
    command = [sys.executable, "-c", f"{code}\nimport sys; print(*sys.modules)"]
    return set(subprocess.run(command, capture_output=True, text=True, check=True).stdout.split())


@pytest.mark.parametrize("code", ["import steplens", "import steplens; dir(steplens)", "import steplens; steplens.schedule"])
def test_importing_steplens_is_light(code: str) -> None:
    assert not modules_after(code) & set(HEAVY)


def test_reading_needs_no_framework() -> None:
    assert "torch" not in modules_after("import steplens; steplens.open; steplens.analyse")


def test_every_public_name_exists() -> None:
    import steplens

    for name in steplens.__all__:
        assert getattr(steplens, name) is not None, name
    with pytest.raises(AttributeError):
        _ = steplens.no_such_name
    # and nothing that it imports for itself
    listed = {name for name in dir(steplens) if not name.startswith("__")}
    assert listed == {*steplens.__all__, *steplens._MODULES}


def test_import_takes_no_longer_than_a_few_starts_of_python() -> None:
    # the fastest of several, in turns, because the machine may be busy
    code = "import time; start = time.process_time(); {}; print(start, time.process_time() - start)"
    starts, imports = [], []
    for _ in range(8):
        done = subprocess.run([sys.executable, "-c", code.format("import steplens")], capture_output=True, text=True, check=True)
        start, taken = map(float, done.stdout.split())
        starts.append(start)
        imports.append(taken)
    assert min(imports) < 3 * min(starts)


def test_imports_follow_the_arrows() -> None:
    command = [str(Path(sys.executable).with_name("lint-imports")), "--no-cache"]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr
