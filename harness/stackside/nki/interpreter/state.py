"""What a running launch knows: its cores, its shared allocations, its counters."""

from collections import Counter
from contextvars import ContextVar
from dataclasses import dataclass, field

from harness.stackside.nki.interpreter.tensor import NkiTensor

__all__ = ["Running", "current", "running"]


@dataclass(slots=True)
class Running:
    """A launch in progress.

    `grid` is the number of cores of `kernel[lnc]`, 0 for a launch without brackets; `program` is
    the core being executed. The cores run one after the other and share what they allocate in
    `shared_hbm`, matched by the order of allocation.
    """

    grid: int
    program: int = 0
    shared: list[NkiTensor] = field(default_factory=list)
    next_shared: int = 0
    ops: Counter[str] = field(default_factory=Counter)
    hbm_bytes_written: int = 0

    def begin(self, program: int) -> None:
        """Start executing `program` from its first allocation."""
        self.program, self.next_shared = program, 0


running: ContextVar[Running | None] = ContextVar("running", default=None)


def current(what: str) -> Running:
    """Return the launch in progress; RuntimeError says that `what` was used outside a kernel."""
    launch = running.get()
    if launch is None:
        raise RuntimeError(f"{what} was called outside a kernel launch")
    return launch
