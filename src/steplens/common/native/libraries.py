"""Where the libraries of C++ are, and how they are loaded.

A library has a plain C interface, so that it depends on no version of Python. It is looked for beside its sources, where a wheel
brings it, and in the user's cache folder, where ``build`` leaves it, under a digest of all that it is made of: what a change of a
source, of an option or of PyTorch makes stale has another name. ``STEPLENS_NATIVE=off`` does without them.
"""

from __future__ import annotations

import ctypes
import functools
import hashlib
import os
import platform
import stat
from dataclasses import dataclass
from pathlib import Path

from steplens.common.storage.private_folder import RefusedError, open_private_folder, user_folder

#: "off": nothing native is loaded or built
VARIABLE = "STEPLENS_NATIVE"
SOURCES = Path(__file__).resolve().parents[2] / "native"
#: where a wheel has libraries that need no PyTorch
PREBUILT = SOURCES / "prebuilt"

#: libraries that need nothing but a compiler, so that a wheel can bring them
WITHOUT_PYTORCH = ("decoder", "nesting")

#: what every library is compiled with
COMMON_FLAGS = ("-O2", "-std=c++17", "-fPIC", "-shared", "-DNDEBUG", "-fvisibility=hidden")


@dataclass(frozen=True)
class NativeLibrary:
    """One library.

    Attributes:
        name: of its folder of sources.
        flags: for the compiler, beside ``COMMON_FLAGS``: where the headers and libraries are that it needs.
        depends_on: what else decides whether a built one fits, such as the version of PyTorch.
    """

    name: str
    flags: tuple[str, ...] = ()
    depends_on: tuple[str, ...] = ()

    def source_files(self) -> list[Path]:
        """Its source files and headers, in the order of their names."""
        return sorted(path for path in (SOURCES / self.name).iterdir() if path.suffix in (".cpp", ".h"))

    def content_digest(self) -> str:
        """Stands for all that a built one depends on."""
        return _digest_of(self, tuple((str(path), path.stat().st_mtime_ns) for path in self.source_files()))

    def file_name(self) -> str:
        """Of the built library."""
        return f"{self.name}-{self.content_digest()}.so"


@functools.lru_cache(maxsize=16)
def _digest_of(library: NativeLibrary, sources: tuple[tuple[str, int], ...]) -> str:
    # a file by its content: installing it again changes its time alone
    hashed = hashlib.sha256()
    for path, _ in sources:
        content = Path(path).read_bytes()
        hashed.update(f"{Path(path).name} {len(content)}\n".encode() + content)
    hashed.update("\0".join((platform.machine(), *COMMON_FLAGS, *library.depends_on)).encode())
    return hashed.hexdigest()[:24]


def is_wanted() -> bool:
    """Whether libraries may be loaded and built at all."""
    return os.environ.get(VARIABLE, "").strip().lower() not in ("off", "0", "no", "false")


def build_folder() -> Path:
    """Where libraries are built, a folder of this user alone; it may be missing."""
    return user_folder("XDG_CACHE_HOME", ".cache") / "steplens" / "native"


def open_build_folder() -> Path:
    """The same, made where it is missing.

    Raises:
        OSError: it cannot be made.
        RefusedError: others may write to it: whoever can leave a library there runs what they like as this user.
    """
    folder = build_folder()
    for place in (folder.parent, folder):
        os.close(open_private_folder(place))
    return folder


def find_built(library: NativeLibrary) -> Path | None:
    """The file of a library that fits; None where there is none."""
    name = library.file_name()
    prebuilt = PREBUILT / name
    if prebuilt.is_file():
        return prebuilt
    built = build_folder() / name
    return built if built.is_file() and _is_ours(built) else None


def _is_ours(path: Path) -> bool:
    """Whether nobody else can have written a file of the build folder."""
    try:
        for place in (path.parent, path):
            status = place.lstat()
            if status.st_uid != os.geteuid() or status.st_mode & 0o022 or stat.S_ISLNK(status.st_mode):
                return False
    except OSError:
        return False
    return True


@functools.lru_cache(maxsize=16)
def _load_file(path: str) -> ctypes.CDLL:
    return ctypes.CDLL(path)


def load_built(library: NativeLibrary) -> ctypes.CDLL | None:
    """A library that is built already; None where it is not, cannot be loaded, or is not wanted."""
    if not is_wanted():
        return None
    try:
        path = find_built(library)
        return None if path is None else _load_file(str(path))
    except (OSError, RefusedError):
        return None
