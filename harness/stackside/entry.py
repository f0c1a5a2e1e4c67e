"""Start one rank: under torchrun (`-m harness.stackside.entry`) or forked by the fork server.

It hands over to torchtitan's own `main()`. What it adds: the recipe's folder on the path, the rank's log
file, and a record of the error with its time, so that the first rank to fail is known.
"""

import contextlib
import importlib
import json
import os
import sys
import time
import traceback
from pathlib import Path

from harness.stackside.request import Request, current, write_observed

__all__ = ["StaleFolderError", "main", "refuse_stale"]

LOGS_VARIABLE = "HARNESS_LOGS"
"""Folder for the ranks' log files; without it they write to the terminal."""


def main() -> None:
    """Run torchtitan's trainer for this process's request; exceptions are recorded and raised on."""
    rank = int(os.environ["RANK"])
    if folder := os.environ.get(LOGS_VARIABLE):
        _log_to(Path(folder) / f"rank{rank}.log")
    started = time.time()
    request = current()
    sys.path.insert(0, request.recipe_folder)
    sys.argv = ["torchtitan.train", "--module", "config", "--config", request.config]
    try:
        refuse_stale(request)
        importlib.import_module(request.trainer).main()
    except BaseException as error:
        if not (isinstance(error, SystemExit) and error.code in (0, None)):
            _record_error(rank, error)
        raise
    finally:
        write_observed(f"time-rank{rank}.json", {"started": started, "ended": time.time()})


class StaleFolderError(RuntimeError):
    """The run's folder already holds a run."""


def refuse_stale(request: Request) -> None:
    """Raise `StaleFolderError` if the run's folder holds what an earlier run left.

    torchtitan would continue from an old checkpoint, ignore the initial load, train no step and exit 0.
    """
    checkpoint = request.dump / "checkpoint"
    held = sorted(path.name for path in checkpoint.iterdir()) if checkpoint.is_dir() else []
    if held or (request.observed / "metrics.jsonl").exists():
        what = f"{checkpoint} holds {', '.join(held)}" if held else f"{request.observed} holds metrics.jsonl"
        raise StaleFolderError(
            f"{what}: an earlier run's checkpoint outranks the initial load. Next: run in a fresh folder."
        )


def _log_to(path: Path) -> None:
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
    os.dup2(descriptor, 1)
    os.dup2(descriptor, 2)
    os.close(descriptor)


def _record_error(rank: int, error: BaseException) -> None:
    record = {
        "rank": rank,
        "time": time.time(),
        "type": type(error).__name__,
        "message": str(error).strip() or type(error).__name__,
        "traceback": traceback.format_exc(),
    }
    # A full disk must not hide the error that is being reported.
    with contextlib.suppress(OSError):
        write_observed(f"error-rank{rank}.json", record)
    # torchrun shows this file's content as the root cause.
    if path := os.environ.get("TORCHELASTIC_ERROR_FILE"):
        with contextlib.suppress(OSError):
            details = {
                "message": {"message": record["traceback"], "extraInfo": {"timestamp": int(time.time())}}
            }
            Path(path).write_text(json.dumps(details))


if __name__ == "__main__":
    main()
