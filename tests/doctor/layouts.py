"""Makes the recorded host layouts of `tests/host_layouts` into a folder that the readers can read."""

import base64
import hashlib
import os
import shutil
from collections.abc import Mapping
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path
from typing import Any

import yaml

from harness.doctor import Host, Probes, read_host
from harness.doctor.host import Disk
from harness.stack import Stack, load_stack

PROJECT = Path(__file__).resolve().parents[2]
LAYOUTS = PROJECT / "tests" / "host_layouts"
NO_HASH = "--hash=sha256:" + "0" * 64
TICKS = os.sysconf("SC_CLK_TCK")


@dataclass(frozen=True, slots=True)
class Recorded:
    """A layout in place: its files, the host read from them, and a resolved trn2 stack locked to healthy-trn2."""

    root: Path
    environment: Path
    host: Host
    stack: Stack


def layout_names() -> list[str]:
    """Return the names of all layouts."""
    return sorted(path.parent.name for path in LAYOUTS.glob("*/layout.yaml"))


def load_layout(name: str) -> dict[str, Any]:
    """Return a layout's description with what it is based on merged in."""
    own: dict[str, Any] = yaml.safe_load((LAYOUTS / name / "layout.yaml").read_text())
    if "based_on" not in own:
        return own
    base = load_layout(own["based_on"])
    merged = {**base, **own}
    for key in ("packages", "variables"):
        merged[key] = {**base.get(key, {}), **own.get(key, {})}
    return merged


def recorded(name: str, folder: Path) -> Recorded:
    """Build layout `name` under `folder`, read it and return both."""
    layout = load_layout(name)
    root, environment = folder / "root", folder / "environment"
    _copy_files(name, root)
    for process in layout.get("processes", ()):
        _add_process(root, process)
    for path, when in layout.get("times", {}).items():
        os.utime(root / path, (_seconds(when),) * 2)
    make_environment(environment, layout["python"], layout["packages"])
    host = read_host(
        root,
        environment=environment,
        variables=layout["variables"],
        stated={},
        places={"cache": root / "cache", "runs": root / "runs"},
        probes=_probes(layout),
    )
    return Recorded(root, environment, host, locked_stack(folder, load_layout("healthy-trn2")["packages"]))


def _copy_files(name: str, root: Path) -> None:
    layout = yaml.safe_load((LAYOUTS / name / "layout.yaml").read_text())
    if "based_on" in layout:
        _copy_files(layout["based_on"], root)
    for path in layout.get("remove", ()):
        target = root / path
        shutil.rmtree(target) if target.is_dir() else target.unlink()
    own = LAYOUTS / name / "root"
    if own.is_dir():
        shutil.copytree(own, root, dirs_exist_ok=True)


def _seconds(when: datetime) -> float:
    assert when.tzinfo is not None
    return when.timestamp()


def _probes(layout: Mapping[str, Any]) -> Probes:
    unusable = {f"neuron{index}" for index in layout.get("unusable", ())}

    def disk(path: Path) -> Disk:
        gib = layout["shm_gib"] if path.name == "shm" else layout["disk_gib"]
        return Disk("/" + path.name, int(gib * 2**30), int(gib * 2**30))

    return Probes(
        usable=lambda path: path.name not in unusable,
        access=lambda path: "crw------- 0:0" if path.name in unusable else "crw-rw-rw- 0:0",
        disk=disk,
        run=lambda argv: layout.get("neuron_ls"),
        now=lambda: _seconds(layout["now"]),
        uid=lambda: layout["uid"],
    )


def _add_process(root: Path, process: Mapping[str, Any]) -> None:
    uptime = float((root / "proc" / "uptime").read_text().split()[0])
    folder = root / "proc" / str(process["pid"])
    (folder / "fd").mkdir(parents=True)
    (folder / "cmdline").write_bytes(b"".join(part.encode() + b"\0" for part in process["command"]))
    started = int((uptime - process["age"]) * TICKS)
    # pid, (name), state, then the fields up to the start time, which is the 22nd of all.
    (folder / "stat").write_text(f"{process['pid']} (py (x) y) S {' '.join(['0'] * 18)} {started} 0 0\n")
    for number, target in enumerate(process["opens"]):
        (folder / "fd" / str(number)).symlink_to(target)


def make_environment(folder: Path, python: str, packages: Mapping[str, Mapping[str, Any]]) -> Path:
    """Make an environment folder with the metadata of `packages`; return its site-packages."""
    site = folder / "lib" / f"python{'.'.join(python.split('.')[:2])}" / "site-packages"
    site.mkdir(parents=True, exist_ok=True)
    (folder / "pyvenv.cfg").write_text(f"home = /usr/bin\nversion_info = {python}\n")
    for name, package in packages.items():
        add_distribution(site, name, package)
    return site


def add_distribution(site: Path, name: str, package: Mapping[str, Any]) -> Path:
    """Write the metadata, RECORD and files of one distribution; return its .dist-info folder."""
    version = package["version"]
    info = site / f"{name.replace('-', '_')}-{version}.dist-info"
    info.mkdir()
    requires = "".join(f"Requires-Dist: {line}\n" for line in package.get("requires", ()))
    text = package.get("text", f"The {name} package.")
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n{requires}\n{text}\n"
    )
    modules = package.get("modules", [name.replace("-", "_")])
    lines = [f"{module}/__init__.py,sha256=,0" for module in modules]
    for path, content in package.get("files", {}).items():
        (site / path).parent.mkdir(parents=True, exist_ok=True)
        (site / path).write_text(content)
        digest = base64.urlsafe_b64encode(hashlib.sha256(content.encode()).digest()).rstrip(b"=").decode()
        lines.append(f"{path},sha256={digest},{len(content)}")
    (info / "RECORD").write_text("\n".join([*lines, f"{info.name}/RECORD,,"]) + "\n")
    return info


def locked_stack(folder: Path, packages: Mapping[str, Mapping[str, Any]]) -> Stack:
    """Return the trn2 stack with a lock of these packages; no hash in it is a real one."""
    stack = load_stack(PROJECT, "trn2")
    pinned = {name: item["version"] for name, item in packages.items() if name not in stack.sources}
    lock = "".join(f"{name}=={version} {NO_HASH}\n" for name, version in pinned.items())
    (folder / "requirements.lock").write_text(lock)
    return stack.model_copy(update={"folder": folder, "unresolved": ()})
