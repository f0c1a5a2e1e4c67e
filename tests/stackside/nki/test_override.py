"""The override in torchtitan itself: found, applied, built, run, recorded and judged."""

import importlib
import json
import logging
from collections.abc import Iterator
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.distributed.tensor import DTensor
from torchtitan.config import OverrideConfig, apply_overrides
from torchtitan.models.common.rope import CosSinRoPE
from torchtitan.models.qwen3 import model_registry

from harness.checks.finding import CheckResult, Verdict
from harness.checks.overrides import check_overrides
from harness.stackside.nki import record
from harness.stackside.nki.ledger import LEDGER
from tests.stackside.nki.conftest import named_modules, rope_modules

LAYERS = 3
SITES = [f"layers.{layer}.attention.rope" for layer in range(LAYERS)]
NAME = "rope_override.nki_rope"


class Lines(logging.Handler):
    """Keeps what torchtitan logs about replacements."""

    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, str]] = []

    def emit(self, record: logging.LogRecord) -> None:
        words = record.getMessage().split()
        if words[0] == "[Override]":
            self.found.append(
                {"override": words[1].rstrip(":"), "fqn": words[2], "from": words[3], "to": words[5]}
            )


def apply(names: list[str], model: Any) -> list[dict[str, str]]:
    """Apply the overrides to a config tree with the model where the trainer has it; return the log lines."""
    lines, root = Lines(), logging.getLogger()
    root.addHandler(lines)
    level = root.level
    root.setLevel(logging.INFO)
    spec = SimpleNamespace(traverse=lambda kind: _prefixed(model, kind))
    try:
        apply_overrides(OverrideConfig(imports=list(names)), spec)
    finally:
        root.removeHandler(lines)
        root.setLevel(level)
    return lines.found


def _prefixed(model: Any, kind: type) -> Iterator[Any]:
    for fqn, config, parent, name in model.traverse(kind):
        yield f"model_spec.model.{fqn}", config, parent, name


def small_model() -> Any:
    config = model_registry("debugmodel").model
    config.layers = config.layers[:LAYERS]
    return config


def override_record(config: Any, override: ModuleType, names: list[str]) -> tuple[Any, dict[str, Any]]:
    """Apply, build on CPU, and return the model with the record of what happened."""
    targets = [fqn for fqn, node, *_ in config.traverse(CosSinRoPE.Config) if type(node) is CosSinRoPE.Config]
    lines = apply(names, config)
    model = config.build()
    return model, {
        "requested": names,
        "form": override.OVERRIDE_FORM,
        "factory_calls": len(override.factory_calls),
        "log_lines": lines,
        "built": named_modules(model, override),
        "targets": targets,
    }


def codes(result: CheckResult) -> set[str]:
    return {finding.code for finding in result.findings}


def test_torchtitan_0_3_0_names_overrides_by_function(override: ModuleType) -> None:
    assert override.OVERRIDE_FORM == "module.function"
    assert override.override_imports() == [NAME]

    def older(name: str, *, target: type) -> None: ...

    assert override.override_form(older) == "module"


def test_every_layer_is_replaced_and_the_accounts_agree(override: ModuleType) -> None:
    _, found = override_record(small_model(), override, [NAME])
    assert [line["fqn"] for line in found["log_lines"]] == [f"model_spec.model.{fqn}" for fqn in SITES]
    assert [module["fqn"] for module in found["built"]] == found["targets"] == SITES
    assert override.factory_calls == ["CosSinRoPE.Config"] * LAYERS
    result = check_overrides(json.loads(json.dumps(found)), requested=[NAME])
    assert result.verdict is Verdict.PASS, result.findings


def test_a_run_without_overrides_replaces_nothing(override: ModuleType) -> None:
    _, found = override_record(small_model(), override, [])
    assert found["targets"] == SITES
    assert check_overrides(found, requested=[]).verdict is Verdict.PASS


def test_a_selector_that_matches_nothing_is_caught(override: ModuleType) -> None:
    registry = importlib.import_module("torchtitan.config.override")._REGISTRY
    registry[NAME].fqns = ["nowhere.*"]
    _, found = override_record(small_model(), override, [NAME])
    assert {"overrides.none"} <= codes(check_overrides(found, requested=[NAME]))


def test_a_selector_that_matches_some_is_caught(override: ModuleType) -> None:
    registry = importlib.import_module("torchtitan.config.override")._REGISTRY
    registry[NAME].fqns = ["*.layers.0.*"]
    _, found = override_record(small_model(), override, [NAME])
    result = check_overrides(found, requested=[NAME])
    assert codes(result) == {"overrides.partial"}
    assert SITES[1] in result.findings[0].message


def test_an_override_applied_after_the_build_is_caught(override: ModuleType) -> None:
    config = small_model()
    model = config.build()
    lines = apply([NAME], config)
    found = {
        "requested": [NAME],
        "form": override.OVERRIDE_FORM,
        "factory_calls": len(override.factory_calls),
        "log_lines": lines,
        "built": named_modules(model, override),
        "targets": SITES,
    }
    assert {"overrides.none", "overrides.disagree"} <= codes(check_overrides(found, requested=[NAME]))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
@pytest.mark.parametrize("batch", [1, 2])
@pytest.mark.parametrize("positions", ["none", "shared", "documents"])
def test_it_equals_torchtitans_rope_bit_for_bit(
    override: ModuleType, dtype: torch.dtype, batch: int, positions: str
) -> None:
    stock, ours = rope_modules(override)
    generator = torch.Generator().manual_seed(1)
    seq = 256
    shapes = ((batch, seq, 4, 32), (batch, seq, 2, 32))
    where = {
        "none": None,
        "shared": torch.arange(seq).flip(0).unsqueeze(0),
        "documents": torch.stack([torch.arange(seq) % (100 + row) for row in range(batch)]),
    }[positions]
    inputs = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    grads = [torch.randn(shape, generator=generator).to(dtype) for shape in shapes]
    results = []
    for module in (stock, ours):
        given = [x.clone().requires_grad_() for x in inputs]
        outputs = module(*given, where)
        torch.autograd.backward(outputs, grads)
        results.append((*outputs, *(x.grad for x in given)))
    for want, got in zip(*results, strict=True):
        assert torch.equal(want, got)
    assert len(LEDGER.since()) == 2


def test_the_flat_layout_of_later_versions(override: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    """[tokens, heads, dim] with positions [tokens], for which later versions look up [tokens, 1, 2 * dim]."""
    stock, ours = rope_modules(override)
    monkeypatch.setattr(
        type(ours), "_reshape_cache", lambda self, query, positions: self.cache[positions].unsqueeze(1)
    )
    query, key = torch.randn(256, 4, 32), torch.randn(256, 2, 32)
    positions = torch.arange(256) % 100
    got = ours(query, key, positions)
    want = stock(query.unsqueeze(0), key.unsqueeze(0), positions.unsqueeze(0))
    assert [x.shape for x in got] == [query.shape, key.shape]
    assert all(torch.equal(a, b.squeeze(0)) for a, b in zip(got, want, strict=True))
    found = record.training_record()
    assert found is not None
    assert found["layouts"] == {"[tokens, heads, dim]": 1}


class Sharded(Tensor):
    """Stands for a DTensor, which needs a process group."""


def test_other_inputs_are_refused_not_detoured(override: ModuleType, monkeypatch: pytest.MonkeyPatch) -> None:
    _, ours = rope_modules(override)
    with pytest.raises(ValueError, match=r"takes \[batch, seq, heads, dim\] or \[tokens, heads, dim\]"):
        ours(torch.ones(256, 32), torch.ones(256, 32))
    assert override.DTensor is DTensor
    monkeypatch.setattr(override, "DTensor", Sharded)
    with pytest.raises(TypeError, match="set tensor_parallel_degree to 1"):
        ours(torch.ones(1, 128, 2, 32).as_subclass(Sharded), torch.ones(1, 128, 2, 32))
    with pytest.raises(AssertionError, match=r"128 \* LNC=1, got 200"):
        ours(torch.ones(1, 200, 2, 32), torch.ones(1, 200, 2, 32))


def test_gradients_reach_the_layers_before_in_torchtitans_memory_order(override: ModuleType) -> None:
    """Else their sums round differently, and a training is no longer bitwise torchtitan's own."""
    strides = []
    for module in rope_modules(override):
        given = [torch.randn(1, 128, heads, 32, requires_grad=True) for heads in (4, 2)]
        upstream = [x * 1.0 for x in given]
        for x in upstream:
            x.register_hook(lambda grad: strides.append(grad.stride()))
        outputs = module(*upstream)
        strides.extend(x.stride() for x in outputs)
        sum(x.square().sum() for x in outputs).backward()
    assert sorted(strides[:4]) == sorted(strides[4:])
