"""What a launcher is given and what it gives back."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Protocol

__all__ = ["Ended", "Job", "Launcher"]


@dataclass(frozen=True, slots=True)
class Job:
    """One thing to run inside the stack: torchtitan on `ranks` ranks, or one call of a module's `run`."""

    folder: Path
    env: Mapping[str, str]
    log: Path
    timeout: float
    ranks: int = 0
    module: str = ""
    request: Mapping[str, Any] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Ended:
    """How a job ended. `returncodes` by rank; `stopped` are ranks the launcher ended after a peer failed."""

    returncodes: dict[int, int]
    ended: str
    seconds: float
    output: str
    stopped: tuple[int, ...] = ()


class Launcher(Protocol):
    """Starts jobs, one at a time."""

    def launch(self, job: Job, on_tick: Callable[[], None] | None = None) -> Ended:
        """Run `job` to its end. `on_tick` is called many times a second meanwhile."""
        ...

    def close(self) -> None:
        """Stop everything that was started."""
        ...
