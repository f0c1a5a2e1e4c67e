"""Digests of tensors and of batches: the same bytes give the same digest wherever they were read."""

import hashlib
import sys

import torch

__all__ = ["batch_sha256", "tensor_sha256"]

_SAME_SIZE = {1: torch.int8, 2: torch.int16, 4: torch.int32, 8: torch.int64}


def tensor_sha256(tensor: torch.Tensor, dtype: torch.dtype | None = None) -> str:
    """Return the SHA-256 (hex) of a tensor's contiguous little-endian bytes, converted to `dtype` first.

    `dtype` defaults to the tensor's own; float32 -> bfloat16 rounds to nearest, ties to even. The
    digest covers the values only, not the shape. Raises `TypeError` for a sharded tensor, whose own
    bytes are one rank's part: gather it first, or pass its local part on purpose.
    """
    if hasattr(tensor, "full_tensor"):
        raise TypeError(
            "a sharded tensor has no bytes of its own: pass full_tensor(), or to_local() for a shard"
        )
    return hashlib.sha256(_little_endian_bytes(tensor, dtype or tensor.dtype)).hexdigest()


def batch_sha256(input_ids: torch.Tensor, positions: torch.Tensor) -> str:
    """Return the SHA-256 (hex) of one rank's batch: input ids, then positions, as little-endian int64.

    Both are [batch, seq] and integer. Raises `ValueError` if not: another layout would give another
    digest for the same tokens.
    """
    if input_ids.ndim != 2 or input_ids.shape != positions.shape:
        shapes = f"{tuple(input_ids.shape)} and {tuple(positions.shape)}"
        raise ValueError(f"input_ids and positions have shapes {shapes}, expected the same [batch, seq]")
    if input_ids.is_floating_point() or positions.is_floating_point():
        raise ValueError(f"ids and positions are {input_ids.dtype} and {positions.dtype}, expected integers")
    digest = hashlib.sha256(_little_endian_bytes(input_ids, torch.int64))
    digest.update(_little_endian_bytes(positions, torch.int64))
    return digest.hexdigest()


def _little_endian_bytes(tensor: torch.Tensor, dtype: torch.dtype) -> bytes:
    if sys.byteorder != "little":
        raise RuntimeError("digests are of little-endian bytes, and this machine is big-endian")
    # As integers of the same size, because numpy has no bfloat16.
    value = tensor.detach().to("cpu", dtype)
    return value.view(_SAME_SIZE[value.element_size()]).numpy().tobytes()
