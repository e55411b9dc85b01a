"""What is known not to be a user's: words of steplens, files and functions of Python and of the frameworks that are installed."""

from __future__ import annotations

import builtins
import functools
import importlib.util
import re
import sysconfig
from pathlib import Path

import steplens.trace

LIBRARIES = ("torch", "torchvision", "mindspore", "lightning", "pytorch_lightning", "transformers", "accelerate", "steplens")
#: of a file of Python or of a framework, below their folder
_LONGEST_PATH = 200
_WORD = re.compile(r"[^\W\d]\w*")
_TYPES = frozenset({"Tensor", "Parameter", *(name for name in dir(builtins) if isinstance(getattr(builtins, name), type))})


@functools.cache
def vocabulary() -> frozenset[str]:
    """Every word in steplens's own code: what is in it is not the user's."""
    folder = Path(steplens.trace.__file__).parents[1]
    return frozenset(word for file in sorted(folder.rglob("*.py")) for word in _WORD.findall(file.read_text(encoding="utf-8")))


@functools.cache
def classes() -> frozenset[str]:
    """The classes of PyTorch's modules, optimizers and loaders, where it is installed."""
    found = {"DistributedDataParallel", "_SingleProcessDataLoaderIter", "_MultiProcessingDataLoaderIter"}
    top = _folder("torch")
    for name in ("nn/modules", "optim", "utils/data") if top is not None else ():
        for file in (top / "torch" / name).glob("*.py"):  # type: ignore[operator]
            found.update(re.findall(r"^class (\w+)", file.read_text(encoding="utf-8"), re.MULTILINE))
    return frozenset(found)


@functools.cache
def _folder(package: str) -> Path | None:
    """The folder that a package is installed in; it is not imported."""
    try:
        found = importlib.util.find_spec(package)
    except (ImportError, ValueError):
        return None
    return None if found is None or found.origin is None else Path(found.origin).parents[1]


@functools.cache
def library_text(path: str) -> str | None:
    """What is in a file of Python or of a framework, by its path below their folder; None for everything else."""
    first = path.partition("/")[0]
    folder = _folder(first) if first in LIBRARIES else Path(sysconfig.get_path("stdlib"))
    if folder is None or first in ("", "site-packages") or len(path) > _LONGEST_PATH:
        return None
    if ".." in path.split("/") or not re.match(r"^[\w./-]+$", path):
        return None
    file = folder / path
    return file.read_text(encoding="utf-8", errors="replace") if file.is_file() else None


def has_word(file: str, function: str) -> bool:
    """Whether a name stands in a file of Python or of a framework."""
    text = library_text(file)
    return text is not None and (
        function in ("<module>", "<lambda>") or re.search(rf"\b{re.escape(function)}\b", text) is not None
    )


def is_built_in(owner: str | None, name: str) -> bool:
    """Whether Python or PyTorch has such a function, or such a method of a type."""
    if owner is None:
        return hasattr(builtins, name) or name in _tensor_functions()
    if owner in _TYPES and hasattr(getattr(builtins, owner, None), name):
        return True
    return owner in ("Tensor", "Parameter", "type") and name in _tensor_functions()


@functools.cache
def _tensor_functions() -> frozenset[str]:
    """The words in PyTorch's own list of its functions, where it is installed."""
    texts = (library_text(f"torch/_C/{name}.pyi") for name in ("__init__", "_VariableFunctions"))
    return frozenset(word for text in texts if text is not None for word in _WORD.findall(text))
