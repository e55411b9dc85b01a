"""Long series of samples at the width of a screen, without losing a peak."""

from __future__ import annotations

import numpy as np
import numpy.typing as npt

Int64Array = npt.NDArray[np.int64]
FloatArray = npt.NDArray[np.float64]


def reduce_series(
    time: Int64Array, value: FloatArray, start_ns: int, end_ns: int, points: int
) -> dict[str, list[float] | float | None]:
    """A series in at most ``points`` buckets of equal width, each with its exact extremes.

    Args:
        time: ns, sorted, shape (n,).
        value: of each sample; holds until the next one, shape (n,).
        start_ns: of the window; samples at its end are outside.
        end_ns: of the window.
        points: number of buckets; those without a sample are left out.

    Returns:
        ``before`` (the value when the window begins; None where nothing came before) and lists with an entry per bucket:
        ``time_ns`` (of its first sample), ``min``, ``max``, ``last`` and ``count``.
    """
    low, high = np.searchsorted(time, [start_ns, end_ns], side="left")
    before = float(value[low - 1]) if low > 0 else None
    moments, values = time[low:high], value[low:high]
    empty: list[float] = []
    if not len(moments):
        return {"before": before, "time_ns": empty, "min": empty, "max": empty, "last": empty, "count": empty}
    width = max(-(-(end_ns - start_ns) // max(points, 1)), 1)
    bucket = (moments - start_ns) // width
    first = np.flatnonzero(np.r_[True, bucket[1:] != bucket[:-1]])
    last = np.r_[first[1:], len(moments)] - 1
    return {
        "before": before,
        "time_ns": moments[first].tolist(),
        "min": np.minimum.reduceat(values, first).tolist(),
        "max": np.maximum.reduceat(values, first).tolist(),
        "last": values[last].tolist(),
        "count": np.diff(np.r_[first, len(moments)]).tolist(),
    }
