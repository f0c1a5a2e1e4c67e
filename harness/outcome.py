"""How a run ended: the outcome, from exit states and from what the first failing rank raised.

Deliberate properties:

- the first rank to fail decides; what others say after it is noise (a peer that lost its connection
  says "connection reset", whatever really happened);
- a table of signatures, first hit wins, each with the reason why it is where it is;
- what no signature knows is the recipe's own failure, never infrastructure: a harness that excuses
  unknown errors passes everything.
"""

import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from enum import StrEnum
from typing import Any

__all__ = ["Outcome", "RunEnd", "classify", "first_error"]


class Outcome(StrEnum):
    """How a run ended. All but the first two mean that nothing can be said of the recipe."""

    PASSED = "passed"
    FAILED = "failed"
    INFRASTRUCTURE = "infrastructure"
    COMPILE = "compile"
    OUT_OF_MEMORY = "out-of-memory"
    TIMEOUT = "timeout"
    INTERRUPTED = "interrupted"

    @property
    def broken(self) -> bool:
        """Whether the run broke before it could be judged."""
        return self not in (Outcome.PASSED, Outcome.FAILED)


@dataclass(frozen=True, slots=True)
class RunEnd:
    """An outcome with its one-line reason and, where a rank raised, that rank and its traceback."""

    outcome: Outcome
    reason: str = ""
    rank: int | None = None
    traceback: str = ""


_SIGNATURES: tuple[tuple[Outcome, str], ...] = (
    # Memory first: an allocation that fails inside a compiler or a collective is still memory.
    (
        Outcome.OUT_OF_MEMORY,
        r"OutOfMemoryError|out of memory|Cannot allocate memory|std::bad_alloc|DefaultCPUAllocator",
    ),
    (Outcome.COMPILE, r"neuronx-cc|NEURON_CC_WRAPPER|Compilation fail|InductorError|BackendCompilerFailed"),
    # A full disk surfaces as an OSError of whatever was being written.
    (Outcome.INFRASTRUCTURE, r"No space left on device|Disk quota exceeded|Read-only file system"),
    (
        Outcome.INFRASTRUCTURE,
        r"No neuron device available|Could not open the nd\d+|Neuron cores are not contiguous",
    ),
    (Outcome.INFRASTRUCTURE, r"logical neuron core\(s\) not available|NRT:nrt_init"),
    (
        Outcome.INFRASTRUCTURE,
        r"RendezvousConnectionError|RendezvousTimeoutError|EADDRINUSE|Address already in use|DistNetworkError",
    ),
)


def classify(
    returncodes: Mapping[int, int] | int,
    *,
    ended: str,
    errors: Sequence[Mapping[str, Any]],
    output: str = "",
    stopped: Sequence[int] = (),
) -> RunEnd:
    """Return how the run ended.

    `returncodes` by rank (or the launcher's own), `ended` as `process.Completed` says it, `errors` the
    ranks' error records ({"rank", "time", "type", "message", "traceback"}), `output` the launcher's,
    `stopped` the ranks that the launcher itself ended after another had failed.
    """
    codes = dict(returncodes) if isinstance(returncodes, Mapping) else {-1: returncodes}
    if ended == "interrupted":
        return RunEnd(Outcome.INTERRUPTED, "stopped by the user")
    if ended == "timeout":
        return RunEnd(Outcome.TIMEOUT, "ran past its time limit and was stopped")
    if codes and all(code == 0 for code in codes.values()):
        return RunEnd(Outcome.PASSED)
    error = first_error(errors)
    if error is not None:
        reason = f"rank {error['rank']} failed first: {error['type']}: {error['message']}"
        outcome = _by_signature(f"{error['type']}: {error['message']}\n{error['traceback']}")
        return RunEnd(outcome or Outcome.FAILED, reason, error["rank"], error["traceback"])
    return _without_error({rank: code for rank, code in codes.items() if rank not in stopped}, output)


def _without_error(codes: Mapping[int, int], output: str) -> RunEnd:
    killed = sorted(rank for rank, code in codes.items() if code == -9)
    if killed:
        return RunEnd(
            Outcome.INFRASTRUCTURE,
            f"rank {killed[0]} was killed (SIGKILL) from outside, or by the kernel for memory",
        )
    signalled = sorted((rank, -code) for rank, code in codes.items() if code < 0)
    if signalled:
        return RunEnd(Outcome.FAILED, f"rank {signalled[0][0]} died of signal {signalled[0][1]}")
    last = next((line for line in reversed(output.strip().splitlines()) if line.strip()), "no output")
    return RunEnd(
        _by_signature(output) or Outcome.FAILED, f"exit codes {dict(codes)}; last line: {last[:300]}"
    )


def first_error(errors: Sequence[Mapping[str, Any]]) -> Mapping[str, Any] | None:
    """Return the record of the rank that failed first by the clock, None if no rank left one."""
    return min(errors, key=lambda error: (error["time"], error["rank"]), default=None)


def _by_signature(text: str) -> Outcome | None:
    return next((outcome for outcome, pattern in _SIGNATURES if re.search(pattern, text)), None)
