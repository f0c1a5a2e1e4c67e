"""Draw the summary of a session as the SVG that the README shows: `picture.py SESSION.json OUT.svg`."""

import io
import json
import re
import sys
from pathlib import Path

from rich.console import Console

from harness.report.terminal import Reporter


def main(session: str, out: str) -> None:
    """Draw `session` (a session.json) into `out`; the file refers to nothing outside itself."""
    reporter = Reporter()
    reporter.out = Console(record=True, width=150, file=io.StringIO(), highlight=False)
    summary = json.loads(Path(session).read_text())
    summary["folder"] = f"runs/{Path(summary['folder']).name}"
    reporter.summary(summary)
    svg = reporter.out.export_svg(title="harness run")
    svg = re.sub(r"@font-face \{.*?\}\s*", "", svg, flags=re.DOTALL).replace(
        "Fira Code, monospace", "monospace"
    )
    Path(out).write_text(svg)


if __name__ == "__main__":
    main(*sys.argv[1:])
