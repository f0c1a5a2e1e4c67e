"""The twin check: every bit, step by step."""

import math
from typing import Any

from harness.checks.finding import Verdict
from harness.checks.twin import check_twin


def rows(count: int = 10) -> list[dict[str, Any]]:
    return [{"step": step, "loss": 6.0 / step, "grad_norm": 1.0 + step} for step in range(1, count + 1)]


def changed(step: int, name: str, value: float) -> list[dict[str, Any]]:
    data = rows()
    data[step - 1][name] = value
    return data


def test_equal_runs_pass() -> None:
    result = check_twin(rows(), rows(), name="stock")
    assert result.verdict is Verdict.PASS
    assert "10 steps" in result.facts[0]


def test_one_unit_in_the_last_place_fails() -> None:
    result = check_twin(changed(4, "loss", math.nextafter(1.5, 2)), rows(), name="stock")
    assert result.findings[0].code == "twin.differs"
    assert "1 of 10 steps differ from `stock`; first at step 4: loss" in result.findings[0].message
    assert "Step 1 is equal" in result.findings[0].message


def test_a_first_step_that_differs_points_forward() -> None:
    result = check_twin(changed(1, "grad_norm", 2.1), rows(), name="stock")
    assert "Step 1 already differs" in result.findings[0].message


def test_short_against_full_fails() -> None:
    assert [f.code for f in check_twin(rows(9), rows(), name="stock").findings] == ["twin.steps"]


def test_two_empty_runs_are_not_equal() -> None:
    assert [f.code for f in check_twin([], [], name="stock").findings] == ["twin.empty"]
    assert [f.code for f in check_twin(rows(), [], name="stock").findings] == ["twin.empty"]
