"""The kernel record of a training run: what the kernels did, step by step, on this rank.

The observer of a run calls `begin_step(n)` before the forward of step n, `end_step(n)` after its
backward, and writes `training_record()` at the end. Either call alone marks the steps; with both, what
runs between the steps and after the last one (a validation, say) is told apart from them.

The record, schema 1:

    {"schema": 1, "rank": int, "provider": str, "lnc": int, "backend": {"name", "version", ...},
     "kernel": {"op", "path", "sha256"}, "layouts": {layout: calls},
     "steps": [{"step": int, "forward": {site: n}, "backward": {site: n}}],
     "outside": {"forward": {site: n}, "backward": {site: n}},
     "launches": {"count": n, "sources": ["file:line"], "sentinels": n | null, "errors": [str],
                  "signatures": [{"args": [...], "grid": n, "ops": {...} | null, "hbm_bytes_written": n | null,
                                  "count": n}]},
     "receipt": {"salt", "lnc", "shape", "values"} | null}
"""

import json
import os
from collections import Counter
from typing import Any

from harness.stackside.nki import counters, execute, registry
from harness.stackside.nki.ledger import LEDGER, Launch
from harness.stackside.nki.resolver import resolve

__all__ = ["announce", "begin_step", "end_step", "reset", "training_record"]

SCHEMA = 1

_DIRECTIONS = ("forward", "backward")


class _Steps:
    """Counts since the last boundary, and where they belong."""

    def __init__(self) -> None:
        self.open: int | None = None
        self.done: list[dict[str, Any]] = []
        self.outside: dict[str, Counter[str]] = {direction: Counter() for direction in _DIRECTIONS}
        self.seen: dict[str, Counter[str]] = {direction: Counter() for direction in _DIRECTIONS}
        self.mark = 0

    def close(self, step: int | None) -> None:
        """Give what was counted since the last boundary to `step`, or to no step."""
        now = counters.snapshot()
        fresh = {direction: Counter(now[direction]) - self.seen[direction] for direction in _DIRECTIONS}
        self.seen = {direction: Counter(now[direction]) for direction in _DIRECTIONS}
        if step is None:
            for direction in _DIRECTIONS:
                self.outside[direction].update(fresh[direction])
        else:
            self.done.append(
                {"step": step, **{direction: dict(fresh[direction]) for direction in _DIRECTIONS}}
            )


_steps = _Steps()


def announce(op: registry.KernelOp) -> None:
    """Make `op` known to this process's record. An op's module calls it when it is imported."""
    registry.register(op)


def begin_step(step: int) -> None:
    """Open `step`. What was counted before belongs to the step still open, if any, else to no step."""
    _steps.close(_steps.open)
    _steps.open = step


def end_step(step: int) -> None:
    """Close `step`: everything counted since the last boundary belongs to it."""
    _steps.close(step)
    _steps.open = None


def reset() -> None:
    """Start a new record: steps, counts and launches so far are forgotten."""
    global _steps
    counters.reset()
    registry.forget_layouts()
    LEDGER.clear()
    _steps = _Steps()


def training_record(salt: int | None = None, device: str = "cpu") -> dict[str, Any] | None:
    """Return the record of this process, or None if no kernel op was imported.

    With a `salt` the kernel is launched once more for a receipt, which is not among the launches of
    the record: on a device, where Python's counters move only while a kernel is traced, the receipt
    is the proof that the kernel runs.
    """
    ops = registry.registered()
    if not ops:
        return None
    if _steps.open is not None:
        end_step(_steps.open)
    else:
        _steps.close(None)
    op = ops[-1]
    launches = _summary(LEDGER.since())
    return {
        "schema": SCHEMA,
        "rank": int(os.environ.get("RANK", "0")),
        "provider": op.provider,
        "lnc": execute.logical_cores(),
        "backend": resolve().to_json(),
        "kernel": op.to_json(),
        "layouts": registry.seen_layouts(),
        "steps": list(_steps.done),
        "outside": {direction: dict(found) for direction, found in _steps.outside.items()},
        "launches": launches,
        "receipt": None if salt is None else op.receipt(salt, device),
    }


def _summary(launches: tuple[Launch, ...]) -> dict[str, Any]:
    """Fold equal launches into signatures."""
    folded: Counter[str] = Counter()
    for launch in launches:
        full = launch.to_json()
        kept = {key: full[key] for key in ("args", "grid", "ops", "hbm_bytes_written")}
        folded[json.dumps(kept, sort_keys=True)] += 1
    known = [launch.sentinels for launch in launches if launch.sentinels is not None]
    return {
        "count": len(launches),
        "sources": sorted({launch.source for launch in launches}),
        "sentinels": sum(known) if len(known) == len(launches) else None,
        "errors": sorted({launch.error for launch in launches if launch.error is not None}),
        "signatures": [{**json.loads(text), "count": count} for text, count in sorted(folded.items())],
    }
