"""`harness lock` and `harness diff` as a person or a machine sees them: text or JSON, and an exit code."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict
from pathlib import Path

from harness.checks.finding import CheckResult, Verdict
from harness.lock.check import check_lock
from harness.lock.diff import diff_stacks, text_lines
from harness.lock.online import check_online
from harness.lock.relock import PARTS, Part, lock_stack
from harness.report.terminal import result_lines
from harness.stack import find_stack, load_stack

__all__ = ["run_check", "run_diff", "run_lock"]

Echo = Callable[[str], None]


def run_lock(
    root: Path,
    name: str,
    *,
    upgrade: bool,
    parts: Sequence[Part],
    as_json: bool,
    echo: Echo,
    say: Echo,
) -> int:
    """Lock a stack (all parts if none is named), print what became of each pin; return 0, or 3 if one is open."""
    report = lock_stack(root, name, upgrade=upgrade, parts=parts or PARTS, say=say)
    if as_json:
        echo(json.dumps({"stack": name, "parts": [asdict(part) for part in report.parts]}, indent=1))
    else:
        for part in report.parts:
            echo(f"{part.part:10}{part.state:12}{part.text}")
    return report.exit_code


def run_check(root: Path, name: str, *, online: bool, as_json: bool, echo: Echo) -> int:
    """Judge a stack's lock (and, `online`, its tags) and print every difference; return 0 if clean, else 1.

    What is unresolved, and so not judged, is said and does not make it unclean.
    """
    stack = load_stack(root, name)
    results = [check_lock(stack), *(check_online(stack) if online else ())]
    if as_json:
        echo(json.dumps({"stack": name, "checks": [_data(result) for result in results]}, indent=1))
    else:
        for result in results:
            for line in result_lines(result):
                echo(line)
    return 1 if any(result.verdict is Verdict.FAIL for result in results) else 0


def _data(result: CheckResult) -> dict[str, object]:
    return {
        "check": result.check,
        "verdict": result.verdict,
        "reason": result.reason,
        "facts": list(result.facts),
        "findings": [{"code": finding.code, "message": finding.message} for finding in result.findings],
    }


def run_diff(root: Path, one: str, other: str, *, as_json: bool, echo: Echo) -> int:
    """Print what differs between two stacks, given by name or by folder; return 0."""
    difference = diff_stacks(find_stack(root, one), find_stack(root, other))
    if as_json:
        echo(json.dumps(asdict(difference), indent=1))
    else:
        for line in text_lines(difference):
            echo(line)
    return 0
