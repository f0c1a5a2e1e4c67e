"""The terminal: plain lines in a pipe, nothing that lies."""

import io
from typing import Any

import pytest
from rich.console import Console

from harness.checks.finding import Finding, judge, not_judged
from harness.report.terminal import Reporter, result_lines


@pytest.fixture
def reporter() -> Reporter:
    found = Reporter()
    found.console = Console(file=io.StringIO(), width=200)
    found.out = Console(file=io.StringIO(), width=200)
    return found


def text(console: Console) -> str:
    assert isinstance(console.file, io.StringIO)
    return console.file.getvalue()


def summary(verdict: str = "pass", outcome: str = "passed", faults: tuple[str, ...] = ()) -> dict[str, Any]:
    checks = {"loss": {"verdict": verdict, "reason": "", "facts": [], "findings": []}}
    run = {"recipe": "native", "run": "random-init", "outcome": outcome, "seconds": 1.25, "checks": checks}
    return {"runs": [run], "faults": list(faults), "folder": "/runs/x", "stack": "cpu"}


def test_a_step_is_one_line_with_its_loss(reporter: Reporter) -> None:
    reporter.event("step", {"step": 1, "loss": 6.25, "step_seconds": 0.5})
    reporter.event("step", {"step": 2, "loss": float("nan"), "step_seconds": 0.25})
    lines = text(reporter.console).splitlines()
    assert lines == ["  step 1  loss 6.25000  0.50 s (warm-up)", "  step 2  loss nan  0.25 s"]


def test_there_is_no_colour_in_a_pipe(reporter: Reporter) -> None:
    reporter.event("verdict", {"result": judge("loss", [Finding("loss.empty", "nothing")], [])})
    reporter.summary(summary())
    assert "\x1b" not in text(reporter.console) + text(reporter.out)


def test_findings_and_reasons_are_shown(reporter: Reporter) -> None:
    reporter.event(
        "verdict", {"result": judge("loss", [Finding("loss.empty", "no step [bold]was[/bold]")], [])}
    )
    reporter.event("verdict", {"result": not_judged("keys", "the run broke")})
    shown = text(reporter.console)
    assert "loss.empty: no step [bold]was[/bold]" in shown, "markup in a message is text"
    assert "the run broke" in shown


def test_an_ended_run_shows_the_first_ranks_traceback(reporter: Reporter) -> None:
    data = {"outcome": "failed", "reason": "rank 1 failed first", "traceback": "Traceback\n  KeyError: 'x'\n"}
    reporter.event("ended", data)
    assert "rank 1 failed first" in text(reporter.console)
    assert "KeyError: 'x'" in text(reporter.console)


@pytest.mark.parametrize(
    ("verdict", "outcome", "words"),
    [
        ("pass", "passed", "1 passed, 0 failed, 0 not judged"),
        ("fail", "passed", "0 passed, 1 failed, 0 not judged"),
        ("not-judged", "timeout", "0 passed, 0 failed, 1 not judged; 1 runs broke"),
    ],
)
def test_the_summary_counts_what_there_is(reporter: Reporter, verdict: str, outcome: str, words: str) -> None:
    reporter.summary(summary(verdict, outcome))
    assert f"1 runs, 1 checks: {words}" in text(reporter.out)


def test_seeded_faults_are_said_aloud(reporter: Reporter) -> None:
    reporter.summary(summary(faults=("rope-sign",)))
    assert "seeded faults in this session: rope-sign" in text(reporter.out)


def test_unknown_events_are_no_error(reporter: Reporter) -> None:
    reporter.event("something-new", {})


def test_results_are_plain_lines() -> None:
    lines = list(result_lines(judge("keys", [Finding("keys.missing", "one key")], ["25 tensors"])))
    assert lines == ["keys: fail", "  25 tensors", "  keys.missing: one key"]
