"""The Neuron packages, and how to tell the public index's placeholders from them.

The public index holds packages under the Neuron names whose only content is the advice to install from
elsewhere. Two of them (neuronx-cc, torchtitan-neuron) install without a word and leave a folder that no
`import` statement can name. So the metadata is asked, never an import.
"""

from harness.doctor.host import Distribution
from harness.placeholders import NEURON_PACKAGES, is_placeholder_version, says_placeholder

__all__ = ["placeholder_reason"]


def placeholder_reason(item: Distribution) -> str:
    """Return why a distribution is a placeholder, empty if it is none.

    Any one of three says so: the text `WRONG PACKAGE` in summary or description; a Neuron package that has
    no importable module (only known if RECORD was read); a version of its placeholder, or lower than that.
    """
    if said := says_placeholder(item.text):
        return f"its description says {said!r}"
    if item.name not in NEURON_PACKAGES:
        return ""
    if item.modules is not None and not item.modules:
        return "nothing in it can be imported"
    if is_placeholder_version(item.name, item.version):
        return f"{item.version} is a version of the public index's placeholder"
    return ""
