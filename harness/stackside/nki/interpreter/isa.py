"""`nki.isa`: the interpreted instructions. Every one takes its destination first and returns nothing.

Signatures are those of AWS's published stubs for NKI 0.7; the rules in the docstrings are theirs.
"""

from enum import Enum
from math import prod
from typing import Any

import numpy as np

from harness.stackside.nki.interpreter.coverage import NkiValidationError, refusal
from harness.stackside.nki.interpreter.language import Operator
from harness.stackside.nki.interpreter.state import current
from harness.stackside.nki.interpreter.tensor import PARTITIONS, MemoryRegion, NkiTensor

__all__ = [
    "DgeMode",
    "Engine",
    "NkiValidationError",
    "OobMode",
    "dge_mode",
    "dma_copy",
    "engine",
    "memset",
    "oob_mode",
    "tensor_copy",
    "tensor_tensor",
]


class Engine(Enum):
    """Compute engines; `unknown` leaves the choice to the compiler."""

    unknown = 0
    tensor = 1
    scalar = 2
    gpsimd = 3
    dma = 4
    vector = 5
    sync = 6


class OobMode(Enum):
    """What an indirect access does out of bounds."""

    error = 0
    skip = 1


class DgeMode(Enum):
    """Who generates the descriptors of a DMA."""

    unknown = 0
    swdge = 1
    hwdge = 2
    none = 3


# The names that kernels use.
engine = Engine
oob_mode = OobMode
dge_mode = DgeMode


def dma_copy(
    dst: NkiTensor,
    src: NkiTensor,
    priority: int | None = None,
    oob_mode: OobMode = OobMode.error,
    dge_mode: DgeMode = DgeMode.unknown,
    engine: Engine = Engine.unknown,
    name: str | None = None,
) -> None:
    """Copy `src` to `dst`, in HBM or SBUF, of equal element counts; a dtype change goes through float32."""
    what = _label("dma_copy", name)
    _operands(what, dst=dst, src=src)
    _require(priority is None, what, "priority exists on NeuronCore-v4 and later only")
    _require(
        oob_mode is OobMode.error, what, "oob_mode.skip applies to indirect access, which is not interpreted"
    )
    _require(
        engine is Engine.unknown or (dge_mode is DgeMode.hwdge and engine in (Engine.sync, Engine.scalar)),
        what,
        f"engine {engine.name} needs dge_mode.hwdge and the sync or scalar engine",
    )
    _require(
        MemoryRegion.psum not in (dst.buffer, src.buffer),
        what,
        "a DMA cannot reach PSUM; use tensor_copy first",
    )
    _require(dst.size == src.size, what, f"element counts differ: dst {dst.shape}, src {src.shape}")
    dst.store(src.array if src.dtype == dst.dtype else src.array.astype(np.float32))
    _count("dma_copy", dst)


def tensor_copy(
    dst: NkiTensor, src: NkiTensor, engine: Engine = Engine.unknown, name: str | None = None
) -> None:
    """Copy between on-chip tiles of equal partitions and elements per partition, through float32 if dtypes differ."""
    what = _label("tensor_copy", name)
    _operands(what, dst=dst, src=src)
    _on_chip(what, dst=dst, src=src)
    _engine(what, engine, (Engine.vector, Engine.scalar, Engine.gpsimd), dst, src)
    _same_tile(what, dst=dst, src=src)
    dst.store(src.array if src.dtype == dst.dtype else src.array.astype(np.float32))
    _count("tensor_copy", dst)


def tensor_tensor(
    dst: NkiTensor,
    data1: NkiTensor,
    data2: NkiTensor,
    op: Operator,
    engine: Engine = Engine.unknown,
    name: str | None = None,
) -> None:
    """Compute `op(data1, data2)` element by element in float32 and cast once, at the store to `dst`.

    All three are on-chip tiles of equal partitions and elements per partition; at most one input
    is in PSUM. Integer tiles are refused.
    """
    what = _label("tensor_tensor", name)
    _operands(what, dst=dst, data1=data1, data2=data2)
    if not isinstance(op, Operator):
        raise NotImplementedError(refusal(f"{what} with op={op!r}"))
    _on_chip(what, dst=dst, data1=data1, data2=data2)
    _require(
        not (data1.buffer is MemoryRegion.psum and data2.buffer is MemoryRegion.psum),
        what,
        "data1 and data2 cannot both be in PSUM",
    )
    _engine(what, engine, (Engine.vector, Engine.gpsimd), dst, data1, data2)
    _same_tile(what, dst=dst, data1=data1, data2=data2)
    if any(tensor.dtype.kind in "iu" for tensor in (dst, data1, data2)):
        raise NotImplementedError(refusal(f"{what} on integer tiles"))
    left, right = (data.array.astype(np.float32, copy=False).reshape(dst.shape) for data in (data1, data2))
    dst.store(op.function(left, right))
    _count("tensor_tensor", dst)


def memset(dst: NkiTensor, value: float, engine: Engine = Engine.unknown, name: str | None = None) -> None:
    """Fill the on-chip tile `dst` with the compile-time constant `value`."""
    what = _label("memset", name)
    _operands(what, dst=dst)
    _on_chip(what, dst=dst)
    _engine(what, engine, (Engine.vector, Engine.gpsimd), dst)
    _require(
        isinstance(value, (int, float)) and not (dst.dtype.kind in "iu" and isinstance(value, float)),
        what,
        f"value {value!r} is not a constant of {dst.dtype}",
    )
    dst.store(np.full(dst.shape, value, dtype=dst.dtype))
    _count("memset", dst)


def _label(instruction: str, name: str | None) -> str:
    return f"nisa.{instruction}" if name is None else f"nisa.{instruction} {name!r}"


def _require(holds: bool, what: str, rule: str) -> None:
    if not holds:
        raise NkiValidationError(f"{what}: {rule}")


def _operands(what: str, **tensors: Any) -> None:
    for role, tensor in tensors.items():
        if not isinstance(tensor, NkiTensor):
            raise NotImplementedError(refusal(f"{what} with {role} of type {type(tensor).__name__}"))
        if tensor.buffer.on_chip:
            _require(tensor.ndim >= 2, what, f"{role} {tensor.shape} has lost its partition dimension")
            _require(
                tensor.shape[0] <= PARTITIONS,
                what,
                f"{role} {tensor.shape} has more than {PARTITIONS} partitions",
            )


def _on_chip(what: str, **tensors: NkiTensor) -> None:
    for role, tensor in tensors.items():
        _require(tensor.buffer.on_chip, what, f"{role} is in {tensor.buffer.value}, must be in SBUF or PSUM")


def _engine(what: str, chosen: Engine, allowed: tuple[Engine, ...], *tensors: NkiTensor) -> None:
    names = ", ".join(one.name for one in allowed)
    _require(chosen in (Engine.unknown, *allowed), what, f"runs on {names}, not on the {chosen.name} engine")
    in_psum = any(tensor.buffer is MemoryRegion.psum for tensor in tensors)
    _require(not (chosen is Engine.gpsimd and in_psum), what, "the gpsimd engine cannot access PSUM")


def _same_tile(what: str, **tensors: NkiTensor) -> None:
    tiles = {(tensor.shape[0], prod(tensor.shape[1:])) for tensor in tensors.values()}
    shapes = ", ".join(f"{role} {tensor.shape}" for role, tensor in tensors.items())
    _require(len(tiles) == 1, what, f"partitions or elements per partition differ: {shapes}")


def _count(instruction: str, dst: NkiTensor) -> None:
    launch = current(f"nisa.{instruction}")
    launch.ops[instruction] += 1
    if not dst.buffer.on_chip:
        launch.hbm_bytes_written += dst.size * dst.dtype.itemsize


def __getattr__(name: str) -> Any:
    raise AttributeError(refusal(f"nki.isa.{name}"))
