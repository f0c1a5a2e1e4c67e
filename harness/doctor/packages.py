"""What is installed against the lock: Python, versions with their labels, placeholders, torch and its family."""

from collections.abc import Iterable, Mapping

from packaging.specifiers import SpecifierSet
from packaging.version import InvalidVersion, Version

from harness.doctor.host import Host
from harness.doctor.placeholders import placeholder_reason
from harness.doctor.report import Line, error, ok, skipped, warning

__all__ = [
    "check_family",
    "check_lock",
    "check_nvidia",
    "check_placeholders",
    "check_python",
    "check_torch",
    "minor",
]

_SHOWN = 6
_FAMILY = ("torch", "torch-neuronx", "torch-xla")
_NATIVE = Version("2.14")
"""torch-neuronx from 2.14 is the native library; anything below is the XLA one under the same name."""


def check_python(host: Host, wanted: str) -> Line:
    """Judge the environment's Python against the stack's specifier."""
    if host.python is None:
        return warning(
            "python.unknown", "its version cannot be told", wanted, "check the environment's folder"
        )
    if SpecifierSet(wanted).contains(host.python, prereleases=True):
        return ok("python", host.python, wanted)
    return error("python.version", host.python, wanted, "build the environment with such a Python")


def check_placeholders(host: Host) -> tuple[list[Line], set[str]]:
    """Return an error per installed placeholder, and the names of those distributions."""
    found = [(item, placeholder_reason(item)) for item in host.distributions]
    lines = [
        error(
            "placeholder.installed",
            f"{item.name} {item.version} is the public index's placeholder: {why}",
            f"the Neuron build of {item.name}",
            f"uninstall {item.name}, set the Neuron index, install the lock again",
        )
        for item, why in found
        if why
    ]
    names = {item.name for item, why in found if why}
    return lines or [ok("placeholder", f"none among {len(host.distributions)} distributions")], names


def check_torch(
    host: Host, locked: Mapping[str, str], *, neuron: bool, ignored: Iterable[str] = ()
) -> tuple[list[Line], set[str]]:
    """Judge torch and its Neuron family; return the lines and the names of distributions they explain.

    torch is as installed if its own `__version__` has the number of its metadata, and the label too where
    both have one, and if its `version.py` is the file that RECORD names. torch, torch-neuronx and
    torch-xla must share their first two numbers. On a Neuron device, torch-neuronx below 2.14 is the legacy
    XLA library. `ignored` distributions are treated as not installed.
    """
    left_out = set(ignored)
    installed = {item.name: item.version for item in host.distributions if item.name not in left_out}
    if "torch" not in installed:
        return [skipped("torch", "not installed")], set()
    line = _swapped(host, installed["torch"], locked.get("torch"))
    if line is not None:
        return [line], {"torch"}
    plugin = installed.get("torch-neuronx")
    if neuron and plugin is not None and (plugin_version := _version(plugin)) and plugin_version < _NATIVE:
        return [_legacy(plugin, locked.get("torch-neuronx"))], {"torch-neuronx"}
    family = check_family(installed)
    if family is not None:
        return [family], set()
    shown = host.torch.version if host.torch else installed["torch"]
    with_plugin = f", torch-neuronx {plugin}" if plugin else ""
    return [ok("torch", f"{installed['torch']} (torch.__version__ {shown}){with_plugin}")], set()


def check_family(versions: Mapping[str, str]) -> Line | None:
    """Return an error if torch, torch-neuronx and torch-xla, those that are among `versions` (name -> version,
    installed or locked), do not share their first two numbers; else None.
    """
    family = [(name, versions[name]) for name in _FAMILY if name in versions]
    if len({minor(version) for _, version in family}) <= 1:
        return None
    shown = " with ".join(f"{name} {version}" for name, version in family)
    return error(
        "torch.family",
        f"{shown}: minor versions differ, expect undefined symbols",
        "the same first two numbers",
        "bump them together, in the lock",
    )


def _swapped(host: Host, metadata: str, locked: str | None) -> Line | None:
    copies = sorted(item.version for item in host.distributions if item.name == "torch")
    fix = "install the lock again into a fresh environment"
    if len(copies) > 1:
        return error("torch.twice", f"metadata of torch {' and '.join(copies)}", "one torch", fix)
    if host.torch is None:
        return None
    real, named = _version(host.torch.version), _version(metadata)
    if real is None or named is None:
        return None
    same_label = not (real.local and named.local) or real.local == named.local
    if real.public != named.public or not same_label:
        return error(
            "torch.swapped",
            f"torch.__version__ is {host.torch.version}, the metadata says {metadata}",
            f"torch {locked or metadata}",
            f"another install put its files over this one: {fix}",
        )
    if host.torch.as_recorded is False:
        return error(
            "torch.changed",
            "torch/version.py is not the file that torch's RECORD names",
            f"torch {locked or metadata} as it was installed",
            f"another install put its files over this one: {fix}",
        )
    return None


def _legacy(plugin: str, locked: str | None) -> Line:
    return error(
        "torch.legacy-xla",
        f"torch-neuronx {plugin} is the legacy XLA library, which has the same name",
        f"torch-neuronx {locked or '2.14.x'}, the native one",
        "install the lock again: an unpinned `torch-neuronx` can resolve to either",
    )


def minor(version: str) -> tuple[int, int] | None:
    """Return the first two numbers of a version, None if it is none."""
    parsed = _version(version)
    return (parsed.major, parsed.minor) if parsed else None


def _version(text: str) -> Version | None:
    try:
        return Version(text)
    except InvalidVersion:
        return None


def check_lock(host: Host, locked: Mapping[str, str], *, explained: Iterable[str] = ()) -> list[Line]:
    """Compare installed versions with the lock's, whole, with their local labels.

    A missing distribution, another version and another build of the same version are errors; one that the
    lock does not name is a warning (a base image brings its own). `explained` distributions are left out.
    """
    silent = set(explained)
    found = {item.name: item.version for item in host.distributions if item.name not in silent}
    wanted = {name: version for name, version in locked.items() if name not in silent}
    differing = {name for name in wanted.keys() & found.keys() if not _equal(wanted[name], found[name])}
    builds = {name for name in differing if _public(wanted[name]) == _public(found[name])}
    lines = []
    if missing := sorted(wanted.keys() - found.keys()):
        lines.append(
            error(
                "packages.missing",
                f"{len(missing)} of {len(locked)} not installed: {_some(missing)}",
                "everything in the lock",
                "install the lock again",
            )
        )
    if builds:
        lines.append(_other_build(builds, wanted, found))
    if other := sorted(differing - builds):
        lines.append(
            error(
                "packages.version",
                f"{len(other)} other than locked: {_some([f'{n} {found[n]}' for n in other])}",
                _some([f"{n} {wanted[n]}" for n in other]),
                "something was installed on top: install the lock again into a fresh environment",
            )
        )
    if extra := sorted(found.keys() - wanted.keys()):
        lines.append(
            warning(
                "packages.extra",
                f"{len(extra)} not in the lock: {_some([f'{n} {found[n]}' for n in extra])}",
                "only what the lock names",
                "add them to the lock if a run needs them",
            )
        )
    if any(line.level == "error" for line in lines):
        return lines
    return [ok("packages", f"{len(wanted)} as locked"), *lines]


def _other_build(builds: Iterable[str], wanted: Mapping[str, str], found: Mapping[str, str]) -> Line:
    names = sorted(builds)
    nvidia = sum(name.startswith("nvidia-") for name in found)
    brought = f" ({nvidia} nvidia-* packages are installed)" if nvidia else ""
    return error(
        "packages.other-build",
        f"same number, other build: {_some([f'{n} {found[n]}' for n in names])}{brought}",
        _some([f"{n} {wanted[n]}" for n in names]),
        "lock for this platform, or install the lock's own build",
    )


def _equal(first: str, second: str) -> bool:
    one, other = _version(first), _version(second)
    return one == other if one and other else first == second


def _public(text: str) -> str:
    parsed = _version(text)
    return parsed.public if parsed else text.partition("+")[0]


def _some(names: list[str]) -> str:
    shown = ", ".join(names[:_SHOWN])
    return shown if len(names) <= _SHOWN else f"{shown} and {len(names) - _SHOWN} more"


def check_nvidia(host: Host, locked: Mapping[str, str]) -> Line:
    """Say whether CUDA packages are there: no stack has a CUDA device, so they are dead weight at best."""
    names = sorted(item.name for item in host.distributions if item.name.startswith("nvidia-"))
    unlocked = [name for name in names if name not in locked]
    if unlocked:
        return warning(
            "nvidia.unlocked",
            f"{len(unlocked)} nvidia-* packages that the lock does not name: {_some(unlocked)}",
            "none: no stack has a CUDA device",
            "a CUDA build of torch came in through another install; install the lock again",
        )
    if names:
        return ok("nvidia", f"{len(names)} nvidia-* packages, all of them the lock's own (unused, harmless)")
    return ok("nvidia", "no nvidia-* packages")
