"""`nki.language`: dtypes, memory regions, operators, allocation, program ids.

Signatures are those of AWS's published stubs for NKI 0.7.
"""

from collections.abc import Callable
from dataclasses import dataclass
from types import SimpleNamespace
from typing import Any

import ml_dtypes
import numpy as np

from harness.stackside.nki.interpreter.coverage import NkiValidationError, refusal
from harness.stackside.nki.interpreter.state import current
from harness.stackside.nki.interpreter.tensor import (
    PARTITIONS,
    MemoryRegion,
    NkiTensor,
    allocate,
    resolve_dtype,
)

__all__ = [
    "MemoryRegion",
    "NkiTensor",
    "Operator",
    "add",
    "bfloat16",
    "ds",
    "float8_e4m3",
    "float8_e4m3fn",
    "float8_e5m2",
    "float16",
    "float32",
    "hbm",
    "int8",
    "int32",
    "maximum",
    "minimum",
    "multiply",
    "ndarray",
    "num_programs",
    "private_hbm",
    "program_id",
    "program_ndim",
    "psum",
    "sbuf",
    "shared_hbm",
    "subtract",
    "tile_size",
    "uint8",
    "uint32",
]

sbuf = MemoryRegion.sbuf
psum = MemoryRegion.psum
private_hbm = MemoryRegion.private_hbm
shared_hbm = MemoryRegion.shared_hbm
hbm = private_hbm

float32 = np.dtype(np.float32)
float16 = np.dtype(np.float16)
int32 = np.dtype(np.int32)
uint32 = np.dtype(np.uint32)
int8 = np.dtype(np.int8)
uint8 = np.dtype(np.uint8)
bfloat16 = np.dtype(ml_dtypes.bfloat16)
float8_e4m3 = np.dtype(ml_dtypes.float8_e4m3)
float8_e4m3fn = np.dtype(ml_dtypes.float8_e4m3fn)
float8_e5m2 = np.dtype(ml_dtypes.float8_e5m2)

# Maxima of one tile: partitions, elements of a PSUM bank's row, and of a matrix multiply's operands.
tile_size = SimpleNamespace(pmax=PARTITIONS, psum_fmax=512, gemm_stationary_fmax=128, gemm_moving_fmax=512)


@dataclass(frozen=True, slots=True)
class Operator:
    """A binary operator to hand to an instruction as `op=`."""

    name: str
    function: Callable[[Any, Any], Any]

    def __call__(self, *operands: Any, **options: Any) -> NkiTensor:
        """Refuse the convenience form `nl.add(x, y)`."""
        raise NotImplementedError(
            refusal(f"nl.{self.name} called with {len(operands) + len(options)} operands")
        )


add = Operator("add", np.add)
subtract = Operator("subtract", np.subtract)
multiply = Operator("multiply", np.multiply)
maximum = Operator("maximum", np.maximum)
minimum = Operator("minimum", np.minimum)


def ndarray(
    shape: Any,
    dtype: Any,
    buffer: MemoryRegion = MemoryRegion.sbuf,
    name: str = "",
    address: tuple[int, int] | None = None,
) -> NkiTensor:
    """Return a new uninitialised tensor in `buffer`.

    In `shared_hbm` the cores of one launch get the same tensor: the n-th such allocation of each
    core is one allocation. Raises NkiValidationError when the cores disagree about its shape or
    dtype, or for a shape that does not fit on the chip; NotImplementedError for a fixed address.
    """
    if address is not None:
        raise NotImplementedError(refusal("nl.ndarray with an address"))
    launch = current("nl.ndarray")
    if buffer is not MemoryRegion.shared_hbm:
        return allocate(shape, dtype, buffer)
    if launch.next_shared == len(launch.shared):
        launch.shared.append(allocate(shape, dtype, buffer))
    tensor = launch.shared[launch.next_shared]
    launch.next_shared += 1
    if tensor.shape != tuple(shape) or tensor.dtype != resolve_dtype(dtype):
        raise NkiValidationError(
            f"shared_hbm allocation {launch.next_shared} {name!r}: program {launch.program} asks for "
            f"{tuple(shape)} {resolve_dtype(dtype)}, program 0 allocated {tensor.shape} {tensor.dtype}"
        )
    return tensor


def ds(start: int, size: int) -> slice:
    """Return the slice of `size` elements from `start`."""
    return slice(start, start + size)


def program_id(axis: int) -> int:
    """Return the index of the core that executes; the grid has one axis."""
    if axis != 0:
        raise NkiValidationError(f"program_id({axis}): the grid has one axis")
    return current("nl.program_id").program


def num_programs(axes: int | None = None) -> int:
    """Return the number of cores of the launch, 1 for a launch without `[lnc]`."""
    if axes not in (None, 0):
        raise NkiValidationError(f"num_programs({axes}): the grid has one axis")
    return current("nl.num_programs").grid or 1


def program_ndim() -> int:
    """Return the number of axes of the grid: 1 for `kernel[lnc]`, 0 for a launch without brackets."""
    return 1 if current("nl.program_ndim").grid else 0


def __getattr__(name: str) -> Any:
    raise AttributeError(refusal(f"nki.language.{name}"))
