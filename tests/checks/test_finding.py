"""Verdicts follow from findings and facts."""

from harness.checks.finding import Finding, Verdict, judge, not_judged


def test_findings_fail() -> None:
    assert judge("loss", [Finding("loss.x", "wrong")], ["seen"]).verdict is Verdict.FAIL


def test_facts_without_findings_pass() -> None:
    assert judge("loss", [], ["seen"]).verdict is Verdict.PASS


def test_nothing_wrong_because_nothing_was_seen_fails() -> None:
    result = judge("loss", [], [])
    assert result.verdict is Verdict.FAIL
    assert result.findings[0].code == "loss.empty"


def test_not_judged_is_neither() -> None:
    result = not_judged("loss", "the run broke")
    assert result.verdict is Verdict.NOT_JUDGED
    assert result.reason == "the run broke"
