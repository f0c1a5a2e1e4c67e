"""Placeholders of the public index are told by metadata, whatever they look like."""

import pytest

from harness.doctor.distributions import importable_modules, parse_metadata
from harness.doctor.placeholders import placeholder_reason
from harness.placeholders import PLACEHOLDER_VERSIONS

ADVICE = "WRONG PACKAGE. Please install the package from elsewhere"

# What the seven placeholders hold (2026-11): name -> (files of RECORD, description)
PUBLISHED = {
    "libneuronxla": (["libneuronxla/__init__.py"], ADVICE),
    "neuronx-cc": (["neuronx-cc/__init__.py"], ADVICE),
    "nki": (["nki/__init__.py"], ADVICE),
    "nki-library": ([], "NKI Library does not publish installable wheels"),
    "nkipy": (["nkipy/__init__.py"], ADVICE),
    "torch-neuronx": (["torch_neuronx/__init__.py"], ADVICE),
    "torchtitan-neuron": (["torchtitan-neuron/__init__.py"], ADVICE),
}


def reason(name: str, version: str, files: list[str], text: str) -> str:
    info = f"{name.replace('-', '_')}-{version}.dist-info"
    record = [f"{path},sha256=x,1" for path in [*files, f"{info}/METADATA", f"{info}/RECORD"]]
    header = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n"
    item = parse_metadata(f"{header}\n{text}\n", modules=importable_modules(record))
    assert item is not None
    return placeholder_reason(item)


def test_all_opened_placeholders_are_listed() -> None:
    assert PUBLISHED.keys() == PLACEHOLDER_VERSIONS.keys()


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_each_published_placeholder_is_told(name: str) -> None:
    files, text = PUBLISHED[name]
    assert reason(name, PLACEHOLDER_VERSIONS[name], files, text)


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_a_later_one_is_told_by_its_text_alone(name: str) -> None:
    assert "WRONG PACKAGE" in reason(name, "9.9", [f"{name.replace('-', '_')}/__init__.py"], ADVICE)


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_one_without_the_text_is_told_by_its_missing_module(name: str) -> None:
    assert reason(name, "9.9", [f"{name}-data/x.py"], "") == "nothing in it can be imported"


@pytest.mark.parametrize("name", sorted(PUBLISHED))
def test_one_that_imports_silently_is_told_by_its_version(name: str) -> None:
    version = PLACEHOLDER_VERSIONS[name]
    words = f"{version} is a version of the public index's placeholder"
    assert reason(name, version, [f"{name.replace('-', '_')}/__init__.py"], "") == words


@pytest.mark.parametrize(
    ("name", "version", "files"),
    [
        ("neuronx-cc", "2.28.7631.0+abc", ["neuronxcc/__init__.py"]),
        ("torch-neuronx", "2.14.3.0.1", ["torch_neuronx/__init__.py"]),
        ("torchtitan-neuron", "0.2.2+neuron.1", ["torchtitan/__init__.py"]),
        ("torchtitan-neuron", "0.2.2+neuron.1", ["__editable__.torchtitan_neuron.pth"]),
        ("nki", "0.7.0", ["nki/__init__.py"]),
        ("nki-library", "0.7.0", ["nkilib_src/nkilib/__init__.py"]),
        ("libneuronxla", "3.0.10135.0", ["libneuronxla/libneuronpjrt.so"]),
        # Below the placeholder's 1.0, and real.
        ("libneuronxla", "0.5.669", ["libneuronxla/__init__.py"]),
        ("nki", "not a version", ["nki/__init__.py"]),
    ],
)
def test_the_real_packages_are_not_placeholders(name: str, version: str, files: list[str]) -> None:
    assert reason(name, version, files, "The Neuron package.") == ""


def test_other_packages_may_have_no_module() -> None:
    assert reason("types-requests", "1.0", ["requests-stubs/__init__.pyi"], "") == ""
    assert "WRONG PACKAGE" in reason("some-name", "1.0", ["some_name.py"], ADVICE)


@pytest.mark.parametrize(
    ("name", "version"), [("neuronx-cc", "1.0"), ("torch-neuronx", "0.1"), ("nki", "0.0.0")]
)
def test_an_earlier_one_that_imports_silently_is_told_as_well(name: str, version: str) -> None:
    assert reason(name, version, [f"{name.replace('-', '_')}/__init__.py"], "")
