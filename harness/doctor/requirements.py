"""What installed distributions require of each other: `pip check`, with both owners of an impossible pair."""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from functools import reduce
from itertools import combinations

from packaging.markers import UndefinedEnvironmentName, default_environment
from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name
from packaging.version import InvalidVersion

from harness.doctor.host import Distribution
from harness.doctor.report import Line, error, ok

__all__ = ["check_requirements"]


@dataclass(frozen=True, slots=True)
class _Want:
    owner: Distribution
    name: str
    specifier: SpecifierSet

    def __str__(self) -> str:
        return f"{self.owner.name} {self.owner.version} requires {self.name}{self.specifier}"


def check_requirements(
    distributions: Iterable[Distribution], python: str | None, *, explained: Iterable[str] = ()
) -> list[Line]:
    """Return one line per distribution that is missing, too old or new, or that no version could satisfy.

    Only requirements without an extra are judged, as `pip check` does; markers are evaluated for `python`.
    Distributions in `explained` are left out: another line already says what is wrong with them.
    """
    installed = {item.name: item for item in distributions}
    wants = list(_wants(installed.values(), _markers(python)))
    by_name: dict[str, list[_Want]] = {}
    for want in wants:
        by_name.setdefault(want.name, []).append(want)
    silent = set(explained)
    lines = []
    for name, group in sorted(by_name.items()):
        if name in silent:
            continue
        line = _judge(name, [want for want in group if want.owner.name not in silent], installed.get(name))
        lines += [line] if line else []
    return lines or [ok("requirements", f"{len(wants)} requirements of {len(installed)} distributions hold")]


def _markers(python: str | None) -> dict[str, str]:
    environment = {key: str(value) for key, value in default_environment().items()}
    if python:
        environment["python_version"] = ".".join(python.split(".")[:2])
        environment["python_full_version"] = python if python.count(".") > 1 else f"{python}.0"
    return environment | {"extra": ""}


def _wants(distributions: Iterable[Distribution], markers: Mapping[str, str]) -> Iterable[_Want]:
    for owner in distributions:
        for text in owner.requires:
            try:
                requirement = Requirement(text)
                applies = requirement.marker is None or requirement.marker.evaluate(dict(markers))
            except (InvalidRequirement, UndefinedEnvironmentName):
                continue
            if applies:
                yield _Want(owner, canonicalize_name(requirement.name), requirement.specifier)


def _judge(name: str, wants: list[_Want], installed: Distribution | None) -> Line | None:
    if not wants:
        return None
    if reduce(SpecifierSet.__and__, (want.specifier for want in wants)).is_unsatisfiable():
        return _impossible(name, wants)
    if installed is None:
        return error(
            "requirements.missing",
            f"{_join(wants)}: not installed",
            f"{name} installed",
            f"add {name} to the lock (with --no-deps nothing else brings it)",
        )
    broken = [want for want in wants if not _holds(want.specifier, installed.version)]
    if not broken:
        return None
    return error(
        "requirements.conflict",
        f"{_join(broken)}: installed is {installed.version}",
        f"{name}{broken[0].specifier}",
        f"lock a {name} that all of its users accept, and install the lock again",
    )


def _holds(specifier: SpecifierSet, version: str) -> bool:
    try:
        return specifier.contains(version, prereleases=True)
    except InvalidVersion:
        return False


def _impossible(name: str, wants: list[_Want]) -> Line:
    pairs = [
        (first, second)
        for first, second in combinations(wants, 2)
        if (first.specifier & second.specifier).is_unsatisfiable()
    ]
    owners = pairs[0] if pairs else tuple(wants)
    ranges = ", ".join(f"{want.owner.name} {want.owner.version} wants {want.specifier}" for want in owners)
    return error(
        "requirements.impossible",
        f"{name} ranges cannot meet: {ranges}",
        f"one version of {name} that all of them accept",
        "change one of the two owners: no pin of the third can help",
    )


def _join(wants: list[_Want]) -> str:
    shown = "; ".join(str(want) for want in wants[:3])
    return shown if len(wants) <= 3 else f"{shown}; and {len(wants) - 3} more"
