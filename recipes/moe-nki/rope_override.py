"""torchtitan override that puts the NKI RoPE in the place of every `CosSinRoPE`.

A config function activates it with `config.override.imports = override_imports()`. torchtitan's
override decorator has had two forms: `@override("name", target=...)`, activated by module path
(from 2026-06-10), and `@override(target=...)`, activated by `module.function` (from 2026-07-21,
torchtitan 0.3.0 among them). Which one is installed is read off its signature.
"""

import inspect
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, Literal

import torch
from rope_op import nki_rope as nki_rope_op
from torch import Tensor
from torch.distributed.tensor import DTensor
from torchtitan.config import derive, override
from torchtitan.models.common.rope import CosSinRoPE

from harness.stackside.nki import counters, registry

__all__ = ["OVERRIDE_FORM", "NKIRoPE", "factory_calls", "nki_rope", "override_form", "override_imports"]

factory_calls: list[str] = []
"""The config class that each call of the factory replaced, in order."""

BATCHED = "[batch, seq, heads, dim]"
FLAT = "[tokens, heads, dim]"

OverrideForm = Literal["module.function", "module"]


def override_form(decorator: Callable[..., Any] = override) -> OverrideForm:
    """Return how the installed torchtitan names an override: by `module.function` or by `module`."""
    return "module" if "name" in inspect.signature(decorator).parameters else "module.function"


def override_imports() -> list[str]:
    """Return the value for `config.override.imports` in the form the installed torchtitan takes."""
    return [f"{__name__}.nki_rope" if OVERRIDE_FORM == "module.function" else __name__]


OVERRIDE_FORM = override_form()


class NKIRoPE(CosSinRoPE):
    """`CosSinRoPE` whose rotation is the NKI kernel; the cos/sin cache stays torchtitan's own."""

    @dataclass(kw_only=True, slots=True)
    class Config(CosSinRoPE.Config):
        """The same fields as the replaced config."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.kernel_site = counters.UNNAMED

    def forward(self, query: Tensor, key: Tensor, positions: Tensor | None = None) -> tuple[Tensor, Tensor]:
        """Rotate query and key, which arrive as torchtitan has them, and return them in the same layout.

        [batch, seq, heads, dim] up to torchtitan 0.3.0, [tokens, heads, dim] in later ones; positions
        are None, [batch, seq], [1, seq] or [tokens]. Raises TypeError for DTensors and ValueError for
        another layout: nothing else would compute the result.
        """
        if isinstance(query, DTensor) or isinstance(key, DTensor):
            raise TypeError("the NKI RoPE takes local tensors, got DTensors: set tensor_parallel_degree to 1")
        if query.ndim not in (3, 4):
            raise ValueError(f"the NKI RoPE takes {BATCHED} or {FLAT}, got query {tuple(query.shape)}")
        batched = query.ndim == 4
        # A per-module name in a compiled graph would mean one graph per layer.
        compiling = torch.compiler.is_compiling()
        site = counters.COMPILED if compiling else self.kernel_site
        if not compiling:
            registry.saw_layout(BATCHED if batched else FLAT)
        cos, sin = self._tables(query, positions)
        q, k = (_swap_heads(x) if batched else _swap_heads(x.unsqueeze(0)) for x in (query, key))
        q, k = nki_rope_op(q, k, cos, sin, False, site)
        q, k = _swap_heads(q), _swap_heads(k)
        return (q, k) if batched else (q.squeeze(0), k.squeeze(0))

    def _tables(self, query: Tensor, positions: Tensor | None) -> tuple[Tensor, Tensor]:
        """Return cos and sin, [seq, dim] or [batch, seq, dim], from torchtitan's own lookup.

        That gives [1 or batch, seq, 1, 2 * dim] or [tokens, 1, 2 * dim], bounds checked.
        """
        cache = self._reshape_cache(query, positions).squeeze(-2)
        if cache.ndim == 3 and cache.shape[0] == 1:
            cache = cache.squeeze(0)
        dim = query.shape[-1]
        return cache[..., :dim].contiguous(), cache[..., dim:].contiguous()


class _SwapHeads(torch.autograd.Function):
    """[batch, seq, heads, dim] <-> [batch, heads, seq, dim], contiguous, the gradient too.

    A gradient that is a strided view would reach the layers before in another memory order than
    torchtitan's own, and their sums would round differently.
    """

    @staticmethod
    def forward(ctx: Any, x: Tensor) -> Tensor:
        del ctx
        return x.transpose(1, 2).contiguous()

    @staticmethod
    def backward(ctx: Any, *grads: Tensor) -> Tensor:
        del ctx
        return grads[0].transpose(1, 2).contiguous()


def _swap_heads(x: Tensor) -> Tensor:
    swapped: Tensor = _SwapHeads.apply(x)
    return swapped


def _registered() -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    options: dict[str, Any] = {
        "target": CosSinRoPE.Config,
        "description": "rotate-half RoPE by an NKI kernel",
    }
    if "exact" in inspect.signature(override).parameters:
        options["exact"] = True
    register: Callable[[Callable[..., Any]], Callable[..., Any]]
    register = override(*(("nki_rope",) if OVERRIDE_FORM == "module" else ()), **options)
    return register


@_registered()
def nki_rope(cfg: CosSinRoPE.Config) -> NKIRoPE.Config:
    """Return the config of the NKI RoPE for one matched config; every call is noted."""
    factory_calls.append(type(cfg).__qualname__)
    config: NKIRoPE.Config = derive(cfg, NKIRoPE.Config)
    return config
