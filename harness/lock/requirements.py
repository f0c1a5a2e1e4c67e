"""Readers of `requirements.in` (the direct pins) and of hashed requirement locks."""

import re
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path

from packaging.requirements import InvalidRequirement, Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from harness.checks.finding import Finding
from harness.checks.wording import shown
from harness.errors import UserError
from harness.pins import Target

__all__ = [
    "LockEntry",
    "Wanted",
    "logical_lines",
    "marker_environment",
    "parse_lock",
    "parse_requirements",
    "read_requirements",
]

_ENTRY = re.compile(
    r"^(?P<name>[A-Za-z0-9][A-Za-z0-9._-]*)(\[[^\]]*\])?==(?P<version>[^\s;,*]+)\s*(;(?P<marker>.*?))?\s*$"
)
_HASH = re.compile(r"\s--hash=(?P<algorithm>\w+):(?P<digest>\S+)")
_SHA256 = re.compile(r"^[0-9a-f]{64}$")


@dataclass(frozen=True, slots=True)
class Wanted:
    """One line of `requirements.in`: what is asked for, before anything is resolved."""

    line: int
    text: str
    """The requirement as it was written, without its comment."""
    name: str
    """Normalised name of the distribution."""
    specifier: SpecifierSet

    @property
    def exact(self) -> str | None:
        """The version of a single `==` or `===` without wildcard, else None."""
        only = list(self.specifier)
        if len(only) == 1 and only[0].operator in ("==", "===") and not only[0].version.endswith(".*"):
            return only[0].version
        return None


@dataclass(frozen=True, slots=True)
class LockEntry:
    """One entry of a hashed lock. `hashes` are SHA-256 digests (hex), one per file that may be installed."""

    line: int
    name: str
    version: str
    marker: str
    hashes: tuple[str, ...]


def logical_lines(text: str) -> list[tuple[int, str]]:
    """Return the requirements of a file as (line number from 1, text): comments gone, continued lines joined."""
    logical: list[tuple[int, str]] = []
    pending, start = "", 0
    for number, line in enumerate(text.splitlines(), 1):
        piece = line.split(" #")[0].strip()
        if not pending and (not piece or piece.startswith("#")):
            continue
        start = start if pending else number
        pending += piece.removesuffix("\\")
        if not piece.endswith("\\"):
            logical.append((start, pending.strip()))
            pending = ""
    if pending.strip():
        logical.append((start, pending.strip()))
    return logical


def marker_environment(target: Target) -> dict[str, str]:
    """Return the values of environment markers (PEP 508) on a lock's target."""
    full = target.python if target.python.count(".") == 2 else f"{target.python}.0"
    return {
        "extra": "",
        "implementation_name": "cpython",
        "implementation_version": full,
        "os_name": "posix",
        "platform_machine": target.platform.split("-")[0],
        "platform_python_implementation": "CPython",
        "platform_release": "",
        "platform_system": "Linux",
        "platform_version": "",
        "python_full_version": full,
        "python_version": ".".join(full.split(".")[:2]),
        "sys_platform": "linux",
    }


def parse_requirements(text: str, source: str, markers: Mapping[str, str]) -> tuple[Wanted, ...]:
    """Return the direct pins in `text` that apply where `markers` say so, in file order.

    `source` names the file in messages. Raises `UserError` for an option (`-r`, `--index-url`), an address,
    a hash, a line that is no requirement, and a package that stands twice.
    """
    wanted: dict[str, Wanted] = {}
    for number, line in logical_lines(text):
        where = f"{source}:{number}"
        if line.startswith("-"):
            raise UserError(f"{where}: found the option {line.split()[0]!r}. Next: name packages only.")
        try:
            parsed = Requirement(line)
        except InvalidRequirement as error:
            reason = str(error).splitlines()[0]
            raise UserError(f"{where}: {shown(line)!r} is not a requirement: {reason}.") from None
        if parsed.url:
            raise UserError(
                f"{where}: {parsed.name} is given by an address. Next: write a version, or a source pin in stack.yaml."
            )
        if parsed.marker is not None and not parsed.marker.evaluate(dict(markers)):
            continue
        name = str(canonicalize_name(parsed.name))
        if name in wanted:
            raise UserError(
                f"{where}: {name} stands twice (first at line {wanted[name].line}). Next: keep one."
            )
        wanted[name] = Wanted(number, line, name, parsed.specifier)
    return tuple(wanted.values())


def read_requirements(path: Path, target: Target) -> tuple[Wanted, ...]:
    """Return the direct pins of a `requirements.in`, see `parse_requirements`. Raises `UserError` if it is missing."""
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(
            f"{path}: no such file. Next: list the direct pins of the stack there, one a line."
        ) from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None
    return parse_requirements(text, str(path), marker_environment(target))


def parse_lock(text: str, source: str) -> tuple[tuple[LockEntry, ...], tuple[Finding, ...]]:
    """Return the entries of a hashed lock, and a finding for each line that is not `name==version --hash=...`.

    Codes: `lock.address` (an index, a host, a file), `lock.form`, `lock.hash-missing`, `lock.hash-form`.
    An entry whose only fault is its hash is among the entries too.
    """
    entries: list[LockEntry] = []
    findings: list[Finding] = []
    for number, line in logical_lines(text):
        entry, problem = _entry(number, line, f"{source}:{number}")
        entries += [entry] if entry else []
        findings += [problem] if problem else []
    return tuple(entries), tuple(findings)


def _entry(number: int, line: str, where: str) -> tuple[LockEntry | None, Finding | None]:
    hashes = [(match["algorithm"], match["digest"]) for match in _HASH.finditer(line)]
    pin = _HASH.sub("", line).strip()
    if "://" in line or "@" in pin or line.startswith("-"):
        return None, Finding(
            "lock.address",
            f"{where}: found {shown(pin[:60])!r}; a lock names packages and hashes, no index, host or file. "
            "Next: lock again.",
        )
    match = _ENTRY.match(pin)
    if match is None:
        return None, Finding(
            "lock.form",
            f"{where}: found {shown(pin[:60])!r}, expected `name==version --hash=sha256:...`. Next: lock again.",
        )
    name = str(canonicalize_name(match["name"]))
    entry = LockEntry(
        number, name, match["version"], (match["marker"] or "").strip(), tuple(digest for _, digest in hashes)
    )
    if not hashes:
        return entry, Finding(
            "lock.hash-missing",
            f"{where}: {name} {entry.version} has no hash. This is not tampering. Next: lock again.",
            {"package": name},
        )
    for algorithm, digest in hashes:
        if algorithm != "sha256" or not _SHA256.match(digest):
            return entry, Finding(
                "lock.hash-form",
                f"{where}: {name} has the hash {shown(f'{algorithm}:{digest}'[:40])}, expected sha256 and "
                "64 hex digits. Next: lock again.",
                {"package": name},
            )
    return entry, None
