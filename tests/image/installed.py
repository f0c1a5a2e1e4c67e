"""Fake installations: folders with dist-info as installers leave them."""

import json
from pathlib import Path
from typing import Any

from harness.image.inside.distributions import Distribution, read_distributions
from harness.image.inside.pins import LockEntry, Pins, SourcePin

__all__ = ["COMMIT", "found", "install", "lock", "pins"]

COMMIT = "0123456789abcdef0123456789abcdef01234567"


def install(
    site: Path,
    name: str,
    version: str = "1.0",
    *,
    files: dict[str, str] | None = None,
    header: str = "",
    description: str = "",
    direct_url: dict[str, Any] | None = None,
) -> Path:
    """Install a distribution with one module (or `files`, path -> content) into `site`; return its dist-info."""
    module = name.replace("-", "_")
    content = {f"{module}/__init__.py": f"name = {name!r}\n"} if files is None else files
    info = site / f"{module}-{version}.dist-info"
    info.mkdir(parents=True)
    for path, text in content.items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(text)
    metadata = f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{header}\n{description}"
    (info / "METADATA").write_text(metadata)
    listed = [*content, f"{info.name}/METADATA", f"{info.name}/RECORD"]
    if direct_url is not None:
        (info / "direct_url.json").write_text(json.dumps(direct_url))
        listed.append(f"{info.name}/direct_url.json")
    (info / "RECORD").write_text("".join(f"{path},,\n" for path in listed))
    return info


def found(site: Path) -> dict[str, Distribution]:
    """What is installed in `site`."""
    return read_distributions([str(site)])


def lock(**versions: str) -> dict[str, LockEntry]:
    """A lock of these packages; `_` in a name stands for `-`."""
    names = {name.replace("_", "-"): version for name, version in versions.items()}
    return {
        name: LockEntry(name, version, f"{name}=={version} --hash=sha256:{'0' * 64}\n")
        for name, version in names.items()
    }


def pins(
    *,
    keeps: tuple[str, ...] = (),
    sources: dict[str, SourcePin] | None = None,
    indexes: dict[str, tuple[str, tuple[str, ...]]] | None = None,
) -> Pins:
    """The pins of a stack; nki's placeholder is known."""
    neuron = {"nki": "0.0.1", "neuronx-cc": "1.0.post1", "torch-neuronx": "1.0"}
    return Pins(keeps, sources or {}, indexes or {}, neuron, ">=3.11,<3.15", {"stack": "test", "base": {}})
