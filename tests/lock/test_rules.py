"""Rules on names and versions: placeholders, exact pins, the torch family, Neuron packages without a rule."""

from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.lock import rules
from harness.lock.requirements import marker_environment, parse_requirements
from harness.pins import IndexRule, Target
from harness.placeholders import NEURON_PACKAGES
from harness.stack import load_stack

TARGET = Target(python="3.11", platform="x86_64-unknown-linux-gnu")
INDEXES = {
    "neuron": IndexRule(
        url="http://127.0.0.1/simple",
        packages=("Torch_Neuronx", "neuronx-cc", "nki"),
        families={"torch-neuronx": "2.14.3.0.*"},
    )
}


def pins(text: str, **options: dict[str, str]) -> list[str]:
    wanted = parse_requirements(text, "in", marker_environment(TARGET))
    found = rules.judge_pins(wanted, INDEXES, "in", **options)
    assert {item.code for item in found} <= {"lock.range"}
    return [item.message for item in found]


@pytest.mark.parametrize(
    "text",
    [
        "neuronx-cc==2.28.7631.0",
        "torch-neuronx==2.14.3.0.*",
        "torch-neuronx==2.14.3.0.7+abc",
        "numpy>=1",
        "x",
    ],
)
def test_exact_pins_declared_families_and_other_packages_are_fine(text: str) -> None:
    assert pins(text) == []


@pytest.mark.parametrize(
    "text", ["neuronx-cc==2.*", "neuronx-cc>=2", "nki~=0.7", "torch-neuronx==2.14.*", "libneuronxla==3.*"]
)
def test_a_range_of_a_neuron_package_is_refused(text: str) -> None:
    (message,) = pins(text)
    assert message.startswith(f"in:1: {text} is a range. Next: write the exact version")


def test_a_neuron_package_without_a_version_is_refused() -> None:
    assert pins("nki") == ["in:1: nki has no version. Next: write the exact version."]


def test_the_message_says_what_the_lock_has_and_why_nothing_newer() -> None:
    (message,) = pins(
        "neuronx-cc==2.*",
        locked={"neuronx-cc": "2.3.0"},
        reasons={"neuronx-cc": "2.22.0 exists but requires Python <3.0 (this is 3.11)"},
    )
    assert (
        "is a range; the lock says 2.3.0 (2.22.0 exists but requires Python <3.0 (this is 3.11))" in message
    )


def test_a_placeholder_is_known_by_its_version() -> None:
    packages = {"neuronx-cc": "1.0", "nki": "0.7.0", "numpy": "1.0"}
    (finding,) = rules.judge_placeholders(packages, "lock")
    assert finding.code == "lock.placeholder"
    assert "lock: neuronx-cc 1.0 is the public placeholder of that name" in finding.message


def test_a_neuron_package_must_have_a_rule_or_be_a_source() -> None:
    packages = {
        "nkipy": "1",
        "something-neuronx": "2",
        "torchtitan-neuron": "3",
        "nki": "0.7.0",
        "numpy": "2",
    }
    found = {
        item.data["package"]: item.code
        for item in rules.judge_names(packages, INDEXES, ["torchtitan-neuron"], "lock")
    }
    assert found == {
        "nkipy": "lock.no-index-rule",
        "something-neuronx": "lock.no-index-rule",
        "torchtitan-neuron": "lock.source",
    }


@pytest.mark.parametrize(
    ("packages", "wrong"),
    [
        ({"torch": "2.14.0", "torch-neuronx": "2.14.3.0.7+abc"}, False),
        ({"torch": "2.14.0+cpu", "torch-neuronx": "2.14.3.0.7+abc", "torch-xla": "2.14.1"}, False),
        ({"torch": "2.9.0+cpu"}, False),
        ({}, False),
        ({"torch": "2.9.0+cpu", "torch-neuronx": "2.8.0.2.12.22436+0f1dac25", "libneuronxla": "2.2"}, True),
        ({"torch": "2.14.0", "torch-xla": "2.13.0"}, True),
    ],
)
def test_torch_and_its_plugin_move_together(packages: dict[str, str], wrong: bool) -> None:
    findings = rules.judge_family(packages, "lock")
    assert [item.code for item in findings] == (["lock.family"] if wrong else [])
    for item in findings:
        assert "expect undefined symbols" in item.message
        assert packages["torch"] in item.message


@given(st.integers(0, 9), st.integers(0, 30), st.integers(0, 9), st.integers(0, 30))
def test_the_family_is_the_first_two_numbers(a: int, b: int, c: int, d: int) -> None:
    packages = {"torch": f"{a}.{b}.0", "torch-neuronx": f"{c}.{d}.3.0.1+x"}
    assert bool(rules.judge_family(packages, "lock")) is ((a, b) != (c, d))


def test_the_trn2_stack_has_a_rule_for_every_neuron_package(root: Path) -> None:
    stack = load_stack(root, "trn2")
    covered = {name for rule in stack.indexes.values() for name in rule.packages} | set(stack.sources)
    assert covered >= NEURON_PACKAGES
