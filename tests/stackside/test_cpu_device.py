"""The cpu device layer: four changes, each the same maths, none where there is an accelerator."""

import subprocess
import sys
import warnings
from typing import Any

import pytest
import torch
import torch.nn.functional as F
from torch.nn.attention.flex_attention import create_block_mask

from harness.stackside import cpu_device


def causal(b: Any, h: Any, q: Any, k: Any) -> Any:
    return q >= k


def document(b: Any, h: Any, q: Any, k: Any) -> Any:
    return (q >= k) & (q // 5 == k // 5)


@pytest.mark.parametrize("mask", [causal, document])
def test_the_mask_function_is_evaluated_on_every_pair(mask: Any) -> None:
    length = 24
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        block = create_block_mask(mask, 1, None, length, length, device="cpu")
        tensor = torch.zeros(1, 2, length, 8)
        dense = cpu_device.dense_mask(block, tensor, tensor)
    expected = torch.tensor([[bool(mask(0, 0, q, k)) for k in range(length)] for q in range(length)])
    assert torch.equal(dense.expand(1, 1, length, length)[0, 0], expected)
    assert cpu_device.dense_mask(block, tensor, tensor) is dense, "evaluated once per step"


@pytest.mark.parametrize("kv_heads", [4, 2])
def test_dense_attention_is_attention_by_its_formula(kv_heads: int) -> None:
    torch.manual_seed(0)
    length, heads, dim = 16, 4, 8
    query = torch.randn(1, length, heads, dim, requires_grad=True)
    key, value = (torch.randn(1, length, kv_heads, dim) for _ in range(2))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        block = create_block_mask(document, 1, None, length, length, device="cpu")
        module = cpu_device.DenseFlexAttention.Config().build()
        out = module(query, key, value, attention_masks=block, enable_gqa=kv_heads != heads)
    repeated = [tensor.repeat_interleave(heads // kv_heads, dim=2) for tensor in (key, value)]
    scores = torch.einsum("bqhd,bkhd->bhqk", query, repeated[0]) / dim**0.5
    allowed = torch.tensor([[document(0, 0, q, k) for k in range(length)] for q in range(length)])
    weights = F.softmax(scores.masked_fill(~allowed, float("-inf")), dim=-1)
    torch.testing.assert_close(out, torch.einsum("bhqk,bkhd->bqhd", weights, repeated[1]))
    out.sum().backward()
    assert query.grad is not None
    assert torch.isfinite(query.grad).all()


def test_a_score_function_is_refused_rather_than_ignored() -> None:
    module = cpu_device.DenseFlexAttention.Config().build()
    tensor = torch.zeros(1, 4, 1, 2)
    with pytest.raises(NotImplementedError, match="mask only"):
        module(tensor, tensor, tensor, attention_masks=None, score_mod=lambda *a: a[0])


def test_it_refuses_to_install_where_there_is_an_accelerator(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(cpu_device, "accelerator", lambda: "neuron")
    with pytest.raises(cpu_device.AcceleratorPresentError, match="neuron"):
        cpu_device.install(object())


def test_there_is_no_accelerator_here() -> None:
    assert cpu_device.accelerator() is None


def test_memory_is_the_processs_own_peak() -> None:
    device = cpu_device.CpuDevice()
    device.reset_peak_memory_stats()
    before = device.memory_stats()["reserved_bytes.all.peak"]
    held = bytearray(64 * 2**20)
    held[::4096] = b"x" * len(held[::4096])
    after = device.memory_stats()["reserved_bytes.all.peak"]
    assert after - before > 48 * 2**20
    assert device.get_device_properties().total_memory > after


def test_importing_recipes_without_the_layer_changes_nothing_of_torchtitan() -> None:
    """On a stack whose device layer is none, nothing of it is imported."""
    code = (
        "import sys; import torchtitan.train; import harness.stackside.settings, harness.stackside.entry\n"
        "from torchtitan.tools import utils\n"
        "assert 'harness.stackside.cpu_device' not in sys.modules\n"
        "assert utils.device_type == 'cuda'\n"
    )
    done = subprocess.run(
        [sys.executable, "-W", "ignore", "-c", code], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
