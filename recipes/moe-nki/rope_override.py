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

from harness.stackside.nki import counters, registry, sites

__all__ = ["OVERRIDE", "NKIRoPE", "nki_rope", "override_form", "override_imports"]

OVERRIDE = "rope_override.nki_rope"

BATCHED = "[batch, seq, heads, dim]"
FLAT = "[tokens, heads, dim]"

OverrideForm = Literal["module.function", "module"]


def override_form(decorator: Callable[..., Any] = override) -> OverrideForm:
    """Return how the installed torchtitan names an override: by `module.function` or by `module`."""
    return "module" if "name" in inspect.signature(decorator).parameters else "module.function"


def override_imports() -> list[str]:
    """Return the value for `config.override.imports` in the form the installed torchtitan takes."""
    return [OVERRIDE if override_form() == "module.function" else OVERRIDE.rpartition(".")[0]]


class NKIRoPE(CosSinRoPE):
    """`CosSinRoPE` whose rotation is the NKI kernel; the cos/sin cache stays torchtitan's own."""

    @dataclass(kw_only=True, slots=True)
    class Config(CosSinRoPE.Config):
        """The same fields as the replaced config."""

    def __init__(self, config: Config) -> None:
        super().__init__(config)
        self.kernel_site = sites.UNNAMED

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
        q, k = (_to_kernel(x) if batched else _to_kernel(x.unsqueeze(0)) for x in (query, key))
        q, k = nki_rope_op(q, k, cos, sin, False, site)
        q, k = q.transpose(1, 2), k.transpose(1, 2)
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


def _to_kernel(x: Tensor) -> Tensor:
    """[batch, seq, heads, dim] -> [batch, heads, seq, dim], contiguous."""
    return x.transpose(1, 2).contiguous()


def _registered() -> Callable[[Callable[..., Any]], Callable[..., Any]]:
    options: dict[str, Any] = {"target": CosSinRoPE.Config, "description": "rotate-half RoPE by an NKI kernel"}
    if "exact" in inspect.signature(override).parameters:
        options["exact"] = True
    return override(*(("nki_rope",) if override_form() == "module" else ()), **options)


@_registered()
def nki_rope(cfg: CosSinRoPE.Config) -> NKIRoPE.Config:
    """Return the config of the NKI RoPE for one matched config; every call is counted."""
    registry.factory_called(OVERRIDE)
    return derive(cfg, NKIRoPE.Config)
