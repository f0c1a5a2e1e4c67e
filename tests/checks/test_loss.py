"""The loss check, passing and failing."""

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.checks.finding import Verdict
from harness.checks.loss import FirstLoss, check_loss

VOCABULARY = 512  # ln = 6.2383


def rows(*losses: float, norm: float = 1.0) -> list[dict[str, Any]]:
    return [{"step": step, "loss": loss, "grad_norm": norm} for step, loss in enumerate(losses, 1)]


GOOD = rows(1.12, 1.10, 1.09, 1.08, 1.07)


def judged(data: list[dict[str, Any]], **changes: Any):  # type: ignore[no-untyped-def]
    options: dict[str, Any] = {"steps": 5, "vocabulary": VOCABULARY, "published": True} | changes
    return check_loss(data, **options)


def codes(data: list[dict[str, Any]], **changes: Any) -> list[str]:
    result = judged(data, **changes)
    assert result.verdict is Verdict.FAIL
    return [finding.code for finding in result.findings]


def test_a_good_run_passes_with_facts() -> None:
    result = judged(GOOD)
    assert result.verdict is Verdict.PASS
    assert "5 steps recorded of 5 asked" in result.facts


def test_no_rows_fail_and_say_how_the_run_ended() -> None:
    result = judged([], ended="rank 0 failed first")
    assert [finding.code for finding in result.findings] == ["loss.empty"]
    assert "rank 0 failed first" in result.findings[0].message


def test_a_short_run_names_the_missing_steps() -> None:
    result = judged(GOOD[:4])
    assert [finding.code for finding in result.findings] == ["loss.missing-step"]
    assert "steps 5 are missing: 4 of 5 asked" in result.findings[0].message


def test_a_hole_is_a_missing_step() -> None:
    assert codes(GOOD[:2] + GOOD[3:]) == ["loss.missing-step"]


def test_an_extra_step_fails() -> None:
    assert codes(GOOD, steps=4) == ["loss.extra-step"]


def test_a_duplicated_step_fails() -> None:
    assert codes([*GOOD, GOOD[-1]]) == ["loss.duplicate-step"]


@pytest.mark.parametrize("value", [math.nan, math.inf, -math.inf, None])
@pytest.mark.parametrize("name", ["loss", "grad_norm"])
def test_a_value_that_is_not_finite_names_step_and_name(name: str, value: float | None) -> None:
    data = [dict(row) for row in GOOD]
    data[2][name] = value
    result = judged(data)
    assert [finding.code for finding in result.findings] == ["loss.not-finite"]
    assert f"step 3: {name} is {value}" in result.findings[0].message


def test_a_finite_loss_with_a_nan_gradient_is_not_trusted() -> None:
    assert "loss.not-finite" in codes(rows(1.12, 1.10, 1.09, 1.08, 1.07, norm=math.nan))


def test_an_exact_zero_is_not_a_loss() -> None:
    assert "loss.zero" in codes(rows(1.12, 1.10, 0.0, 1.08, 1.07))


def test_published_weights_that_start_like_random_ones_are_called_that() -> None:
    result = judged(rows(6.2, 6.1, 6.0, 5.9, 5.8))
    assert [finding.code for finding in result.findings] == ["loss.random-like"]
    assert "ln(512) = 6.2383" in result.findings[0].message


@pytest.mark.parametrize("published", [True, False])
def test_worse_than_random_is_not_called_random(published: bool) -> None:
    assert codes(rows(143.2, 97.1, 80.0, 70.0, 60.0), published=published) == ["loss.worse-than-random"]


def test_a_random_start_passes_where_random_was_asked() -> None:
    assert judged(rows(6.3, 6.2, 6.1, 6.0, 5.9), published=False).verdict is Verdict.PASS


@pytest.mark.parametrize(("first", "code"), [(6.9, "loss.above-band"), (6.1, "loss.below-band")])
def test_the_band_has_two_sides(first: float, code: str) -> None:
    band = FirstLoss(6.2, 6.8, "measured from 8 runs")
    result = judged(rows(first, 6.0, 5.9, 5.8, 5.7), published=False, first=band)
    assert [finding.code for finding in result.findings] == [code]
    assert "measured from 8 runs" in result.findings[0].message


def test_a_band_may_lie_where_tied_random_heads_start() -> None:
    band = FirstLoss(11.0, 12.0, "measured")
    assert judged(rows(11.6, 11.0, 10.0, 9.0, 8.0), published=False, first=band).verdict is Verdict.PASS


def test_a_flat_loss_is_not_learning() -> None:
    assert codes(rows(1.12, 1.13, 1.121, 1.122, 1.119), falls_by=0.01) == ["loss.not-falling"]
    assert codes(rows(1.12, 1.13, 1.14, 1.15, 1.16)) == ["loss.not-falling"]


def test_equal_losses_train_nothing() -> None:
    assert codes(rows(1.1, 1.1, 1.1, 1.1, 1.1)) == ["loss.constant"]


@given(st.lists(st.floats(allow_nan=True, allow_infinity=True), min_size=5, max_size=5))
def test_only_finite_falling_losses_ever_pass(losses: list[float]) -> None:
    result = judged(rows(*losses), published=False)
    if result.verdict is Verdict.PASS:
        assert all(math.isfinite(loss) for loss in losses)
        assert min(losses[-3:]) < losses[0]
