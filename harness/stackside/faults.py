"""Seeded faults: one thing broken on purpose, so that a check can be seen to fail.

A fault is named in the request, acts at one place, and is part of the evidence. Without a name in the
request nothing here does anything.
"""

import importlib
from collections.abc import Callable
from typing import Any

import torch

from harness.stackside.request import current

__all__ = ["apply", "asked"]

_FAULTS: dict[str, tuple[str, Callable[[Any], None]]] = {}


def asked(name: str) -> bool:
    """Return whether this run was asked to break `name`."""
    return name in current().faults


def apply(place: str, value: Any) -> None:
    """Break what this run was asked to break at `place` (`config`, `model` or `step`)."""
    for name in current().faults:
        at, breaks = _FAULTS.get(name, ("", None))
        if at == place and breaks is not None:
            breaks(value)


def _fault(name: str, place: str) -> Callable[[Callable[[Any], None]], Callable[[Any], None]]:
    def register(breaks: Callable[[Any], None]) -> Callable[[Any], None]:
        _FAULTS[name] = (place, breaks)
        return breaks

    return register


@_fault("wrong-sequence-length", "config")
def _wrong_sequence_length(config: Any) -> None:
    config.training.seq_len //= 2


@_fault("rope-sign", "config")
def _rope_sign(config: Any) -> None:
    if config.model_spec.name == "transformers_modeling_backend":
        from transformers.models.qwen3 import modeling_qwen3

        upright = modeling_qwen3.rotate_half
        modeling_qwen3.rotate_half = lambda x: -upright(x)
        return
    from torchtitan.models.common.rope import CosSinRoPE

    rotate = CosSinRoPE.apply_rotary_emb

    def backwards(query: Any, key: Any, rope_cache: Any) -> Any:
        cos, sin = rope_cache.chunk(2, dim=-1)
        return rotate(query, key, torch.cat([cos, -sin], dim=-1))

    CosSinRoPE.apply_rotary_emb = staticmethod(backwards)


@_fault("override-matches-nothing", "config")
def _override_matches_nothing(config: Any) -> None:
    registry = importlib.import_module("torchtitan.config.override")._REGISTRY
    for name in config.override.imports:
        importlib.import_module(name.rpartition(".")[0])
        registry[name].fqns = ["nowhere.*"]


@_fault("weight-perturbed", "model")
def _weight_perturbed(model_parts: Any) -> None:
    matrices = [value for value in model_parts[0].parameters() if value.dim() > 1]
    with torch.no_grad():
        matrices[len(matrices) // 2].mul_(1 + 1e-3)


@_fault("nan-at-step-7", "step")
def _nan_at_step_7(value: Any) -> None:
    step, model_parts = value
    if step == 7:
        with torch.no_grad():
            next(iter(model_parts[0].parameters())).fill_(float("nan"))


@_fault("stop-at-step-9", "step")
def _stop_at_step_9(value: Any) -> None:
    # What torchtitan does when the data ends: it warns, and exits 0.
    from torchtitan.components.dataloader import DataloaderExhaustedError

    if value[0] == 10:
        raise DataloaderExhaustedError
