"""How often each op ran: forward and backward, per site.

A site is the module that called the op, by its name in the built model. The module has it as its
attribute `kernel_site`, set once the model is built, and hands it to the op with each call; the op
keeps it in its autograd context and counts the backward for the same site.
"""

import threading
from collections import Counter
from typing import Any, Literal

__all__ = ["COMPILED", "UNNAMED", "Direction", "count", "reset", "snapshot"]

Direction = Literal["forward", "backward"]

COMPILED = "(compiled)"
"""The site of calls from a graph of torch.compile, where a name per module would mean a graph per module."""

UNNAMED = "(unnamed)"
"""The site of a module whose `kernel_site` nobody set."""

_lock = threading.Lock()
_counts: dict[str, Counter[str]] = {"forward": Counter(), "backward": Counter()}


def count(direction: Direction, site: str) -> None:
    """Count one run of an op's body for `site`. Safe in autograd's threads."""
    with _lock:
        _counts[direction][site] += 1


def snapshot() -> dict[str, Any]:
    """Return `{"forward": {site: n}, "backward": {site: n}, "total": {"forward": n, "backward": n}}`."""
    with _lock:
        sites = {direction: dict(sorted(found.items())) for direction, found in _counts.items()}
    return {**sites, "total": {direction: sum(found.values()) for direction, found in sites.items()}}


def reset() -> None:
    """Set every count to zero."""
    with _lock:
        for found in _counts.values():
            found.clear()
