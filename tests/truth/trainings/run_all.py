"""Runs the five trainings of this folder and keeps what ``summary`` and ``advise`` say of each, below what a person says.

python tests/truth/trainings/run_all.py FOLDER [NAME ...]

FOLDER/NAME.txt has the docstring of the training, then the output of both commands; FOLDER/NAME holds what was recorded.
"""

from __future__ import annotations

import ast
import os
import shutil
import subprocess
import sys
from pathlib import Path

#: name of each training, and on how many ranks it runs
TRAININGS = {"plain_loop": 1, "compiled": 1, "hugging_face": 1, "late_rank": 2, "lightning_validation": 1}


def run(name: str, folder: Path) -> Path:
    """Trains, and asks both commands. Returns the file with their answers."""
    script = Path(__file__).with_name(f"{name}.py")
    recorded = folder / name
    shutil.rmtree(recorded, ignore_errors=True)
    ranks = TRAININGS[name]
    launch = ["-m", "torch.distributed.run", "--standalone", "--nproc_per_node", str(ranks)] if ranks > 1 else []
    # threads that wait for each other are what a busy machine makes slow; the trainings are the same with one
    alone = {**os.environ, "OMP_NUM_THREADS": "1"}
    command = [sys.executable, *launch, str(script), str(recorded)]
    subprocess.run(command, check=True, timeout=900, stdout=subprocess.DEVNULL, env=alone)
    said = [ast.get_docstring(ast.parse(script.read_text())) or ""]
    for command in ("summary", "advise"):
        asked = [sys.executable, "-m", "steplens", command, str(recorded)]
        done = subprocess.run(asked, capture_output=True, text=True, timeout=900, env={**os.environ, "COLUMNS": "130"})
        said.append(f"$ steplens {command} {name}    (exit code {done.returncode})\n{done.stdout}{done.stderr}")
    answers = folder / f"{name}.txt"
    answers.write_text("\n\n".join(said))
    return answers


def main(folder: Path, names: list[str]) -> None:
    """Runs what is named, or everything."""
    folder.mkdir(parents=True, exist_ok=True)
    for name in names or TRAININGS:
        print(run(name, folder))


if __name__ == "__main__":
    main(Path(sys.argv[1]), sys.argv[2:])
