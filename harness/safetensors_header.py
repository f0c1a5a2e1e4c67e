"""The header of a safetensors file as values: what is in it, and everything that is wrong with it.

A safetensors file is 8 bytes (the header's length, little-endian), a JSON object, and the tensors'
bytes without holes (format description: https://github.com/huggingface/safetensors#format). The
rules and limits here are those of the safetensors library, which refuses the same files but says
less about why.
"""

import json
from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass, field
from math import prod
from pathlib import Path
from typing import Any, NamedTuple

from harness.checks.finding import Finding
from harness.checks.wording import counted, few, shown

__all__ = ["BITS", "HEADER_LIMIT", "Tensor", "parse_header", "parse_json"]

HEADER_LIMIT = 100_000_000
"""Longest header in bytes that the safetensors library opens (`MAX_HEADER_SIZE` in its tensor.rs)."""

_DTYPES = {
    4: "F4",
    6: "F6_E2M3 F6_E3M2",
    8: "BOOL U8 I8 F8_E8M0 F8_E4M3 F8_E5M2 F8_E4M3FNUZ F8_E5M2FNUZ",
    16: "I16 U16 F16 BF16",
    32: "I32 U32 F32",
    64: "I64 U64 F64 C64",
}
BITS: Mapping[str, int] = {dtype: bits for bits, dtypes in _DTYPES.items() for dtype in dtypes.split()}
"""Bits per element of every dtype that safetensors 0.8.0 knows."""

_METADATA = "__metadata__"
_NO_WHOLE_NUMBER = (b"-", b"true", b"false", b"null")
"""Without these in a header, and with floats read as text, every JSON number in it is a whole one."""
_DECODER = json.JSONDecoder(parse_float=str, parse_constant=str)
_LARGEST = 2**63 - 1
"""Largest length or position accepted; no file reaches it, and longer numbers only come from damage."""


class Tensor(NamedTuple):
    """Where one tensor lies: `start` and `end` are byte positions in `file`, header included.

    A named tuple, because a mixture-of-experts checkpoint has some 18 000 of them and a frozen
    dataclass takes three times as long to make.
    """

    name: str
    dtype: str
    shape: tuple[int, ...]
    file: Path
    start: int
    end: int

    @property
    def nbytes(self) -> int:
        """Size in bytes."""
        return self.end - self.start


@dataclass(slots=True)
class _Faults:
    """Faulty tensors by code; one finding per code and file, however many tensors it hits."""

    file: Path
    by_code: dict[str, list[tuple[str, str]]] = field(default_factory=dict)

    def add(self, code: str, name: str, detail: str) -> None:
        self.by_code.setdefault(code, []).append((name, detail))

    def findings(self) -> list[Finding]:
        return [
            Finding(
                code,
                f"{shown(self.file.name)}: {counted(len(found), 'tensor')}: {shown(found[0][0])}: {found[0][1]}"
                + (f" (also {few(name for name, _ in found[1:])})" if len(found) > 1 else ""),
                {"file": str(self.file), "tensors": [name for name, _ in found]},
            )
            for code, found in self.by_code.items()
        ]


def parse_header(text: bytes, file: Path, size: int) -> tuple[dict[str, Tensor], tuple[Finding, ...]]:
    """Return the tensors that a header declares, and its defects.

    `text` is the JSON part, `size` the whole file's size in bytes; `file` only labels the result.
    Well-formed entries are returned even where others are faulty, so that names can still be judged.
    """
    document, problems = _decode(text, file)
    if document is None:
        return {}, problems
    faults = _Faults(file)
    quotes = _check_metadata(document.pop(_METADATA), faults) if _METADATA in document else 0
    data_start = 8 + len(text)
    tensors, end = None, None
    if not any(found in text for found in _NO_WHOLE_NUMBER):
        tensors, end = _parse_regular(document, file, data_start)
    if tensors is None:
        tensors = {}
        for name, entry in document.items():
            tensor = _parse_entry(name, entry, file, data_start, faults)
            if tensor is not None:
                tensors[name] = tensor
    found = [*problems, *_check_duplicates(text, quotes + 10 * len(tensors), file), *faults.findings()]
    if end != size or found:
        found += _check_layout(tensors, file, data_start, size, complete=not faults.by_code)
    return tensors, tuple(found)


def parse_json(text: str) -> tuple[Any, tuple[str, ...]]:
    """Return the value of the JSON `text`, and the keys that stand more than once in one object.

    Raises `ValueError` or `RecursionError` for what is not JSON.
    """
    repeated: dict[str, None] = {}

    def build(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
        built = dict(pairs)
        if len(built) != len(pairs):
            counts = Counter(key for key, _ in pairs)
            repeated.update(dict.fromkeys(key for key, count in counts.items() if count > 1))
        return built

    return json.loads(text, object_pairs_hook=build), tuple(repeated)


def _decode(text: bytes, file: Path) -> tuple[dict[str, Any] | None, tuple[Finding, ...]]:
    problem = ""
    try:
        document = _DECODER.decode(text.decode("utf-8"))
        if b"\\u" in text:  # only an escape can smuggle in half a surrogate pair
            json.dumps(document, ensure_ascii=False).encode()
    except UnicodeError as error:
        problem = f"is not UTF-8 ({shown(str(error))})"
    except (ValueError, RecursionError) as error:
        problem = f"is not JSON ({shown(str(error))})"
    else:
        if isinstance(document, dict):
            return document, ()
        problem = f"is a JSON {type(document).__name__}, not an object"
    message = (
        f"{shown(file.name)}: the header {problem}; the file is damaged or not safetensors. Fetch it again."
    )
    return None, (Finding("files.header-json", message, {"file": str(file)}),)


def _parse_regular(
    entries: Mapping[str, Any], file: Path, data_start: int
) -> tuple[dict[str, Tensor] | None, int | None]:
    """Return the tensors of a header in which every entry is as it should be, else None.

    The second value is where the last tensor ends, or None when they do not follow one another in
    the header's order. This is the fast way for sound headers of whole numbers; it explains nothing,
    and leaves what is rare (empty tensors) to the thorough way.
    """
    tensors: dict[str, Tensor] = {}
    position: int | None = 0
    make = tuple.__new__  # what Tensor(...) ends in, without the call in between
    try:
        for name, entry in entries.items():
            dtype, shape = entry["dtype"], entry["shape"]
            start, end = entry["data_offsets"]
            if type(shape) is not list or not prod(shape) * BITS[dtype] == (end - start) * 8 > 0:
                return None, None
            position = end if start == position else None
            tensors[name] = make(
                Tensor, (name, dtype, tuple(shape), file, data_start + start, data_start + end)
            )
    except (TypeError, KeyError, ValueError):
        return None, None
    return tensors, None if position is None else data_start + position


def _parse_entry(name: str, entry: Any, file: Path, data_start: int, faults: _Faults) -> Tensor | None:
    try:
        dtype, shape, (start, end) = entry["dtype"], entry["shape"], entry["data_offsets"]
        bits = BITS.get(dtype)
    except (TypeError, KeyError, ValueError):
        faults.add("files.header-entry", name, "needs dtype, shape and two data_offsets")
        return None
    if type(shape) is not list or type(dtype) is not str:
        faults.add("files.header-entry", name, "dtype must be text and shape a list")
        return None
    # Booleans are integers in Python but not in JSON, hence the exact types.
    if type(start) is not int or type(end) is not int or not 0 <= start <= end <= _LARGEST:
        faults.add("files.header-entry", name, f"data_offsets {shown([start, end])} are not a range of bytes")
        return None
    elements = 1
    for length in shape:
        if type(length) is not int or not 0 <= length <= _LARGEST:
            faults.add("files.header-entry", name, f"shape {shown(shape)} is not made of whole numbers")
            return None
        elements *= length
    if bits is None:
        faults.add("files.unknown-dtype", name, f"unknown dtype {shown(dtype)}")
    elif elements * bits != (end - start) * 8:
        wanted = str(elements * bits / 8) if elements <= _LARGEST else "more than 2^63"
        detail = (
            f"{dtype} {shown(shape)} takes {wanted.removesuffix('.0')} bytes, the offsets give {end - start}"
        )
        faults.add("files.size-mismatch", name, detail)
    return Tensor(name, dtype, tuple(shape), file, data_start + start, data_start + end)


def _check_metadata(entry: Any, faults: _Faults) -> int:
    """Return how many quotation marks the metadata takes in the header's text."""
    if entry is None:
        return 2
    if isinstance(entry, dict) and all(isinstance(value, str) for value in entry.values()):
        return 2 + 4 * len(entry)
    faults.add("files.header-entry", _METADATA, "must map text to text")
    return 0


def _check_duplicates(text: bytes, quotes: int, file: Path) -> list[Finding]:
    """Find repeated keys, which a JSON parser drops silently.

    Without escapes every key and every text has two quotation marks, so a header with exactly those
    of what was parsed has lost nothing. Only where the count is off is the text parsed once more.
    """
    if b"\\" not in text and text.count(b'"') == quotes:
        return []
    _, repeated = parse_json(text.decode("utf-8"))
    if not repeated:
        return []
    return [
        Finding(
            "files.duplicate-key",
            f"{shown(file.name)}: the header repeats {counted(len(repeated), 'key')}: {few(repeated)}. "
            "Only one of them would be loaded; write the file again.",
            {"file": str(file), "keys": list(repeated)},
        )
    ]


def _check_layout(
    tensors: Mapping[str, Tensor], file: Path, data_start: int, size: int, *, complete: bool
) -> list[Finding]:
    """Judge that the tensors cover the file's data once, without holes.

    Holes mean nothing when some entries could not be read (`complete` false), so then only a file
    that is too short is reported.
    """
    if not complete and not tensors:
        return []
    spans = sorted((tensor.start, tensor.end, tensor.name) for tensor in tensors.values())
    last = max((end for _, end, _ in spans), default=data_start)
    if last > size:
        cut = [name for _, end, name in spans if end > size]
        return [
            Finding(
                "files.truncated",
                f"{shown(file.name)} is cut short: {size} bytes of {last}; {counted(len(cut), 'tensor')} "
                f"incomplete ({few(cut)}). Incomplete download? Fetch it again.",
                {"file": str(file), "size": size, "expected": last, "tensors": cut},
            )
        ]
    if not complete:
        return []
    position, previous = data_start, "the header"
    for start, end, name in spans:
        if start != position:
            kind = "overlap" if start < position else "gap"
            return [_layout_finding(kind, file, previous, name, abs(start - position))]
        position, previous = end, name
    if position != size:
        return [
            Finding(
                "files.trailing-bytes",
                f"{shown(file.name)} has {size - position} bytes after its last tensor ({size} bytes, the header "
                f"accounts for {position}). Fetch or write it again.",
                {"file": str(file), "size": size, "expected": position},
            )
        ]
    return []


def _layout_finding(kind: str, file: Path, previous: str, name: str, by: int) -> Finding:
    what = (
        f"overlap by {by} bytes"
        if kind == "overlap"
        else f"leave {by} bytes between them that belong to nothing"
    )
    return Finding(
        f"files.{kind}",
        f"{shown(file.name)}: {shown(previous)} and {shown(name)} {what}. The header is damaged; "
        "fetch or write the file again.",
        {"file": str(file), "before": previous, "after": name, "bytes": by},
    )
