"""Qwen3 written out in float64 from its definition, with switches for the classic mistakes.

A yardstick that shares no code with Transformers or torchtitan.
"""

import json
from pathlib import Path
from typing import Any

import torch
import torch.nn.functional as F
from safetensors.torch import load_file
from torch import Tensor

__all__ = ["Qwen3ByHand"]


class Qwen3ByHand:
    """The model in `folder`. Switches: each a mistake that leaves keys, shapes and most losses plausible."""

    def __init__(
        self,
        folder: Path,
        *,
        theta: float | None = None,
        rotate_before_norm: bool = False,
        rotation_sign: int = 1,
        interleaved: bool = False,
        norms_one: bool = False,
        exchange_qk_norms: bool = False,
        head_is_embedding: bool = False,
    ) -> None:
        self.config: dict[str, Any] = json.loads((folder / "config.json").read_text())
        self.weights = {
            name: value.double() for name, value in load_file(folder / "model.safetensors").items()
        }
        if norms_one:
            self.weights |= {n: torch.ones_like(v) for n, v in self.weights.items() if "norm" in n}
        self.theta = theta or self.config["rope_parameters"]["rope_theta"]
        self.rotate_before_norm = rotate_before_norm
        self.rotation_sign = rotation_sign
        self.interleaved = interleaved
        self.names = ("k_norm", "q_norm") if exchange_qk_norms else ("q_norm", "k_norm")
        tied = self.config["tie_word_embeddings"] or head_is_embedding
        self.head = self.weights["model.embed_tokens.weight" if tied else "lm_head.weight"]

    def loss(self, ids: Tensor, labels: Tensor, positions: Tensor, *, block_causal: bool = False) -> float:
        """Return the mean cross entropy of one row; all arguments are int64 [seq]."""
        return F.cross_entropy(self.logits(ids, positions, block_causal=block_causal), labels).item()

    def logits(self, ids: Tensor, positions: Tensor, *, block_causal: bool = False) -> Tensor:
        """Return the logits, float64 [seq, vocabulary]."""
        x = self.weights["model.embed_tokens.weight"][ids]
        allowed = torch.ones(len(ids), len(ids), dtype=torch.bool).tril()
        if block_causal:
            document = (positions == 0).cumsum(0)
            allowed &= document[:, None] == document[None, :]
        for layer in range(self.config["num_hidden_layers"]):
            prefix = f"model.layers.{layer}."
            x = x + self._attention(self._norm(x, prefix + "input_layernorm"), prefix, positions, allowed)
            x = x + self._feed_forward(self._norm(x, prefix + "post_attention_layernorm"), prefix)
        return self._norm(x, "model.norm") @ self.head.T

    def _norm(self, x: Tensor, name: str) -> Tensor:
        mean_square = x.square().mean(-1, keepdim=True)
        return x / torch.sqrt(mean_square + self.config["rms_norm_eps"]) * self.weights[name + ".weight"]

    def _attention(self, x: Tensor, prefix: str, positions: Tensor, allowed: Tensor) -> Tensor:
        heads, size = self.config["num_attention_heads"], self.config["head_dim"]
        part = {name: x @ self.weights[f"{prefix}self_attn.{name}_proj.weight"].T for name in "qkv"}
        q, k, v = (part[name].view(len(x), -1, size) for name in "qkv")
        q_norm, k_norm = (f"{prefix}self_attn.{name}" for name in self.names)
        if self.rotate_before_norm:
            q = self._norm(self._rotate(q, positions), q_norm)
            k = self._norm(self._rotate(k, positions), k_norm)
        else:
            q = self._rotate(self._norm(q, q_norm), positions)
            k = self._rotate(self._norm(k, k_norm), positions)
        group = heads // k.shape[1]
        k, v = k.repeat_interleave(group, dim=1), v.repeat_interleave(group, dim=1)
        scores = torch.einsum("qhd,khd->hqk", q, k) / size**0.5
        shares = scores.masked_fill(~allowed, float("-inf")).softmax(-1)
        mixed = torch.einsum("hqk,khd->qhd", shares, v).reshape(len(x), heads * size)
        return mixed @ self.weights[f"{prefix}self_attn.o_proj.weight"].T

    def _rotate(self, x: Tensor, positions: Tensor) -> Tensor:
        size = x.shape[-1]
        frequencies = self.theta ** (-torch.arange(0, size, 2, dtype=torch.float64) / size)
        angles = self.rotation_sign * positions[:, None] * frequencies
        cos, sin = angles.cos()[:, None], angles.sin()[:, None]
        if self.interleaved:
            a, b = x[..., 0::2], x[..., 1::2]
            return torch.stack((a * cos - b * sin, b * cos + a * sin), dim=-1).flatten(-2)
        a, b = x.chunk(2, dim=-1)
        return torch.cat((a * cos - b * sin, b * cos + a * sin), dim=-1)

    def _feed_forward(self, x: Tensor, prefix: str) -> Tensor:
        gate, up, down = (
            self.weights[f"{prefix}mlp.{name}_proj.weight"].T for name in ("gate", "up", "down")
        )
        return (F.silu(x @ gate) * (x @ up)) @ down
