"""Follows a log while a process writes it."""

import contextlib
from collections.abc import Callable
from pathlib import Path

__all__ = ["Tail"]


class Tail:
    """Hands on each whole line of a growing log, once. `show` is to be called now and then, and at the end."""

    def __init__(self, log: Path, line: Callable[[str], None]) -> None:
        """Follow `log`, which need not exist yet; `line` gets every line without its end."""
        self.log, self.line, self._read = log, line, 0

    def show(self) -> None:
        """Hand on what has been written since the last call; an unfinished line waits."""
        with contextlib.suppress(FileNotFoundError), self.log.open("rb") as file:
            file.seek(self._read)
            while (text := file.readline()).endswith(b"\n"):
                self._read = file.tell()
                self.line(text.decode("utf-8", errors="replace").rstrip("\r\n"))
