"""How much two runs have in common."""

from __future__ import annotations

import polars as pl
import pytest

from steplens.analysis.operators.common_calls import are_unlike, common_share


def calls(**counts: tuple[float | None, float | None]) -> pl.DataFrame:
    rows = [(name, *both) for name, both in counts.items()]
    return pl.DataFrame(rows, schema={"name": pl.String, "before_calls": pl.Float64, "after_calls": pl.Float64}, orient="row")


def test_the_same_calls_in_another_mixture() -> None:
    assert common_share(calls(mm=(10, 10), add=(10, 10))) == 1.0
    assert common_share(calls(mm=(10, 5), add=(10, 15))) == 0.75
    assert common_share(calls(mm=(10, 20), add=(10, 20))) == 1.0


def test_a_program_that_does_more_besides_is_the_same_one() -> None:
    """Even where that is a thousand short calls."""
    more = calls(mm=(10, 10), add=(10, 10), item=(None, 1000))
    assert common_share(more) == 1.0 and not are_unlike(more)
    assert common_share(calls(mm=(10, 10), add=(10, 10), item=(1000, None))) == 1.0


def test_two_programs() -> None:
    unlike = calls(mm=(20, 10), convolution=(20, None), gelu=(None, 60))
    assert common_share(unlike) == pytest.approx(1 / 7) and are_unlike(unlike)
    assert common_share(calls(mm=(None, 10))) is None and not are_unlike(calls(mm=(None, 10)))


def test_two_programs_that_call_the_optimizers_operators_most() -> None:
    common = {f"common_{number}": (10.0, 10.0) for number in range(20)}
    of_models: dict[str, tuple[float | None, float | None]] = {f"before_{number}": (1.0, None) for number in range(8)}
    of_models |= {f"after_{number}": (None, 1.0) for number in range(8)}
    unlike = calls(**common, **of_models)
    assert (common_share(unlike) or 0.0) > 0.9 and are_unlike(unlike)
    # of few operators one that was replaced is many
    assert not are_unlike(calls(mm=(10, 10), add=(10, 10), gelu=(10, None), relu=(None, 10)))
