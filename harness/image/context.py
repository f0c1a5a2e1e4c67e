"""The build context: what an image is made of, staged into a folder of its own.

Staging makes the context a function of the project's content: no stray file of the working folder, no
mode of somebody's umask, no bytecode. Two files are written on the way, `pins.json` and `labels.json`.
"""

import json
import shutil
import stat
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.pins import SourcePin
from harness.placeholders import NEURON_PACKAGES, PLACEHOLDER_VERSIONS
from harness.stack import Stack

__all__ = ["FILES", "FOLDERS", "FetchSource", "pins_of", "stage"]

FILES = ("Dockerfile", "compose.yaml", "pyproject.toml")
FOLDERS = ("harness", "lockfiles", "recipes", "tests")
_LEFT_OUT = ("__pycache__", "*.pyc", "*.egg-info", ".*")

FetchSource = Callable[[str, SourcePin], Path]
"""(name, pin) -> folder with the files of the pinned commit, verified."""


def pins_of(stack: Stack, base: Mapping[str, Any]) -> dict[str, Any]:
    """Return what the steps inside the image need to know of the stack, as JSON data."""
    return {
        "stack": stack.name,
        "python": stack.python,
        "base": dict(base),
        "keeps": list(stack.base_image.keeps) if stack.base_image else [],
        "sources": {
            name: {"version": pin.version, "repository": pin.repository, "commit": pin.commit}
            for name, pin in stack.sources.items()
        },
        "indexes": {
            name: {"url": rule.url, "packages": list(rule.packages)} for name, rule in stack.indexes.items()
        },
        "neuron": {name: PLACEHOLDER_VERSIONS.get(name, "") for name in sorted(NEURON_PACKAGES)},
    }


def stage(
    root: Path,
    stack: Stack,
    base: Mapping[str, Any],
    labels: Mapping[str, str],
    fetch: FetchSource,
    target: Path,
) -> None:
    """Copy the project's files into `target` and write the two files. Raises `UserError` if one is missing."""
    for name in (*FILES, *FOLDERS):
        if not (root / name).exists():
            raise UserError(f"{root / name}: no such file; an image needs it. Next: restore it.")
    for name in FILES:
        shutil.copyfile(root / name, target / name)
    for name in FOLDERS:
        shutil.copytree(root / name, target / name, ignore=shutil.ignore_patterns(*_LEFT_OUT))
    sources = target / "sources"
    sources.mkdir()
    for name, pin in stack.sources.items():
        shutil.copytree(
            fetch(name, pin), sources / name, symlinks=True, ignore=shutil.ignore_patterns(".complete")
        )
    _write(target / "pins.json", pins_of(stack, base))
    _write(target / "labels.json", dict(labels))
    for path in target.rglob("*"):
        if not path.is_symlink():
            path.chmod(0o755 if path.is_dir() or path.stat().st_mode & stat.S_IXUSR else 0o644)


def _write(path: Path, value: Any) -> None:
    path.write_text(json.dumps(value, indent=1, sort_keys=True) + "\n", encoding="utf-8")
