"""The device layer of the `cpu` stack: torchtitan's own trainer on a machine without accelerator.

torchtitan asks once, at import of `torchtitan.tools.utils`, which device there is, and falls back to
CUDA. This layer changes four things, records each, and replaces nothing else of torchtitan:

- device: those two answers, in every loaded torchtitan module, become "cpu" and a `CpuDevice`;
- reduction: FSDP asks for SUM, since gloo has no PREMUL_SUM;
- attention: FlexAttention has no CPU backward, so the same mask function is evaluated on every pair
  and handed to dense scaled-dot-product attention;
- eager: no CUDA graphs, and `torch.compile` runs eagerly (torchtitan compiles its mask builder even
  with compilation off: seconds of C++ on a CPU).
"""

import dataclasses
import sys
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch.nn.functional as F
from torch.distributed.fsdp import FSDPModule
from torch.nn.attention.flex_attention import BlockMask, create_mask
from torchtitan.config import derive
from torchtitan.models.common.attention import FlexAttention
from torchtitan.tools import utils

from harness.stackside.request import write_observed

__all__ = ["AcceleratorPresentError", "CpuDevice", "install"]

changes: dict[str, Any] = {"installed": False}
"""What the layer changed so far, as written to `observed/device-layer.json`."""


class AcceleratorPresentError(RuntimeError):
    """The layer was asked for on a machine that has an accelerator."""


class CpuDevice:
    """Every function torchtitan calls on its device module while it trains. Memory is the process's."""

    def set_device(self, device: object) -> None:
        """Nothing to select."""

    def device_count(self) -> int:
        """One: every rank then uses `cpu:0`."""
        return 1

    def current_device(self) -> int:
        """Return 0."""
        return 0

    def synchronize(self, _device: object = None) -> None:
        """CPU operations are synchronous."""

    def empty_cache(self) -> None:
        """There is no caching allocator."""

    def get_device_name(self, _device: object = None) -> str:
        """Return "CPU", a name torchtitan has no peak for."""
        return "CPU"

    def get_device_properties(self, _device: object = None) -> SimpleNamespace:
        """Return name and total memory in bytes (the machine's)."""
        total = next(
            int(line.split()[1])
            for line in Path("/proc/meminfo").read_text().splitlines()
            if line.startswith("MemTotal")
        )
        return SimpleNamespace(name="CPU", total_memory=total * 1024)

    def reset_peak_memory_stats(self, _device: object = None) -> None:
        """Start the process's peak anew (Linux: writing 5 to clear_refs resets VmHWM)."""
        Path("/proc/self/clear_refs").write_text("5")

    def memory_stats(self, _device: object = None) -> dict[str, int]:
        """Return the peak resident set in bytes under torchtitan's names."""
        status = Path("/proc/self/status").read_text().splitlines()
        peak = next(int(line.split()[1]) for line in status if line.startswith("VmHWM")) * 1024
        return {
            "active_bytes.all.peak": peak,
            "reserved_bytes.all.peak": peak,
            "num_alloc_retries": 0,
            "num_ooms": 0,
        }


def accelerator() -> str | None:
    """Return the name of the accelerator this process could use, None if there is none."""
    if torch.cuda.is_available():
        return "cuda"
    found = torch.accelerator.current_accelerator(check_available=True)
    return None if found is None else str(found.type)


def install(config: Any) -> Any:
    """Adapt a finished torchtitan config and return it. Call it after every change of `model_spec`.

    Raises `AcceleratorPresentError` where there is an accelerator: a run there must be plain torchtitan.
    """
    present = accelerator()
    if present is not None:
        raise AcceleratorPresentError(
            f"the cpu device layer was asked for, but this machine has an accelerator ({present}). "
            "Next: use a stack whose device_layer is none."
        )
    changes["installed"] = True
    _answer_cpu()
    _reduce_with_sum(config)
    _attend_densely(config)
    config.training.disable_cuda_graphs = True
    torch.compiler.set_stance("force_eager")
    changes["eager"] = "CUDA graphs off, torch.compile runs eagerly"
    return config


def _answer_cpu() -> None:
    device, modules = CpuDevice(), []
    for name, module in list(sys.modules.items()):
        if not name.startswith("torchtitan"):
            continue
        if getattr(module, "device_type", None) == "cuda":
            module.device_type = "cpu"  # type: ignore[attr-defined]
            modules.append(name)
        if getattr(module, "device_module", None) is torch.cuda:
            module.device_module = device  # type: ignore[attr-defined]
    if modules:
        changes["device"] = {"type": utils.device_type, "modules": sorted(modules)}


def _reduce_with_sum(config: Any) -> None:
    spec = config.model_spec

    def parallelize(model: Any, **kwargs: Any) -> Any:
        model = spec.parallelize_fn(model, **kwargs)
        units = [module for module in model.modules() if isinstance(module, FSDPModule)]
        for unit in units:
            unit.set_force_sum_reduction_for_comms(True)
        changes["reduction"] = {"operation": "SUM", "fsdp_units": len(units)}
        record()
        return model

    config.model_spec = dataclasses.replace(spec, parallelize_fn=parallelize)


def record() -> None:
    """Write what was changed; the first rank does."""
    if not torch.distributed.is_initialized() or torch.distributed.get_rank() == 0:
        write_observed("device-layer.json", changes)


def _attend_densely(config: Any) -> None:
    spec = config.model_spec
    if spec.name == "transformers_modeling_backend":
        from transformers.modeling_utils import AttentionInterface

        AttentionInterface.register("flex_torchtitan", _transformers_attention)
        changes["attention"] = {"dense": "transformers attention function flex_torchtitan"}
        return
    found = [
        node for node in spec.model.traverse(FlexAttention.Config) if type(node[1]) is FlexAttention.Config
    ]
    for _, attention, parent, name in found:
        setattr(parent, name, derive(attention, DenseFlexAttention.Config))
    changes["attention"] = {"dense": [fqn for fqn, *_ in found]}


def dense_mask(block_mask: BlockMask, query: torch.Tensor, key: torch.Tensor) -> torch.Tensor:
    """Return the mask function's answer for every pair: bool, [batch, 1, query length, key length].

    Query and key are [batch, heads, length, head_dim]. The answer is kept on the block mask, which
    lives for one step.
    """
    mask: torch.Tensor | None = getattr(block_mask, "_dense", None)
    if mask is None:
        mask = create_mask(
            block_mask.mask_mod, query.shape[0], None, query.shape[2], key.shape[2], device=query.device
        )
        block_mask._dense = mask
    return mask


class DenseFlexAttention(FlexAttention):
    """FlexAttention's interface with dense scaled-dot-product attention behind it."""

    @dataclass(kw_only=True, slots=True)
    class Config(FlexAttention.Config):
        """The same fields."""

    def forward(
        self,
        q_BLNH: torch.Tensor,  # noqa: N803 - torchtitan's own argument names
        k_BLNH: torch.Tensor,  # noqa: N803
        v_BLNH: torch.Tensor,  # noqa: N803
        *,
        attention_masks: BlockMask,
        score_mod: Callable[..., Any] | None = None,
        scale: float | None = None,
        enable_gqa: bool = False,
        out_transform: Callable[..., Any] | None = None,
        **_: Any,
    ) -> torch.Tensor:
        """Attend. All tensors are [batch, length, heads, head_dim]."""
        if score_mod is not None or out_transform is not None:
            raise NotImplementedError(
                "dense attention on the CPU takes a mask only, no score or output function"
            )
        query, key, value = (tensor.transpose(1, 2) for tensor in (q_BLNH, k_BLNH, v_BLNH))
        mask = dense_mask(attention_masks, query, key)
        out = F.scaled_dot_product_attention(
            query, key, value, attn_mask=mask, scale=scale, enable_gqa=enable_gqa
        )
        return out.transpose(1, 2)


def _transformers_attention(
    _module: Any,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: BlockMask,
    scaling: float | None = None,
    **_: Any,
) -> tuple[torch.Tensor, None]:
    """Transformers' attention function; query, key, value are [batch, heads, length, head_dim]."""
    mask = dense_mask(attention_mask, query, key)
    grouped = query.shape[1] != key.shape[1]
    out = F.scaled_dot_product_attention(query, key, value, attn_mask=mask, scale=scaling, enable_gqa=grouped)
    return out.transpose(1, 2).contiguous(), None
