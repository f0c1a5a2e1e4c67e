"""Reads a machine into a `Host`: small readers below one root folder, so that a copy of one can stand in."""

import os
import platform
import re
import shutil
import stat
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from harness import process
from harness.doctor.compile_cache import cache_location, read_cache
from harness.doctor.distributions import python_version, read_distributions, read_torch
from harness.doctor.host import Device, Disk, Host, NeuronLs
from harness.doctor.indexes import read_indexes
from harness.doctor.neuron_ls import json_arguments, parse_neuron_ls
from harness.doctor.processes import read_holders
from harness.errors import InfrastructureError

__all__ = ["Probes", "is_container", "parse_dpkg", "read_dpkg", "read_host"]

_NEURON_LS = "opt/aws/neuron/bin/neuron-ls"
_NEURON_LS_SECONDS = 20.0
_CONTAINER_FILES = (".dockerenv", "run/.containerenv")
_CONTAINER_GROUP = re.compile(r"docker|containerd|kubepods|libpod|lxc")
_IMAGE_FOLDERS = ("var/lib/docker", "var/lib/containerd")


def _usable(path: Path) -> bool:
    return os.access(path, os.R_OK | os.W_OK)


def _access(path: Path) -> str:
    try:
        found = path.stat()
    except OSError:
        return ""
    return f"{stat.filemode(found.st_mode)} {found.st_uid}:{found.st_gid}"


def _disk(path: Path) -> Disk | None:
    for folder in (path, *path.parents):
        if folder.is_dir():
            usage = shutil.disk_usage(folder)
            return Disk(str(path), usage.free, usage.total)
    return None


def _run(argv: Sequence[str]) -> str | None:
    try:
        done = process.run(argv, timeout=_NEURON_LS_SECONDS)
    except InfrastructureError:
        return None
    return done.output if done.ended == "exited" and done.returncode == 0 else None


@dataclass(frozen=True, slots=True)
class Probes:
    """What plain files of a recorded machine cannot hold; the defaults ask the system."""

    usable: Callable[[Path], bool] = _usable
    """Whether this user may read and write a device node."""
    access: Callable[[Path], str] = _access
    """Mode and owner of a node, as `mode uid:gid`."""
    disk: Callable[[Path], Disk | None] = _disk
    run: Callable[[Sequence[str]], str | None] = _run
    """Output of a command, None if it failed."""
    now: Callable[[], float] = time.time
    uid: Callable[[], int] = os.getuid


def read_host(
    root: Path = Path("/"),
    *,
    environment: Path | None = None,
    variables: Mapping[str, str] | None = None,
    stated: Mapping[str, str] | None = None,
    places: Mapping[str, Path] | None = None,
    probes: Probes | None = None,
) -> Host:
    """Return what is on the machine below `root`. Never raises for what is missing or unreadable.

    `environment` is the Python environment to read (None: none), `variables` the caller's (default: this
    process's), `stated` the stack's, which win over them in a run; `places` says where the `cache` and `runs`
    are kept. Without a device no process is started and nothing under /proc is read.
    """
    asked = Probes() if probes is None else probes
    own = dict(os.environ if variables is None else variables)
    dpkg = read_dpkg(root)
    devices = _devices(root, asked)
    home = _below(root, own.get("HOME", "/root"))
    indexes, problems = read_indexes(root, home, environment, own)
    cache = cache_location({**own, **(stated or {})})
    folders = {**(places or {}), **_image_folder(root)}
    disks = {name: disk for name, path in folders.items() if (disk := asked.disk(path)) is not None}
    return Host(
        container=is_container(root, own),
        uid=asked.uid(),
        now=asked.now(),
        variables=own,
        environment=str(environment) if environment else None,
        python=python_version(environment) if environment else platform.python_version(),
        distributions=read_distributions(environment) if environment else (),
        torch=read_torch(environment) if environment else None,
        os_packages=dpkg,
        indexes=indexes,
        index_problems=problems,
        driver=_text(root / "sys/module/neuron/version"),
        driver_devices=_driver_devices(root),
        cores_per_device=_cores_per_device(root),
        devices=devices,
        holders=read_holders(root, frozenset({os.getpid()})) if devices else (),
        neuron_ls=_neuron_ls(root, dpkg.get("aws-neuronx-tools"), asked) if devices else None,
        shm=asked.disk(root / "dev/shm"),
        disks=disks,
        compile_cache=cache,
        cache_entries=() if "://" in cache else read_cache(_below(root, cache)),
    )


def _below(root: Path, path: str) -> Path:
    return root / path.lstrip("/")


def _text(path: Path) -> str | None:
    try:
        return path.read_text(encoding="utf-8", errors="replace").strip() or None
    except OSError:
        return None


def is_container(root: Path, variables: Mapping[str, str]) -> bool:
    """Return whether this is the inside of a container: a runtime's marker file, variable or control group."""
    if any((root / name).exists() for name in _CONTAINER_FILES):
        return True
    if variables.get("container") or variables.get("KUBERNETES_SERVICE_HOST"):
        return True
    return _CONTAINER_GROUP.search(_text(root / "proc/1/cgroup") or "") is not None


def _devices(root: Path, probes: Probes) -> tuple[Device, ...]:
    found = []
    for path in (root / "dev").glob("neuron[0-9]*"):
        index = path.name.removeprefix("neuron")
        if index.isdigit():
            found.append(Device(int(index), probes.usable(path), probes.access(path)))
    return tuple(sorted(found, key=lambda device: device.index))


def _sysfs(root: Path) -> list[Path]:
    for folder in ("sys/devices/virtual/neuron_device", "sys/class/neuron_device"):
        if found := sorted((root / folder).glob("neuron[0-9]*")):
            return found
    return []


def _driver_devices(root: Path) -> int | None:
    return len(_sysfs(root)) or None


def _cores_per_device(root: Path) -> int | None:
    # Driver 2.31 moved nodes of its sysfs tree: the file is looked for one level down as well.
    for device in _sysfs(root):
        for path in (device / "core_count", *sorted(device.glob("*/core_count"))):
            value = _text(path)
            if value and value.isdigit() and int(value):
                return int(value)
    return None


def _neuron_ls(root: Path, tools: str | None, probes: Probes) -> NeuronLs | None:
    program = root / _NEURON_LS
    if not program.exists():
        return None
    output = probes.run([str(program), *json_arguments(tools)])
    if output is None:
        return NeuronLs((), f"{program} failed")
    return parse_neuron_ls(output, tools)


def _image_folder(root: Path) -> dict[str, Path]:
    for name in _IMAGE_FOLDERS:
        if (root / name).is_dir():
            return {"image": root / name}
    return {}


def read_dpkg(root: Path) -> dict[str, str]:
    """Return the installed Debian packages below `root`: name -> version; empty without a status file."""
    return parse_dpkg(_text(root / "var/lib/dpkg/status") or "")


def parse_dpkg(text: str) -> dict[str, str]:
    """Return the packages of a dpkg status file that are installed: name -> version, by name."""
    packages = {}
    for paragraph in text.split("\n\n"):
        fields = {}
        for line in paragraph.splitlines():
            key, separator, value = line.partition(": ")
            if separator and key in ("Package", "Status", "Version"):
                fields[key] = value.strip()
        if fields.get("Status", "").endswith(" installed") and {"Package", "Version"} <= fields.keys():
            packages[fields["Package"]] = fields["Version"]
    return dict(sorted(packages.items()))
