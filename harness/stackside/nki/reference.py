"""Rotary embedding in plain PyTorch: the reference of the probe, independent of torchtitan and of the kernel."""

import torch
from torch import Tensor

__all__ = ["rope", "tables"]


def rope(x: Tensor, cos: Tensor, sin: Tensor, compute: torch.dtype = torch.float32) -> Tensor:
    """Rotate x [batch, heads, seq, dim] by cos/sin [(batch,) seq, dim] in `compute` precision.

    Two products and one sum per element, each rounded once. The result has dtype `compute`.
    """
    half = x.shape[-1] // 2
    c, s = (table.to(compute) if table.ndim == 2 else table.to(compute).unsqueeze(1) for table in (cos, sin))
    value = x.to(compute)
    turned = torch.cat((-value[..., half:], value[..., :half]), dim=-1)
    return value * c + turned * s


def tables(positions: Tensor, dim: int, theta: float = 10000.0) -> tuple[Tensor, Tensor]:
    """Return cos and sin of shape [*positions.shape, dim], float32, equal halves (theta as in the Llama family)."""
    frequencies = theta ** -(torch.arange(0, dim, 2, dtype=torch.float32) / dim)
    angles = positions.to(torch.float32).unsqueeze(-1) * frequencies
    angles = torch.cat((angles, angles), dim=-1)
    return angles.cos(), angles.sin()
