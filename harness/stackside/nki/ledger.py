"""What was launched: one record per kernel launch, kept in the order of the launches."""

import threading
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

__all__ = ["LEDGER", "Argument", "Launch", "Ledger"]


@dataclass(frozen=True, slots=True)
class Argument:
    """One argument of a launch: an array by shape and dtype, anything else by its value."""

    name: str
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    value: bool | int | float | str | None = None

    def to_json(self) -> dict[str, Any]:
        """Return `{"name", "shape", "dtype"}` for an array, `{"name", "value"}` for the rest."""
        if self.shape is None:
            return {"name": self.name, "value": self.value}
        return {"name": self.name, "shape": list(self.shape), "dtype": self.dtype}


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch of a kernel.

    `source` is `file:line` of the kernel function, `grid` the number of logical cores (LNC) it ran
    on. The interpreter fills the rest exactly; for AWS's own backends, which say nothing about a
    launch, those fields are None. `ops` counts instructions by name over all cores,
    `hbm_bytes_written` is in bytes. `unwritten` counts elements of the returned tensors that no
    instruction wrote, `nan` the NaN among those that were written (uninitialised on-chip memory reads
    as NaN) and `nan_inputs` the NaN of the arguments (counted only when `nan` is not 0). `error` is the exception
    that ended the launch, `Type: text`.
    """

    kernel: str
    source: str
    backend: str
    grid: int
    arguments: tuple[Argument, ...]
    ops: Mapping[str, int] | None = None
    hbm_bytes_written: int | None = None
    unwritten: int | None = None
    nan: int | None = None
    nan_inputs: int | None = None
    error: str | None = None

    @property
    def sentinels(self) -> int | None:
        """Elements of the result that come from uninitialised memory; None where that is unknown."""
        if self.unwritten is None or self.nan is None:
            return None
        return self.unwritten + (0 if self.nan_inputs else self.nan)

    def to_json(self) -> dict[str, Any]:
        """Return the launch as a JSON-able dictionary, with `sentinels` worked out."""
        return {
            "kernel": self.kernel,
            "source": self.source,
            "backend": self.backend,
            "grid": self.grid,
            "args": [argument.to_json() for argument in self.arguments],
            "ops": None if self.ops is None else dict(sorted(self.ops.items())),
            "hbm_bytes_written": self.hbm_bytes_written,
            "sentinels": self.sentinels,
            "error": self.error,
        }


class Ledger:
    """An append-only list of launches; safe to write from autograd's threads."""

    def __init__(self) -> None:
        self._launches: list[Launch] = []
        self._lock = threading.Lock()

    def add(self, launch: Launch) -> None:
        """Append `launch`."""
        with self._lock:
            self._launches.append(launch)

    def mark(self) -> int:
        """Return a position to hand to `since`."""
        with self._lock:
            return len(self._launches)

    def since(self, mark: int = 0) -> tuple[Launch, ...]:
        """Return the launches added after `mark`, those that raised included."""
        with self._lock:
            return tuple(self._launches[mark:])

    def clear(self) -> None:
        """Forget every launch."""
        with self._lock:
            self._launches.clear()


LEDGER = Ledger()
