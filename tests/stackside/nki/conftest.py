"""Kernels are imported as a recipe imports them: its folder on sys.path, the backend resolved first."""

import importlib
import sys
from collections.abc import Iterator
from pathlib import Path
from types import ModuleType
from typing import Any

import pytest
import torch

from harness.stackside.nki import counters, kernel_source, record
from harness.stackside.nki.ledger import LEDGER

# Small tensors: more threads only wait for each other, for minutes on a busy machine.
torch.set_num_threads(1)

RECIPE = Path(__file__).parents[3] / "recipes" / "moe-nki"


@pytest.fixture(autouse=True)
def _fresh_counts() -> None:
    counters.reset()
    LEDGER.clear()


@pytest.fixture(scope="session")
def recipe_dir() -> Path:
    return RECIPE


@pytest.fixture
def recipe_on_path(monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.syspath_prepend(str(RECIPE))
    return RECIPE


@pytest.fixture
def op(recipe_on_path: Path) -> Iterator[ModuleType]:
    """The shipped op, loaded afresh: a test before may have loaded one with a seeded fault."""
    yield kernel_source.load_recipe(recipe_on_path)
    for name in ("rope_kernel", "rope_op"):
        sys.modules.pop(name, None)


@pytest.fixture
def override(op: ModuleType) -> Iterator[ModuleType]:
    """The override's module, imported as torchtitan imports it, with an empty registry before and after."""
    from torchtitan.config.override import clear_overrides

    clear_overrides()
    sys.modules.pop("rope_override", None)
    record.reset()
    yield importlib.import_module("rope_override")
    clear_overrides()
    sys.modules.pop("rope_override", None)
    record.reset()


def rope_modules(override: ModuleType, *, dim: int = 32) -> tuple[Any, Any]:
    """torchtitan's own module and ours, of the same config."""
    from torchtitan.models.common.rope import CosSinRoPE

    stock = CosSinRoPE.Config(dim=dim, max_seq_len=512, theta=1e6)
    ours = override.nki_rope(stock)
    return stock.build(), ours.build()


def named_modules(model: Any, override: ModuleType) -> list[dict[str, str]]:
    """Name the kernel sites of a built model; return its replaced modules as the record has them."""
    found = []
    for fqn, module in model.named_modules():
        if isinstance(module, override.NKIRoPE):
            module.kernel_site = fqn
            found.append({"fqn": fqn, "type": type(module).__name__})
    return found
