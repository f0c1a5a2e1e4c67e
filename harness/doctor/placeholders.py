"""The Neuron packages, and how to tell the public index's placeholders from them.

The public index holds packages under the Neuron names whose only content is the advice to install from
elsewhere. Two of them (neuronx-cc, torchtitan-neuron) install without a word and leave a folder that no
`import` statement can name. So the metadata is asked, never an import.
"""

from packaging.version import InvalidVersion, Version

from harness.doctor.host import Distribution

__all__ = ["NEURON_PACKAGES", "PLACEHOLDER_VERSIONS", "placeholder_reason"]

PLACEHOLDER_VERSIONS = {
    "libneuronxla": "1.0",
    "neuronx-cc": "1.0.post1",
    "nki": "0.0.1",
    "nki-library": "0.0.2",
    "nkipy": "0.0.2",
    "torch-neuronx": "1.0",
    "torchtitan-neuron": "0.0.1",
}
"""Placeholders that were downloaded and opened (2026-11), with their versions."""

NEURON_PACKAGES = frozenset(PLACEHOLDER_VERSIONS) | {
    "jax-neuronx",
    "neuronx-distributed",
    "neuronx-distributed-inference",
    "neuronx-distributed-training",
    "nrtpy",
}
"""Distributions that come from the Neuron index only."""

_OLDER_ARE_REAL = frozenset({"libneuronxla"})
"""Real releases of these have lower numbers than their placeholder: libneuronxla was 0.5 up to SDK 2.22."""
_TEXT = "WRONG PACKAGE"


def placeholder_reason(item: Distribution) -> str:
    """Return why a distribution is a placeholder, empty if it is none.

    Any one of three says so: the text `WRONG PACKAGE` in summary or description; a Neuron package that has
    no importable module (only known if RECORD was read); a version of its placeholder, or lower than that.
    """
    if _TEXT in item.text:
        return f"its description says {_TEXT!r}"
    if item.name not in NEURON_PACKAGES:
        return ""
    if item.modules is not None and not item.modules:
        return "nothing in it can be imported"
    if _is_placeholder_version(item.name, item.version):
        return f"{item.version} is a version of the public index's placeholder"
    return ""


def _is_placeholder_version(name: str, version: str) -> bool:
    known = PLACEHOLDER_VERSIONS.get(name)
    try:
        own = Version(version).public
        if known is None or own == known:
            return known is not None
        return name not in _OLDER_ARE_REAL and Version(own) < Version(known)
    except InvalidVersion:
        return False
