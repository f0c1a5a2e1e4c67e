"""What a call inside the stack reads and leaves: a request file, and a record written whole or not at all."""

import json
import os
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

__all__ = ["run_request", "write_record"]


def write_record(path: Path, record: Any, *, allow_nan: bool = False) -> None:
    """Write `record` as JSON to `path`: a reader sees the old file or the whole new one.

    Raises `ValueError` for a NaN or infinity unless `allow_nan`.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}")
    text = json.dumps(record, indent=1, sort_keys=True, allow_nan=allow_nan)
    partial.write_text(text + "\n", encoding="utf-8")
    partial.replace(path)


def run_request(
    module: str, run: Callable[[dict[str, Any]], Any], arguments: Sequence[str] | None = None
) -> int:
    """Run the request in the file named on the command line of `module`; return 0, or 2 for a wrong call."""
    given = sys.argv[1:] if arguments is None else arguments
    if len(given) != 1:
        print(f"usage: python -m {module} REQUEST.json", file=sys.stderr)
        return 2
    run(json.loads(Path(given[0]).read_text(encoding="utf-8")))
    return 0
