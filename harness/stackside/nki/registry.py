"""The kernel ops of this process: each op announces itself when its module is imported."""

import hashlib
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["KernelOp", "forget_layouts", "register", "registered", "saw_layout", "seen_layouts"]

Receipt = Callable[[int, str], dict[str, Any]]


@dataclass(frozen=True, slots=True)
class KernelOp:
    """A kernel op: its name, who registered it with torch, its kernel's file, and its receipt.

    `receipt(salt, device)` launches the kernel once on a small input and returns
    `{"salt", "lnc", "shape": {"batch", "heads", "kv_heads", "seq", "dim"}, "values": [float per core]}`.
    """

    name: str
    provider: str
    kernel_file: str
    receipt: Receipt

    def to_json(self) -> dict[str, Any]:
        """Return `{"op", "path", "sha256"}`: the kernel's file and the digest of its bytes."""
        digest = hashlib.sha256(Path(self.kernel_file).read_bytes()).hexdigest()
        return {"op": self.name, "path": str(Path(self.kernel_file).absolute()), "sha256": digest}


_ops: dict[str, KernelOp] = {}
_layouts: Counter[str] = Counter()


def register(op: KernelOp) -> None:
    """Announce `op`; a later one of the same name replaces it."""
    _ops[op.name] = op


def registered() -> list[KernelOp]:
    """Return the announced ops, oldest first."""
    return list(_ops.values())


def saw_layout(layout: str) -> None:
    """Count one call whose q and k arrived in `layout`, such as `[batch, seq, heads, dim]`."""
    _layouts[layout] += 1


def seen_layouts() -> dict[str, int]:
    """Return the number of calls per layout."""
    return dict(_layouts)


def forget_layouts() -> None:
    """Forget the layouts seen so far."""
    _layouts.clear()
