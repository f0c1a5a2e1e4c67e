"""The rotary embedding's formula, its float32 tolerance, and the base that given values have. Pure.

`inv_freq[i] = theta ** (-2i / dim)` for i in [0, dim/2), the default of Qwen3 (Transformers'
`compute_default_rope_parameters`, torchtitan's `CosSinRoPE`). Computed in float32, the rounding of
the exponent `2i / dim` is multiplied by ln(theta), and an angle `position * inv_freq[i]` carries the
frequency's error times the position. The tolerances are these bounds, with a factor of two to spare.
"""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass

from harness.checks.finding import Finding

__all__ = ["Rotary", "effective_base", "judge_inv_freq", "judge_rows"]

_EPSILON = 2.0**-23
"""Spacing of float32 numbers at 1."""


@dataclass(frozen=True, slots=True)
class Rotary:
    """A rotary embedding of base `theta` over `dim` elements of a head."""

    theta: float
    dim: int

    @property
    def frequencies(self) -> list[float]:
        """The exact `inv_freq`, `dim / 2` values from 1 downwards."""
        return [self.theta ** (-2 * i / self.dim) for i in range(self.dim // 2)]

    @property
    def tolerances(self) -> list[float]:
        """Relative error that float32 arithmetic may leave in each frequency."""
        logarithm = math.log(self.theta)
        return [_EPSILON * (2 + 2 * i / self.dim * logarithm) for i in range(self.dim // 2)]

    def row(self, position: int) -> list[float]:
        """The exact cache row of `position`: cos then sin, the frequencies twice in each."""
        angles = [position * frequency for frequency in self.frequencies] * 2
        return [math.cos(angle) for angle in angles] + [math.sin(angle) for angle in angles]

    def row_tolerance(self, position: int) -> list[float]:
        """Absolute error that float32 arithmetic may leave in each element of a row."""
        pairs = zip(self.frequencies, self.tolerances, strict=True)
        return [2 * _EPSILON + position * frequency * relative for frequency, relative in pairs] * 4


def effective_base(last_frequency: float, dim: int) -> float | None:
    """Return the base whose last frequency is the given one, or None when there is no such base."""
    if dim <= 2 or not 0 < last_frequency < 1:
        return None
    try:
        return float(last_frequency ** (-dim / (dim - 2)))
    except OverflowError:
        return None


def judge_inv_freq(label: str, values: Sequence[float], rotary: Rotary) -> list[Finding]:
    """Judge an `inv_freq` buffer. Codes `buffers.shape`, `.first`, `.rope-base`, `.inv-freq`."""
    expected = rotary.frequencies
    if len(values) != len(expected):
        return [_shape(label, len(values), len(expected), rotary)]
    if values[0] != 1.0:
        message = (
            f"{label}: inv_freq[0] is {values[0]:.9g}, must be 1.0 for any base: uninitialised memory. "
            "Rebuild the buffer after loading."
        )
        return [Finding("buffers.first", message, {"found": values[0]})]
    wrong = _first_wrong_frequency(values, rotary, slack=1)
    if wrong is None:
        return []
    other = _other_base(effective_base(values[-1], rotary.dim), rotary)
    if other and _first_wrong_frequency(values, other, slack=4) is None:
        return [_base(label, other.theta, rotary)]
    return [
        _element("buffers.inv-freq", f"{label}: inv_freq[{wrong}]", values[wrong], expected[wrong], rotary)
    ]


def judge_rows(label: str, rows: Mapping[int, Sequence[float]], rotary: Rotary) -> list[Finding]:
    """Judge rows of a cos/sin cache. Codes `buffers.shape`, `.rows`, `.rope-base`, `.cos-sin`."""
    if not any(position > 0 for position in rows):
        message = f"{label}: no row of a position above 0 was recorded; row 0 is the same for every base. Record row 1."
        return [Finding("buffers.rows", message, {"positions": sorted(rows)})]
    for position, row in sorted(rows.items()):
        if len(row) != 2 * rotary.dim:
            return [_shape(f"{label}, row {position}", len(row), 2 * rotary.dim, rotary)]
    for position, row in sorted(rows.items()):
        expected = rotary.row(position)
        wrong = _first_wrong(row, expected, rotary.row_tolerance(position))
        if wrong is not None:
            other = _other_base(_base_of_rows(rows, rotary.dim), rotary)
            if other and all(_row_matches(other, at, values) for at, values in rows.items()):
                return [_base(label, other.theta, rotary)]
            where = f"{label}: row {position}, element {wrong}"
            return [_element("buffers.cos-sin", where, row[wrong], expected[wrong], rotary)]
    return []


def _row_matches(rotary: Rotary, position: int, row: Sequence[float]) -> bool:
    tolerance = [4 * allowed for allowed in rotary.row_tolerance(position)]
    return _first_wrong(row, rotary.row(position), tolerance) is None


def _base_of_rows(rows: Mapping[int, Sequence[float]], dim: int) -> float | None:
    """Return the base seen in the slowest frequency of the lowest position above 0."""
    position = min(at for at in rows if at > 0)
    row = rows[position]
    return effective_base(math.atan2(row[dim + dim // 2 - 1], row[dim // 2 - 1]) / position, dim)


def _other_base(base: float | None, rotary: Rotary) -> Rotary | None:
    """Return the embedding of the base found, if it is another one.

    Rounded to 4 digits, which is what float32 values tell about a base.
    """
    if base is None or not 1 < base < 1e30:
        return None
    rounded = float(f"{base:.4g}")
    return None if rounded == float(f"{rotary.theta:.4g}") else Rotary(rounded, rotary.dim)


def _first_wrong_frequency(values: Sequence[float], rotary: Rotary, *, slack: int) -> int | None:
    """Return the position of the first frequency that is off by more than `slack` tolerances, or None."""
    expected = rotary.frequencies
    allowed = [slack * one * relative for one, relative in zip(expected, rotary.tolerances, strict=True)]
    return _first_wrong(values, expected, allowed)


def _first_wrong(
    values: Sequence[float], expected: Sequence[float], tolerance: Sequence[float]
) -> int | None:
    """Return the position of the first value outside its tolerance, or None. NaN is outside."""
    for position, (value, wanted, allowed) in enumerate(zip(values, expected, tolerance, strict=True)):
        if not abs(value - wanted) <= allowed:
            return position
    return None


def _base(label: str, found: float, rotary: Rotary) -> Finding:
    message = (
        f"effective rope base {_plain(found)}, config.json says {_plain(rotary.theta)} ({label}). This library reads "
        "the base from elsewhere or uses a default; the error grows with position."
    )
    return Finding("buffers.rope-base", message, {"effective": found, "config": rotary.theta})


def _element(code: str, where: str, found: float, expected: float, rotary: Rotary) -> Finding:
    message = (
        f"{where} is {found:.9g}, expected {expected:.9g} (base {_plain(rotary.theta)}, {rotary.dim} elements). "
        "The buffer was not computed from config.json."
    )
    return Finding(code, message, {"found": found, "expected": expected})


def _shape(label: str, found: int, expected: int, rotary: Rotary) -> Finding:
    message = (
        f"{label} has {found} values, expected {expected} for head_dim {rotary.dim}. "
        "The model was built from another config, or the record is cut."
    )
    return Finding("buffers.shape", message, {"found": found, "expected": expected})


def _plain(number: float) -> str:
    """Write 1000000.0 as 1000000."""
    return str(int(number)) if number == int(number) else f"{number:.6g}"
