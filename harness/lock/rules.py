"""Rules about packages that need no network: Neuron names and their index, exact pins, the torch family."""

from collections.abc import Iterable, Mapping

from packaging.specifiers import SpecifierSet

from harness.checks.finding import Finding
from harness.lock.requirements import Wanted
from harness.pins import IndexRule
from harness.placeholders import NEURON_PACKAGES, is_placeholder_version

__all__ = [
    "index_of",
    "is_neuron_name",
    "judge_family",
    "judge_names",
    "judge_pins",
    "judge_placeholders",
]

_TORCH_FAMILY = ("torch", "torch-neuronx", "torch-xla")


def is_neuron_name(name: str) -> bool:
    """Return whether a (normalised) distribution name belongs to the Neuron SDK, as far as names can tell."""
    return name in NEURON_PACKAGES or "neuronx" in name


def index_of(name: str, indexes: Mapping[str, IndexRule]) -> str | None:
    """Return the name of the index that a package may come from only, None if it may come from any."""
    return next((index for index, rule in indexes.items() if name in rule.packages), None)


def judge_placeholders(packages: Mapping[str, str], source: str) -> list[Finding]:
    """Return a finding per package of a lock (name -> version) that is a public placeholder by its version."""
    return [
        Finding(
            "lock.placeholder",
            f"{source}: {name} {version} is the public placeholder of that name, not the Neuron package. "
            "Next: pin the SDK's version in requirements.in, and lock again from the Neuron index.",
            {"package": name, "version": version},
        )
        for name, version in sorted(packages.items())
        if is_placeholder_version(name, version)
    ]


def judge_names(
    packages: Mapping[str, str], indexes: Mapping[str, IndexRule], sources: Iterable[str], source: str
) -> list[Finding]:
    """Return a finding per Neuron package of a lock that no index rule covers, or that is a source pin.

    Without a rule, whichever index answers first would decide what is installed.
    """
    pinned = set(sources)
    findings = []
    for name, version in sorted(packages.items()):
        if name in pinned:
            findings.append(
                Finding(
                    "lock.source",
                    f"{source}: {name} {version} would come from an index, but stack.yaml pins it as a source. "
                    "Next: remove what requires it from requirements.in.",
                    {"package": name, "version": version},
                )
            )
        elif is_neuron_name(name) and index_of(name, indexes) is None:
            findings.append(
                Finding(
                    "lock.no-index-rule",
                    f"{source}: {name} {version} is a Neuron package, but no index of stack.yaml lists it, so the "
                    "default index would decide. Next: add it to `indexes.neuron.packages`, and lock again.",
                    {"package": name, "version": version},
                )
            )
    return findings


def judge_family(packages: Mapping[str, str], source: str) -> list[Finding]:
    """Return a finding if torch and its Neuron plug-in are not of the same minor version.

    Their metadata accepts each other all the same; what fails is the import, on an undefined symbol.
    """
    family = {name: packages[name] for name in _TORCH_FAMILY if name in packages}
    minors = {name: ".".join(version.split(".")[:2]) for name, version in family.items()}
    if len(set(minors.values())) <= 1:
        return []
    listed = " with ".join(f"{name} {version}" for name, version in family.items())
    return [
        Finding(
            "lock.family",
            f"{source}: {listed}: minor versions differ, expect undefined symbols. Next: bump them together.",
            {"versions": family},
        )
    ]


def judge_pins(
    wanted: Iterable[Wanted],
    indexes: Mapping[str, IndexRule],
    source: str,
    *,
    locked: Mapping[str, str] | None = None,
    reasons: Mapping[str, str] | None = None,
) -> list[Finding]:
    """Return a finding per Neuron package that is asked for by a range instead of one exact version.

    A family that the stack declares (its vendor publishes no longer number) counts as exact. `locked` are
    the versions that the ranges stand for today, `reasons` why a newer one was left out, both by name.
    """
    findings = []
    for item in wanted:
        index = index_of(item.name, indexes)
        if (index is None and not is_neuron_name(item.name)) or item.exact is not None:
            continue
        family = indexes[index].families.get(item.name) if index else None
        if family is not None and item.specifier == SpecifierSet(f"=={family}"):
            continue
        today = (locked or {}).get(item.name)
        what = "has no version" if not item.specifier else "is a range"
        says = f"; the lock says {today}" if today else ""
        why = f" ({reasons[item.name]})" if reasons and item.name in reasons else ""
        allowed = f" or the family =={family}" if family else ""
        findings.append(
            Finding(
                "lock.range",
                f"{source}:{item.line}: {item.text} {what}{says}{why}. Next: write the exact version{allowed}.",
                {"package": item.name, "locked": today},
            )
        )
    return findings
