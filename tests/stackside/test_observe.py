"""What is recorded of a model: parameters, buffers, placements."""

import pytest
import torch
from torch import nn

from harness.stackside import observe


class Rotary(nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.register_buffer("inv_freq", torch.tensor([1.0, 0.5]), persistent=False)
        self.register_buffer("cache", torch.arange(32.0).reshape(8, 4), persistent=False)
        self.register_buffer("count", torch.tensor([1, 2]))


def test_buffers_are_recorded_by_kind() -> None:
    model = nn.ModuleDict({"rope": Rotary()})
    found = {name: observe._buffer(name, value, model) for name, value in model.named_buffers()}
    assert found["rope.inv_freq"]["kind"] == "inv_freq"
    assert found["rope.inv_freq"]["values"] == [1.0, 0.5]
    assert found["rope.cache"]["rows"]["1"] == [4.0, 5.0, 6.0, 7.0]
    assert set(found["rope.cache"]["rows"]) == {"0", "1", "2", "3"}
    assert (found["rope.count"]["kind"], found["rope.count"]["persistent"]) == ("other", True)


def test_poison_is_counted() -> None:
    model = nn.ModuleDict({"rope": Rotary()})
    model["rope"].inv_freq.fill_(float("nan"))
    assert observe._buffer("rope.inv_freq", model["rope"].inv_freq, model)["nan"] == 2


def test_parameters_are_recorded_with_their_bytes() -> None:
    one, same, other = (observe._parameter("w", torch.full((2, 2), value)) for value in (1.0, 1.0, 2.0))
    assert one["sha256"] == same["sha256"] != other["sha256"]
    assert one["constant"] is True
    assert observe._parameter("w", torch.tensor([1.0, 2.0]))["constant"] is False
    assert observe._parameter("w", torch.tensor([1.0, float("inf")]))["finite"] is False


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("Shard(dim=0)", "Shard(0)"),
        ("S(1)", "Shard(1)"),
        ("_StridedShard(dim=0, sf=2)", "Shard(0)"),
        ("R", "Replicate()"),
        ("Replicate()", "Replicate()"),
        ("Partial(sum)", "Partial(sum)"),
    ],
)
def test_placements_have_one_spelling(text: str, expected: str) -> None:
    assert observe._placement(text) == expected


def test_the_wrapper_of_activation_checkpointing_is_no_part_of_a_name() -> None:
    assert (
        observe._plain("layers.0._checkpoint_wrapped_module.attention.wo.weight")
        == "layers.0.attention.wo.weight"
    )
