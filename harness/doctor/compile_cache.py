"""The persistent compile cache: where it is, what is in it, and whether it fits the installed compiler."""

import re
from collections.abc import Mapping
from datetime import UTC, datetime
from pathlib import Path

from harness.doctor.flags import parse_flags
from harness.doctor.host import CacheEntry, Host
from harness.doctor.report import Line, error, ok, skipped, warning
from harness.sdk import documented_version

__all__ = ["cache_location", "check_compile_cache", "describe_age", "read_cache"]

_DEFAULT = "/var/tmp/neuron-compile-cache"  # noqa: S108 - the compiler's own documented default
_FOLDER = re.compile(r"^neuronxcc-(?P<version>[^/]+)$")


def cache_location(variables: Mapping[str, str]) -> str:
    """Return where the compiler caches: `--cache_dir` of NEURON_CC_FLAGS, else NEURON_COMPILE_CACHE_URL, else
    its default. May be a remote address.
    """
    flagged = parse_flags(variables.get("NEURON_CC_FLAGS", "")).get("--cache_dir")
    location = flagged or variables.get("NEURON_COMPILE_CACHE_URL") or _DEFAULT
    return location.removeprefix("file://")


def read_cache(folder: Path) -> tuple[CacheEntry, ...]:
    """Return every module of a cache folder: `neuronxcc-<version>/MODULE_<hash>+<flags>/`."""
    entries = []
    for compiler in sorted(folder.glob("neuronxcc-*")):
        named = _FOLDER.match(compiler.name)
        if named:
            modules = sorted(path for path in compiler.glob("MODULE_*") if path.is_dir())
            entries += [_read_entry(named["version"], path) for path in modules]
    return tuple(entries)


def _read_entry(compiler: str, path: Path) -> CacheEntry:
    log = path / "model.log"
    if (path / "model.neff").exists() and (path / "model.done").exists():
        return CacheEntry(compiler, path.name, "done", path=str(path))
    if log.exists() and not (path / "model.neff").exists():
        return CacheEntry(compiler, path.name, "failed", log.stat().st_mtime, str(path))
    return CacheEntry(compiler, path.name, "unfinished", path=str(path))


def describe_age(seconds: float) -> str:
    """Return a duration as `2 d 3 h`, `02:10:33`."""
    whole = max(0, int(seconds))
    days, rest = divmod(whole, 86400)
    if days:
        return f"{days} d {rest // 3600} h"
    return f"{rest // 3600:02}:{rest % 3600 // 60:02}:{rest % 60:02}"


def check_compile_cache(host: Host, compiler: str | None) -> list[Line]:
    """Judge the cache against `compiler`, the full neuronx-cc version that will compile (None: not known).

    A failure that is cached for this compiler is returned without a new attempt, so it is an error unless
    `--retry_failed_compilation` is on. A cache without any entry of this compiler holds only what another
    compiler made: nothing in it can serve, and a newer compiler's NEFF does not load on this runtime.
    """
    if "://" in host.compile_cache:
        return [skipped("compile-cache.remote", f"{host.compile_cache} is remote and was not read")]
    if not host.cache_entries:
        return [ok("compile-cache", f"{host.compile_cache} is empty")]
    if compiler is None:
        return [skipped("compile-cache.no-compiler", "no neuronx-cc is installed or locked to compare with")]
    own = [entry for entry in host.cache_entries if _same_compiler(entry.compiler, compiler)]
    others = sorted({entry.compiler for entry in host.cache_entries} - {entry.compiler for entry in own})
    if not own:
        return [_other_compiler(host, others, compiler)]
    lines = []
    failed = [entry for entry in own if entry.state == "failed"]
    if failed:
        lines.append(_cached_failure(host, failed))
    if others:
        lines.append(
            warning(
                "compile-cache.mixed",
                f"{host.compile_cache} also holds modules of neuronx-cc {', '.join(others)}",
                f"modules of {compiler} only",
                "keep one cache folder per compiler and runtime, so that no NEFF of another one is loaded",
            )
        )
    return lines or [ok("compile-cache", f"{len(own)} module(s), all of neuronx-cc {own[0].compiler}")]


def _same_compiler(folder: str, compiler: str) -> bool:
    if "+" in folder and "+" in compiler:
        return folder == compiler
    return documented_version(folder) == documented_version(compiler)


def _other_compiler(host: Host, others: list[str], compiler: str) -> Line:
    return error(
        "compile-cache.other-compiler",
        f"{host.compile_cache} holds {len(host.cache_entries)} module(s) of neuronx-cc {', '.join(others)}",
        f"modules of {compiler}, which will compile",
        "point NEURON_COMPILE_CACHE_URL at a folder for this compiler; "
        "a NEFF of another compiler can need features that this runtime lacks",
    )


def _cached_failure(host: Host, failed: list[CacheEntry]) -> Line:
    first = min(failed, key=lambda entry: entry.changed)
    when = datetime.fromtimestamp(first.changed, UTC).strftime("%Y-%m-%d %H:%M UTC")
    found = (
        f"{len(failed)} failed compilation(s) are cached, the oldest from {when} "
        f"({describe_age(host.now - first.changed)} ago): {first.path}"
    )
    retried = "--retry_failed_compilation" in parse_flags(host.variables.get("NEURON_CC_FLAGS", ""))
    if retried:
        return warning(
            "compile-cache.cached-failure",
            f"{found}; --retry_failed_compilation is set, so they are tried again",
            "no failed entry",
            "remove the flag once they compile, or delete the folders",
        )
    return error(
        "compile-cache.cached-failure",
        found,
        "no failed entry: a cached failure is returned without compiling",
        "add --retry_failed_compilation to NEURON_CC_FLAGS, or delete the folder",
    )
