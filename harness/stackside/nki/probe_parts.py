"""The measurements of the kernel probe. Each returns the JSON of one part of its record."""

import itertools
import os
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import asdict, dataclass
from types import ModuleType
from typing import Any

import numpy as np
import torch
from torch import Tensor

from harness.stackside.nki import counters, reference
from harness.stackside.nki.compare import compare, rounding_ratio
from harness.stackside.nki.ledger import LEDGER

__all__ = ["LENGTHS", "SHAPES", "Shape", "gradients", "lengths", "logical_cores_set", "numerics", "receipts"]


@dataclass(frozen=True, slots=True)
class Shape:
    """Sizes of one case; `seq` is in units of 128 * LNC, so that it is legal at every LNC."""

    batch: int
    heads: int
    kv_heads: int
    blocks: int
    dim: int

    def sizes(self, lnc: int) -> dict[str, int]:
        """Return batch, heads, kv_heads, seq and dim at `lnc`."""
        sizes = asdict(self)
        blocks = sizes.pop("blocks")
        return {**sizes, "seq": 128 * lnc * blocks}


# The first is the training shape of the recipe; the others vary every size: grouped, equal and
# single key heads, one and several tiles, one and several batches, the models' head dimensions.
SHAPES = (Shape(1, 4, 2, 2, 32), Shape(1, 2, 2, 1, 128), Shape(2, 4, 1, 2, 64), Shape(3, 1, 1, 3, 2))
DTYPES = ("float32", "bfloat16")

# Legal at some LNC (multiples of 128) and at none: near a multiple from both sides, and halfway.
LENGTHS = (128, 256, 384, 512, 192, 200, 250, 255, 257)


@contextmanager
def logical_cores_set(lnc: int) -> Iterator[None]:
    """Run the block at LNC `lnc`."""
    before = os.environ.get("NEURON_LOGICAL_NC_CONFIG")
    os.environ["NEURON_LOGICAL_NC_CONFIG"] = str(lnc)
    try:
        yield
    finally:
        if before is None:
            del os.environ["NEURON_LOGICAL_NC_CONFIG"]
        else:
            os.environ["NEURON_LOGICAL_NC_CONFIG"] = before


def numerics(op: ModuleType, lnc: int, device: str) -> list[dict[str, Any]]:
    """Return one case per shape and dtype at `lnc`: forward and backward against the reference."""
    with logical_cores_set(lnc):
        return [
            _case(op, shape.sizes(lnc), dtype, lnc, device, seed)
            for seed, (shape, dtype) in enumerate(itertools.product(SHAPES, DTYPES))
        ]


def receipts(op: ModuleType, lnc: int, salt: int, device: str) -> dict[str, Any]:
    """Return the salted receipt at `lnc`, with its launches; `error` when the kernel raised."""
    mark = LEDGER.mark()
    record: dict[str, Any] = {"lnc": lnc, "salt": salt, "shape": None, "values": None, "error": None}
    with logical_cores_set(lnc):
        try:
            record.update(op.receipt(salt, device))
        except Exception as error:
            record["error"] = _error("receipt", error)
    return {**record, "launches": [launch.to_json() for launch in LEDGER.since(mark)]}


def lengths(op: ModuleType, lnc: int, device: str) -> list[dict[str, Any]]:
    """Return, per sequence length and direction, whether the op raised, what, and after how many instructions."""
    records = []
    with logical_cores_set(lnc):
        for seq, backward in itertools.product(LENGTHS, (False, True)):
            q = torch.ones(1, 2, seq, 32, device=device)
            table = torch.ones(seq, 32, device=device)
            mark, raised = LEDGER.mark(), None
            try:
                op.nki_rope(q, q[:, :1], table, table, backward)
            except Exception as error:
                raised = {"type": type(error).__name__, "message": str(error)}
            ran = [launch.ops for launch in LEDGER.since(mark)]
            executed = None if None in ran else sum(sum(ops.values()) for ops in ran if ops is not None)
            direction = "backward" if backward else "forward"
            records.append(
                {"lnc": lnc, "seq": seq, "direction": direction, "raised": raised, "instructions": executed}
            )
    return records


def gradients(op: ModuleType, lnc: int, device: str) -> dict[str, Any]:
    """Return what reaches the parameters upstream of the op, against the same toy without the op.

    The toy is two linear layers (query and key) whose outputs are rotated and weighted to a loss.
    """
    seq, heads, dim = 128 * lnc, 2, 32
    generator = torch.Generator().manual_seed(5)
    x = torch.randn(1, seq, 16, generator=generator)
    weights = torch.randn(2, 1, heads, seq, dim, generator=generator)
    cos, sin = reference.tables(torch.arange(seq), dim)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(5)
        layers = torch.nn.ModuleDict({name: torch.nn.Linear(16, heads * dim) for name in ("query", "key")})

    def run(rotate: Any, tables: Sequence[Tensor], where: str) -> dict[str, Tensor | None]:
        toy = layers.to(where)
        toy.zero_grad(set_to_none=True)
        parts = [toy[name](x.to(where)).view(1, seq, heads, dim).transpose(1, 2) for name in ("query", "key")]
        outputs = rotate(*parts, *tables)
        torch.stack(
            [(out * w.to(where)).sum() for out, w in zip(outputs, weights, strict=True)]
        ).sum().backward()
        return {name: None if p.grad is None else p.grad.cpu() for name, p in toy.named_parameters()}

    def plain(q: Tensor, k: Tensor, c: Tensor, s: Tensor) -> tuple[Tensor, Tensor]:
        return reference.rope(q, c, s), reference.rope(k, c, s)

    want = run(plain, (cos, sin), "cpu")
    tables = [table.to(device, copy=True).requires_grad_() for table in (cos, sin)]
    record: dict[str, Any] = {"lnc": lnc, "error": None, "parameters": [], "tables_with_gradient": None}
    with logical_cores_set(lnc):
        try:
            got = run(op.nki_rope, tables, device)
        except Exception as error:
            return {**record, "error": _error("gradients", error)}
    for name, expected in want.items():
        assert expected is not None
        grad = got[name]
        comparison = None if grad is None else compare(_rows(grad), _rows(expected))
        record["parameters"].append({"name": name, "comparison": comparison})
    return {**record, "tables_with_gradient": sum(table.grad is not None for table in tables)}


def _case(
    op: ModuleType, sizes: Mapping[str, int], dtype: str, lnc: int, device: str, seed: int
) -> dict[str, Any]:
    batch, seq, dim = sizes["batch"], sizes["seq"], sizes["dim"]
    generator = torch.Generator().manual_seed(seed)

    def draw(heads: int) -> Tensor:
        return torch.randn(batch, heads, seq, dim, generator=generator).to(getattr(torch, dtype))

    q, k, grad_q, grad_k = (draw(sizes[name]) for name in ("heads", "kv_heads", "heads", "kv_heads"))
    # Positions that differ by batch take the kernel's per-batch table; one batch takes the shared one.
    positions = torch.arange(seq)
    if batch > 1:
        positions = torch.stack([(positions * (row + 1)) % seq for row in range(batch)])
    cos, sin = reference.tables(positions, dim)
    record: dict[str, Any] = {
        "shape": dict(sizes),
        "dtype": dtype,
        "lnc": lnc,
        "device": device,
        "tables": list(cos.shape),
        "error": None,
        "forward": None,
        "backward": None,
    }
    mark, counted = LEDGER.mark(), counters.snapshot()["total"]
    phase = "forward"
    try:
        ours = [x.to(device, copy=True).requires_grad_() for x in (q, k)]
        outputs = op.nki_rope(*ours, cos.to(device), sin.to(device))
        record["forward"] = _against((q, k), outputs, cos, sin, dtype, None)
        phase = "backward"
        torch.autograd.backward(outputs, [grad_q.to(device), grad_k.to(device)])
        record["backward"] = _against((q, k), [x.grad for x in ours], cos, sin, dtype, (grad_q, grad_k))
    except Exception as error:
        record["error"] = _error(phase, error)
    total = counters.snapshot()["total"]
    record["counts"] = {direction: total[direction] - counted[direction] for direction in total}
    record["launches"] = [launch.to_json() for launch in LEDGER.since(mark)]
    return record


def _against(
    inputs: Sequence[Tensor],
    results: Sequence[Tensor | None],
    cos: Tensor,
    sin: Tensor,
    dtype: str,
    upstream: Sequence[Tensor] | None,
) -> dict[str, Any]:
    """Compare q and k of one direction: of the rotation, or (with `upstream` gradients) of its gradient."""
    record: dict[str, Any] = {}
    for index, name in enumerate(("q", "k")):
        result = results[index]
        if result is None:
            record[name] = None
            continue
        grad = None if upstream is None else upstream[index]
        want = _reference(inputs[index], cos, sin, grad, torch.float32, rounded=True)
        comparison = compare(_rows(result), _rows(want))
        ratio = None
        if dtype != "float32":
            exact = _reference(inputs[index], cos, sin, grad, torch.float32, rounded=False)
            rough = _reference(inputs[index], cos, sin, grad, inputs[index].dtype, rounded=True)
            ratio = rounding_ratio(_rows(result), _rows(exact), _rows(rough))
        record[name] = {**comparison, "rounding_ratio": ratio}
    return record


def _reference(
    x: Tensor, cos: Tensor, sin: Tensor, grad: Tensor | None, compute: torch.dtype, *, rounded: bool
) -> Tensor:
    """The rotation of x (or, given `grad`, its gradient) computed in `compute`, `rounded` to x's dtype at the end."""
    if grad is None:
        result = reference.rope(x, cos, sin, compute)
        return result.to(x.dtype) if rounded else result
    value = x.to(compute).requires_grad_()
    reference.rope(value, cos, sin, compute).backward(grad.to(compute))
    assert value.grad is not None
    return value.grad.to(x.dtype) if rounded else value.grad


def _rows(x: Tensor) -> np.ndarray[Any, np.dtype[Any]]:
    flat: np.ndarray[Any, np.dtype[Any]] = x.detach().cpu().to(torch.float64).numpy()
    return flat.reshape(-1, flat.shape[-1])


def _error(phase: str, error: Exception) -> dict[str, str]:
    return {"phase": phase, "type": type(error).__name__, "message": str(error)}
