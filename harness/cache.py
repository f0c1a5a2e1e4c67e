"""Where the harness keeps what can be made again, and how a folder gets there whole or not at all."""

import contextlib
import os
import shutil
import tempfile
from collections.abc import Callable
from pathlib import Path

from filelock import FileLock

__all__ = ["cache_root", "make_once"]

_COMPLETE = ".complete"


def cache_root() -> Path:
    """Return the cache folder: `$HARNESS_CACHE`, else `$XDG_CACHE_HOME/trn-harness`, else `~/.cache/trn-harness`."""
    if given := os.environ.get("HARNESS_CACHE"):
        return Path(given).absolute()
    base = os.environ.get("XDG_CACHE_HOME")
    return (Path(base) if base else Path.home() / ".cache") / "trn-harness"


def make_once(folder: Path, make: Callable[[Path], None]) -> bool:
    """Make `folder` by `make(partial)` unless it is already complete; return whether it was made now.

    The content appears under its name only when it is whole: it is made beside it and renamed. Two
    processes that want the same folder wait for each other.
    """
    if (folder / _COMPLETE).exists():
        return False
    folder.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{folder}.lock"):
        if (folder / _COMPLETE).exists():
            return False
        partial = Path(tempfile.mkdtemp(prefix=f".{folder.name}.", dir=folder.parent))
        try:
            make(partial)
            (partial / _COMPLETE).touch()
            if folder.exists():
                shutil.rmtree(folder)
            partial.rename(folder)
        finally:
            with contextlib.suppress(FileNotFoundError):
                shutil.rmtree(partial)
    return True
