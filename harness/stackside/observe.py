"""What is recorded inside a training run, on every rank: data for the checks, never a verdict.

torchtitan builds its components from configurations, so a subclass of its checkpoint manager is asked
at the two moments that matter: after loading (before the first step) and before the last save.
"""

import re
import sys
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy
import torch
from torch import Tensor, nn
from torch.distributed.tensor import DTensor
from torchtitan.components.checkpoint import CheckpointManager

from harness.stackside import faults, overrides
from harness.stackside.digests import batch_sha256, tensor_sha256
from harness.stackside.request import current, write_observed

__all__ = ["ObservedCheckpoint", "begin_step", "end_step", "finish"]

_ROWS = (0, 1, 2, 3, 17, 100)
"""Positions at which a cosine/sine table is recorded: small, odd and three-digit ones."""

_batches: list[dict[str, Any]] = []
_step = 0


class ObservedCheckpoint(CheckpointManager):
    """torchtitan's checkpoint manager; records what is there after loading and before the last save."""

    @dataclass(kw_only=True, slots=True)
    class Config(CheckpointManager.Config):
        """The same fields."""

    def __init__(
        self, config: Config, *, model_parts: list[nn.Module], sd_adapter: Any, **kwargs: Any
    ) -> None:
        """Keep what the observations need; a disabled manager keeps nothing itself."""
        super().__init__(config, model_parts=model_parts, sd_adapter=sd_adapter, **kwargs)
        self._observed = (config, model_parts, sd_adapter)

    def load(self, step: int = -1) -> bool:
        """Load as torchtitan does, then record what the model holds before the first step."""
        loaded = not faults.asked("weights-not-loaded") and bool(super().load(step))
        config, model_parts, adapter = self._observed
        faults.apply("model", model_parts)
        _record_start(model_parts[0], _load_record(config, loaded))
        if current().initial == "published":
            _record_weights(model_parts[0], adapter)
        overrides.record_built(model_parts)
        model_parts[0].register_forward_pre_hook(_record_batch, with_kwargs=True)
        return loaded

    def save(self, curr_step: int, last_step: bool = False) -> bool:
        """Record the trained model's logits before the last checkpoint is written, then save."""
        if last_step and current().export:
            _record_logits(self._observed[1][0])
        return bool(super().save(curr_step, last_step))


def begin_step(step: int) -> None:
    """Note that a step begins."""
    global _step
    _step = step
    if (kernel := sys.modules.get("harness.stackside.nki.record")) is not None:
        kernel.begin_step(step)


def end_step(step: int) -> None:
    """Note that a step is over: what the kernels do from here on belongs to no step."""
    if (kernel := sys.modules.get("harness.stackside.nki.record")) is not None:
        kernel.end_step(step)


def finish() -> None:
    """Write what was gathered over the steps."""
    rank = _rank()
    write_observed(f"batches-rank{rank}.json", {"rank": rank, "batches": _batches})
    kernel = sys.modules.get("harness.stackside.nki.record")
    record = kernel.training_record(current().salt, _device()) if kernel is not None else None
    if record is not None:
        write_observed(f"kernel-rank{rank}.json", record)


def _device() -> str:
    return "cpu" if current().device_layer == "cpu" else "neuron"


def _rank() -> int:
    return torch.distributed.get_rank() if torch.distributed.is_initialized() else 0


def _load_record(config: CheckpointManager.Config, loaded: bool) -> dict[str, Any]:
    asked = current().initial
    file_format = ("hf" if config.initial_load_in_hf else "dcp") if loaded else None
    return {
        "requested": asked in ("published", "seed-checkpoint"),
        "loaded": loaded,
        "source": config.initial_load_path if loaded else None,
        "format": file_format,
    }


def _record_start(model: nn.Module, load: dict[str, Any]) -> None:
    record = {
        "rank": _rank(),
        "world_size": torch.distributed.get_world_size(),
        "load": load,
        "parameters": [_parameter(_plain(name), value) for name, value in model.named_parameters()],
        "buffers": [_buffer(name, value, model) for name, value in model.named_buffers()],
        "repairs": list(repairs),
    }
    write_observed(f"start-rank{_rank()}.json", record)


repairs: list[str] = []
"""Repairs of known upstream faults that the recipe applied to this run."""


def _plain(name: str) -> str:
    """Return a module path without the component that activation checkpointing puts in."""
    return name.replace("_checkpoint_wrapped_module.", "")


def _parameter(name: str, value: Tensor) -> dict[str, Any]:
    local = value.to_local() if isinstance(value, DTensor) else value
    local = local.detach()
    placements = [str(p) for p in value.placements] if isinstance(value, DTensor) else ["Replicate()"]
    return {
        "name": name,
        "shape": list(value.shape),
        "local_shape": list(local.shape),
        "dtype": str(value.dtype).removeprefix("torch."),
        "placements": [_placement(text) for text in placements],
        "sha256": tensor_sha256(local),
        "finite": bool(torch.isfinite(local).all()),
        "constant": bool(local.numel() == 0 or (local == local.flatten()[0]).all()),
    }


def _placement(text: str) -> str:
    match = re.match(r"(?:_Strided)?S(?:hard)?\((?:dim=)?(\d+)", text)
    if match:
        return f"Shard({match[1]})"
    return "Replicate()" if text.startswith("R") else text


def _buffer(name: str, value: Tensor, model: nn.Module) -> dict[str, Any]:
    parent, _, leaf = name.rpartition(".")
    module = model.get_submodule(parent)
    value = (value.full_tensor() if isinstance(value, DTensor) else value).detach().cpu()
    floating = value.is_floating_point()
    record: dict[str, Any] = {
        "name": _plain(name),
        "shape": list(value.shape),
        "dtype": str(value.dtype).removeprefix("torch."),
        "persistent": leaf not in module._non_persistent_buffers_set,
        "nan": int(torch.isnan(value).sum()) if floating else 0,
        "kind": "other",
    }
    if leaf.endswith("inv_freq"):
        record |= {"kind": "inv_freq", "values": value.float().tolist()}
    elif leaf == "cache" and value.dim() == 2 and floating:
        rows = {str(row): value[row].float().tolist() for row in _ROWS if row < value.shape[0]}
        record |= {"kind": "cos_sin", "rows": rows}
    return record


def _record_weights(model: nn.Module, adapter: Any) -> None:
    """Gather the loaded tensors under their Hugging Face names; every rank takes part, the first writes."""
    tensors = adapter.to_hf(dict(model.state_dict()))
    names = sorted(tensors)
    probe = current().weights_probe
    if isinstance(probe, int) and probe < len(names):
        names = [names[index * len(names) // probe] for index in range(probe)]
    digests: dict[str, Any] = {}
    for name in names:
        value = tensors[name].detach()
        full = value.full_tensor() if isinstance(value, DTensor) else value
        digests[name] = {
            "shape": list(full.shape),
            "dtype": str(full.dtype).removeprefix("torch."),
            "sha256": {
                "F32": tensor_sha256(full, torch.float32),
                "BF16": tensor_sha256(full, torch.bfloat16),
            },
        }
    trip = _adapter_record(adapter, tensors)
    if _rank() == 0:
        record = {"tensors": digests, "of": len(tensors), "adapter": type(adapter).__name__}
        write_observed("weights.json", record)
        write_observed("adapter.json", trip)


def _adapter_record(adapter: Any, tensors: dict[str, Any]) -> dict[str, Any]:
    """Take a dictionary of its own through HF -> native -> HF; note names, and which names share memory."""
    given = dict(tensors)
    result = adapter.to_hf(adapter.from_hf(given))
    places: dict[int, int] = {}
    storage = {}
    for name, value in tensors.items():
        local = value.to_local() if isinstance(value, DTensor) else value
        if local.numel():
            storage[name] = places.setdefault(local.data_ptr(), len(places))
    return {"before": list(tensors), "after": list(given), "result": list(result), "storage": storage}


def _record_batch(_: nn.Module, args: tuple[Any, ...], kwargs: dict[str, Any]) -> None:
    positions = kwargs.get("positions")
    if positions is None:
        positions = torch.arange(args[0].shape[1]).expand_as(args[0])
    _batches.append({"step": _step, "sha256": batch_sha256(args[0].cpu(), positions.cpu())})


def _record_logits(model: Any) -> None:
    """Run one fixed document through the trained model. One document: causal and block-causal are the same."""
    vocabulary, length = current().hf_config()["vocab_size"], current().seq_len
    device = next(model.parameters()).device
    ids = (torch.arange(length, device=device) * 7 + 3).remainder(vocabulary).unsqueeze(0)
    positions = torch.arange(length, device=device).unsqueeze(0)
    extra = {"positions": positions}
    if hasattr(model, "get_attention_masks") and not hasattr(model, "model"):
        extra["attention_masks"] = model.get_attention_masks(positions=positions)
    without_head, model._skip_lm_head = model._skip_lm_head, False
    batches = len(_batches)
    try:
        with torch.no_grad():
            logits = model(ids, **extra)
    finally:
        model._skip_lm_head = without_head
        del _batches[batches:]
    logits = logits.full_tensor() if isinstance(logits, DTensor) else logits
    if _rank() == 0:
        path = Path(current().observed) / "trained-logits.npy"
        numpy.save(path, logits.float().cpu().numpy())
        write_observed(
            "trained-logits.json",
            {
                "ids": ids.cpu().tolist(),
                "sha256": tensor_sha256(logits.float()),
                "logits_f32_file": str(path),
            },
        )
