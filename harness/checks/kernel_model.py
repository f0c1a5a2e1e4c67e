"""What a launch of the RoPE kernel must cost, worked out from its arguments alone.

The counts follow from `recipes/moe-nki/rope_kernel.py`: per tile of 128 rows two loads of cos and sin;
per tile and head a load, five element-wise instructions and a store; with a salt, per core a load, a
memset and the store of the receipt, and per tile one addition.
"""

from collections.abc import Sequence
from dataclasses import dataclass

from harness.checks.kernel_records import Argument, Shape

__all__ = ["ROWS_PER_TILE", "Cost", "expected_receipt", "rope_cost"]

# Partitions of the chip: AWS's NKI architecture guide.
ROWS_PER_TILE = 128

_ITEM_SIZE = {"float32": 4, "bfloat16": 2, "float16": 2}


@dataclass(frozen=True, slots=True)
class Cost:
    """Instructions by name over all cores, and bytes written to device memory."""

    ops: dict[str, int]
    hbm_bytes_written: int


def rope_cost(args: Sequence[Argument], grid: int) -> Cost:
    """Return the cost of one launch on `grid` cores.

    Raises ValueError if the arguments are not those of the RoPE kernel: q [batch, heads, seq, dim],
    k [batch, kv_heads, seq, dim], cos, sin, backward, salt.
    """
    named = {argument.name: argument for argument in args}
    q, k, salt = named.get("q"), named.get("k"), named.get("salt")
    if q is None or k is None or q.shape is None or k.shape is None or len(q.shape) != 4 or len(k.shape) != 4:
        raise ValueError(f"arguments {sorted(named)} are not those of the RoPE kernel")
    batch, heads, seq, dim = q.shape
    kv_heads = k.shape[1]
    if k.shape != (batch, kv_heads, seq, dim) or q.dtype not in _ITEM_SIZE or k.dtype != q.dtype:
        raise ValueError(f"q {q.shape} {q.dtype} and k {k.shape} {k.dtype} are not those of the RoPE kernel")
    tiles, per_tile = batch * seq // ROWS_PER_TILE, heads + kv_heads
    ops = {"dma_copy": tiles * (2 + 2 * per_tile), "tensor_tensor": tiles * 5 * per_tile}
    written = _ITEM_SIZE[q.dtype] * batch * per_tile * seq * dim
    if salt is not None and salt.shape is not None:
        ops["dma_copy"] += 2 * grid
        ops["memset"] = grid
        ops["tensor_tensor"] += tiles
        written += _ITEM_SIZE["float32"] * grid
    return Cost(ops, written)


def expected_receipt(salt: int, shape: Shape, lnc: int) -> tuple[float, ...]:
    """Return the receipt of `lnc` cores: on each, the salt plus its share of the row tiles."""
    return (float(salt + shape.batch * shape.seq // ROWS_PER_TILE // lnc),) * lnc
