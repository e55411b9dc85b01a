"""Which frame of ``EventColumns`` takes the events of a category."""

from __future__ import annotations

from steplens.formats.kineto import (
    ANNOTATION,
    COPY_CATEGORIES,
    DEVICE_ANNOTATION,
    KERNEL_CATEGORIES,
    OPERATOR,
    PYTHON,
    RUNTIME,
    SYNCHRONIZATION,
)
from steplens.readers.kineto.native_layout import CategoryKind

#: categories whose events become rows of ``ops``, in one sequence: where times are equal, the order of the file counts
OPERATOR_CATEGORIES = (OPERATOR, ANNOTATION, "Operator")

CALLS = "calls"
DEVICE_RANGES = "device_ranges"
PYTHON_FRAMES = "python"
#: of categories that nothing is known of
UNPLACED = "unplaced"
_IGNORED = "ignored"
_KIND_OF_CATEGORY = {
    **dict.fromkeys(("Runtime", "runtime", "driver", "overhead"), CALLS),
    **dict.fromkeys((DEVICE_ANNOTATION, SYNCHRONIZATION), DEVICE_RANGES),
    PYTHON: PYTHON_FRAMES,
    # the span of the whole recording
    "Trace": _IGNORED,
    "trace": _IGNORED,
}
_NATIVE_KINDS = {
    CALLS: CategoryKind.CALL,
    DEVICE_RANGES: CategoryKind.DEVICE_RANGE,
    PYTHON_FRAMES: CategoryKind.PYTHON,
    _IGNORED: CategoryKind.IGNORED,
    None: CategoryKind.UNPLACED,
}
#: those that the library need not ask for
KNOWN_CATEGORIES = (*OPERATOR_CATEGORIES, *KERNEL_CATEGORIES, *COPY_CATEGORIES, RUNTIME, *_KIND_OF_CATEGORY)


def kind_of_category(category: str) -> str | None:
    """Which frame of ``EventColumns`` takes the events of a category; None where nothing is known of it."""
    kind = _KIND_OF_CATEGORY.get(category)
    # cuda_runtime, hip_runtime, xpu_driver, mtia_runtime, privateuse1_runtime ...
    return CALLS if kind is None and category.endswith(("_runtime", "_driver")) else kind


def native_kind(category: str) -> CategoryKind:
    """Of which kind a category is for the library."""
    if category in OPERATOR_CATEGORIES:
        return CategoryKind.ANNOTATION if category == ANNOTATION else CategoryKind.OPERATOR
    if category in KERNEL_CATEGORIES:
        return CategoryKind.KERNEL
    return CategoryKind.COPY if category in COPY_CATEGORIES else _NATIVE_KINDS[kind_of_category(category)]
