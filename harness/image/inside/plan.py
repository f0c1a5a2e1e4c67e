"""First step: what the base carries, what may stay, what is missing and where it comes from.

Run by the base's own Python. Writes `base.json` (the record to compare with afterwards) and the
installer's lists into `install/`; nothing of the base is touched.
"""

import argparse
import json
import os
import sys
import sysconfig
from configparser import ConfigParser, Error
from pathlib import Path
from typing import Any

from harness.image.inside.distributions import Distribution, file_sha256, read_distributions
from harness.image.inside.findings import report
from harness.image.inside.pins import LockEntry, Pins, SourcePin, read_lock, read_pins

__all__ = ["base_record", "index_findings", "judge_base", "judge_source", "main", "protected"]

_PIP_FILES = ("/etc/pip.conf", "/etc/xdg/pip/pip.conf", "~/.config/pip/pip.conf", "~/.pip/pip.conf")


def protected(pins: Pins) -> frozenset[str]:
    """Return the distributions that no step may change where the base carries them."""
    return frozenset({"torch", *pins.keeps, *pins.neuron, *pins.sources})


def base_record(found: dict[str, Distribution], pins: Pins, sites: list[str]) -> dict[str, Any]:
    """Return the record of the base: every distribution, with the digest of its files where it is protected."""
    guarded = protected(pins)
    return {
        "python": sys.version.split()[0],
        "executable": sys.executable,
        "sites": sites,
        "distributions": {
            name: {
                "version": item.version,
                "record": item.record,
                "files": item.files_digest() if name in guarded else None,
            }
            for name, item in found.items()
        },
    }


def judge_base(
    found: dict[str, Distribution], lock: dict[str, LockEntry], pins: Pins, sources: Path
) -> list[str]:
    """Return what in the base cannot stay as it is: placeholders, and protected packages of another version.

    `sources` holds the files of the pinned commits, a folder per package.
    """
    findings = []
    for name, item in found.items():
        if reason := item.placeholder(pins.neuron):
            findings.append(
                f"base.placeholder: {name} {item.version} in the base is the public index's placeholder ({reason}). "
                "Next: choose a base that carries the vendor's build."
            )
        elif name in protected(pins) and name in lock and lock[name].version != item.version:
            findings.append(
                f"base.changed: the base carries {name} {item.version}, the lock pins {lock[name].version}: the "
                "base's build would be replaced. Next: choose the base of the lock, or lock again for this base."
            )
    for name, pin in pins.sources.items():
        if name in found and (wrong := judge_source(found[name], pin, sources / name)):
            findings.append(f"base.source: {wrong}")
    return findings


def judge_source(item: Distribution, pin: SourcePin, tree: Path) -> str:
    """Return what keeps the base's package from being the pinned commit; empty if it is that.

    Version first, then commit and origin where the package or its source tree records them, and always the
    content: every module must be a file of the pinned commit, whose files are in `tree`.
    """
    where = f"{item.name} {item.version} in the base"
    if item.version != pin.version:
        return f"{where}: the pin is {pin.version}"
    origin = item.origin()
    if origin is not None and origin.commit != pin.commit:
        return f"{where} comes from commit {origin.commit}, the pin is {pin.commit}"
    if origin is not None and _repository(origin.repository) != _repository(pin.repository):
        return f"{where} comes from {origin.repository}, the pin is {pin.repository}"
    pinned = {file_sha256(path) for path in tree.rglob("*.py")}
    modules = item.modules()
    if not modules:
        return f"{where} has no module whose content could be compared with commit {pin.commit}"
    strange = [path for path in modules if file_sha256(path) not in pinned]
    if strange:
        return f"{where}: {strange[0]} is no file of commit {pin.commit} ({len(strange)} of {len(modules)} differ)"
    return ""


def _repository(url: str) -> str:
    path = url.removeprefix("git+").partition("://")[2] or url.partition("@")[2].replace(":", "/", 1)
    return path.rpartition("@")[2].removesuffix("/").removesuffix(".git").lower()


def index_findings(files: tuple[str, ...] = _PIP_FILES) -> list[str]:
    """Return a finding if the base's pip configuration replaces the index for every package."""
    findings = []
    for name in files:
        config = ConfigParser(strict=False, interpolation=None)
        try:
            config.read(Path(name).expanduser(), encoding="utf-8")
        except Error:
            continue
        for section in config.sections():
            if url := config.get(section, "index-url", fallback=""):
                findings.append(
                    f"base.index: {name} of the base sets {section}.index-url = {url}: what that index does not "
                    "hold cannot be installed any more. Next: a base with extra-index-url, or with none."
                )
    return findings


def write_lists(folder: Path, kept: set[str], lock: dict[str, LockEntry], pins: Pins, home: Path) -> None:
    """Write what is missing as one lock per index with the installer's options, and the sources' folders."""
    folder.mkdir(parents=True, exist_ok=True)
    special = {name: index for index, (_, names) in pins.indexes.items() for name in names}
    lists: dict[str, list[str]] = {index: [] for index in ("default", *pins.indexes)}
    for name, entry in lock.items():
        if name not in kept:
            lists[special.get(name, "default")].append(entry.text)
    for index, entries in lists.items():
        url = "" if index == "default" else f"--default-index {pins.indexes[index][0]}"
        (folder / f"index-{index}.lock").write_text("".join(entries), encoding="utf-8")
        (folder / f"index-{index}.options").write_text(url, encoding="utf-8")
    for name in pins.sources.keys() - kept:
        (folder / f"source-{name}.path").write_text(str(home / "sources" / name), encoding="utf-8")


def module_paths() -> list[str]:
    """Return the folders this Python finds distributions in, its steps' own left out."""
    own = str(Path(__file__).resolve().parents[3])
    standard = sysconfig.get_path("stdlib")
    folders = [path for path in sys.path if path and Path(path).is_dir()]
    return [path for path in folders if path not in (own, standard) and not path.endswith("lib-dynload")]


def main() -> int:
    """Entry point of the step; returns its exit code."""
    parser = argparse.ArgumentParser()
    parser.add_argument("--home", type=Path, required=True)
    home: Path = parser.parse_args().home
    pins, lock = read_pins(home / "pins.json"), read_lock(home / "locks" / "stack.lock")
    sites = module_paths()
    found = read_distributions(sites)
    record = base_record(found, pins, sites)
    if findings := judge_base(found, lock, pins, home / "sources") + index_findings():
        return report(findings)
    kept = {name for name, entry in lock.items() if name in found and found[name].version == entry.version}
    kept |= pins.sources.keys() & found.keys()
    record["kept"] = sorted(kept)
    (home / "base.json").write_text(json.dumps(record, indent=1, sort_keys=True), encoding="utf-8")
    write_lists(home / "install", kept, lock, pins, home)
    if kept:
        lines = [f"import site; site.addsitedir({path!r})" for path in sites]
        (home / "install" / "base.pth").write_text("\n".join(lines) + "\n", encoding="utf-8")
    missing = len(lock) + len(pins.sources) - len(kept)
    print(f"the base carries {len(found)} packages; {len(kept)} of the lock stay, {missing} are installed")
    return 0


if __name__ == "__main__":
    os.umask(0o022)
    sys.exit(main())
