"""What a step of the build has to say: one line per finding, with a prefix that the builder looks for."""

import sys
from collections.abc import Sequence

__all__ = ["PREFIX", "report"]

PREFIX = "image-check: "
"""Begins every line with a finding, so that the builder can pick it out of the build's output."""


def report(findings: Sequence[str]) -> int:
    """Print `findings` on standard error and return the step's exit code: 1 if there are any, else 0."""
    for finding in findings:
        print(f"{PREFIX}{finding}", file=sys.stderr)
    return 1 if findings else 0
