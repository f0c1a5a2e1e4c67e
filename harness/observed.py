"""What a run really had under it, for its evidence: read from files, each part by itself, never imported.

Reading is in `observe`; the rest is pure. What cannot be read is None, with the reason where there is one,
so that an absence in the evidence is never mistaken for a check that was not made.
"""

import hashlib
import os
import platform
import re
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from harness import process
from harness.doctor.distributions import parse_metadata, site_folders
from harness.doctor.driver import runtime_version
from harness.doctor.host import Distribution, Host
from harness.doctor.indexes import NEURON_INDEX
from harness.doctor.machine import observed_components
from harness.doctor.readers import read_host
from harness.errors import InfrastructureError
from harness.evidence import redact
from harness.image.baked import observed_image
from harness.sdk import derive_sdk

__all__ = ["nkilib_source", "observe", "parse_git_status", "parse_os_release", "parse_torch_version"]

SCHEMA = 1
_GIT_SECONDS = 20.0
_SHOWN_CHANGES = 50
_COMPILER = "neuronx-cc"


def observe(
    environment: Path,
    *,
    repository: Path | None = None,
    variables: Mapping[str, str] | None = None,
    root: Path = Path("/"),
) -> dict[str, Any]:
    """Return what is there, JSON-able: distributions with the digest of their RECORD, system packages, image,
    driver and devices, variables (secrets replaced), which `nkilib` would load, torch's build, the SDK releases
    that fit, the git state of `repository`.

    `environment` is the folder of the stack's Python, `variables` those of the run (default: this
    process's), `root` the machine's. Never raises for what is missing or unreadable. The reading takes
    about a tenth of a second: once a session is enough.
    """
    own = dict(os.environ if variables is None else variables)
    host = read_host(root, environment=environment, variables=own)
    records = _records(environment)
    sdk = derive_sdk(observed_components(host))
    return {
        "schema": SCHEMA,
        "system": _system(root, host),
        "python": host.python,
        "distributions": [
            {"name": item.name, "version": item.version, "record_sha256": _digest(record)}
            for item, record in records
        ],
        "os_packages": host.os_packages or None,
        "image": observed_image(root / "opt" / "harness"),
        # Where an index is set, and whether it is the Neuron one; addresses are nobody else's business.
        "indexes": [
            {"tool": item.tool, "role": item.role, "source": item.source, "neuron": NEURON_INDEX in item.url}
            for item in host.indexes
        ],
        "neuron": {
            "driver": host.driver,
            "runtime": runtime_version(host),
            "devices": [device.index for device in host.devices],
            "devices_of_the_driver": host.driver_devices,
            "sdk": list(sdk.releases),
            "components": dict(sdk.components),
            "nkilib": nkilib_source([(item, _lines(record)) for item, record in records]),
        },
        "torch": _torch(environment),
        "variables": redact(own),
        "git": _git(repository) if repository else None,
    }


def _system(root: Path, host: Host) -> dict[str, Any]:
    return {
        "container": host.container,
        "os": parse_os_release(_text(root / "etc" / "os-release") or ""),
        "kernel": platform.release(),
        "machine": platform.machine(),
        "libc": "-".join(platform.libc_ver()),
    }


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace")
    except OSError:
        return None


def _records(environment: Path) -> list[tuple[Distribution, bytes | None]]:
    """Every distribution with the bytes of its RECORD, None where it has none, by name."""
    found = []
    for site in site_folders(environment):
        for info in site.glob("*.dist-info"):
            item = parse_metadata(_text(info / "METADATA") or "")
            if item is not None:
                record = info / "RECORD"
                found.append((item, record.read_bytes() if record.is_file() else None))
    return sorted(found, key=lambda pair: (pair[0].name, pair[0].version))


def _digest(record: bytes | None) -> str | None:
    return None if record is None else hashlib.sha256(record).hexdigest()


def _lines(record: bytes | None) -> list[str]:
    return [] if record is None else record.decode("utf-8", errors="replace").splitlines()


def nkilib_source(records: list[tuple[Distribution, list[str]]]) -> dict[str, Any] | None:
    """Return which `nkilib` would load, None if no distribution has one.

    `records` are distributions with the lines of their RECORD. The compiler bundles `nkilib`; a separately
    installed nki-library silently replaces it, so any other distribution with such a folder wins and
    `source` is `separate`, else `compiler`. By metadata alone: unverified on hardware.
    """
    owners = [
        item
        for item, lines in records
        if any("nkilib" in line.partition(",")[0].split("/")[:-1] for line in lines)
    ]
    separate = [item for item in owners if item.name != _COMPILER]
    bundled = [item for item in owners if item.name == _COMPILER]
    if not owners:
        return None
    loads = (separate or bundled)[0]
    return {
        "source": "separate" if separate else "compiler",
        "distribution": loads.name,
        "version": loads.version,
        "replaces_bundled": bool(separate and bundled),
    }


_TORCH_VALUE = re.compile(
    r"^(\w+)\s*(?::[^=\n]*)?=\s*(?:'([^'\n]*)'|\"([^\"\n]*)\"|(True|False|None))\s*$", re.MULTILINE
)


def parse_torch_version(text: str) -> dict[str, str | bool | None]:
    """Return the settings in `torch/version.py`: `__version__` (as `version`), `cuda`, `debug`, `git_version`, ..."""
    constants: dict[str, bool | None] = {"True": True, "False": False, "None": None}
    return {
        "version" if name == "__version__" else name: constants[constant] if constant else single or double
        for name, single, double, constant in _TORCH_VALUE.findall(text)
    }


def _torch(environment: Path) -> dict[str, str | bool | None] | None:
    for site in site_folders(environment):
        text = _text(site / "torch" / "version.py")
        if text is not None:
            return parse_torch_version(text)
    return None


def parse_os_release(text: str) -> str | None:
    """Return the system's name and version from an os-release file, None if it states none."""
    found = re.search(r'^PRETTY_NAME="?([^"\n]+)"?\s*$', text, re.MULTILINE)
    return found[1] if found else None


def parse_git_status(text: str) -> dict[str, Any]:
    """Return commit, branch and changes from `git status --porcelain=v2 --branch`.

    `commit` is None before the first commit, `branch` None when detached. `changed` lists the first fifty paths
    that are not as committed, untracked ones among them; `dirty` says whether there is any.
    """
    heads: dict[str, str] = {}
    changed = []
    for line in text.splitlines():
        if line.startswith("# branch."):
            key, _, value = line.removeprefix("# branch.").partition(" ")
            heads[key] = value
        elif line[:2] in ("1 ", "2 ", "u ", "? "):
            changed.append(_changed_path(line))
    commit, branch = heads.get("oid"), heads.get("head")
    return {
        "commit": None if commit in (None, "(initial)") else commit,
        "branch": None if branch in (None, "(detached)") else branch,
        "dirty": bool(changed),
        "changed": sorted(changed)[:_SHOWN_CHANGES],
        "changes": len(changed),
    }


_FIELDS_BEFORE_PATH = {"1": 8, "2": 9, "u": 10, "?": 1}


def _changed_path(line: str) -> str:
    path = line.split(" ", _FIELDS_BEFORE_PATH[line[0]])[-1]
    # A renamed path is followed by its old name.
    return path.split("\t")[0]


def _git(repository: Path) -> dict[str, Any]:
    argv = ["git", "-c", "safe.directory=*", "-C", str(repository), "status", "--porcelain=v2", "--branch"]
    nothing: dict[str, Any] = {"commit": None, "branch": None, "dirty": None, "changed": [], "changes": None}
    try:
        # Without the lock a look at the repository writes nothing into it.
        done = process.run(argv, env={**os.environ, "GIT_OPTIONAL_LOCKS": "0"}, timeout=_GIT_SECONDS)
    except InfrastructureError as error:
        return {**nothing, "reason": str(error)}
    if done.returncode != 0 or done.ended != "exited":
        reason = (done.output.strip().splitlines() or ["git said nothing"])[-1]
        return {**nothing, "reason": reason}
    return {**parse_git_status(done.output), "reason": ""}
