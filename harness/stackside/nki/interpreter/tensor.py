"""Memory of the interpreter: tensors that are shape-and-stride views of one flat storage."""

from enum import Enum
from math import prod
from typing import Any

import ml_dtypes
import numpy as np
from numpy.lib.stride_tricks import as_strided

from harness.stackside.nki.interpreter.coverage import NkiValidationError, refusal

__all__ = ["PARTITIONS", "MemoryRegion", "NkiTensor", "allocate", "resolve_dtype"]

# Rows that an on-chip memory holds: nl.tile_size.pmax, "128 partitions" in AWS's architecture guide.
PARTITIONS = 128

_Array = np.ndarray[Any, np.dtype[Any]]


class MemoryRegion(Enum):
    """Where a tensor lives: on the chip (sbuf, psum) or in device memory (HBM)."""

    sbuf = "sbuf"
    psum = "psum"
    private_hbm = "private_hbm"
    shared_hbm = "shared_hbm"

    @property
    def on_chip(self) -> bool:
        """True for SBUF and PSUM."""
        return self in (MemoryRegion.sbuf, MemoryRegion.psum)


def resolve_dtype(dtype: Any) -> np.dtype[Any]:
    """Return the NumPy dtype for a dtype or its name (`"bfloat16"` and the float8 names included)."""
    if isinstance(dtype, str) and hasattr(ml_dtypes, dtype):
        return np.dtype(getattr(ml_dtypes, dtype))
    return np.dtype(dtype)


class NkiTensor:
    """A view of `storage`. It has no arithmetic: in NKI only instructions compute.

    `written` mirrors the elements of HBM tensors that a kernel allocated: True where an instruction
    wrote. It is None for arguments (defined by the caller) and for on-chip tiles, whose
    uninitialised elements are NaN instead and spread through the arithmetic.
    """

    __slots__ = ("_offset", "_storage", "_storage_written", "array", "buffer", "written")

    def __init__(
        self,
        array: _Array,
        buffer: MemoryRegion,
        *,
        storage: _Array | None = None,
        offset: int = 0,
        written: _Array | None = None,
        storage_written: _Array | None = None,
    ) -> None:
        self.array = array
        self.buffer = buffer
        self.written = written
        self._storage = array.reshape(-1) if storage is None else storage
        self._storage_written = storage_written
        self._offset = offset

    @property
    def shape(self) -> tuple[int, ...]:
        """Sizes of the dimensions; on chip the first one is the partition dimension."""
        return self.array.shape

    @property
    def dtype(self) -> np.dtype[Any]:
        """Element type."""
        return self.array.dtype

    @property
    def ndim(self) -> int:
        """Number of dimensions."""
        return self.array.ndim

    @property
    def size(self) -> int:
        """Number of elements."""
        return self.array.size

    def __repr__(self) -> str:
        return f"NkiTensor({self.shape}, {self.dtype}, {self.buffer.value})"

    def __getitem__(self, key: Any) -> "NkiTensor":
        """Return the view at `key`, ints and slices only; unlike NumPy, out of range raises IndexError."""
        keys = key if isinstance(key, tuple) else (key,)
        if len(keys) > self.ndim:
            raise IndexError(f"{len(keys)} indices for a tensor with {self.ndim} dimensions {self.shape}")
        for axis, one in enumerate(keys):
            _check_index(one, self.shape[axis], axis)
        array = self.array[keys]
        if not isinstance(array, np.ndarray):
            raise IndexError(refusal(f"indexing a single element of {self!r}"))
        step = array.__array_interface__["data"][0] - self._storage.__array_interface__["data"][0]
        return NkiTensor(
            array,
            self.buffer,
            storage=self._storage,
            offset=step // array.itemsize,
            written=None if self.written is None else self.written[keys],
            storage_written=self._storage_written,
        )

    def ap(
        self,
        pattern: Any,
        offset: int | None = None,
        scalar_offset: Any = None,
        vector_offset: Any = None,
        indirect_dim: int = 0,
        dtype: Any = None,
    ) -> "NkiTensor":
        """Return an access pattern: `[[stride, count], ...]` in elements, from `offset` after this view's start.

        Raises NotImplementedError for dynamic offsets or a reinterpreting dtype, IndexError for a
        pattern that leaves the storage.
        """
        if scalar_offset is not None or vector_offset is not None or dtype is not None or indirect_dim != 0:
            raise NotImplementedError(refusal(".ap() with a dynamic offset or a dtype"))
        start = self._offset + (offset or 0)
        strides, counts = [int(pair[0]) for pair in pattern], [int(pair[1]) for pair in pattern]
        ends = [stride * (count - 1) for stride, count in zip(strides, counts, strict=True)]
        first, last = start + sum(min(end, 0) for end in ends), start + sum(max(end, 0) for end in ends)
        if min(counts) < 1 or first < 0 or last >= self._storage.size:
            raise IndexError(
                f".ap({pattern}) reaches elements {first}..{last} of a tensor with {self._storage.size} elements"
            )

        def view(flat: _Array) -> _Array:
            return as_strided(flat[start:], counts, [stride * flat.itemsize for stride in strides])

        marks = self._storage_written
        return NkiTensor(
            view(self._storage),
            self.buffer,
            storage=self._storage,
            offset=start,
            written=None if marks is None else view(marks),
            storage_written=marks,
        )

    def store(self, values: _Array) -> None:
        """Write `values` (any shape of this size), cast to this dtype: the one rounding of an instruction."""
        self.array[...] = values.reshape(self.shape)
        if self.written is not None:
            self.written[...] = True


def _check_index(index: Any, size: int, axis: int) -> None:
    if isinstance(index, slice):
        if index.step not in (None, 1) and (not isinstance(index.step, int) or index.step < 1):
            raise IndexError(refusal(f"a slice with step {index.step}"))
        start = 0 if index.start is None else index.start
        stop = size if index.stop is None else index.stop
        if not 0 <= start < stop <= size:
            raise IndexError(f"slice {start}:{stop} is empty or outside dimension {axis} of size {size}")
    elif isinstance(index, (int, np.integer)) and not isinstance(index, bool):
        if not 0 <= index < size:
            raise IndexError(f"index {index} is outside dimension {axis} of size {size}")
    else:
        raise IndexError(refusal(f"indexing by {type(index).__name__}"))


def allocate(shape: Any, dtype: Any, buffer: MemoryRegion) -> NkiTensor:
    """Return an uninitialised tensor: NaN where the dtype has one, its largest value elsewhere.

    Raises NkiValidationError for an on-chip tensor with fewer than two dimensions or more than 128
    partitions.
    """
    sizes = tuple(int(size) for size in shape)
    if not sizes or min(sizes) < 1:
        raise NkiValidationError(f"tensor of shape {sizes}: every dimension must be at least 1")
    if buffer.on_chip:
        if len(sizes) < 2:
            raise NkiValidationError(
                f"{buffer.value} tensor of shape {sizes}: on-chip tensors need 2 dimensions or more"
            )
        if sizes[0] > PARTITIONS:
            raise NkiValidationError(
                f"{buffer.value} tensor of shape {sizes}: partition dimension {sizes[0]} exceeds {PARTITIONS}"
            )
    resolved = resolve_dtype(dtype)
    integer = resolved.kind in "iu"
    storage = np.full(prod(sizes), np.iinfo(resolved).max if integer else np.nan, dtype=resolved)
    marks = None if buffer.on_chip else np.zeros(storage.size, dtype=np.bool_)
    return NkiTensor(
        storage.reshape(sizes),
        buffer,
        storage=storage,
        written=None if marks is None else marks.reshape(sizes),
        storage_written=marks,
    )
