"""Numbers about one result against its reference. NumPy only."""

import math
from typing import Any

import numpy as np

__all__ = ["compare", "rounding_ratio"]

# Differing rows that are listed by index; the count is always complete.
_LISTED_ROWS = 8

_Array = np.ndarray[Any, np.dtype[Any]]


def compare(result: _Array, reference: _Array) -> dict[str, Any]:
    """Return how `result` differs from `reference`, both of shape [..., columns], as a JSON-able dictionary.

    `max_abs_diff` (None if the result has a non-finite element), `max_abs_reference`, `relative`
    (norm of the difference over norm of the reference, None if undefined), `elements`, `nonzero` and
    `nonfinite` of the result, `rows`, `rows_differ` (how many rows are not equal),
    `first_rows_differ` (indices of the first ones) and `differing_rows_equal_row_0` (row 0 is right
    and every differing row is a copy of it: the look of a broadcast fault). Raises ValueError for unequal shapes.
    """
    if result.shape != reference.shape:
        raise ValueError(f"result {result.shape} and reference {reference.shape} differ in shape")
    got, want = (array.astype(np.float64).reshape(-1, array.shape[-1]) for array in (result, reference))
    nonfinite = int(got.size - np.count_nonzero(np.isfinite(got)))
    different = np.flatnonzero((got != want).any(axis=1))
    return {
        "max_abs_diff": None if nonfinite else float(np.abs(got - want).max()),
        "max_abs_reference": float(np.abs(want).max()),
        "relative": None if nonfinite else _ratio(got - want, want),
        "elements": int(got.size),
        "nonzero": int(np.count_nonzero(got)),
        "nonfinite": nonfinite,
        "rows": int(got.shape[0]),
        "rows_differ": int(different.size),
        "first_rows_differ": [int(row) for row in different[:_LISTED_ROWS]],
        "differing_rows_equal_row_0": bool(
            different.size and different[0] != 0 and (got[different] == got[0]).all()
        ),
    }


def rounding_ratio(result: _Array, exact: _Array, rough: _Array) -> float | None:
    """Return R = ||result - exact|| / ||rough - exact||, or None if it is undefined.

    `exact` is the float32 computation, `rough` the same in the low precision throughout. R is free
    of scale: about 1 or less for a sound low-precision result. From AWS's own kernel tooling, which
    fails above 1.2.
    """
    precise = exact.astype(np.float64)
    return _ratio(result.astype(np.float64) - precise, rough.astype(np.float64) - precise)


def _ratio(numerator: _Array, denominator: _Array) -> float | None:
    below = float(np.linalg.norm(denominator))
    value = float(np.linalg.norm(numerator)) / below if below else math.nan
    return value if math.isfinite(value) else None
