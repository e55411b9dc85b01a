"""The marker ``captures``: on tests that can ask for the shared captures, by what they call or by their fixtures."""

from __future__ import annotations

import inspect
from collections import defaultdict
from collections.abc import Iterable, Iterator
from pathlib import Path
from types import CodeType, FunctionType, ModuleType
from typing import Any

import pytest

from . import shared_data

NAME = "captures"

_TESTS = Path(__file__).resolve().parent


def mark(items: Iterable[pytest.Item]) -> None:
    """Put the marker where it belongs."""
    tests = {item: set(_functions_and_classes(_run_by(item))) for item in items if isinstance(item, pytest.Function)}
    asking = _asking(set().union(*tests.values()))
    for item, functions in tests.items():
        if functions & asking:
            item.add_marker(NAME)


def check(item: pytest.Item) -> None:
    """Fail a test that asked for captures and has no marker: it would not run where there are none."""
    if shared_data.asked and not item.get_closest_marker(NAME):
        pytest.fail(f"asks for shared captures in a way that {Path(__file__).name} does not find", pytrace=False)


def _run_by(item: pytest.Function) -> Iterator[Any]:
    """The test, what it is given, and its fixtures."""
    # what hypothesis decorates is behind its own function
    yield getattr(getattr(item.obj, "hypothesis", None), "inner_test", item.function)
    yield from item.callspec.params.values() if hasattr(item, "callspec") else ()
    for definitions in item._fixtureinfo.name2fixturedefs.values():
        yield from (definition.func for definition in definitions)


def _asking(functions: set[Any]) -> set[Any]:
    """Those of some functions, and of what they name, that call ``shared_data``, or name one of the tests' that does."""
    named_by: dict[Any, list[Any]] = defaultdict(list)
    seen, waiting = set(functions), list(functions)
    while waiting:
        value = waiting.pop()
        for named in _functions_and_classes(vars(value).values() if inspect.isclass(value) else _named(value)):
            named_by[named].append(value)
            if named not in seen and _is_of_tests(named):
                seen.add(named)
                waiting.append(named)
    asking: set[Any] = set()
    waiting = [shared_data.shared, shared_data.find_shared]
    while waiting:
        callers = set(named_by[waiting.pop()]) - asking
        asking |= callers
        waiting += callers
    return asking


def _functions_and_classes(values: Iterable[Any]) -> Iterator[Any]:
    """Those among some values, in properties and in collections."""
    for value in values:
        if isinstance(value, dict | list | tuple):
            yield from _functions_and_classes(value.values() if isinstance(value, dict) else value)
        value = value.fget if isinstance(value, property) else value
        value = inspect.unwrap(value) if callable(value) else value
        if inspect.isfunction(value) or inspect.isclass(value):
            yield value


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
