"""The interpreter: data flow, bookkeeping, and every constraint with an example that violates it."""

from collections.abc import Callable
from typing import Any

import ml_dtypes
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from harness.stackside.nki.interpreter import isa as nisa
from harness.stackside.nki.interpreter import language as nl
from harness.stackside.nki.interpreter import nki
from harness.stackside.nki.interpreter.coverage import NkiValidationError
from harness.stackside.nki.ledger import LEDGER

X = np.arange(256 * 4, dtype=np.float32).reshape(256, 4)


def output(x: Any, dtype: Any = nl.float32) -> Any:
    return nl.ndarray(x.shape, dtype=dtype, buffer=nl.shared_hbm)


def tile(rows: int = 128, columns: int = 4, buffer: Any = nl.sbuf, dtype: Any = nl.float32) -> Any:
    return nl.ndarray((rows, columns), dtype=dtype, buffer=buffer)


@nki.jit
def copy_rows(x: Any) -> Any:
    """Copy x tile by tile; each core takes its share of the rows."""
    out = output(x)
    cores = nl.num_programs(0)
    for t in range(x.shape[0] // 128 // cores):
        here = nl.ds((nl.program_id(0) * (x.shape[0] // 128 // cores) + t) * 128, 128)
        work = tile()
        nisa.dma_copy(dst=work, src=x[here, :])
        nisa.dma_copy(dst=out[here, :], src=work)
    return out


def launch(body: Callable[[Any], Any], x: Any = X, lnc: int = 1) -> Any:
    return nki.simulate(nki.jit(body)[lnc])(x)


@pytest.mark.parametrize("lnc", [1, 2])
def test_a_launch_is_recorded_exactly(lnc: int) -> None:
    result = copy_rows[lnc](X)
    assert np.array_equal(result, X)
    (record,) = LEDGER.since()
    assert record.kernel == "copy_rows"
    assert record.source == f"{__file__}:{copy_rows.func.__code__.co_firstlineno}"
    assert (record.backend, record.grid, record.error) == ("interpreter", lnc, None)
    assert record.to_json()["args"] == [{"name": "x", "shape": [256, 4], "dtype": "float32"}]
    assert record.ops == {"dma_copy": 4}
    assert record.hbm_bytes_written == X.nbytes
    assert record.sentinels == 0


def test_without_brackets_there_is_no_grid() -> None:
    def body(x: Any) -> Any:
        assert (nl.program_ndim(), nl.num_programs(), nl.program_id(0)) == (0, 1, 0)
        return output(x)

    nki.jit(body)(X)
    (record,) = LEDGER.since()
    assert (record.grid, record.sentinels) == (1, X.size)


def test_torch_tensors_come_back_as_torch_tensors() -> None:
    for dtype in (torch.float32, torch.bfloat16):
        x = torch.arange(128 * 4, dtype=torch.float32).reshape(128, 4).to(dtype)
        result = launch(lambda t: _through(t, t.dtype), x)
        assert result.dtype == dtype
        assert torch.equal(result, x)


def _through(x: Any, dtype: Any) -> Any:
    out, work = output(x, dtype), tile(x.shape[0])
    nisa.dma_copy(dst=work, src=x)
    nisa.dma_copy(dst=out, src=work)
    return out


@given(
    arrays.arrays(np.float32, (16, 4), elements=st.floats(width=32, allow_nan=False, allow_infinity=False))
)
def test_a_store_rounds_to_bfloat16_as_torch_does(x: np.ndarray[Any, np.dtype[np.float32]]) -> None:
    result = launch(lambda t: _through(t, nl.bfloat16), x)
    expected = torch.from_numpy(x).bfloat16().float().numpy()
    assert np.array_equal(result.astype(np.float32), expected)


@pytest.mark.parametrize(
    ("op", "expected"),
    [
        (nl.add, np.add),
        (nl.subtract, np.subtract),
        (nl.multiply, np.multiply),
        (nl.maximum, np.maximum),
        (nl.minimum, np.minimum),
    ],
)
def test_arithmetic_is_float32_with_one_rounding(op: Any, expected: Any) -> None:
    def body(x: Any) -> Any:
        out, a, b = output(x, nl.bfloat16), tile(dtype=nl.bfloat16), tile(dtype=nl.bfloat16)
        nisa.dma_copy(dst=a, src=x)
        nisa.memset(dst=b, value=1.5)
        nisa.tensor_tensor(dst=a, data1=a, data2=b, op=op)
        nisa.dma_copy(dst=out, src=a)
        return out

    x = np.linspace(-3, 3, 128 * 4, dtype=np.float32).reshape(128, 4)
    low = x.astype(ml_dtypes.bfloat16).astype(np.float32)
    want = expected(low, np.float32(1.5)).astype(ml_dtypes.bfloat16)
    assert np.array_equal(launch(body, x), want)


def test_access_patterns_read_by_stride() -> None:
    def body(x: Any) -> Any:
        out, work = nl.ndarray((4, 64), nl.float32, nl.shared_hbm), tile(4, 64)
        # Transposed, every second row from row 128 on.
        nisa.dma_copy(dst=work, src=x[128:256, :].ap([[1, 4], [8, 64]]))
        nisa.dma_copy(dst=out.ap([[64, 4], [1, 64]]), src=work)
        return out

    assert np.array_equal(launch(body), X[128:256:2].T)
    (record,) = LEDGER.since()
    assert record.sentinels == 0


def test_slices_are_views_of_the_same_memory() -> None:
    def body(x: Any) -> Any:
        out, work = output(x[0:128, :]), tile()
        nisa.dma_copy(dst=work, src=x[0:128, :])
        nisa.tensor_copy(dst=work[:, 0:2], src=work[:, 2:4])
        nisa.dma_copy(dst=out, src=work)
        return out

    assert np.array_equal(launch(body)[:, :2], X[:128, 2:])


def test_unwritten_results_are_counted() -> None:
    def body(x: Any) -> Any:
        out, work = output(x), tile()
        nisa.dma_copy(dst=work, src=x[0:128, :])
        nisa.dma_copy(dst=out[0:128, :], src=work)
        return out

    assert np.isnan(launch(body)[128:]).all()
    (record,) = LEDGER.since()
    assert (record.unwritten, record.sentinels) == (128 * 4, 128 * 4)


def test_uninitialised_tiles_spread_and_are_counted() -> None:
    def body(x: Any) -> Any:
        out, work, never = output(x[0:128, :]), tile(), tile()
        nisa.dma_copy(dst=work, src=x[0:128, :])
        nisa.tensor_tensor(dst=work[:, 0:1], data1=work[:, 0:1], data2=never[:, 0:1], op=nl.add)
        nisa.dma_copy(dst=out, src=work)
        return out

    launch(body)
    (record,) = LEDGER.since()
    assert (record.unwritten, record.nan, record.sentinels) == (0, 128, 128)


def test_a_nan_of_the_caller_is_no_sentinel() -> None:
    x = X.copy()
    x[3, 2] = np.nan
    result = copy_rows[1](x)
    assert np.isnan(result[3, 2])
    (record,) = LEDGER.since()
    assert (record.nan, record.nan_inputs, record.sentinels) == (1, 1, 0)


def test_a_launch_that_raises_is_recorded_with_what_it_did() -> None:
    def body(x: Any) -> Any:
        nisa.dma_copy(dst=tile(), src=x[0:128, :])
        raise AssertionError("the kernel's own text")

    with pytest.raises(AssertionError, match="own text"):
        launch(body)
    (record,) = LEDGER.since()
    assert record.error == "AssertionError: the kernel's own text"
    assert record.ops == {"dma_copy": 1}
    assert copy_rows[1](X) is not None  # the next launch is not affected


BROKEN: dict[str, tuple[Callable[[Any], Any], type[Exception], str]] = {
    "partitions": (lambda x: tile(256), NkiValidationError, "partition dimension 256 exceeds 128"),
    "one-dimension": (lambda x: nl.ndarray((4,), nl.float32, nl.sbuf), NkiValidationError, "2 dimensions"),
    "no-rows": (lambda x: tile(0), NkiValidationError, "at least 1"),
    "lost-partition-dimension": (
        lambda x: nisa.memset(dst=tile()[0, :], value=0.0),
        NkiValidationError,
        "lost its partition dimension",
    ),
    "dma-size": (
        lambda x: nisa.dma_copy(dst=tile(), src=x[0:64, :]),
        NkiValidationError,
        "element counts differ",
    ),
    "dma-psum": (
        lambda x: nisa.dma_copy(dst=tile(buffer=nl.psum), src=x[0:128, :]),
        NkiValidationError,
        "cannot reach PSUM",
    ),
    "dma-priority": (
        lambda x: nisa.dma_copy(dst=tile(), src=x[0:128, :], priority=1),
        NkiValidationError,
        "priority",
    ),
    "dma-oob": (
        lambda x: nisa.dma_copy(dst=tile(), src=x[0:128, :], oob_mode=nisa.oob_mode.skip),
        NkiValidationError,
        "oob_mode",
    ),
    "dma-engine": (
        lambda x: nisa.dma_copy(dst=tile(), src=x[0:128, :], engine=nisa.engine.sync, name="load"),
        NkiValidationError,
        "dma_copy 'load': engine sync needs",
    ),
    "copy-hbm": (
        lambda x: nisa.tensor_copy(dst=tile(), src=x[0:128, :]),
        NkiValidationError,
        "src is in shared_hbm",
    ),
    "copy-shape": (
        lambda x: nisa.tensor_copy(dst=tile(), src=tile(64, 8)),
        NkiValidationError,
        "elements per partition differ",
    ),
    "copy-gpsimd-psum": (
        lambda x: nisa.tensor_copy(dst=tile(), src=tile(buffer=nl.psum), engine=nisa.engine.gpsimd),
        NkiValidationError,
        "cannot access PSUM",
    ),
    "arithmetic-hbm": (
        lambda x: nisa.tensor_tensor(dst=tile(), data1=tile(), data2=x[0:128, :], op=nl.add),
        NkiValidationError,
        "data2 is in shared_hbm",
    ),
    "arithmetic-shape": (
        lambda x: nisa.tensor_tensor(dst=tile(), data1=tile(), data2=tile(128, 1), op=nl.add),
        NkiValidationError,
        "data2 \\(128, 1\\)",
    ),
    "arithmetic-psum": (
        lambda x: nisa.tensor_tensor(
            dst=tile(), data1=tile(buffer=nl.psum), data2=tile(buffer=nl.psum), op=nl.add
        ),
        NkiValidationError,
        "cannot both be in PSUM",
    ),
    "arithmetic-engine": (
        lambda x: nisa.tensor_tensor(
            dst=tile(), data1=tile(), data2=tile(), op=nl.add, engine=nisa.engine.scalar
        ),
        NkiValidationError,
        "not on the scalar engine",
    ),
    "arithmetic-operator": (
        lambda x: nisa.tensor_tensor(dst=tile(), data1=tile(), data2=tile(), op=np.add),
        NotImplementedError,
        "which covers: nki.jit",
    ),
    "arithmetic-integer": (
        lambda x: nisa.tensor_tensor(dst=tile(), data1=tile(), data2=tile(dtype=nl.int32), op=nl.add),
        NotImplementedError,
        "integer tiles",
    ),
    "memset-hbm": (
        lambda x: nisa.memset(dst=output(x), value=0.0),
        NkiValidationError,
        "dst is in shared_hbm",
    ),
    "memset-value": (
        lambda x: nisa.memset(dst=tile(dtype=nl.int32), value=1.5),
        NkiValidationError,
        "not a constant of int32",
    ),
    "array-operand": (
        lambda x: nisa.dma_copy(dst=tile(), src=np.zeros((128, 4))),
        NotImplementedError,
        "src of type ndarray",
    ),
    "row-out-of-range": (lambda x: x[300, :], IndexError, "outside dimension 0 of size 256"),
    "slice-out-of-range": (lambda x: x[nl.ds(192, 128), :], IndexError, "192:320"),
    "slice-empty": (lambda x: x[4:4, :], IndexError, "empty"),
    "slice-backwards": (lambda x: x[::-1, :], IndexError, "step -1"),
    "index-by-array": (lambda x: x[np.arange(3), :], IndexError, "indexing by ndarray"),
    "too-many-indices": (lambda x: x[0, 0, 0], IndexError, "3 indices"),
    "single-element": (lambda x: x[0, 0], IndexError, "single element"),
    "pattern-out-of-range": (lambda x: x.ap([[4, 257], [1, 4]]), IndexError, "reaches elements"),
    "pattern-dynamic": (lambda x: x.ap([[4, 1], [1, 4]], vector_offset=x), NotImplementedError, "dynamic"),
    "address": (lambda x: nl.ndarray((1, 1), nl.float32, address=(0, 0)), NotImplementedError, "address"),
    "second-axis": (lambda x: nl.program_id(1), NkiValidationError, "one axis"),
    "axes": (lambda x: nl.num_programs(1), NkiValidationError, "one axis"),
    "convenience": (lambda x: nl.add(x, x), NotImplementedError, "nl.add called"),
    "unknown-language": (lambda x: nl.load(x), AttributeError, "nki.language.load is not covered"),
    "unknown-instruction": (lambda x: nisa.nc_matmul(x), AttributeError, "nki.isa.nc_matmul is not covered"),
    "unknown-module": (lambda x: nki.baremetal(x), AttributeError, "nki.baremetal is not covered"),
    "arithmetic-operators": (lambda x: x + x, TypeError, "unsupported operand"),
    "nested": (lambda x: copy_rows[1](X), RuntimeError, "inside another launch"),
    "returns-tile": (lambda x: tile(), NkiValidationError, "must be nl.shared_hbm"),
    "returns-private": (
        lambda x: nl.ndarray((4, 4), nl.float32, nl.private_hbm),
        NkiValidationError,
        "must be nl.shared_hbm",
    ),
    "returns-number": (lambda x: 3, NkiValidationError, "must be nl.shared_hbm"),
}


@pytest.mark.parametrize("name", BROKEN)
def test_a_violated_constraint_raises(name: str) -> None:
    body, kind, text = BROKEN[name]
    with pytest.raises(kind, match=text):
        launch(body)


def test_cores_must_allocate_alike() -> None:
    def body(x: Any) -> Any:
        return nl.ndarray((4, 4 + nl.program_id(0)), nl.float32, nl.shared_hbm)

    with pytest.raises(NkiValidationError, match="program 1 asks for"):
        launch(body, lnc=2)


def test_cores_must_return_the_same_tensors() -> None:
    def body(x: Any) -> Any:
        first, second = output(x), output(x)
        return second if nl.program_id(0) else first

    with pytest.raises(NkiValidationError, match="different tensors"):
        launch(body, lnc=2)


@pytest.mark.parametrize("lnc", [0, 3])
def test_lnc_is_one_or_two(lnc: int) -> None:
    with pytest.raises(NkiValidationError, match="LNC is 1 or 2"):
        copy_rows[lnc]


def test_instructions_outside_a_launch_are_refused() -> None:
    with pytest.raises(RuntimeError, match=r"nl\.ndarray was called outside"):
        tile()


def test_jit_takes_no_options() -> None:
    with pytest.raises(NotImplementedError, match=r"nki\.jit\(mode\)"):
        nki.jit(mode="trace")
    assert isinstance(nki.jit()(lambda x: x), nki.Kernel)


def test_arguments_must_be_contiguous_and_on_the_cpu() -> None:
    with pytest.raises(ValueError, match="must be contiguous"):
        copy_rows[1](X.T)
    with pytest.raises(TypeError, match="an argument on meta"):
        copy_rows[1](torch.empty(256, 4, device="meta"))
