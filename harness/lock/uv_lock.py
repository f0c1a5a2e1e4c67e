"""Reads `uv.lock` files: which files a platform could install have no hash."""

import tomllib
from collections.abc import Mapping
from typing import Any

from harness.checks.finding import CheckResult, Finding, judge
from harness.checks.wording import counted
from harness.errors import UserError

__all__ = ["judge_uv_lock"]


def judge_uv_lock(text: str, source: str = "uv.lock") -> CheckResult:
    """Return a result with one `lock.hash-missing` per file of a `uv.lock` that has no hash.

    An installer compares such a file with the hashes of the other platforms' files and then speaks of a
    mismatch, as if somebody had changed it. Raises `UserError` if `text` is not TOML.
    """
    try:
        packages = tomllib.loads(text).get("package", [])
    except tomllib.TOMLDecodeError as error:
        raise UserError(f"{source}: not valid TOML: {error}") from None
    findings: list[Finding] = []
    files = 0
    for package in packages:
        listed = [*package.get("wheels", ()), *([package["sdist"]] if "sdist" in package else ())]
        files += len(listed)
        bare = [item for item in listed if not item.get("hash")]
        findings += [_finding(package, item, len(listed) - len(bare), source) for item in bare]
    facts = [f"{counted(files, 'file')} of {counted(len(packages), 'package')} have a hash"] if files else []
    return judge("lock", findings, facts)


def _finding(package: Mapping[str, Any], item: Mapping[str, Any], hashed: int, source: str) -> Finding:
    address = str(item.get("url") or item.get("path") or item.get("filename") or "a file")
    name = address.rpartition("/")[2].replace("%2B", "+")
    others = f" ({counted(hashed, 'other file')} of it {'has' if hashed == 1 else 'have'})" if hashed else ""
    return Finding(
        "lock.hash-missing",
        f"{source}: {name} has no hash{others}. This is not tampering. Next: lock again.",
        {"package": package.get("name"), "file": name},
    )
