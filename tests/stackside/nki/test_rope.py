"""The shipped kernel through its op: numbers, gradients, compilation, counting."""

from collections.abc import Iterator
from types import ModuleType
from typing import Any

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from torch import Tensor

from harness.stackside.nki import counters, reference
from harness.stackside.nki.ledger import LEDGER
from harness.stackside.nki.probe_parts import logical_cores_set

stateless_fixture = settings(
    deadline=None, max_examples=40, suppress_health_check=[HealthCheck.function_scoped_fixture]
)


def draw(
    heads: int, seq: int, dim: int, *, batch: int = 1, seed: int = 0, dtype: Any = torch.float32
) -> Tensor:
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(batch, heads, seq, dim, generator=generator).to(dtype)


def stock(x: Tensor, cos: Tensor, sin: Tensor) -> Tensor:
    """The reference, rounded to the input's dtype as torchtitan does."""
    return reference.rope(x, cos, sin).to(x.dtype)


@st.composite
def problems(draw_: Any) -> dict[str, Any]:
    lnc = draw_(st.sampled_from([1, 2]))
    return {
        "lnc": lnc,
        "batch": draw_(st.integers(1, 3)),
        "heads": draw_(st.integers(1, 4)),
        "kv_heads": draw_(st.integers(1, 3)),
        "seq": 128 * lnc * draw_(st.integers(1, 3)),
        "dim": 2 * draw_(st.integers(1, 40)),
        "dtype": draw_(st.sampled_from([torch.float32, torch.bfloat16, torch.float16])),
        "per_batch": draw_(st.booleans()),
        "seed": draw_(st.integers(0, 2**16)),
    }


@given(problem=problems())
@stateless_fixture
def test_forward_and_backward_equal_the_reference_bit_for_bit(
    op: ModuleType, problem: dict[str, Any]
) -> None:
    sizes = {name: problem[name] for name in ("batch", "seq", "dim", "dtype", "seed")}
    q = draw(problem["heads"], **sizes).requires_grad_()
    k = draw(problem["kv_heads"], **sizes).requires_grad_()
    generator = torch.Generator().manual_seed(problem["seed"])
    shape = (problem["batch"], problem["seq"]) if problem["per_batch"] else (problem["seq"],)
    cos, sin = reference.tables(torch.randint(0, 4096, shape, generator=generator), problem["dim"])
    q_ref, k_ref = (x.detach().clone().requires_grad_() for x in (q, k))
    with logical_cores_set(problem["lnc"]):
        ours = op.nki_rope(q, k, cos, sin)
        theirs = (stock(q_ref, cos, sin), stock(k_ref, cos, sin))
        grads = [torch.randn(out.shape, generator=generator).to(out.dtype) for out in ours]
        torch.autograd.backward(ours, grads)
        torch.autograd.backward(theirs, grads)
    for got, want in zip((*ours, q.grad, k.grad), (*theirs, q_ref.grad, k_ref.grad), strict=True):
        assert torch.equal(got, want)


def test_it_is_a_rotation(op: ModuleType) -> None:
    """Independent of the reference: explicit 2x2 rotations in float64, and lengths are kept."""
    x, dim = draw(2, 128, 32).double(), 32
    cos, sin = reference.tables(torch.arange(128), dim)
    out, _ = op.nki_rope(x.float(), x.float(), cos, sin)
    angles = torch.outer(torch.arange(128).double(), 10000.0 ** -(torch.arange(0, dim, 2).double() / dim))
    low, high = x[..., : dim // 2], x[..., dim // 2 :]
    want = torch.cat((low * angles.cos() - high * angles.sin(), high * angles.cos() + low * angles.sin()), -1)
    assert torch.allclose(out.double(), want, rtol=0, atol=2e-5)
    assert torch.allclose(out.norm(dim=-1), x.float().norm(dim=-1), rtol=1e-5, atol=0)


def test_the_tables_get_no_gradient(op: ModuleType) -> None:
    cos, sin = (table.requires_grad_() for table in reference.tables(torch.arange(128), 32))
    q = draw(1, 128, 32).requires_grad_()
    sum(out.sum() for out in op.nki_rope(q, q, cos, sin)).backward()
    assert q.grad is not None
    assert cos.grad is None
    assert sin.grad is None


def test_there_is_no_second_derivative(op: ModuleType) -> None:
    cos, sin = reference.tables(torch.arange(128), 32)
    q = draw(1, 128, 32).requires_grad_()
    out, _ = op.nki_rope(q, q.detach(), cos, sin)
    with pytest.raises(NotImplementedError, match="no second derivative"):
        torch.autograd.grad((out * out).sum(), q, create_graph=True)


@pytest.mark.parametrize(("lnc", "seq"), [(1, 200), (1, 127), (1, 1), (2, 128), (2, 384), (2, 257)])
@pytest.mark.parametrize("backward", [False, True])
def test_an_illegal_length_raises_the_kernels_own_text(
    op: ModuleType, lnc: int, seq: int, backward: bool
) -> None:
    q, table = draw(1, seq, 8), torch.ones(seq, 8)
    text = rf"^seq len must be multiple of 128 \* LNC={lnc}, got {seq}$"
    with logical_cores_set(lnc), pytest.raises(AssertionError, match=text):
        op.nki_rope(q, q, table, table, backward)
    assert LEDGER.since()[-1].ops == {}


@pytest.mark.parametrize(
    ("k_shape", "table_shape", "text"),
    [
        ((1, 1, 128, 8), (128, 4), "do not cover"),
        ((1, 1, 128, 8), (64, 8), "do not cover"),
        ((2, 1, 128, 8), (128, 8), "disagree"),
        ((1, 1, 128, 6), (128, 8), "disagree"),
    ],
)
def test_shapes_that_do_not_fit_are_refused(
    op: ModuleType, k_shape: tuple[int, ...], table_shape: tuple[int, ...], text: str
) -> None:
    with pytest.raises(AssertionError, match=text):
        op.nki_rope(draw(2, 128, 8), torch.ones(k_shape), torch.ones(table_shape), torch.ones(table_shape))


def test_an_odd_head_dimension_is_refused(op: ModuleType) -> None:
    with pytest.raises(AssertionError, match="head dim must be even, got 7"):
        op.nki_rope(draw(1, 128, 7), draw(1, 128, 7), torch.ones(128, 7), torch.ones(128, 7))


@pytest.mark.parametrize("lnc", [1, 2])
def test_the_receipt_is_the_salt_plus_the_tiles(op: ModuleType, lnc: int) -> None:
    with logical_cores_set(lnc):
        found = op.receipt(4711)
    tiles = found["shape"]["batch"] * found["shape"]["seq"] // 128 // lnc
    assert (found["salt"], found["lnc"]) == (4711, lnc)
    assert found["values"] == [4711.0 + tiles] * lnc
    assert tiles > 1


def test_calls_are_counted_per_site_and_the_backward_with_its_forward(op: ModuleType) -> None:
    cos, sin = reference.tables(torch.arange(128), 8)
    q = draw(1, 128, 8).requires_grad_()
    first, _ = op.nki_rope(q, q, cos, sin, False, "layers.0")
    second, _ = op.nki_rope(first, first, cos, sin, False, "layers.1")
    op.nki_rope(q.detach(), q.detach(), cos, sin)
    second.sum().backward()
    found = counters.snapshot()
    assert found["forward"] == {"": 1, "layers.0": 1, "layers.1": 1}
    assert found["backward"] == {"layers.0": 1, "layers.1": 1}
    assert found["total"] == {"forward": 3, "backward": 2}
    assert len(LEDGER.since()) == 5


@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")  # opcheck's own
def test_opcheck_accepts_both_ops(op: ModuleType) -> None:
    cos, sin = reference.tables(torch.arange(128), 8)
    q, k = draw(2, 128, 8).requires_grad_(), draw(1, 128, 8).requires_grad_()
    torch.library.opcheck(op.nki_rope, (q, k, cos, sin))
    torch.library.opcheck(op.nki_rope_receipt, (q.detach(), k.detach(), cos, sin, torch.ones(1, 1)))


@pytest.fixture
def fresh_dynamo() -> Iterator[None]:
    torch._dynamo.reset()
    yield
    torch._dynamo.reset()


@pytest.mark.usefixtures("fresh_dynamo")
def test_a_compiled_graph_keeps_the_op_and_runs_it_each_time(op: ModuleType) -> None:
    cos, sin = reference.tables(torch.arange(128), 8)

    def through(rotate: Any) -> Any:
        def model(q: Tensor, k: Tensor) -> Tensor:
            a, b = rotate(q * 2, k * 2)
            result: Tensor = a.sum() + (b * b).sum()
            return result

        return model

    ours = through(lambda q, k: op.nki_rope(q, k, cos, sin, False, "compiled"))
    theirs = through(lambda q, k: (stock(q, cos, sin), stock(k, cos, sin)))
    compiled = torch.compile(ours, backend="aot_eager", fullgraph=True)
    for calls in range(1, 4):
        q, k = draw(2, 128, 8, seed=calls).requires_grad_(), draw(1, 128, 8).requires_grad_()
        q_ref, k_ref = (x.detach().clone().requires_grad_() for x in (q, k))
        compiled(q, k).backward()
        theirs(q_ref, k_ref).backward()
        assert torch.equal(q.grad, q_ref.grad)
        assert torch.equal(k.grad, k_ref.grad)
        found = counters.snapshot()
        assert found["forward"] == found["backward"] == {"compiled": calls}
        assert len(LEDGER.since()) == 2 * calls
