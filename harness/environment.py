"""Environments: a stack's lock made into a folder with a Python, content-addressed by the lock."""

import hashlib
import platform
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from harness import process
from harness.cache import cache_root, make_once
from harness.errors import InfrastructureError, UserError
from harness.image.baked import BakedImage, baked
from harness.lock.install import install_locks, install_sources
from harness.lock.requirements import logical_lines
from harness.lock.uv import installer_environment, uv_program
from harness.stack import Stack

__all__ = ["Environment", "build", "folder_of", "installed_packages", "lock_packages"]

_PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)")


@dataclass(frozen=True, slots=True)
class Environment:
    """A built environment. `digest` is the address of its content: locks, Python and platform."""

    folder: Path
    digest: str
    packages: dict[str, str]
    """Distribution name (normalised) -> version, as installed."""

    @property
    def python(self) -> Path:
        """The environment's interpreter."""
        return self.folder / "bin" / "python"


def build(
    stack: Stack, *, extra_locks: Sequence[Path] = (), say: Callable[[str], None] = lambda _: None
) -> Environment:
    """Return the environment of `stack`, built now if it is not in the cache.

    With an unchanged lock this touches no network. Inside an image of the stack it is the image's own
    environment. `extra_locks` are further hashed lock files (test tools). Raises `UserError` for an
    unresolved stack or an unsuitable Python, and `InfrastructureError` if the installer fails: its own
    words name the package.
    """
    stack.require_resolved()
    if (image := baked()) is not None:
        return _of_image(image, stack, extra_locks)
    interpreter = _interpreter(stack)
    locks = [stack.lock, *extra_locks]
    digest = _address(stack, extra_locks)
    folder = _folder(stack, digest)

    def make(partial: Path) -> None:
        say(
            f"building the environment of stack {stack.name} ({len(lock_packages(stack.lock))} packages) in {folder}"
        )
        _make(stack, interpreter, locks, partial)
        _verify(locks, partial, {name: pin.version for name, pin in stack.sources.items()})

    make_once(folder, make)
    return Environment(folder, digest, installed_packages(folder))


def folder_of(stack: Stack) -> Path | None:
    """Return where the environment of `stack` is, or would be, built; None if it has no lock."""
    if (image := baked()) is not None:
        return image.prefix
    return _folder(stack, _address(stack)) if stack.lock.is_file() else None


def _folder(stack: Stack, digest: str) -> Path:
    return cache_root() / "environments" / f"{stack.name}-{digest[:16]}"


def _of_image(image: BakedImage, stack: Stack, extra_locks: Sequence[Path]) -> Environment:
    image.require(stack)
    if extra_locks:
        raise UserError(
            "an image carries its lock and nothing else. Next: run the tests of the stack outside it."
        )
    return Environment(image.prefix, _address(stack), image.packages)


def _interpreter(stack: Stack) -> str:
    if platform.python_version() not in SpecifierSet(stack.python):
        raise UserError(
            f"stack `{stack.name}` needs Python {stack.python}, this is {platform.python_version()}. "
            "Next: run `make` with PYTHON=/path/to/such/a/python."
        )
    # The base interpreter, not the controller's own environment.
    return str(Path(sys.base_prefix) / "bin" / f"python{sys.version_info.major}.{sys.version_info.minor}")


def _address(stack: Stack, extra_locks: Sequence[Path] = ()) -> str:
    total = hashlib.sha256("".join(pin.tree for pin in stack.sources.values()).encode())
    for lock in (stack.lock, *extra_locks):
        total.update(hashlib.sha256(lock.read_bytes()).digest())
    # The exact Python is part of what runs; its build decides which wheels fit.
    total.update(f"{sys.version}|{'-'.join(platform.libc_ver())}|{platform.machine()}".encode())
    return total.hexdigest()


def _make(stack: Stack, interpreter: str, locks: Sequence[Path], partial: Path) -> None:
    argv = [uv_program(), "venv", "--quiet", "--relocatable", "--allow-existing"]
    done = process.run([*argv, "--python", interpreter, str(partial)], env=installer_environment())
    if done.returncode != 0:
        raise InfrastructureError(f"`uv venv` failed (exit {done.returncode}):\n{done.output.strip()}")
    python = partial / "bin" / "python"
    install_locks(locks, python, stack.indexes)
    install_sources(stack, python)


def _verify(locks: Sequence[Path], folder: Path, sources: Mapping[str, str] | None = None) -> None:
    wanted: dict[str, str] = dict(sources or {})
    for lock in locks:
        wanted.update(lock_packages(lock))
    found = installed_packages(folder)
    wrong = [
        f"{name}: the lock says {wanted.get(name, 'nothing')}, installed is {found.get(name, 'nothing')}"
        for name in sorted(wanted.keys() | found.keys())
        if wanted.get(name) != found.get(name)
    ]
    if wrong:
        raise InfrastructureError("the environment is not the lock: " + "; ".join(wrong))


def lock_packages(lock: Path) -> dict[str, str]:
    """Return the packages of a hashed lock file: normalised name -> full version with its label.

    Raises `UserError` for a requirement that is not `name==version --hash=...`.
    """
    packages: dict[str, str] = {}
    for number, text in logical_lines(lock.read_text(encoding="utf-8")):
        match = _PIN.match(text)
        if match is None:
            raise UserError(f"{lock}:{number}: found {text[:60]!r}, expected `name==version --hash=...`")
        if "--hash=sha256:" not in text:
            raise UserError(f"{lock}:{number}: {match['name']} has no hash. Next: lock again.")
        packages[canonicalize_name(match["name"])] = match["version"]
    if not packages:
        raise UserError(f"{lock}: no package in it. Next: lock again.")
    return packages


def installed_packages(folder: Path) -> dict[str, str]:
    """Return the distributions installed in an environment: normalised name -> version, from their metadata."""
    packages: dict[str, str] = {}
    for info in folder.glob("lib/python3*/site-packages/*.dist-info"):
        for line in (info / "METADATA").read_text(encoding="utf-8", errors="replace").splitlines():
            if line.startswith("Name: "):
                name = canonicalize_name(line[6:].strip())
            elif line.startswith("Version: "):
                packages[name] = line[9:].strip()
                break
    return packages
