"""The command line: parses, calls one function per command, maps the result to an exit code.

Exit codes: 0 passed, 1 a check or a run failed, 2 usage or bad input, 3 infrastructure, 130 interrupted.
Heavy imports stay inside the commands, so that `harness --help` and `harness list` answer at once.
"""

import signal
import sys

from harness.cli import files, running, stacks
from harness.cli.common import cli

__all__ = ["cli", "files", "main", "running", "stacks"]


def _terminated(*_: object) -> None:
    raise KeyboardInterrupt


def main() -> None:
    """Entry point of the `harness` command. A polite kill ends it as Ctrl-C does: children stopped, evidence kept."""
    signal.signal(signal.SIGTERM, _terminated)
    cli.main(prog_name="harness", standalone_mode=True, args=sys.argv[1:])
