"""After the install: what is there now is what was asked, and what had to stay stayed. Writes `image.json`.

Run by the stack's Python, so that it sees what a run will see.
"""

import argparse
import hashlib
import json
import platform
import sys
from pathlib import Path
from typing import Any

from harness.image.inside.distributions import Distribution, read_distributions
from harness.image.inside.findings import report
from harness.image.inside.pins import LockEntry, Pins, read_lock, read_pins
from harness.image.inside.plan import module_paths

__all__ = ["judge_installed", "judge_unchanged", "main"]


def judge_installed(
    found: dict[str, Distribution], lock: dict[str, LockEntry], pins: Pins, base: dict[str, Any]
) -> list[str]:
    """Return every difference between what is installed and the lock (with the sources' versions).

    What the base brought on top may stay: it is not the lock's. A placeholder is a finding wherever it is.
    """
    wanted = {name: entry.version for name, entry in lock.items()}
    wanted |= {name: pin.version for name, pin in pins.sources.items()}
    brought = base["distributions"]
    findings = []
    for name in sorted(wanted.keys() | found.keys()):
        item, version = found.get(name), wanted.get(name)
        if item is None:
            findings.append(f"lock.missing: {name}: the lock says {version}, nothing is installed")
        elif reason := item.placeholder(pins.neuron):
            findings.append(
                f"lock.placeholder: {name} {item.version} is the public index's placeholder ({reason}). "
                "Next: lock it from the vendor's index."
            )
        elif version is None and not (name in brought and brought[name]["version"] == item.version):
            findings.append(f"lock.unknown: {name} {item.version} is installed, the lock does not hold it")
        elif version is not None and version != item.version:
            findings.append(f"lock.version: {name}: the lock says {version}, installed is {item.version}")
    return findings


def judge_unchanged(base: dict[str, Any], now: dict[str, Distribution]) -> list[str]:
    """Return what of the base is no longer as it was recorded before the install."""
    findings = []
    for name, before in base["distributions"].items():
        item = now.get(name)
        if item is None:
            findings.append(f"base.removed: {name} {before['version']} of the base is gone")
        elif item.version != before["version"]:
            findings.append(f"base.changed: {name} was {before['version']} in the base, now {item.version}")
        elif item.record != before["record"] or (
            before["files"] is not None and item.files_digest() != before["files"]
        ):
            findings.append(f"base.changed: files of {name} {item.version} are no longer those of the base")
    return findings


def main() -> int:
    """Entry point of the step; returns its exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path, required=True)
    home: Path = parser.parse_args().home
    pins, lock = read_pins(home / "pins.json"), read_lock(home / "locks" / "stack.lock")
    base = json.loads((home / "base.json").read_text(encoding="utf-8"))
    found = read_distributions(module_paths())
    findings = judge_installed(found, lock, pins, base)
    findings += judge_unchanged(base, read_distributions(base["sites"]))
    if findings:
        return report(findings)
    image = {
        "schema": 1,
        "python": platform.python_version(),
        "prefix": sys.prefix,
        "stack": pins.raw["stack"],
        "base": pins.raw["base"],
        "lock_digest": hashlib.sha256((home / "locks" / "stack.lock").read_bytes()).hexdigest(),
        "kept": base["kept"],
        "locked": sorted(lock.keys() | pins.sources.keys()),
        "packages": {name: item.version for name, item in found.items()},
        "records": {name: item.record for name, item in found.items()},
        "sites": module_paths(),
        "requires_python": pins.python,
    }
    (home / "image.json").write_text(json.dumps(image, indent=1, sort_keys=True), encoding="utf-8")
    print(f"verified: {len(found)} packages are the lock's {len(lock)} and what the base brought")
    return 0


if __name__ == "__main__":
    sys.exit(main())
