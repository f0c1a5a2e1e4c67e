"""What a check says: findings, facts, and the verdict that follows from them."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any

__all__ = ["CheckResult", "Finding", "Verdict", "judge", "not_judged"]


class Verdict(StrEnum):
    """The three possible answers of a check."""

    PASS = "pass"  # noqa: S105 - not a password
    FAIL = "fail"
    NOT_JUDGED = "not-judged"


@dataclass(frozen=True, slots=True)
class Finding:
    """One thing that is wrong.

    `code` is stable and dotted (`keys.prefix`, `loss.random-like`): machines and tests key on it.
    `message` is one line for a person: which file or key, what was found, what was expected, what to
    do next. `data` carries the numbers at full precision, JSON-able.
    """

    code: str
    message: str
    data: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class CheckResult:
    """A check's verdict with its evidence.

    `facts` are what was positively seen ("25 of 25 tensors equal the file's bytes"); `findings` are
    what is wrong; `reason` says why a check was not judged.
    """

    check: str
    verdict: Verdict
    findings: tuple[Finding, ...] = ()
    facts: tuple[str, ...] = ()
    reason: str = ""


def judge(check: str, findings: Iterable[Finding], facts: Iterable[str]) -> CheckResult:
    """Return `fail` if there is any finding, `pass` if there is none and something was seen.

    A check that found nothing wrong because it saw nothing at all fails with `<check>.empty`: the
    absence of an error is never evidence.
    """
    found, seen = tuple(findings), tuple(facts)
    if not found and not seen:
        found = (
            Finding(f"{check}.empty", f"{check}: nothing was there to verify; an empty result is not a pass"),
        )
    return CheckResult(check, Verdict.FAIL if found else Verdict.PASS, found, seen)


def not_judged(check: str, reason: str) -> CheckResult:
    """Return a result that is neither green nor red, with the reason."""
    return CheckResult(check, Verdict.NOT_JUDGED, reason=reason)
