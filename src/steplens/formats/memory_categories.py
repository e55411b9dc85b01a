"""``KINETO/memory_categories.json``: what memory was used for, as the profiler saw it while it recorded."""

from __future__ import annotations

FILE = "memory_categories.json"
VERSION = 1

#: by their numbers in the file, which are those of the files of the memory timeline, too
CATEGORIES = (
    "PARAMETER", "OPTIMIZER_STATE", "INPUT", "TEMPORARY", "ACTIVATION", "GRADIENT", "AUTOGRAD_DETAIL", "UNKNOWN",
)  # fmt: skip
#: by their numbers; events of equal times are in this order
ACTIONS = ("PREEXISTING", "CREATE", "INCREMENT_VERSION", "DESTROY")
