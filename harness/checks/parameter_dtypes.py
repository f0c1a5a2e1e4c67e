"""The dtypes in which a model holds its parameters, and whether two runs agree on them. Pure."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from harness.checks.finding import CheckResult, Finding, judge
from harness.checks.wording import counted, shown

__all__ = ["check_dtypes", "compare_dtypes", "dtype_counts"]


def dtype_counts(record: Mapping[str, Any]) -> dict[str, int]:
    """Return the number of parameters per dtype in one rank's start record, most frequent first."""
    counts = Counter(str(parameter.get("dtype")) for parameter in record.get("parameters") or ())
    return dict(sorted(counts.items(), key=lambda item: (-item[1], item[0])))


def check_dtypes(records: Sequence[Mapping[str, Any]], *, expected: str | None = None) -> CheckResult:
    """Judge that all ranks hold the same number of parameters per dtype, and only `expected` if given.

    Codes `dtypes.empty`, `dtypes.unexpected`, `dtypes.ranks-differ`.
    """
    counts = [dtype_counts(record) for record in records]
    if not counts or not all(counts):
        return judge("dtypes", (), ())
    findings = []
    for record, of_rank in zip(records, counts, strict=True):
        if of_rank != counts[0]:
            first = f"rank {records[0].get('rank')} {_listed(counts[0])}"
            message = f"rank {record.get('rank')} holds {_listed(of_rank)}, {first}; all ranks must agree."
            findings.append(Finding("dtypes.ranks-differ", message, {"counts": counts}))
    others = {dtype: count for dtype, count in counts[0].items() if expected not in (None, dtype)}
    if others:
        message = f"parameters expected in {expected}, found {_listed(others)}. Set the dtype explicitly."
        findings.append(Finding("dtypes.unexpected", message, {"expected": expected, "counts": counts[0]}))
    return judge("dtypes", findings, [f"parameters held: {_listed(counts[0])}"])


def compare_dtypes(
    one: Mapping[str, int],
    other: Mapping[str, int],
    *,
    names: tuple[str, str] = ("A", "B"),
    loss_difference: float | None = None,
) -> CheckResult:
    """Judge that two stacks hold their parameters in the same dtypes; code `dtypes.changed`.

    `one` and `other` are counts per dtype; `loss_difference` is only quoted: it cannot be judged
    while the dtypes differ.
    """
    if not one or not other:
        return judge("dtypes", (), ())
    if dict(one) == dict(other):
        return judge("dtypes", (), [f"both hold {_listed(one)}"])
    loss = (
        f"; loss difference {loss_difference:.4g} cannot be judged until then"
        if loss_difference is not None
        else ""
    )
    message = (
        f"stack {shown(names[0])} holds {_listed(one)}, stack {shown(names[1])} {_listed(other)}. "
        f"Set the dtype explicitly{loss}."
    )
    return judge(
        "dtypes", [Finding("dtypes.changed", message, {names[0]: dict(one), names[1]: dict(other)})], ()
    )


def _listed(counts: Mapping[str, int]) -> str:
    return ", ".join(f"{counted(count, 'parameter')} in {shown(dtype)}" for dtype, count in counts.items())
