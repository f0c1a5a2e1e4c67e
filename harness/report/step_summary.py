"""The summary of sessions as Markdown, for a CI system's page: `python -m harness.report.step_summary runs`."""

import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

__all__ = ["main", "summary_lines"]

_MARKS = {"pass": "✓", "fail": "✗"}


def summary_lines(runs: Path) -> Iterator[str]:
    """Yield Markdown for every session below `runs`, oldest first; one line saying so if there is none."""
    folders = sorted(path for path in runs.glob("*") if path.is_dir())
    if not folders:
        yield "No session ran."
    for folder in folders:
        path = folder / "session.json"
        if not path.is_file():
            yield f"`{folder.name}` did not end."
            continue
        session: dict[str, Any] = json.loads(path.read_text(encoding="utf-8"))
        yield f"### stack {session['stack']}, session {folder.name}"
        yield ""
        yield "| recipe | run | outcome | checks |"
        yield "| --- | --- | --- | --- |"
        for run in session["runs"]:
            checks = " ".join(
                f"{_MARKS.get(check['verdict'], '?')} {name}" for name, check in run["checks"].items()
            )
            yield f"| {run['recipe']} | {run['run']} | {run['outcome']} | {checks} |"
        yield ""
        yield from _findings(session)


def _findings(session: dict[str, Any]) -> Iterator[str]:
    for run in session["runs"]:
        where = f"{run['recipe']} {run['run']}"
        if run["reason"]:
            yield f"- {where}: {_plain(run['reason'])}"
        for check in run["checks"].values():
            for finding in check["findings"]:
                yield f"- {where}: `{finding['code']}` {_plain(finding['message'])}"


def _plain(text: str) -> str:
    """One line that Markdown and HTML leave alone."""
    return " ".join(text.split()).replace("&", "&amp;").replace("<", "&lt;").replace("|", "\\|")


def main(arguments: list[str]) -> int:
    """Print the summary of the runs folder that is named (default `runs`); return 0."""
    runs = Path(arguments[0]) if arguments else Path("runs")
    for line in summary_lines(runs):
        print(line)
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
