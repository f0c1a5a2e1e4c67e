"""The RoPE kernel as a torch operator, `harness::nki_rope`, with its backward.

One op body for every stack. On Trainium `torch_neuronx.nki_op` registers it; elsewhere it is a
CPU custom op, so that a tensor on any other device is refused by torch itself. The body launches
the kernel and nothing else: there is no other path to a result.
"""

import importlib
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from harness.stackside.nki import counters, execute, record, registry, resolver

__all__ = ["BACKEND", "PROVIDER", "nki_rope", "nki_rope_receipt", "receipt"]

# Binds `nki`, so it comes before the import of the kernel file.
BACKEND = resolver.resolve()
_kernel_module = importlib.import_module("rope_kernel")
_kernel: Any = _kernel_module.rope_kernel

_CPU_PROVIDER = "torch.library.custom_op[cpu]"
_NEURON_PROVIDER = "torch_neuronx.nki_op"


def _registrar() -> tuple[Callable[[str], Callable[..., Any]], str]:
    try:
        from torch_neuronx import nki_op
    except ImportError:
        return lambda name: torch.library.custom_op(name, mutates_args=(), device_types="cpu"), _CPU_PROVIDER
    return lambda name: nki_op(name, mutates_args=()), _NEURON_PROVIDER


_register, PROVIDER = _registrar()


@_register("harness::nki_rope")
def nki_rope(
    q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, backward: bool = False, site: str = ""
) -> tuple[Tensor, Tensor]:
    """Rotate q [batch, heads, seq, dim] and k [batch, kv_heads, seq, dim] by cos/sin [(batch,) seq, dim].

    `backward` applies the transposed rotation. `site` names the calling module in the counts. Raises
    the kernel's own error for a sequence length it does not support.
    """
    # nki_op also runs this body to infer shapes, which is not an execution.
    if not isinstance(q, FakeTensor):
        counters.count("backward" if backward else "forward", site)
    q_out, k_out = execute.launch(_kernel, q.contiguous(), k.contiguous(), cos, sin, backward)
    return q_out, k_out


@_register("harness::nki_rope_receipt")
def nki_rope_receipt(
    q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, salt: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    """Run the kernel with a salt [1, 1]; return q and k rotated and the receipt [1, LNC] float32."""
    q_out, k_out, values = execute.launch(_kernel, q.contiguous(), k.contiguous(), cos, sin, False, salt)
    return q_out, k_out, values


def _fake_rope(
    q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, backward: bool = False, site: str = ""
) -> tuple[Tensor, Tensor]:
    del cos, sin, backward, site
    return _like(q), _like(k)


def _fake_receipt(
    q: Tensor, k: Tensor, cos: Tensor, sin: Tensor, salt: Tensor
) -> tuple[Tensor, Tensor, Tensor]:
    del cos, sin
    return _like(q), _like(k), salt.new_empty((1, execute.logical_cores()))


def _like(x: Tensor) -> Tensor:
    return torch.empty_like(x, memory_format=torch.contiguous_format)


if PROVIDER == _CPU_PROVIDER:  # nki_op registers its own
    nki_rope.register_fake(_fake_rope)
    nki_rope_receipt.register_fake(_fake_receipt)


def _setup_context(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor]) -> None:
    del output
    _, _, cos, sin, backward, site = inputs
    if backward:
        raise NotImplementedError("harness::nki_rope has no second derivative")
    ctx.save_for_backward(cos, sin)
    ctx.site = site


def _backward(ctx: Any, grad_q: Tensor, grad_k: Tensor) -> tuple[Tensor, Tensor, None, None, None, None]:
    cos, sin = ctx.saved_tensors
    dq, dk = nki_rope(grad_q, grad_k, cos, sin, True, ctx.site)
    return dq, dk, None, None, None, None


nki_rope.register_autograd(_backward, setup_context=_setup_context)


def receipt(salt: int, device: str = "cpu") -> dict[str, Any]:
    """Launch the kernel once with `salt` (below 2**23, exact in float32) and return its receipt as JSON.

    `{"salt", "lnc", "shape": {...}, "values": [float per core]}`; a value is the salt plus the row
    tiles that core stored, here 2 batches times 2 tiles.
    """
    cores = execute.logical_cores()
    batch, heads, kv_heads, seq, dim = 2, 2, 1, 2 * 128 * cores, 32
    q = torch.ones(batch, heads, seq, dim, device=device)
    table = torch.ones(seq, dim, device=device)
    salted = torch.full((1, 1), float(salt), device=device)
    _, _, values = nki_rope_receipt(q, q[:, :kv_heads], table, table, salted)
    shape = {"batch": batch, "heads": heads, "kv_heads": kv_heads, "seq": seq, "dim": dim}
    return {"salt": salt, "lnc": cores, "shape": shape, "values": values.flatten().tolist()}


record.announce(
    registry.KernelOp(
        name="harness::nki_rope", provider=PROVIDER, kernel_file=str(_kernel_module.__file__), receipt=receipt
    )
)
