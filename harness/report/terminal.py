"""The terminal: live progress on stderr, the summary on stdout.

Colour and a moving line only on a terminal; NO_COLOR is honoured; a pipe gets plain lines.
"""

import io
import math
from collections.abc import Iterator, Mapping
from typing import Any

from rich.console import Console
from rich.table import Table
from rich.text import Text

from harness.checks.finding import CheckResult

__all__ = ["Reporter", "result_lines"]

_MARKS = {"pass": ("✓", "green"), "fail": ("✗", "red"), "not-judged": ("?", "yellow")}
_OUTCOMES = {"passed": "green", "failed": "red"}
UNVERIFIED = (
    "Unverified on hardware: the cpu stack proves logic and numbers, not that a recipe runs on Trainium."
)
_WIDE = 140
"""Columns from which every check's name fits on a run's line."""
_TIMES = ("seconds", "warm-up", "step")
_SHOWN_PACKAGES = ("torch", "transformers", "torchtitan", "torch-neuronx", "neuronx-cc", "nki")


def result_lines(result: CheckResult) -> Iterator[str]:
    """Yield a check's verdict, facts and findings as plain lines."""
    yield f"{result.check}: {result.verdict}" + (f" ({result.reason})" if result.reason else "")
    for fact in result.facts:
        yield f"  {fact}"
    for finding in result.findings:
        yield f"  {finding.code}: {finding.message}"


class Reporter:
    """Shows a session's events as they come."""

    def __init__(self) -> None:
        """Write progress to stderr and the summary to stdout."""
        self.console = Console(stderr=True, highlight=False)
        self.out = Console(highlight=False)
        self.discard = io.StringIO()
        self._status = self.console.status("") if self.console.is_terminal else None
        self._phase, self._steps = "", ""
        if self._status is not None:
            self._status.start()

    def event(self, event: str, data: Mapping[str, Any]) -> None:
        """Show one event of the session."""
        handler = getattr(self, f"_on_{event}", None)
        if handler is not None:
            handler(data)

    def _on_say(self, data: Mapping[str, Any]) -> None:
        self.console.print(Text(data["text"], style="dim"))

    def _on_session(self, data: Mapping[str, Any]) -> None:
        packages = data["packages"]
        versions = "  ".join(f"{name} {packages[name]}" for name in _SHOWN_PACKAGES if name in packages)
        stack = data["stack"]
        self.console.print(
            Text.assemble(("stack ", "dim"), (stack.name, "bold"), f"  {versions}  {stack.ranks} ranks")
        )
        self.console.print(Text(f"evidence in {data['folder']}", style="dim"))

    def _on_run(self, data: Mapping[str, Any]) -> None:
        self._steps = ""
        self.console.print(
            Text.assemble("\n", (f"{data['recipe']} ", "bold"), f"{data['run']}: {data['summary']}")
        )

    def _on_phase(self, data: Mapping[str, Any]) -> None:
        self._phase = data["phase"]
        self._show()

    def _on_step(self, data: Mapping[str, Any]) -> None:
        loss = data["loss"]
        shown = f"{loss:.5f}" if isinstance(loss, float) and math.isfinite(loss) else str(loss)
        warm_up = " (warm-up)" if data["step"] == 1 else ""
        self._steps = f"step {data['step']}  loss {shown}  {data['step_seconds']:.2f} s{warm_up}"
        if self._status is None:
            self.console.print(f"  {self._steps}")
        self._show()

    def _show(self) -> None:
        if self._status is not None:
            self._status.update(f"{self._phase}  {self._steps}")

    def _on_ended(self, data: Mapping[str, Any]) -> None:
        outcome = data["outcome"]
        line = Text.assemble("  ", (str(outcome), _OUTCOMES.get(outcome, "yellow")))
        if self._status is not None and self._steps:
            line.append(f"  {self._steps}", style="dim")
        if data["reason"]:
            line.append(f"  {data['reason']}")
        self.console.print(line)
        if data["traceback"]:
            self.console.print(Text(data["traceback"].rstrip(), style="dim"))

    def _on_verdict(self, data: Mapping[str, Any]) -> None:
        result: CheckResult = data["result"]
        mark, colour = _MARKS[result.verdict]
        detail = result.reason or "; ".join(result.facts)
        self.console.print(Text.assemble("  ", (mark, colour), f" {result.check:14}", (detail, "dim")))
        for finding in result.findings:
            self.console.print(Text.assemble("      ", (finding.code, colour), f": {finding.message}"))

    def close(self) -> None:
        """End the moving line."""
        if self._status is not None:
            self._status.stop()

    def summary(self, summary: Mapping[str, Any]) -> None:
        """Print the table of a finished session."""
        table = Table(box=None, pad_edge=False, header_style="bold")
        for column in ("recipe", "run", "outcome", "seconds", "warm-up", "step", "checks"):
            table.add_column(
                column, justify="right" if column in _TIMES else "left", no_wrap=column != "checks"
            )
        for run in summary["runs"]:
            marks = _marks(run["checks"], names=self.out.width >= _WIDE)
            outcome = Text(run["outcome"], style=_OUTCOMES.get(run["outcome"], "yellow"))
            seconds = "" if run["seconds"] is None else f"{run['seconds']:.1f}"
            times = run.get("step_seconds") or {}
            steps = [f"{times[name]:.2f}" if name in times else "" for name in ("warm_up", "steady")]
            table.add_row(run["recipe"], run["run"], outcome, seconds, *steps, marks)
        self.out.print()
        self.out.print(table)
        verdicts = [check["verdict"] for run in summary["runs"] for check in run["checks"].values()]
        broken = sum(run["outcome"] not in _OUTCOMES for run in summary["runs"])
        self.out.print(
            f"\n{len(summary['runs'])} runs, {len(verdicts)} checks: {verdicts.count('pass')} passed, "
            f"{verdicts.count('fail')} failed, {verdicts.count('not-judged')} not judged"
            + (f"; {broken} runs broke" if broken else "")
        )
        if summary["faults"]:
            self.out.print(f"seeded faults in this session: {', '.join(summary['faults'])}")
        self.out.print(f"evidence: {summary['folder']}", soft_wrap=True)
        if summary["stack"] == "cpu":
            self.out.print(UNVERIFIED)


def _marks(checks: Mapping[str, Any], *, names: bool) -> Text:
    """Return the checks of a run by name, or where there is no room for that: how many passed, and the others."""
    passed = [name for name, check in checks.items() if check["verdict"] == "pass"]
    shown = [
        Text(f"{_MARKS[check['verdict']][0]}\u00a0{name}", style=_MARKS[check["verdict"]][1])
        for name, check in checks.items()
        if names or check["verdict"] != "pass"
    ]
    if passed and not names:
        shown.insert(0, Text(f"✓\u00a0{len(passed)}", style="green"))
    return Text(" ").join(shown)
