"""Digests of a checkpoint's tensors, as stored and converted, to compare with what a model holds."""

import hashlib
from collections.abc import Callable, Iterable, Mapping

import numpy as np
import numpy.typing as npt

from harness.checks.weights import FileDigest
from harness.safetensors_files import CheckpointFiles, Tensor, tensor_bytes, tensor_sha256

__all__ = ["file_digests"]

Array = npt.NDArray[np.generic]

_CHUNK = 1 << 22
"""Elements converted at a time, which keeps a copy of a large embedding out of memory."""


def file_digests(
    files: CheckpointFiles, *, convert_to: Iterable[str] = ("F32", "BF16")
) -> dict[str, FileDigest]:
    """Return the digest of every tensor: of its bytes, and of its values in the dtypes `convert_to`.

    A model that holds a tensor in another dtype than the file can thus still be compared exactly. Of
    the conversions only those among F32, F16 and BF16 are made (rounding to nearest, ties to even,
    as torch does). Reads every byte; raises `UserError` for a file that cannot be read.
    """
    wanted = tuple(convert_to)
    return {name: _digest(tensor, wanted) for name, tensor in files.tensors.items()}


def _digest(tensor: Tensor, convert_to: tuple[str, ...]) -> FileDigest:
    digests = {tensor.dtype: tensor_sha256(tensor)}
    others = [dtype for dtype in convert_to if dtype in _FROM_FLOAT and dtype != tensor.dtype]
    if tensor.dtype in _TO_FLOAT and others:
        stored_type, to_float = _TO_FLOAT[tensor.dtype]
        hashes = {dtype: hashlib.sha256() for dtype in others}
        values = np.frombuffer(tensor_bytes(tensor), dtype=stored_type)
        for start in range(0, len(values), _CHUNK):
            floats = to_float(values[start : start + _CHUNK])
            for dtype, running in hashes.items():
                running.update(_FROM_FLOAT[dtype](floats).tobytes())
        digests |= {dtype: running.hexdigest() for dtype, running in hashes.items()}
    return FileDigest(tensor.dtype, tensor.shape, digests)


def _float_to_bfloat(values: Array) -> Array:
    bits = values.view(np.uint32)
    rounded = (bits + np.uint32(0x7FFF) + ((bits >> np.uint32(16)) & np.uint32(1))) >> np.uint32(16)
    # Rounding could carry a NaN over into infinity; torch writes this NaN for all of them.
    return np.where(np.isnan(values.view(np.float32)), np.uint32(0x7FC0), rounded).astype("<u2")


def _bfloat_to_float(values: Array) -> Array:
    return (values.astype(np.uint32) << np.uint32(16)).view("<f4")


_TO_FLOAT: Mapping[str, tuple[str, Callable[[Array], Array]]] = {
    "F32": ("<f4", lambda values: values),
    "F16": ("<f2", lambda values: values.astype("<f4")),
    "BF16": ("<u2", _bfloat_to_float),
}
_FROM_FLOAT: Mapping[str, Callable[[Array], Array]] = {
    "F32": lambda values: values,
    "F16": lambda values: values.astype("<f2"),
    "BF16": _float_to_bfloat,
}
