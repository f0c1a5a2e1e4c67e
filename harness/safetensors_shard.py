"""The border to one safetensors file: its header as values, and single tensors' bytes.

Only the header is read, so a file of any size takes microseconds. A damaged file never raises: its
defects are findings. Bytes are read only where they are asked for.
"""

import hashlib
import mmap
import os
import stat
import struct
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

from harness.checks.finding import Finding
from harness.checks.wording import shown
from harness.errors import UserError
from harness.safetensors_header import HEADER_LIMIT, Tensor, parse_header

__all__ = ["POINTER", "first_difference", "read_header", "read_regular", "tensor_bytes", "tensor_sha256"]

POINTER = b"version https://git-lfs"
"""How the text file begins that git-lfs leaves in place of a file that was not fetched."""

_FIRST_READ = 1 << 16
"""Bytes read at once: holds the header of a shard with some 500 tensors."""
_SMALLEST = 1024
"""A file below 1 KiB that does not parse is a placeholder: a pointer or an error page."""
_CHUNK = 1 << 22


def read_header(path: Path) -> tuple[dict[str, Tensor], tuple[Finding, ...]]:
    """Return the tensors that the safetensors file `path` declares, and its defects. Never raises."""
    try:
        # Without O_NONBLOCK, opening a named pipe would wait for ever.
        descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    except (OSError, ValueError) as error:
        return {}, (_unreadable(path, error),)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode):
            return {}, (
                Finding(
                    "files.not-a-file", f"{shown(path.name)} is not a regular file.", {"file": str(path)}
                ),
            )
        start = os.pread(descriptor, _FIRST_READ, 0)
        size = status.st_size
        length = struct.unpack("<Q", start[:8])[0] if len(start) >= 8 else 0
        problem = _check_start(path, start, size, length)
        if problem is not None:
            return {}, (problem,)
        if 8 + length > len(start):
            start += os.pread(descriptor, 8 + length - len(start), len(start))
    except OSError as error:
        return {}, (_unreadable(path, error),)
    finally:
        os.close(descriptor)
    tensors, problems = parse_header(start[8 : 8 + length], path, size)
    if size < _SMALLEST and problems and problems[0].code == "files.header-json":
        return {}, (_too_small(path, size),)
    return tensors, problems


def read_regular(path: Path, limit: int) -> bytes | None:
    """Return the content of a regular file of at most `limit` bytes, None for anything else.

    Raises `OSError` for a file that cannot be opened.
    """
    descriptor = os.open(path, os.O_RDONLY | os.O_NONBLOCK)
    try:
        status = os.fstat(descriptor)
        if not stat.S_ISREG(status.st_mode) or status.st_size > limit:
            return None
        return os.pread(descriptor, status.st_size, 0)
    finally:
        os.close(descriptor)


def tensor_bytes(tensor: Tensor) -> bytes:
    """Return the tensor's bytes, little-endian and contiguous, as stored.

    Raises `UserError` when the file does not hold them.
    """
    with _mapped(tensor) as view:
        return bytes(view)


def tensor_sha256(tensor: Tensor) -> str:
    """Return the hex sha256 of the tensor's bytes. Raises `UserError` as `tensor_bytes` does."""
    with _mapped(tensor) as view:
        return hashlib.sha256(view).hexdigest()


def first_difference(one: Tensor, other: Tensor) -> int | None:
    """Return the position of the first byte in which two tensors differ, or None if they are equal.

    Where one is the start of the other, that is the shorter's length. Raises `UserError` as
    `tensor_bytes` does.
    """
    with _mapped(one) as left, _mapped(other) as right:
        shortest = min(len(left), len(right))
        for start in range(0, shortest, _CHUNK):
            ours, theirs = (bytes(view[start : min(start + _CHUNK, shortest)]) for view in (left, right))
            if ours != theirs:
                return start + next(n for n, (a, b) in enumerate(zip(ours, theirs, strict=True)) if a != b)
        return None if len(left) == len(right) else shortest


@contextmanager
def _mapped(tensor: Tensor) -> Iterator[memoryview]:
    """Yield the tensor's bytes as a view of the mapped file."""
    try:
        with tensor.file.open("rb") as handle:
            if os.fstat(handle.fileno()).st_size < tensor.end:
                raise UserError(
                    f"{tensor.file}: too short to hold {shown(tensor.name)}. Fetch the file again."
                )
            if tensor.start == tensor.end:  # an empty range cannot be mapped
                yield memoryview(b"")
                return
            base = tensor.start - tensor.start % mmap.ALLOCATIONGRANULARITY
            with (
                mmap.mmap(handle.fileno(), tensor.end - base, access=mmap.ACCESS_READ, offset=base) as mapped,
                memoryview(mapped) as whole,
                whole[tensor.start - base :] as view,
            ):
                yield view
    except OSError as error:
        raise UserError(f"{tensor.file}: cannot be read: {error.strerror}.") from None


def _check_start(path: Path, start: bytes, size: int, length: int) -> Finding | None:
    """Judge a file's first bytes: a pointer, a placeholder, or a header that cannot be there."""
    name, data = shown(path.name), {"file": str(path), "size": size}
    if start.lstrip(b"\xef\xbb\xbf \r\n\t").startswith(POINTER):
        message = f"{name} is a git-lfs pointer (text, {size} bytes), not weights. Fetch the real file."
        return Finding("files.lfs-pointer", message, data)
    if size < 8:
        return _too_small(path, size)
    if length > HEADER_LIMIT:
        if size < _SMALLEST:
            return _too_small(path, size)
        message = (
            f"{name}: header too large ({length} bytes, at most {HEADER_LIMIT}): this is not a safetensors "
            f"file (it starts with {start[:16]!r}). Fetch it again."
        )
        return Finding("files.header-size", message, {**data, "header": length})
    if 8 + length > size:
        message = f"{name} is cut short inside its header: {size} bytes of {8 + length}. Fetch it again."
        return Finding("files.truncated", message, {**data, "expected": 8 + length})
    return None


def _too_small(path: Path, size: int) -> Finding:
    what = "is empty" if size == 0 else f"has only {size} bytes and no safetensors header"
    message = f"{shown(path.name)} {what}: a pointer or placeholder, not weights. Fetch the real file."
    return Finding("files.too-small", message, {"file": str(path), "size": size})


def _unreadable(path: Path, error: Exception) -> Finding:
    reason = getattr(error, "strerror", None) or str(error)
    if isinstance(error, FileNotFoundError):
        with suppress(OSError):  # it is there in the folder's list, so it is a link to nothing
            reason = f"it links to {shown(str(path.readlink()))}, which is not there; fetch it again"
    return Finding("files.unreadable", f"{shown(path.name)} cannot be read: {reason}.", {"file": str(path)})
