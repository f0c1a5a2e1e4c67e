"""Launching on the backends that are not here: the calls, and what is recorded of them."""

import sys
from collections.abc import Callable
from types import ModuleType
from typing import Any

import pytest
import torch

from harness.stackside.nki import execute, resolver
from harness.stackside.nki.ledger import LEDGER
from harness.stackside.nki.resolver import Backend, BackendName


class WheelKernel:
    """What AWS's wheel makes of a kernel, as far as the launcher sees it."""

    def __init__(self, func: Callable[..., Any], lnc: int | None = None) -> None:
        self.func, self.lnc = func, lnc

    def __getitem__(self, lnc: int) -> "WheelKernel":
        return WheelKernel(self.func, lnc)

    def __call__(self, *args: Any) -> Any:
        return self.func(f"device LNC{self.lnc}", *args)


def kernel(where: Any, x: Any, backward: bool = False) -> Any:
    if backward:
        raise ValueError("no backward")
    return where, x


@pytest.fixture
def backend(monkeypatch: pytest.MonkeyPatch) -> Callable[[BackendName], None]:
    wheel = ModuleType("nki")

    def simulate(bracketed: WheelKernel) -> Callable[..., Any]:
        return lambda *args: bracketed.func(f"simulator LNC{bracketed.lnc}", *args)

    wheel.simulate = simulate  # type: ignore[attr-defined]

    def use(name: BackendName) -> None:
        chosen = Backend(name, "0.7.0", "nki.py", "", "/dev/neuron0" if name == "aws-nki" else None, "")
        monkeypatch.setattr(resolver, "_resolved", chosen)
        monkeypatch.setitem(sys.modules, "nki", wheel)
        monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "2")

    return use


@pytest.mark.parametrize(
    ("name", "where"), [("aws-nki", "device LNC2"), ("aws-nki-simulator", "simulator LNC2")]
)
def test_the_wheel_runs_the_kernel_and_the_call_is_recorded(
    backend: Callable[[BackendName], None], name: BackendName, where: str
) -> None:
    backend(name)
    x = torch.ones(2, 3)
    assert execute.launch(WheelKernel(kernel), x) == (where, x)
    (record,) = LEDGER.since()
    assert (record.kernel, record.backend, record.grid) == ("kernel", name, 2)
    assert record.source == f"{__file__}:{kernel.__code__.co_firstlineno}"
    assert (record.ops, record.hbm_bytes_written, record.sentinels) == (None, None, None)


def test_a_call_that_raises_is_recorded(backend: Callable[[BackendName], None]) -> None:
    backend("aws-nki")
    with pytest.raises(ValueError, match="no backward"):
        execute.launch(WheelKernel(kernel), 1, True)
    assert LEDGER.since()[0].error == "ValueError: no backward"


def test_lnc_comes_from_the_runtimes_variable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("NEURON_LOGICAL_NC_CONFIG", raising=False)
    assert execute.logical_cores() == 1
    monkeypatch.setenv("NEURON_LOGICAL_NC_CONFIG", "2")
    assert execute.logical_cores() == 2
