"""Twin: two runs that must be the same give bitwise the same losses and gradient norms."""

from collections.abc import Mapping, Sequence
from typing import Any

from harness.checks.finding import CheckResult, Finding, judge

__all__ = ["check_twin"]

NAME = "twin"
_KEYS = ("loss", "grad_norm")


def check_twin(
    rows: Sequence[Mapping[str, Any]], twin: Sequence[Mapping[str, Any]], *, name: str
) -> CheckResult:
    """Judge metrics rows against those of the run called `name`, step by step, every bit.

    Two empty runs are not equal: there is nothing to compare.
    """
    mine, other = ({row["step"]: row for row in side} for side in (rows, twin))
    if not mine or not other:
        empty = "this run" if not mine else f"`{name}`"
        return judge(NAME, [Finding("twin.empty", f"{empty} recorded no step: nothing to compare")], ())
    findings = []
    if lone := sorted(mine.keys() ^ other.keys()):
        findings.append(
            Finding("twin.steps", f"steps {lone} were recorded in only one of this run and `{name}`")
        )
    shared = sorted(mine.keys() & other.keys())
    wrong = [(step, key) for step in shared for key in _KEYS if not _equal(mine[step][key], other[step][key])]
    if wrong:
        step, key = wrong[0]
        got, want = mine[step][key], other[step][key]
        findings.append(
            Finding(
                "twin.differs",
                f"{len({at for at, _ in wrong})} of {len(shared)} steps differ from `{name}`; first at step {step}: "
                f"{key} {got!r} against {want!r}, off by {got - want:.3g}. {_reading(step)}",
                {"first_step": step, "key": key, "got": got, "expected": want},
            )
        )
    return judge(
        NAME, findings, [f"{len(shared)} steps compared with `{name}`, loss and gradient norm, every bit"]
    )


def _equal(one: float, other: float) -> bool:
    # By bits, so that two NaN are equal here: that they are NaN is the loss check's to say.
    return float(one).hex() == float(other).hex()


def _reading(step: int) -> str:
    if step == 1:
        return "Step 1 already differs: look at weights, data and the forward pass"
    return "Step 1 is equal: look at the backward pass and the optimizer"
