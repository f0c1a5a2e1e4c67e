"""Parameter dtypes: counted, the same on all ranks, compared between stacks."""

from typing import Any

from harness.checks.finding import CheckResult, Verdict
from harness.checks.parameter_dtypes import check_dtypes, compare_dtypes, dtype_counts


def record(rank: int, **counts: int) -> dict[str, Any]:
    return {
        "rank": rank,
        "parameters": [{"dtype": dtype} for dtype, number in counts.items() for _ in range(number)],
    }


def codes(result: CheckResult) -> list[str]:
    return [finding.code for finding in result.findings]


def test_counts_are_ordered_by_number() -> None:
    assert list(dtype_counts(record(0, bfloat16=2, float32=5)).items()) == [("float32", 5), ("bfloat16", 2)]
    assert dtype_counts({}) == {}


def test_the_counts_are_a_fact() -> None:
    result = check_dtypes([record(0, float32=398), record(1, float32=398)], expected="float32")
    assert result.verdict is Verdict.PASS
    assert result.facts == ("parameters held: 398 parameters in float32",)


def test_an_unexpected_dtype() -> None:
    result = check_dtypes([record(0, bfloat16=398)], expected="float32")
    assert codes(result) == ["dtypes.unexpected"]
    assert "expected in float32, found 398 parameters in bfloat16" in result.findings[0].message


def test_ranks_with_other_dtypes() -> None:
    result = check_dtypes([record(0, float32=2), record(1, float32=1, bfloat16=1)])
    assert codes(result) == ["dtypes.ranks-differ"]
    assert "rank 1 holds" in result.findings[0].message


def test_nothing_counted_is_a_failure() -> None:
    assert codes(check_dtypes([])) == ["dtypes.empty"]
    assert codes(check_dtypes([record(0)])) == ["dtypes.empty"]
    assert codes(compare_dtypes({}, {"float32": 1})) == ["dtypes.empty"]


def test_two_stacks_that_hold_other_dtypes() -> None:
    result = compare_dtypes({"float32": 398}, {"bfloat16": 398}, loss_difference=0.0023)
    assert codes(result) == ["dtypes.changed"]
    assert result.findings[0].message == (
        "stack A holds 398 parameters in float32, stack B 398 parameters in bfloat16. Set the dtype explicitly; "
        "loss difference 0.0023 cannot be judged until then."
    )


def test_two_stacks_that_agree() -> None:
    result = compare_dtypes(
        {"float32": 2, "bfloat16": 1}, {"bfloat16": 1, "float32": 2}, names=("old", "new")
    )
    assert result.verdict is Verdict.PASS
