"""What the doctor says: lines with a level, what was found, what was expected and what to do next."""

from collections.abc import Iterable, Iterator
from dataclasses import asdict, dataclass
from enum import StrEnum
from typing import Any

from harness.sdk import SdkMatch

__all__ = ["Level", "Line", "Report", "error", "exit_code", "ok", "report_lines", "skipped", "warning"]


class Level(StrEnum):
    """How a line is meant. A line that could not be judged is `skipped`, which is not `ok`."""

    OK = "ok"
    SKIPPED = "skipped"
    WARNING = "warning"
    ERROR = "error"


@dataclass(frozen=True, slots=True)
class Line:
    """One thing that was looked at.

    `code` is stable and dotted (`devices.hole`): machines and tests key on it. `name` is its first part.
    """

    level: Level
    code: str
    found: str
    expected: str = ""
    action: str = ""

    @property
    def name(self) -> str:
        """What was looked at: the code up to its first dot."""
        return self.code.partition(".")[0]


def ok(code: str, found: str, expected: str = "") -> Line:
    """Return a line for something that is as it should be."""
    return Line(Level.OK, code, found, expected)


def skipped(code: str, why: str) -> Line:
    """Return a line for something that is not needed here, or that cannot be judged; `why` says which."""
    return Line(Level.SKIPPED, code, why)


def warning(code: str, found: str, expected: str, action: str) -> Line:
    """Return a line for something that a run survives but a person should know."""
    return Line(Level.WARNING, code, found, expected, action)


def error(code: str, found: str, expected: str, action: str) -> Line:
    """Return a line for something that stops a run or makes its result worthless."""
    return Line(Level.ERROR, code, found, expected, action)


@dataclass(frozen=True, slots=True)
class Report:
    """Everything the doctor said of one host and one stack."""

    stack: str
    container: bool
    lines: tuple[Line, ...]
    sdk: SdkMatch

    def of(self, level: Level) -> tuple[Line, ...]:
        """Return the lines of one level, in order."""
        return tuple(line for line in self.lines if line.level is level)

    def as_json(self) -> dict[str, Any]:
        """Return the report as JSON-able data."""
        return {
            "schema": 1,
            "stack": self.stack,
            "where": "container" if self.container else "host",
            "exit_code": exit_code(self),
            "sdk": {
                "releases": list(self.sdk.releases),
                "components": dict(self.sdk.components),
                "nearest": {release: list(lines) for release, lines in self.sdk.nearest.items()},
            },
            "lines": [{"name": line.name, **asdict(line)} for line in self.lines],
        }


def exit_code(report: Report) -> int:
    """Return the command's exit code: 1 if any line is an error, else 0."""
    return 1 if report.of(Level.ERROR) else 0


def report_lines(report: Report) -> Iterator[str]:
    """Yield the report as text: a line each, with `expected` and `next` below what is not well."""
    for line in report.lines:
        yield f"{line.level:8} {line.name:14} {line.found}"
        if line.level in (Level.WARNING, Level.ERROR):
            yield f"{'':8} {'':14} expected: {line.expected}"
            yield f"{'':8} {'':14} next: {line.action}"
    yield ""
    yield _total(report.lines, report)


def _total(lines: Iterable[Line], report: Report) -> str:
    counts = dict.fromkeys(Level, 0)
    for line in lines:
        counts[line.level] += 1
    where = "in a container" if report.container else "on the host"
    return (
        f"stack {report.stack}, {where}: {counts[Level.ERROR]} error(s), {counts[Level.WARNING]} warning(s), "
        f"{counts[Level.OK]} ok, {counts[Level.SKIPPED]} skipped"
    )
