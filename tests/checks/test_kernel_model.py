"""What a launch costs, and how strictly a record is read."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.checks.kernel_model import expected_receipt, rope_cost
from harness.checks.kernel_records import Argument, Probe, RecordError, Shape, Training, read
from tests.checks.kernel_examples import probe, training


@given(
    st.integers(1, 4), st.integers(1, 8), st.integers(1, 8), st.integers(1, 4), st.integers(1, 64),
    st.sampled_from([1, 2]),
)  # fmt: skip
def test_the_cost_grows_with_the_rows_and_not_with_the_cores(
    batch: int, heads: int, kv_heads: int, blocks: int, half: int, grid: int
) -> None:
    def cost(blocks: int) -> Any:
        seq = 256 * blocks
        q = Argument("q", (batch, heads, seq, 2 * half), "float32")
        k = Argument("k", (batch, kv_heads, seq, 2 * half), "float32")
        return rope_cost([q, k], grid)

    one, many = cost(1), cost(blocks)
    assert {name: blocks * count for name, count in one.ops.items()} == many.ops
    assert many.hbm_bytes_written == 4 * batch * (heads + kv_heads) * 256 * blocks * 2 * half


def test_arguments_of_another_kernel_have_no_cost() -> None:
    for q, k in (
        (Argument("q", (1, 2, 128), "float32"), Argument("k", (1, 2, 128, 8), "float32")),
        (Argument("q", (1, 2, 128, 8), "float32"), Argument("k", (1, 2, 128, 4), "float32")),
        (Argument("q", (1, 2, 128, 8), "int8"), Argument("k", (1, 2, 128, 8), "int8")),
        (Argument("q", value=1), Argument("k", (1, 2, 128, 8), "float32")),
    ):
        with pytest.raises(ValueError, match="RoPE kernel"):
            rope_cost([q, k], 1)


def test_the_receipt_is_shared_between_the_cores() -> None:
    shape = Shape(batch=3, heads=1, kv_heads=1, seq=512, dim=2)
    assert expected_receipt(100, shape, 1) == (112.0,)
    assert expected_receipt(100, shape, 2) == (106.0, 106.0)


def test_records_are_read_whole() -> None:
    assert read(Probe, probe()).cases[0].launches[0].args[0].shape == (1, 4, 256, 32)
    assert read(Training, training()).launches.signatures[1].args[4].value is True
    assert read(Training, training() | {"unknown": 1}).rank == 0


def test_a_wrong_kind_is_named_with_its_place() -> None:
    record = training()
    record["steps"][1]["forward"]["x"] = 1.5
    with pytest.raises(RecordError, match=r"^record\.steps\[1\]\.forward\.x is float '1\.5', expected int$"):
        read(Training, record)


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.text(max_size=4),
    lambda inner: (
        st.lists(inner, max_size=3)
        | st.dictionaries(st.sampled_from(["steps", "launches", "rank", "count"]), inner, max_size=3)
    ),
    max_leaves=8,
)


@given(JSON)
def test_any_other_json_is_refused(data: Any) -> None:
    with pytest.raises(RecordError):
        read(Training, data)
