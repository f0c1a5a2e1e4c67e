"""The Neuron packages, and how to tell the public index's placeholders of the same names from them.

The public index holds packages under the Neuron names whose only content is the advice to install from
elsewhere. Two of them (neuronx-cc, torchtitan-neuron) install without a word and leave a folder that no
`import` statement can name. So the metadata is asked, never an import.
"""

from packaging.version import InvalidVersion, Version

__all__ = ["NEURON_PACKAGES", "PLACEHOLDER_VERSIONS", "is_placeholder_version", "says_placeholder"]

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
_TEXTS = ("WRONG PACKAGE", "does not publish installable wheels")
"""What their descriptions say; the second is nki-library's."""


def is_placeholder_version(name: str, version: str) -> bool:
    """Return whether a version of `name` (normalised) is the placeholder's, or one below it that nobody released.

    The build label does not count: no placeholder has one.
    """
    known = PLACEHOLDER_VERSIONS.get(name)
    if known is None:
        return False
    try:
        found = Version(version.partition("+")[0])
        return found == Version(known) or (found < Version(known) and name not in _OLDER_ARE_REAL)
    except InvalidVersion:
        return False


def says_placeholder(metadata: str) -> str:
    """Return the words by which a METADATA file calls its package a placeholder, empty if it does not."""
    return next((text for text in _TEXTS if text in metadata), "")
