"""Disk space, determinism variables and the SDK line."""

import pytest

from harness.doctor.host import Disk, Distribution, Host
from harness.doctor.machine import GIB, check_determinism, check_disk, check_sdk, observed_components
from harness.sdk import derive_sdk


def host(**free: float) -> Host:
    return Host(disks={name: Disk(f"/{name}", int(gib * GIB), 1000 * GIB) for name, gib in free.items()})


@pytest.mark.parametrize(
    ("device", "free", "codes"),
    [
        ("cpu", {"cache": 7, "runs": 1}, ["ok disk", "ok disk"]),
        ("cpu", {"cache": 6.9, "runs": 0.5}, ["warning disk.cache", "error disk.runs"]),
        ("neuron", {"cache": 20, "runs": 40, "image": 30}, ["ok disk", "ok disk", "ok disk"]),
        ("neuron", {"runs": 39}, ["error disk.runs"]),
        ("neuron", {"image": 29}, ["warning disk.image"]),
        ("cpu", {"image": 0}, ["skipped disk"]),
        ("cpu", {}, ["skipped disk"]),
    ],
)
def test_space_against_what_a_run_needs(device: str, free: dict[str, float], codes: list[str]) -> None:
    assert [f"{line.level} {line.code}" for line in check_disk(host(**free), device)] == codes


def test_a_full_disk_says_where_and_how_much() -> None:
    (line,) = check_disk(host(runs=3), "neuron")
    assert line.found == "runs: 3.0 GiB free in /runs"
    assert line.expected.startswith("40 GiB for ")


@pytest.mark.parametrize(
    ("variables", "stated", "codes"),
    [
        ({}, {}, ["ok determinism"]),
        ({"PATH": "/bin"}, {}, ["ok determinism"]),
        ({"XLA_USE_BF16": "1"}, {}, ["error determinism.rounding"]),
        ({"XLA_USE_BF16": "0"}, {}, ["ok determinism"]),
        (
            {"XLA_DOWNCAST_BF16": "1", "NEURON_RT_STOCHASTIC_ROUNDING_EN": "1"},
            {},
            ["error determinism.rounding"] * 2,
        ),
        # The stack's own value wins.
        ({"XLA_USE_BF16": "1"}, {"XLA_USE_BF16": "0"}, ["ok determinism"]),
        ({}, {"XLA_USE_BF16": "1"}, ["error determinism.rounding"]),
        ({"OMP_NUM_THREADS": "8"}, {}, ["warning determinism.undeclared"]),
        ({"OMP_NUM_THREADS": "8"}, {"OMP_NUM_THREADS": "1"}, ["ok determinism"]),
        ({"NEURON_CC_FLAGS": "-O1", "MKL_NUM_THREADS": "2"}, {}, ["warning determinism.undeclared"]),
    ],
)
def test_variables_that_change_numbers(
    variables: dict[str, str], stated: dict[str, str], codes: list[str]
) -> None:
    assert [f"{line.level} {line.code}" for line in check_determinism(variables, stated)] == codes


def test_the_variable_and_its_value_are_named() -> None:
    (line,) = check_determinism({"NEURON_CC_FLAGS": "-O1"}, {})
    assert "NEURON_CC_FLAGS=-O1" in line.found


def test_the_host_s_driver_and_placeholders_are_no_components() -> None:
    seen = Host(
        os_packages={"aws-neuronx-dkms": "2.26.10.0", "aws-neuronx-tools": "2.33.38.0", "bash": "5"},
        distributions=(
            Distribution("nki", "0.0.1", text="WRONG PACKAGE"),
            Distribution("neuronx-cc", "2.28.7631.0+abc"),
            Distribution("torch", "2.14.0"),
        ),
    )
    assert observed_components(seen) == {"aws-neuronx-tools": "2.33.38.0", "neuronx-cc": "2.28.7631.0+abc"}


@pytest.mark.parametrize(
    ("components", "expected", "code"),
    [
        ({"neuronx-cc": "2.28.7631.0"}, "2.33.0", "ok sdk"),
        ({"neuronx-cc": "2.28.7631.0"}, None, "ok sdk"),
        ({"neuronx-cc": "2.28.7631.0"}, "2.32.0", "warning sdk.other"),
        ({"neuronx-cc": "2.26.6360.0"}, None, "warning sdk.ambiguous"),
        # One of the two is what the stack says: nothing contradicts it.
        ({"neuronx-cc": "2.26.6360.0"}, "2.31.0", "ok sdk"),
        ({"neuronx-cc": "2.28.7631.0", "nki": "0.6.0"}, "2.33.0", "warning sdk.none"),
        ({}, "2.33.0", "skipped sdk"),
    ],
)
def test_the_release_against_the_stack_s(components: dict[str, str], expected: str | None, code: str) -> None:
    line = check_sdk(derive_sdk(components), expected)
    assert f"{line.level} {line.code}" == code
