"""Finds, loads and declares CANN's profiling library, ``libmsprofiler.so``.

Nothing is loaded before it is asked for, and a missing library or symbol is one sentence, never a traceback.
"""

from __future__ import annotations

import ctypes
import os
from pathlib import Path
from typing import Any

from steplens.collect.ascend import codes, features

NAME = "libmsprofiler.so"

#: a library file to use instead of the one of the installed CANN: for tests and for unusual installations
OVERRIDE = "STEPLENS_MSPROFILER_LIBRARY"

#: set by CANN's set_env.sh; the library is in ``lib64`` below
HOME_VARIABLES = ("ASCEND_TOOLKIT_HOME", "ASCEND_HOME_PATH")

_SIZE = ctypes.c_size_t
_CONFIG = ctypes.c_void_p

#: name -> result, arguments, whether profiling is impossible without it
_SYMBOLS: dict[str, tuple[Any, tuple[Any, ...], bool]] = {
    "aclprofInit": (ctypes.c_int, (ctypes.c_char_p, _SIZE), True),
    "aclprofCreateConfig": (
        _CONFIG,
        (ctypes.POINTER(ctypes.c_uint32), ctypes.c_uint32, ctypes.c_int, ctypes.c_void_p, ctypes.c_uint64),
        True,
    ),
    "aclprofStart": (ctypes.c_int, (_CONFIG,), True),
    "aclprofStop": (ctypes.c_int, (_CONFIG,), True),
    "aclprofDestroyConfig": (ctypes.c_int, (_CONFIG,), True),
    "aclprofFinalize": (ctypes.c_int, (), True),
    "aclprofSetConfig": (ctypes.c_int, (ctypes.c_int, ctypes.c_char_p, _SIZE), False),
    "aclprofWarmup": (ctypes.c_int, (_CONFIG,), False),
    "aclprofRegisterDeviceCallback": (ctypes.c_int, (), False),
    "aclprofGetSupportedFeatures": (ctypes.c_int, (ctypes.POINTER(_SIZE), ctypes.POINTER(ctypes.c_void_p)), False),
    "aclprofGetSupportedFeaturesV2": (ctypes.c_int, (ctypes.POINTER(_SIZE), ctypes.POINTER(ctypes.c_void_p)), False),
}


class LibraryError(Exception):
    """CANN's profiling library cannot be used; the text is a sentence for the user."""


class CannLibrary:
    """CANN's profiling calls, declared.

    Args:
        handle: the loaded library.
        name: how it was found, for messages.

    Raises:
        LibraryError: a symbol that profiling cannot do without is missing.
    """

    def __init__(self, handle: ctypes.CDLL, name: str) -> None:
        self._functions: dict[str, Any] = {}
        for symbol, (result, arguments, _) in _SYMBOLS.items():
            function: Any = getattr(handle, symbol, None)
            if function is not None:
                function.restype, function.argtypes = result, arguments
                self._functions[symbol] = function
        missing = [symbol for symbol, (_, _, needed) in _SYMBOLS.items() if needed and symbol not in self._functions]
        if missing:
            raise LibraryError(
                f"{name} has no {', '.join(missing)}: it is not CANN's profiling library, or another version of it"
            )
        self.path = _path_of(self._functions["aclprofInit"]) or name

    def symbols(self) -> dict[str, bool]:
        """Every symbol that is used when it is there, and whether it is."""
        return {symbol: symbol in self._functions for symbol in _SYMBOLS}

    def call(self, symbol: str, *arguments: Any) -> int:
        """CANN's code of a call; the one for "unsupported" where the library has no such call. A text goes with its length."""
        function = self._functions.get(symbol)
        if function is None:
            return codes.PROF_MODULES_UNSUPPORTED
        expanded = [part for item in arguments for part in ((item, len(item)) if isinstance(item, bytes) else (item,))]
        return int(function(*expanded))

    def create_config(self, device: int, metrics: int, mask: int) -> int | None:
        """``aclprofCreateConfig`` for one device; None when CANN refuses."""
        devices = (ctypes.c_uint32 * 1)(device)
        config = self._functions["aclprofCreateConfig"](devices, 1, metrics, None, mask)
        return int(config) if config else None

    def features(self) -> list[features.Feature] | None:
        """What this CANN offers beyond the masks; None where it cannot say."""
        for symbol in ("aclprofGetSupportedFeaturesV2", "aclprofGetSupportedFeatures"):
            function = self._functions.get(symbol)
            if function is None:
                continue
            # CANN refuses a pointer that is set already.
            count, data = _SIZE(0), ctypes.c_void_p(None)
            if function(ctypes.byref(count), ctypes.byref(data)) == codes.SUCCESS:
                return features.decode_features(data.value or 0, count.value)
        return None


def load_cann() -> CannLibrary:
    """CANN's profiling library.

    It is looked for in this order: the file that ``STEPLENS_MSPROFILER_LIBRARY`` names, and then no other; the one that
    this process has loaded already, because a second copy would record nothing; ``lib64`` of the installation
    that ``ASCEND_TOOLKIT_HOME`` or ``ASCEND_HOME_PATH`` names; the folders of ``LD_LIBRARY_PATH``; the system's.

    Raises:
        LibraryError: there is none, or it cannot be used; the text says why.
    """
    return CannLibrary(*find_library(NAME, OVERRIDE, "CANN's profiling library"))


def find_library(name: str, override: str, what: str) -> tuple[ctypes.CDLL, str]:
    """A library of CANN, and how it was found; looked for as ``load`` says.

    Args:
        name: of its file.
        override: the environment variable that names another file.
        what: what it is called in messages.

    Raises:
        LibraryError: there is none, or it cannot be used; the text says why.
    """
    instead = os.environ.get(override)
    if instead:
        return _open_library(instead, f"{override} names {instead}, which"), instead
    loaded = _already_loaded(name)
    if loaded is not None:
        return loaded, name
    looked_in = []
    for folder in _candidate_folders():
        path = folder / name
        if path.is_file():
            return _open_library(str(path), str(path)), str(path)
        looked_in.append(str(folder))
    try:
        return ctypes.CDLL(name, mode=ctypes.RTLD_GLOBAL), name
    except OSError as error:
        if "cannot open shared object file" in str(error) and str(error).startswith(name):
            places = f"neither in {', '.join(looked_in)} nor" if looked_in else "not"
            raise LibraryError(
                f"{what} {name} was found {places} in the system's library folders: "
                "install CANN and source its set_env.sh before starting Python"
            ) from None
        raise LibraryError(f"{name} cannot be loaded: {error}") from None


def _open_library(path: str, subject: str) -> ctypes.CDLL:
    try:
        # As torch_npu loads it.
        return ctypes.CDLL(path, mode=ctypes.RTLD_GLOBAL)
    except OSError as error:
        raise LibraryError(f"{subject} cannot be loaded: {error}") from None


def _already_loaded(name: str) -> ctypes.CDLL | None:
    only_loaded = getattr(os, "RTLD_NOLOAD", None)
    if only_loaded is None:
        return None
    try:
        return ctypes.CDLL(name, mode=only_loaded | os.RTLD_LAZY)
    except OSError:
        return None


def _candidate_folders() -> list[Path]:
    """Where the library may be, without repetition."""
    places = [Path(home) / "lib64" for home in map(os.environ.get, HOME_VARIABLES) if home]
    # The loader only knows the variable as it was when Python started.
    places += [Path(entry) for entry in os.environ.get("LD_LIBRARY_PATH", "").split(os.pathsep) if entry]
    return list(dict.fromkeys(places))


class _SymbolInfo(ctypes.Structure):
    """``Dl_info`` of ``dladdr``."""

    _fields_ = (("file", ctypes.c_char_p), ("base", ctypes.c_void_p), ("name", ctypes.c_char_p), ("address", ctypes.c_void_p))


def _path_of(function: Any) -> str:
    """The file that a function was loaded from; empty where the system cannot say."""
    try:
        locate = ctypes.CDLL(None).dladdr
    except (OSError, AttributeError, TypeError):
        return ""
    locate.argtypes, locate.restype = (ctypes.c_void_p, ctypes.POINTER(_SymbolInfo)), ctypes.c_int
    info = _SymbolInfo()
    if not locate(ctypes.cast(function, ctypes.c_void_p), ctypes.byref(info)) or not info.file:
        return ""
    return os.fsdecode(info.file)
