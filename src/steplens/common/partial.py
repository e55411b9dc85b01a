"""Where files and folders are written until they are complete, and the end of those whose writer was killed.

They lie beside what they become, so that renaming them is atomic. Their names say which process writes them, and on which
machine: only there can anybody tell whether it still lives. ::

    .steplens-<machine>-<process id>-<random>.partial
"""

from __future__ import annotations

import contextlib
import hashlib
import os
import re
import shutil
import socket
from pathlib import Path

SUFFIX = ".partial"

_NAME = re.compile(r"\.steplens-([0-9a-f]{12})-([0-9]{1,9})-[0-9a-f]{8}\.partial(\.tmp)?")


def partial_path(path: Path) -> Path:
    """A name for what becomes ``path``: in the same folder, and nobody else's.

    What processes that are dead by now began in that folder and did not complete is removed on the way.
    """
    here = machine_identity()
    remove_partial_files(path.parent, here)
    return path.with_name(f".steplens-{here}-{os.getpid()}-{os.urandom(4).hex()}{SUFFIX}")


def remove_partial_files(folder: Path, machine: str | None = None) -> None:
    """Remove what dead processes of this machine left unfinished in a folder; what cannot be removed stays."""
    here = machine or machine_identity()
    with contextlib.suppress(OSError), os.scandir(folder) as entries:
        for entry in entries:
            found = _NAME.fullmatch(entry.name)
            if found is None or found[1] != here or is_process_alive(int(found[2])):
                continue
            if entry.is_dir(follow_symlinks=False):
                shutil.rmtree(entry.path, ignore_errors=True)
            else:
                with contextlib.suppress(OSError):
                    os.unlink(entry.path)


def machine_identity() -> str:
    """Stands for what process ids mean here: the same for all processes that see each other, and after a restart another."""
    try:
        started = Path("/proc/sys/kernel/random/boot_id").read_text()
        # containers of one machine number their processes apart
        numbers = os.readlink("/proc/self/ns/pid")
    except OSError:
        # nobody can tell who lives, so nobody may recognise the name
        started, numbers = os.urandom(16).hex(), ""
    return hashlib.blake2b(f"{socket.gethostname()} {started} {numbers}".encode(), digest_size=6).hexdigest()


def is_process_alive(pid: int) -> bool:
    """Whether there is a process of this number, possibly another one that got it later."""
    try:
        os.kill(pid, 0)
    except ProcessLookupError:
        return False
    except OSError:
        return True
    return True
