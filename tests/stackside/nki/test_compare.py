"""The numbers about a result, on the inputs of cases R01 and R02."""

import numpy as np
import pytest

from harness.stackside.nki.compare import compare, rounding_ratio


def test_all_zeros_have_a_relative_error_of_one() -> None:
    reference = np.linspace(1e-4, 1e-3, 64, dtype=np.float32)
    found = compare(np.zeros_like(reference), reference)
    assert np.allclose(np.zeros_like(reference), reference, rtol=0, atol=1e-2)
    assert (found["nonzero"], found["elements"]) == (0, 64)
    assert found["max_abs_diff"] == found["max_abs_reference"] == pytest.approx(1e-3)
    assert found["relative"] == pytest.approx(1.0)


def test_copies_of_row_0_look_like_a_broadcast() -> None:
    reference = np.arange(12.0).reshape(4, 3) * np.array([[1.0], [2.0], [3.0], [4.0]])
    found = compare(np.repeat(reference[:1], 4, axis=0), reference)
    assert (found["rows_differ"], found["first_rows_differ"]) == (3, [1, 2, 3])
    assert found["differing_rows_equal_row_0"]
    assert not compare(reference + 1, reference)["differing_rows_equal_row_0"]


def test_equal_arrays_differ_in_nothing() -> None:
    x = np.ones((2, 3, 4), dtype=np.float32)
    found = compare(x, x)
    assert (found["max_abs_diff"], found["relative"], found["rows_differ"], found["rows"]) == (0.0, 0.0, 0, 6)


def test_a_non_finite_result_has_no_difference() -> None:
    found = compare(np.array([[np.nan, 1.0]]), np.array([[0.0, 1.0]]))
    assert (found["max_abs_diff"], found["relative"], found["nonfinite"]) == (None, None, 1)


def test_a_reference_of_zeros_has_no_relative_error() -> None:
    assert compare(np.ones((1, 2)), np.zeros((1, 2)))["relative"] is None


def test_shapes_must_agree() -> None:
    with pytest.raises(ValueError, match="differ in shape"):
        compare(np.ones((1, 2)), np.ones((2, 1)))


def test_the_rounding_ratio_compares_errors() -> None:
    exact, rough = np.array([1.0, 2.0]), np.array([1.5, 2.0])
    assert rounding_ratio(np.array([1.25, 2.0]), exact, rough) == 0.5
    assert rounding_ratio(exact, exact, exact) is None
