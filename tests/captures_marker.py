"""The marker ``captures``: on tests of modules that can ask for the shared captures, and on tests with fixtures that can."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

from . import shared_data

_TESTS = Path(__file__).resolve().parent


def mark(items: Iterable[pytest.Item]) -> None:
    """Put the marker where it belongs."""
    for item in items:
        if isinstance(item, pytest.Function) and (_module_asks(item.module) or any(map(_asks, _fixtures(item)))):
            item.add_marker("captures")


def _fixtures(item: pytest.Function) -> Iterator[FunctionType]:
    for definitions in item._fixtureinfo.name2fixturedefs.values():
        yield from (definition.func for definition in definitions if inspect.isfunction(definition.func))


@functools.cache
def _module_asks(module: ModuleType) -> bool:
    return any(_asks(value) for value in vars(module).values() if inspect.isfunction(inspect.unwrap(value)))


@functools.cache
def _asks(function: FunctionType) -> bool:
    """Whether a function calls ``shared_data``, or names a function or class of the tests that does."""
    seen: set[Any] = set()
    waiting: list[Any] = [function]
    while waiting:
        value = waiting.pop()
        value = inspect.unwrap(value) if callable(value) else value
        if value is shared_data.shared or value is shared_data.find_shared:
            return True
        if not (inspect.isfunction(value) or inspect.isclass(value)) or value in seen or not _is_of_tests(value):
            continue
        seen.add(value)
        waiting += vars(value).values() if inspect.isclass(value) else _named(value)
    return False


def _is_of_tests(value: Any) -> bool:
    file = getattr(inspect.getmodule(value), "__file__", None)
    return file is not None and Path(file).is_relative_to(_TESTS)


def _named(function: FunctionType) -> Iterator[Any]:
    """What the globals that the code of a function names are, and the attributes of modules among them."""
    names = set(_names(function.__code__))
    for value in [function.__globals__[name] for name in names if name in function.__globals__]:
        yield value
        if isinstance(value, ModuleType):
            yield from (vars(value)[name] for name in names if name in vars(value))


def _names(code: CodeType) -> Iterator[str]:
    yield from code.co_names
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            yield from _names(constant)
