"""Last check: every dependency that an installed distribution declares is met, and so is the stack's Python.

Installers only warn of what they did not install themselves; here it fails the build. Run by the
controller's Python, which has `packaging`.
"""

import argparse
import json
import sys
from pathlib import Path
from typing import Any

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet

from harness.image.inside.distributions import Distribution, canonical, read_distributions
from harness.image.inside.findings import report

__all__ = ["judge_requirements", "main"]


def judge_requirements(found: dict[str, Distribution], ours: frozenset[str], python: str) -> list[str]:
    """Return one finding per dependency that is absent or of an unsuitable version. `python` is like `3.12.4`.

    `ours` are the distributions of the lock. What the base brought on top is judged only against them: for
    the rest of its dependencies the base's maker answers.
    """
    return [
        f"lock.requires: {item.name} {item.version} {problem}"
        for item in found.values()
        for text in item.metadata.requires or ()
        if (problem := _problem(text, item.name in ours, found, ours, python))
    ]


def _problem(
    text: str, is_ours: bool, found: dict[str, Distribution], ours: frozenset[str], python: str
) -> str:
    try:
        wanted = Requirement(text)
    except InvalidRequirement:
        return ""
    environment = {"python_full_version": python, "python_version": ".".join(python.split(".")[:2])}
    if wanted.marker is not None and not wanted.marker.evaluate({**environment, "extra": ""}):
        return ""
    other = found.get(canonical(wanted.name))
    if other is None:
        return f"requires {wanted.name}, which is not installed" if is_ours else ""
    if not (is_ours or other.name in ours) or wanted.specifier.contains(other.version, prereleases=True):
        return ""
    return f"requires {wanted.name}{wanted.specifier}, the image has {other.version}"


def main() -> int:
    """Entry point of the step; returns its exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path, required=True)
    home: Path = parser.parse_args().home
    image: dict[str, Any] = json.loads((home / "image.json").read_text(encoding="utf-8"))
    findings = []
    if image["python"] not in SpecifierSet(image["requires_python"]):
        findings.append(
            f"base.python: the base's Python is {image['python']}, the stack needs {image['requires_python']}"
        )
    found = read_distributions(image["sites"])
    return report(findings + judge_requirements(found, frozenset(image["locked"]), image["python"]))


if __name__ == "__main__":
    sys.exit(main())
