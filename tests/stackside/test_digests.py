"""Digests of tensors and batches."""

import hashlib
import struct

import numpy
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.stackside.digests import batch_sha256, tensor_sha256


def sha256(content: bytes) -> str:
    return hashlib.sha256(content).hexdigest()


def test_float32_bytes_are_little_endian() -> None:
    assert tensor_sha256(torch.tensor([1.0, -2.5])) == sha256(struct.pack("<2f", 1.0, -2.5))


def test_bfloat16_bytes_are_the_upper_half_of_float32() -> None:
    assert tensor_sha256(torch.tensor([1.0, -2.5], dtype=torch.bfloat16)) == sha256(b"\x80\x3f\x20\xc0")


def test_conversion_rounds_to_nearest_even() -> None:
    # Between 1.0 and the next bfloat16, 1 + 2**-7: below the middle, at it (ties to even), above it.
    value = torch.tensor([1 + 2**-9, 1 + 2**-8, 1 + 2**-8 + 2**-16])
    expected = torch.tensor([1.0, 1.0, 1 + 2**-7], dtype=torch.bfloat16)
    assert tensor_sha256(value, torch.bfloat16) == tensor_sha256(expected)


def test_a_detour_through_bfloat16_shows_in_float32() -> None:
    value = torch.tensor([1 / 3])
    detour = value.bfloat16().float()
    assert tensor_sha256(value, torch.float32) != tensor_sha256(detour, torch.float32)
    assert tensor_sha256(value, torch.bfloat16) == tensor_sha256(detour, torch.bfloat16)


def test_the_layout_in_memory_does_not_matter() -> None:
    value = torch.arange(12.0).reshape(3, 4)
    assert tensor_sha256(value.t()) == tensor_sha256(value.t().contiguous())
    assert tensor_sha256(value[:, 1:3]) == tensor_sha256(value[:, 1:3].clone())
    assert tensor_sha256(value.t()) != tensor_sha256(value)


def test_scalars_empty_tensors_and_parameters_have_digests() -> None:
    assert tensor_sha256(torch.tensor(1.0)) == sha256(struct.pack("<f", 1.0))
    assert tensor_sha256(torch.empty(0, 3)) == sha256(b"")
    assert tensor_sha256(torch.ones(1).expand(1)) == tensor_sha256(torch.ones(1))
    assert tensor_sha256(torch.ones(1).expand(3)) == tensor_sha256(torch.ones(3))
    assert tensor_sha256(torch.nn.Parameter(torch.ones(2))) == tensor_sha256(torch.ones(2))


def test_a_sharded_tensor_is_refused() -> None:
    class Sharded(torch.Tensor):
        def full_tensor(self) -> torch.Tensor:
            raise AssertionError("not called")

    with pytest.raises(TypeError, match="full_tensor"):
        tensor_sha256(torch.ones(2).as_subclass(Sharded))


@settings(deadline=None)
@given(st.lists(st.floats(width=32), max_size=20))
def test_digests_are_of_numpys_bytes(values: list[float]) -> None:
    array = numpy.array(values, dtype="<f4")
    assert tensor_sha256(torch.from_numpy(array.copy())) == sha256(array.tobytes())


@settings(deadline=None)
@given(
    st.lists(st.floats(-(2.0**100), 2.0**100, width=32), min_size=1, max_size=20),
    st.integers(0, 19),
    st.integers(0, 31),
)
def test_one_flipped_bit_is_another_digest(values: list[float], index: int, bit: int) -> None:
    array = numpy.array(values, dtype="<f4")
    changed = array.copy()
    changed.view("<u4")[index % len(values)] ^= numpy.uint32(1 << bit)
    assert tensor_sha256(torch.from_numpy(array)) != tensor_sha256(torch.from_numpy(changed))


def test_a_batch_is_ids_then_positions_as_int64() -> None:
    ids, positions = torch.tensor([[5, 6, 7]]), torch.tensor([[0, 1, 0]])
    expected = sha256(struct.pack("<6q", 5, 6, 7, 0, 1, 0))
    assert batch_sha256(ids, positions) == expected
    assert batch_sha256(ids.int(), positions.int()) == expected
    assert batch_sha256(positions, ids) != expected


@pytest.mark.parametrize(
    ("ids", "positions"),
    [
        (torch.zeros(3, dtype=torch.int64), torch.zeros(3, dtype=torch.int64)),
        (torch.zeros(1, 3, dtype=torch.int64), torch.zeros(1, 4, dtype=torch.int64)),
        (torch.zeros(1, 3), torch.zeros(1, 3, dtype=torch.int64)),
        (torch.zeros(1, 3, dtype=torch.int64), torch.zeros(1, 3)),
    ],
)
def test_what_is_no_batch_is_refused(ids: torch.Tensor, positions: torch.Tensor) -> None:
    with pytest.raises(ValueError, match="expected"):
        batch_sha256(ids, positions)
