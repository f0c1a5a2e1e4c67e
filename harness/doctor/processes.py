"""Which processes hold a Neuron device open, from /proc."""

import os
import time
from collections.abc import Callable
from pathlib import Path

from harness.doctor.host import Holder

__all__ = ["holds_cores", "read_holders", "wait_until_free"]

_PREFIX = "/dev/neuron"
_TICKS = os.sysconf("SC_CLK_TCK")
_PAUSE_SECONDS = 1.0
_START_FIELD = 19
"""Position of a process's start time among the fields after its name in /proc/<pid>/stat."""


def read_holders(root: Path, own: frozenset[int] = frozenset()) -> tuple[Holder, ...]:
    """Return the processes under `root`/proc that hold /dev/neuron* open, except `own`, by pid.

    A process whose open files cannot be read (another user's, without root) is not among them.
    """
    uptime = _uptime(root)
    found = []
    for folder in (root / "proc").glob("[0-9]*"):
        pid = int(folder.name) if folder.name.isdigit() else None
        if pid is None or pid in own:
            continue
        devices = _devices(folder)
        if devices:
            found.append(Holder(pid, _command(folder), _age(folder, uptime), devices))
    return tuple(sorted(found, key=lambda holder: holder.pid))


def holds_cores(holder: Holder) -> bool:
    """Return whether a process that has a device open holds its cores: tools that only watch do not."""
    program = holder.command.split(" ", 1)[0].rpartition("/")[2]
    return program not in ("neuron-monitor", "neuron-top", "neuron-ls")


def wait_until_free(
    limit: float,
    read: Callable[[], tuple[Holder, ...]] = lambda: read_holders(Path("/"), frozenset({os.getpid()})),
    *,
    clock: Callable[[], float] = time.monotonic,
    sleep: Callable[[float], None] = time.sleep,
) -> tuple[Holder, ...]:
    """Wait up to `limit` seconds for the cores to be free; return who has a device open at the end."""
    deadline = clock() + limit
    found = read()
    while any(map(holds_cores, found)) and clock() < deadline:
        sleep(_PAUSE_SECONDS)
        found = read()
    return found


def _devices(folder: Path) -> tuple[int, ...]:
    found = set()
    try:
        entries = list((folder / "fd").iterdir())
    except OSError:
        return ()
    for entry in entries:
        try:
            target = str(entry.readlink())
        except OSError:
            continue
        number = target.removeprefix(_PREFIX)
        if target.startswith(_PREFIX) and number.isdigit():
            found.add(int(number))
    return tuple(sorted(found))


def _command(folder: Path) -> str:
    try:
        raw = (folder / "cmdline").read_bytes()
    except OSError:
        return ""
    return " ".join(part.decode("utf-8", errors="replace") for part in raw.split(b"\0") if part)


def _uptime(root: Path) -> float | None:
    try:
        return float((root / "proc" / "uptime").read_text().split()[0])
    except (OSError, ValueError, IndexError):
        return None


def _age(folder: Path, uptime: float | None) -> float | None:
    try:
        # The name is in parentheses and may hold anything, blanks and parentheses included.
        fields = (folder / "stat").read_text(errors="replace").rpartition(")")[2].split()
        started = int(fields[_START_FIELD]) / _TICKS
    except (OSError, ValueError, IndexError):
        return None
    return None if uptime is None else max(0.0, uptime - started)
