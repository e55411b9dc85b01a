"""Runs every benchmark and writes their tables to ``docs/performance.md``.

Usage: ``python benchmarks/report.py [--only speed|overhead]``; ``make bench`` does it with the peers installed.
"""

from __future__ import annotations

import argparse
import datetime
import os
import platform
import re
import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
PAGE = ROOT / "docs" / "performance.md"
BENCHMARKS = {
    "speed": ("Reading and writing", "benchmarks/speed.py"),
    "ascend_raw": ("A raw Ascend capture", "benchmarks/ascend_raw.py"),
    "large": ("A gigabyte", "benchmarks/large.py"),
    "outputs": ("Writing each file", "benchmarks/outputs.py"),
    "analyses": ("Every analysis", "benchmarks/analyses.py"),
    "timeline": ("The web UI", "benchmarks/timeline.py"),
    "overhead": ("Recording", "benchmarks/overhead.py"),
    "mindspore": ("Recording MindSpore", "benchmarks/mindspore_overhead.py"),
    "mindspore_analysis": ("A million launches of MindSpore", "benchmarks/mindspore_analysis.py"),
    "dynamic": ("A running job", "benchmarks/dynamic.py"),
    "loader": ("Observing data loaders", "benchmarks/loader.py"),
    "blackbox": ("The black box", "benchmarks/blackbox.py"),
    "many": ("Many traces", "benchmarks/many.py"),
    "startup": ("Starting commands", "benchmarks/startup.py"),
}


def section(name: str) -> str:
    """Run one benchmark; its heading, command and table."""
    title, script = BENCHMARKS[name]
    done = subprocess.run([sys.executable, script], cwd=ROOT, stdout=subprocess.PIPE, text=True, check=True)
    print(done.stdout)
    day = datetime.date.today().isoformat()
    return f"<!-- {name} -->\n## {title}\n\n`python {script}`, {day}:\n\n{done.stdout.strip()}\n<!-- end {name} -->"


def main() -> None:
    """Run the benchmarks and put each table where the last one of its kind was."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", choices=list(BENCHMARKS))
    given = parser.parse_args()
    page = PAGE.read_text()
    for name in [given.only] if given.only else BENCHMARKS:
        text = section(name)
        page, count = re.subn(f"<!-- {name} -->.*?<!-- end {name} -->", lambda _, text=text: text, page, flags=re.DOTALL)
        if not count:
            page = f"{page.rstrip()}\n\n{text}\n"
    machine = f"{platform.machine()}, {os.cpu_count()} cores, Python {platform.python_version()}"
    page = re.sub(r"(?m)^Machine: .*$", f"Machine: {machine}.", page)
    PAGE.write_text(page)


if __name__ == "__main__":
    main()
