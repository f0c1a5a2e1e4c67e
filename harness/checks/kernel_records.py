"""The kernel records as typed values: what the probe and a training run wrote, read strictly.

The JSON is defined by `harness/stackside/nki/probe.py` and `record.py`. Standard library only, so that
the stack's own Python can judge a record in its tests.
"""

import types
from collections.abc import Mapping
from dataclasses import MISSING, dataclass, fields, is_dataclass
from typing import Any, TypeVar, Union, get_args, get_origin, get_type_hints

__all__ = [
    "Argument",
    "Backend",
    "Case",
    "Comparison",
    "Counts",
    "Failure",
    "Gradients",
    "Kernel",
    "Launch",
    "Launches",
    "Length",
    "Parameter",
    "Probe",
    "Raised",
    "Receipt",
    "RecordError",
    "Shape",
    "Signature",
    "Step",
    "Training",
    "read",
]

_T = TypeVar("_T")


class RecordError(ValueError):
    """A record lacks a key, or holds something of another kind than it should."""


@dataclass(frozen=True, slots=True)
class Backend:
    """What executed the kernels; see `harness.stackside.nki.resolver.Backend`."""

    name: str
    version: str
    source: str
    reason: str
    device: str | None
    limits: str


@dataclass(frozen=True, slots=True)
class Kernel:
    """The kernel's file on the machine of the run and the SHA-256 of its bytes."""

    op: str
    path: str
    sha256: str


@dataclass(frozen=True, slots=True)
class Argument:
    """An argument of a launch: shape and dtype of an array, else the value."""

    name: str
    shape: tuple[int, ...] | None = None
    dtype: str | None = None
    value: Any = None


@dataclass(frozen=True, slots=True)
class Launch:
    """One launch; `ops`, `hbm_bytes_written` and `sentinels` are None where the backend does not tell."""

    kernel: str
    source: str
    backend: str
    grid: int
    args: tuple[Argument, ...]
    ops: dict[str, int] | None
    hbm_bytes_written: int | None
    sentinels: int | None
    error: str | None


@dataclass(frozen=True, slots=True)
class Comparison:
    """A result against its reference; see `harness.stackside.nki.compare.compare`."""

    max_abs_diff: float | None
    max_abs_reference: float
    relative: float | None
    elements: int
    nonzero: int
    nonfinite: int
    rows: int
    rows_differ: int
    first_rows_differ: tuple[int, ...]
    differing_rows_equal_row_0: bool
    rounding_ratio: float | None = None


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of one call: q is [batch, heads, seq, dim], k is [batch, kv_heads, seq, dim]."""

    batch: int
    heads: int
    kv_heads: int
    seq: int
    dim: int


@dataclass(frozen=True, slots=True)
class Failure:
    """An exception that ended a measurement, and in which phase."""

    phase: str
    type: str
    message: str


@dataclass(frozen=True, slots=True)
class Counts:
    """Runs of the op's body."""

    forward: int
    backward: int


@dataclass(frozen=True, slots=True)
class Case:
    """One op-level case of the probe; per direction, q and k (None: no gradient arrived)."""

    shape: Shape
    dtype: str
    lnc: int
    device: str
    tables: tuple[int, ...]
    error: Failure | None
    forward: dict[str, Comparison | None] | None
    backward: dict[str, Comparison | None] | None
    counts: Counts
    launches: tuple[Launch, ...]


@dataclass(frozen=True, slots=True)
class Receipt:
    """The salted receipt: per core, the salt plus the number of row tiles that core stored."""

    salt: int
    lnc: int
    shape: Shape | None
    values: tuple[float, ...] | None
    error: Failure | None = None
    launches: tuple[Launch, ...] = ()


@dataclass(frozen=True, slots=True)
class Raised:
    """An exception by type and text."""

    type: str
    message: str


@dataclass(frozen=True, slots=True)
class Length:
    """What the op did with one sequence length; `instructions` ran before it raised or ended."""

    lnc: int
    seq: int
    direction: str
    raised: Raised | None
    instructions: int | None


@dataclass(frozen=True, slots=True)
class Parameter:
    """The gradient of one parameter upstream of the op; None: there is none."""

    name: str
    comparison: Comparison | None


@dataclass(frozen=True, slots=True)
class Gradients:
    """The upstream-gradient toy; `tables_with_gradient` counts cos/sin tables that got one (0 is right)."""

    lnc: int
    error: Failure | None
    parameters: tuple[Parameter, ...]
    tables_with_gradient: int | None


@dataclass(frozen=True, slots=True)
class Probe:
    """The record of `harness.stackside.nki.probe`, schema 1."""

    schema: int
    mutant: str | None
    salt: int
    lnc: tuple[int, ...]
    provider: str
    backend: Backend
    kernel: Kernel
    versions: dict[str, str]
    cases: tuple[Case, ...]
    receipts: tuple[Receipt, ...]
    lengths: tuple[Length, ...]
    gradients: tuple[Gradients, ...]


@dataclass(frozen=True, slots=True)
class Step:
    """Runs of the op's body in one training step, per site."""

    step: int
    forward: dict[str, int]
    backward: dict[str, int]


@dataclass(frozen=True, slots=True)
class Signature:
    """Equal launches, `count` of them."""

    args: tuple[Argument, ...]
    grid: int
    ops: dict[str, int] | None
    hbm_bytes_written: int | None
    count: int


@dataclass(frozen=True, slots=True)
class Launches:
    """All launches of a run on one rank."""

    count: int
    sources: tuple[str, ...]
    sentinels: int | None
    errors: tuple[str, ...]
    signatures: tuple[Signature, ...]


@dataclass(frozen=True, slots=True)
class Training:
    """The record of `harness.stackside.nki.record` of one rank, schema 1."""

    schema: int
    rank: int
    provider: str
    lnc: int
    backend: Backend
    kernel: Kernel
    layouts: dict[str, int]
    steps: tuple[Step, ...]
    outside: dict[str, dict[str, int]]
    launches: Launches
    receipt: Receipt | None


def read(kind: type[_T], data: object, where: str = "record") -> _T:
    """Return `data` (parsed JSON) as the dataclass `kind`; keys it does not know are ignored.

    Raises RecordError naming the place (`record.cases[3].forward.q.rows`) and what was found there.
    """
    value = _convert(kind, data, where)
    assert isinstance(value, kind)
    return value


def _convert(kind: Any, data: Any, where: str) -> Any:
    origin, inner = get_origin(kind), get_args(kind)
    if origin in (Union, types.UnionType):
        if data is None and type(None) in inner:
            return None
        return _convert(next(one for one in inner if one is not type(None)), data, where)
    if is_dataclass(kind):
        return _dataclass(kind, data, where)
    if origin is tuple:
        items = _require(data, (list, tuple), "a list", where)
        return tuple(_convert(inner[0], item, f"{where}[{index}]") for index, item in enumerate(items))
    if origin is dict:
        entries = _require(data, Mapping, "an object", where)
        return {str(key): _convert(inner[1], value, f"{where}.{key}") for key, value in entries.items()}
    return data if kind is Any else _plain(kind, data, where)


def _plain(kind: Any, data: Any, where: str) -> Any:
    """Return a str, int, float or bool; an int is a float, but a bool is no number."""
    if kind is not bool and isinstance(data, bool):
        raise _wrong(data, kind.__name__, where)
    return (
        float(_require(data, (int, float), "a number", where))
        if kind is float
        else _require(data, kind, kind.__name__, where)
    )


def _dataclass(kind: Any, data: Any, where: str) -> Any:
    _require(data, Mapping, "an object", where)
    hints = get_type_hints(kind)
    values = {}
    for item in fields(kind):
        if item.name in data:
            values[item.name] = _convert(hints[item.name], data[item.name], f"{where}.{item.name}")
        elif item.default is MISSING:
            raise RecordError(f"{where} has no {item.name!r}")
    return kind(**values)


def _require(data: Any, kinds: Any, expected: str, where: str) -> Any:
    if not isinstance(data, kinds):
        raise _wrong(data, expected, where)
    return data


def _wrong(data: object, expected: str, where: str) -> RecordError:
    return RecordError(f"{where} is {type(data).__name__} {str(data)[:40]!r}, expected {expected}")
