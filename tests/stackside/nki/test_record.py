"""The kernel record of a training, written step by step and judged."""

import json
import subprocess
import sys
from pathlib import Path
from types import ModuleType
from typing import Any

import torch
from torch import Tensor

from harness.checks.finding import CheckResult, Verdict
from harness.checks.kernel import check_training
from harness.stackside.nki import record
from tests.stackside.nki.conftest import named_modules, rope_modules

LAYERS = 3


def codes(result: CheckResult) -> set[str]:
    return {finding.code for finding in result.findings}


class Attention(torch.nn.Module):
    """Enough of a model to train: layers that rotate what a weight gives."""

    def __init__(self, ropes: list[Any]) -> None:
        super().__init__()
        self.weights = torch.nn.ParameterList(torch.randn(32, 32) for _ in ropes)
        self.ropes = torch.nn.ModuleList(ropes)

    def forward(self, x: Tensor) -> Tensor:
        for weight, rope in zip(self.weights, self.ropes, strict=True):
            query, key = rope(x @ weight, x @ weight.T)
            x = query + key
        return x.square().mean()


def train(override: ModuleType, steps: int = 3) -> tuple[dict[str, Any], list[str]]:
    """Train a toy of LAYERS ropes; return its kernel record and sites."""
    model = Attention([rope_modules(override)[1] for _ in range(LAYERS)])
    sites = [module["fqn"] for module in named_modules(model, override)]
    record.reset()
    for step in range(1, steps + 1):
        record.begin_step(step)
        model(torch.randn(1, 128, 1, 32)).backward()
    with torch.no_grad():
        found = record.training_record(salt=99)
    assert found is not None
    return json.loads(json.dumps(found, allow_nan=False)), sites


def test_the_record_of_a_training_passes(override: ModuleType) -> None:
    found, sites = train(override)
    result = check_training([found], sites=sites, steps=3, ranks=1, salt=99)
    assert result.verdict is Verdict.PASS, result.findings
    assert found["launches"]["count"] == 2 * LAYERS * 3
    assert [signature["count"] for signature in found["launches"]["signatures"]] == [LAYERS * 3] * 2
    text = "\n".join(result.facts)
    assert "9 runs forward and 9 backward over 3 of 3 steps and 3 sites" in text
    assert "recipes/moe-nki/rope_kernel.py" in text


def test_what_runs_outside_the_steps_is_told_apart(override: ModuleType) -> None:
    _, ours = rope_modules(override)
    record.reset()
    q = torch.ones(1, 128, 1, 32)
    ours(q, q)
    record.begin_step(1)
    ours(q, q)
    record.end_step(1)
    ours(q, q)
    found = record.training_record()
    assert found is not None
    assert found["steps"] == [{"step": 1, "forward": {"(unnamed)": 1}, "backward": {}}]
    assert found["outside"] == {"forward": {"(unnamed)": 2}, "backward": {}}


def test_a_site_nobody_named_is_caught(override: ModuleType) -> None:
    _, ours = rope_modules(override)
    record.reset()
    q = torch.ones(1, 128, 1, 32, requires_grad=True)
    ours(q, q)[0].sum().backward()
    record.end_step(1)
    found = record.training_record()
    assert found is not None
    assert "kernel.site-unnamed" in codes(check_training([found], sites=["layers.0"], steps=1, ranks=1))


def test_compiled_layers_share_one_graph_and_one_site(override: ModuleType) -> None:
    torch._dynamo.reset()
    ropes = [rope_modules(override)[1] for _ in range(2)]
    for index, rope in enumerate(ropes):
        rope.kernel_site = f"layers.{index}"
    record.reset()
    graphs: list[Any] = []

    def backend(graph: Any, _: Any) -> Any:
        graphs.append(graph)
        return graph

    forward = torch.compile(ropes[0].__class__.forward, backend=backend, fullgraph=True)
    q = torch.randn(1, 128, 1, 32)
    for rope in ropes:
        assert torch.equal(forward(rope, q, q)[0], rope(q, q)[0])
    assert len(graphs) == 1
    record.end_step(1)
    found = record.training_record()
    assert found is not None
    assert found["steps"][0]["forward"] == {"(compiled)": 2, "layers.0": 1, "layers.1": 1}
    torch._dynamo.reset()


def test_no_kernel_no_record(tmp_path: Path) -> None:
    script = "from harness.stackside.nki import record; assert record.training_record() is None"
    subprocess.run([sys.executable, "-c", script], check=True, cwd=Path(__file__).parents[3])
