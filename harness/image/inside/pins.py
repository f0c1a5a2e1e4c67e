"""What an image must hold: the stack's pins (`pins.json`, from the builder) and its lock."""

import json
import re
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.image.inside.distributions import canonical

__all__ = ["LockEntry", "Pins", "SourcePin", "read_lock", "read_pins"]

_PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)\s*(?P<marker>;[^\\]*)?")


@dataclass(frozen=True, slots=True)
class LockEntry:
    """One package of the lock; `text` is its entry as it stands there, hashes included."""

    name: str
    version: str
    text: str


@dataclass(frozen=True, slots=True)
class SourcePin:
    """A package from a git commit instead of an index."""

    version: str
    repository: str
    commit: str


@dataclass(frozen=True, slots=True)
class Pins:
    """The stack as the image must hold it. `raw` is the whole file, for the record."""

    keeps: tuple[str, ...]
    """Distributions that, where the base carries them, must be and stay as they are."""
    sources: dict[str, SourcePin]
    indexes: dict[str, tuple[str, tuple[str, ...]]]
    """Index name -> its URL and the packages that come from there only."""
    neuron: dict[str, str]
    """Neuron package -> the version of its public placeholder, empty where none is known."""
    python: str
    raw: dict[str, Any]


def read_pins(path: Path) -> Pins:
    """Return the pins in `path`."""
    raw = json.loads(path.read_text(encoding="utf-8"))
    sources = {
        canonical(name): SourcePin(pin["version"], pin["repository"], pin["commit"])
        for name, pin in raw["sources"].items()
    }
    indexes = {
        name: (rule["url"], tuple(map(canonical, rule["packages"]))) for name, rule in raw["indexes"].items()
    }
    keeps = tuple(map(canonical, raw["keeps"]))
    return Pins(keeps, sources, indexes, raw["neuron"], raw["python"], raw)


def read_lock(path: Path) -> dict[str, LockEntry]:
    """Return the entries of a hashed lock by normalised name, in the file's order.

    Raises `ValueError` for an entry without hash or with a condition: a stack's lock is for one platform.
    """
    entries: dict[str, LockEntry] = {}
    text = ""
    for number, line in enumerate(path.read_text(encoding="utf-8").splitlines(), 1):
        if not text and (not line.strip() or line.lstrip().startswith(("#", "--"))):
            continue
        text += line + "\n"
        if line.rstrip().endswith("\\"):
            continue
        match = _PIN.match(text)
        if match is None or "--hash=" not in text:
            raise ValueError(f"{path}:{number}: expected `name==version --hash=...`, found {text[:60]!r}")
        if match["marker"]:
            raise ValueError(f"{path}:{number}: {match['name']} has a condition; lock for one platform")
        entry = LockEntry(canonical(match["name"]), match["version"], text)
        entries[entry.name] = entry
        text = ""
    return entries
