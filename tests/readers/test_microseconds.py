"""Microsecond text to ns, against exact decimal arithmetic."""

from __future__ import annotations

import random
from decimal import ROUND_HALF_UP, Decimal

import polars as pl
import pytest

from steplens.readers.common.microseconds import after_base, float_ns, text_ns


def exact(text: str) -> int:
    return int((Decimal(text.strip()) * 1000).quantize(Decimal(1), ROUND_HALF_UP))


def test_three_decimals_of_the_epoch_keep_every_digit() -> None:
    generator = random.Random(1)
    texts = [f"{1_700_000_000_000_000 + generator.randrange(10**14)}.{generator.randrange(1000):03d}" for _ in range(2000)]
    assert text_ns(pl.Series(texts)).to_list() == [exact(text) for text in texts]
    # a double could not tell most of them apart
    assert sum(round(float(text) * 1000) != exact(text) for text in texts) > 1000


@pytest.mark.parametrize("decimals", [0, 1, 2, 4, 6])
def test_any_number_of_decimals(decimals: int) -> None:
    generator = random.Random(decimals)
    texts = []
    for _ in range(500):
        whole = generator.choice([generator.randrange(10**6), 1_736_408_883_704_643 + generator.randrange(10**9)])
        fraction = "".join(str(generator.randrange(10)) for _ in range(decimals))
        texts.append(f"{whole}.{fraction}" if decimals else str(whole))
    found = text_ns(pl.Series(texts)).to_list()
    # a tie of a short time may be rounded as the double that stands for it
    assert all(abs(value - exact(text)) <= (decimals > 3) for value, text in zip(found, texts, strict=True))
    assert [value for value, text in zip(found, texts, strict=True) if len(text) > 14] == [exact(t) for t in texts if len(t) > 14]


def test_blanks_signs_and_exponents() -> None:
    texts = ["168.320\t", " 17 ", "-1.500", "+2.250", "1e3", "1736408883704643.212\t", "1736408883704643", None]
    expected = [168320, 17000, -1500, 2250, 1_000_000, 1736408883704643212, 1736408883704643000, None]
    assert text_ns(pl.Series(texts)).to_list() == expected


def test_what_is_no_time_is_null() -> None:
    texts = ["N/A", "", "inf", "nan", "1e300", "1.2.345", "99999999999999999", "-99999999999999999.000", "x.123"]
    assert text_ns(pl.Series(texts)).to_list() == [None] * len(texts)
    assert float_ns(pl.Series([float("inf"), float("nan"), 1e30, None])).to_list() == [None] * 4
    assert text_ns(pl.Series([], dtype=pl.String)).to_list() == []


def test_doubles_are_converted_in_two_parts() -> None:
    # the product with 1000 is one ns off here
    values = [4_398_046_511_104.0 + index * 977.117 for index in range(5000)]
    expected = [int(value) * 1000 + round((value - int(value)) * 1000) for value in values]
    assert float_ns(pl.Series(values)).to_list() == expected


def test_small_times_count_from_the_base() -> None:
    base = 1_696_186_170_000_000_000
    times = pl.DataFrame({"t": [5_000, 7_889_237_999_999_999, 1_736_408_883_704_643_212, None]})
    found = times.select(after_base(pl.col("t"), base))["t"].to_list()
    assert found == [base + 5_000, base + 7_889_237_999_999_999, 1_736_408_883_704_643_212, None]
    assert times.select(after_base(pl.col("t"), 0))["t"].to_list() == times["t"].to_list()
