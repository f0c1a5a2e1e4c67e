"""Which Neuron SDK release a set of observed components belongs to: a set of releases, never a guess.

Component numbers alone do not always name the release: two patch releases often share everything but
one package. The answer is therefore every release that fits what was seen, and when none fits, the
ones that come nearest with what speaks against them.
"""

import json
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path

__all__ = ["COMPONENTS", "Release", "SdkMatch", "derive_sdk", "documented_version", "load_releases"]

_DATA = Path(__file__).parent / "data" / "sdk-releases.json"
_HASH = re.compile(r"[+~-].*$")

COMPONENTS = frozenset(
    {
        "aws-neuronx-collectives",
        "aws-neuronx-dkms",
        "aws-neuronx-oci-hook",
        "aws-neuronx-runtime-lib",
        "aws-neuronx-tools",
        "libneuronxla",
        "neuronx-cc",
        "nki",
        "nrtpy",
        "torch-neuronx",
    }
)
"""Packages that the table of releases knows, Python distributions and Debian packages alike."""


@dataclass(frozen=True, slots=True)
class Release:
    """One SDK release: its number, its date (ISO, None where the source states none) and its components.

    A component can have several versions in one release; one that ends in `.*` is a family, whose full
    version carries more parts.
    """

    sdk: str
    date: str | None
    packages: Mapping[str, tuple[str, ...]]


@dataclass(frozen=True, slots=True)
class SdkMatch:
    """The releases that fit.

    `releases` is ordered from the newest; empty when nothing fits or nothing was seen. `components` are
    the observed versions that were compared, without their hashes. `nearest` maps each of the nearest
    releases to the components that speak against it, as `name found, release has versions`; it is only
    filled when `releases` is empty.
    """

    releases: tuple[str, ...]
    components: Mapping[str, str]
    nearest: Mapping[str, tuple[str, ...]] = field(default_factory=dict)

    def sentence(self) -> str:
        """Return the answer as one line for a person."""
        if not self.components:
            return "no Neuron component was seen"
        if len(self.releases) == 1:
            return f"SDK {self.releases[0]}, by {len(self.components)} component(s)"
        if self.releases:
            return f"one of SDK {', '.join(self.releases)}: the components seen do not tell them apart"
        if not self.nearest:
            return "no known SDK release has any of these versions"
        against = "; ".join(f"{sdk}: {', '.join(lines)}" for sdk, lines in self.nearest.items())
        return f"no SDK release fits; nearest is {against}"


@cache
def load_releases() -> tuple[Release, ...]:
    """Return the known releases, newest first, from the project's own table (its `note` names the sources)."""
    data = json.loads(_DATA.read_text(encoding="utf-8"))
    return tuple(
        Release(sdk, body["date"], {name: tuple(versions) for name, versions in body["packages"].items()})
        for sdk, body in data["releases"].items()
    )


def documented_version(pin: str) -> str:
    """Return the version as the release notes print it: a pin without its hash.

    `2.27.5334.0+f702b353` (Python) and `2.34.10.0-ac18d186d` (Debian) both lose what follows the sign.
    """
    return _HASH.sub("", pin.strip())


def _fits(version: str, documented: tuple[str, ...]) -> bool:
    for known in documented:
        family = known.removesuffix(".*")
        if version == family or (known.endswith(".*") and version.startswith(f"{family}.")):
            return True
    return False


def derive_sdk(observed: Mapping[str, str], releases: tuple[Release, ...] | None = None) -> SdkMatch:
    """Return every release whose component table holds the observed versions.

    `observed` maps names to full versions as installed; names the table does not know are ignored. A
    component that a release does not list says nothing about that release, but at least one must be
    listed and fit. `releases` defaults to the project's table.
    """
    table = load_releases() if releases is None else releases
    seen = {name: documented_version(pin) for name, pin in sorted(observed.items()) if name in COMPONENTS}
    found: list[str] = []
    against: dict[str, tuple[str, ...]] = {}
    agreeing: dict[str, int] = {}
    for release in table:
        listed = [name for name in seen if name in release.packages]
        wrong = [name for name in listed if not _fits(seen[name], release.packages[name])]
        if listed and not wrong:
            found.append(release.sdk)
        agreeing[release.sdk] = len(listed) - len(wrong)
        against[release.sdk] = tuple(
            f"{name} is {seen[name]}, the release has {' or '.join(release.packages[name])}" for name in wrong
        )
    most = max(agreeing.values(), default=0)
    nearest = (
        {} if found or not most else {sdk: against[sdk] for sdk, count in agreeing.items() if count == most}
    )
    return SdkMatch(tuple(found), seen, nearest)
