"""The public index's placeholders: known by version and by their own words."""

import pytest

from harness.placeholders import (
    is_placeholder_version,
    says_placeholder,
)


@pytest.mark.parametrize(
    ("name", "version", "placeholder"),
    [
        ("neuronx-cc", "1.0", True),
        ("neuronx-cc", "1.0.post1", True),
        ("neuronx-cc", "2.28.7631.0+abc", False),
        ("torch-neuronx", "1.0", True),
        ("torch-neuronx", "2.14.3.0.7+abc", False),
        ("nki", "0.0.1", True),
        ("nki", "0.7.0", False),
        ("nki-library", "0.0.2", True),
        ("torchtitan-neuron", "0.0.1", True),
        ("torchtitan-neuron", "0.2.2+neuron.1", False),
        ("libneuronxla", "1.0", True),
        ("libneuronxla", "0.5.971", False),
        ("numpy", "1.0", False),
        ("nki", "not a version", False),
    ],
)
def test_placeholders_are_known_by_their_versions(name: str, version: str, placeholder: bool) -> None:
    assert is_placeholder_version(name, version) is placeholder


def test_placeholders_are_known_by_their_words() -> None:
    assert says_placeholder("Name: nki\n\nWRONG PACKAGE. Please install") == "WRONG PACKAGE"
    assert says_placeholder("Name: nki-library\n\nNKI Library does not publish installable wheels to ...")
    assert says_placeholder("Name: numpy\n\nArrays.") == ""
