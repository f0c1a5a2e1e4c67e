"""Reads what is installed in a Python environment from its metadata; nothing is imported."""

import base64
import hashlib
import re
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path

from packaging.utils import canonicalize_name

from harness.doctor.host import Distribution, Torch
from harness.placeholders import NEURON_PACKAGES

__all__ = [
    "importable_modules",
    "parse_metadata",
    "python_version",
    "read_distributions",
    "read_torch",
    "site_folders",
]

_SITES = ("lib/python3*/site-packages", "lib/python3*/dist-packages", "local/lib/python3*/dist-packages")
_MODULE_FILE = re.compile(r"^([A-Za-z_]\w*)(?:\.py|(?:\.[\w-]+)?\.so)$")
_TEXT_LIMIT = 400


def site_folders(environment: Path) -> list[Path]:
    """Return the folders of an environment that hold distributions: a venv's, an image's, Debian's.

    Folders that a `.pth` file of these adds are among them: that is how an image's environment shows the
    packages of its base.
    """
    own = sorted(path for pattern in _SITES for path in environment.glob(pattern) if path.is_dir())
    added = [
        Path(line.strip())
        for site in own
        for pth in sorted(site.glob("*.pth"))
        for line in _lines(pth)
        if line.startswith("/")
    ]
    return list(dict.fromkeys([*own, *(path for path in added if path.is_dir())]))


def python_version(environment: Path) -> str | None:
    """Return the version of an environment's Python, from its files: whole in a venv, else `3.x`."""
    try:
        configuration = (environment / "pyvenv.cfg").read_text(encoding="utf-8")
    except OSError:
        configuration = ""
    found = re.search(r"^version(?:_info)?\s*=\s*(\d+\.\d+(?:\.\d+)?)", configuration, re.MULTILINE)
    if found:
        return found[1]
    for header in sorted(environment.glob("include/python3*/patchlevel.h")):
        if exact := re.search(r'PY_VERSION\s+"([\d.]+)', header.read_text(errors="replace")):
            return exact[1]
    for site in site_folders(environment):
        if minor := re.fullmatch(r"python(3\.\d+)", site.parent.name):
            return minor[1]
    return None


def read_distributions(environment: Path) -> tuple[Distribution, ...]:
    """Return every distribution of an environment, by name. RECORD is read for the Neuron packages only."""
    found = []
    for site in site_folders(environment):
        for info in site.glob("*.dist-info"):
            try:
                text = (info / "METADATA").read_text(encoding="utf-8", errors="replace")
            except OSError:
                continue
            item = parse_metadata(text)
            if item is None:
                continue
            # A distribution without RECORD (a system package) is not one without modules.
            if item.name in NEURON_PACKAGES and (info / "RECORD").is_file():
                item = replace(item, modules=importable_modules(_lines(info / "RECORD")))
            found.append(item)
    return tuple(sorted(found, key=lambda item: (item.name, item.version)))


def _lines(path: Path) -> list[str]:
    try:
        return path.read_text(encoding="utf-8", errors="replace").splitlines()
    except OSError:
        return []


def parse_metadata(text: str, modules: tuple[str, ...] | None = None) -> Distribution | None:
    """Return the distribution that a METADATA file describes, None if it has no name or no version."""
    header, _, body = text.partition("\n\n")
    name = version = summary = ""
    requires = []
    for line in header.splitlines():
        key, _, value = line.partition(": ")
        if key == "Name":
            name = canonicalize_name(value.strip())
        elif key == "Version":
            version = value.strip()
        elif key in ("Summary", "Description"):
            summary += value.strip() + "\n"
        elif key == "Requires-Dist" and not re.search(r"\bextra\s*==", value):
            requires.append(value.strip())
    if not name or not version:
        return None
    return Distribution(
        name, version, tuple(requires), modules, (summary + body.lstrip()[:_TEXT_LIMIT]).strip()
    )


def importable_modules(record: list[str]) -> tuple[str, ...]:
    """Return the top-level modules among the files of a RECORD that an `import` statement can name.

    A `.pth` file counts as one, under its own name: that is how an editable install looks.
    """
    modules = set()
    for path in _paths(record):
        first, _, rest = path.partition("/")
        if first.endswith((".dist-info", ".data")) or first in ("..", "__pycache__", ""):
            continue
        if rest and first.isidentifier() and path.endswith((".py", ".so", ".pyd")):
            modules.add(first)
        elif not rest and (first.endswith(".pth") or _MODULE_FILE.match(first)):
            modules.add(first.partition(".")[0] if not first.endswith(".pth") else first)
    return tuple(sorted(modules))


def _paths(record: list[str]) -> Iterator[str]:
    for line in record:
        # Path, hash and size; only a path with a comma is quoted.
        yield line.rsplit(",", 2)[0].strip('"')


def read_torch(environment: Path) -> Torch | None:
    """Return the installed torch as `torch/version.py` describes it, None if there is none."""
    for site in site_folders(environment):
        path = site / "torch" / "version.py"
        try:
            content = path.read_bytes()
        except OSError:
            continue
        found = re.search(rb"__version__\s*(?::[^=]*)?=\s*['\"]([^'\"]+)['\"]", content)
        if found:
            return Torch(found[1].decode(), _as_recorded(site, content))
    return None


def _as_recorded(site: Path, content: bytes) -> bool | None:
    digest = base64.urlsafe_b64encode(hashlib.sha256(content).digest()).rstrip(b"=").decode()
    recorded = []
    for record in sorted(site.glob("torch-[0-9]*.dist-info/RECORD")):
        for line in _lines(record):
            if line.startswith("torch/version.py,sha256="):
                recorded.append(line.split(",")[1].removeprefix("sha256="))
                break
    return digest in recorded if recorded else None
