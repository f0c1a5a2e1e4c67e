"""What is installed: distributions with version, origin and the digest of their files, from their metadata."""

import hashlib
import importlib.metadata
import json
import re
from collections.abc import Iterable, Mapping, Sequence
from configparser import ConfigParser, Error
from dataclasses import dataclass
from pathlib import Path
from typing import Any

__all__ = ["Distribution", "Origin", "canonical", "file_sha256", "read_distributions"]

_PLACEHOLDER_TEXT = "WRONG PACKAGE"
"""Stands at the beginning of the description of every public placeholder of a Neuron package."""
_DESCRIPTION_START = 400


def canonical(name: str) -> str:
    """Return a distribution's name in its normal form (PEP 503)."""
    return re.sub(r"[-_.]+", "-", name).lower()


@dataclass(frozen=True, slots=True)
class Origin:
    """The git commit a distribution was installed from, and the repository it came from."""

    repository: str
    commit: str


@dataclass(frozen=True, slots=True)
class Distribution:
    """One installed distribution. `name` is in its normal form; `version` is the full one, with its label."""

    name: str
    version: str
    site: str
    """The folder on the module path that holds it."""
    record: str
    """SHA-256 (hex) of its RECORD file; empty without one."""
    metadata: importlib.metadata.Distribution

    def placeholder(self, known: Mapping[str, str]) -> str:
        """Say why this is a public placeholder of a Neuron package; empty if it is none.

        `known` are the Neuron packages, each with the version of its placeholder (or empty). Judged by
        metadata and files, never by an import: some placeholders install without a word.
        """
        header = self.metadata.metadata.json
        text = self.metadata.read_text("METADATA") or self.metadata.read_text("PKG-INFO") or ""
        described = (header.get("summary"), header.get("description"), text.partition("\n\n")[2])
        if any(_PLACEHOLDER_TEXT in str(part or "")[:_DESCRIPTION_START] for part in described):
            return f"its description says {_PLACEHOLDER_TEXT!r}"
        if self.name not in known:
            return ""
        if not self._modules():
            return "nothing in it can be imported"
        if self.version.partition("+")[0] == known[self.name]:
            return f"{self.version} is the version of the public index's placeholder"
        return ""

    def _modules(self) -> list[str]:
        files = [path for path in self.metadata.files or () if _importable(path.parts[0])]
        return [str(path) for path in files if path.suffix in (".py", ".so", ".pth")]

    def files_digest(self) -> str:
        """SHA-256 (hex) over path and content of every file the distribution owns, bytecode left out."""
        total = hashlib.sha256()
        for entry in sorted(self.metadata.files or (), key=str):
            if entry.suffix == ".pyc":
                continue
            path = Path(str(self.metadata.locate_file(entry)))
            content = file_sha256(path) if path.is_file() else "missing"
            total.update(f"{entry}\0{content}\n".encode())
        return total.hexdigest()

    def source_tree(self) -> Path | None:
        """Return the folder of its source tree if that is what is imported (an editable or in-place install)."""
        text = self.metadata.read_text("direct_url.json")
        direct: dict[str, Any] = json.loads(text) if text else {}
        if direct.get("dir_info", {}).get("editable"):
            return Path(str(direct["url"]).removeprefix("file://"))
        return None if text or self.record else Path(self.site)

    def origin(self) -> Origin | None:
        """Return the commit it came from: as its installer recorded it, or as its source tree's git says."""
        text = self.metadata.read_text("direct_url.json")
        direct: dict[str, Any] = json.loads(text) if text else {}
        if "vcs_info" in direct:
            return Origin(direct["url"], direct["vcs_info"]["commit_id"])
        tree = self.source_tree()
        return None if tree is None else _tree_origin(tree)

    def modules(self) -> list[Path]:
        """Return the Python files that are imported as this distribution, sorted."""
        tree = self.source_tree()
        if tree is not None:
            files = [path for path in tree.rglob("*.py") if not _hidden(path.relative_to(tree))]
        else:
            listed = (Path(str(self.metadata.locate_file(entry))) for entry in self._modules())
            files = [path for path in listed if path.suffix == ".py" and path.is_file()]
        return sorted(files)


def _hidden(path: Path) -> bool:
    return any(part.startswith(".") or part in ("build", "dist") for part in path.parts)


def _importable(part: str) -> bool:
    return part.partition(".")[0].isidentifier() and not part.endswith((".dist-info", ".data"))


def read_distributions(paths: Sequence[str]) -> dict[str, Distribution]:
    """Return what is installed below `paths`, by name; of two the one that is imported, that is the first."""
    found: dict[str, Distribution] = {}
    for site in paths:
        for metadata in importlib.metadata.distributions(path=[site]):
            name = canonical(str(metadata.metadata["Name"]))
            record = metadata.read_text("RECORD")
            digest = hashlib.sha256(record.encode()).hexdigest() if record else ""
            found.setdefault(name, Distribution(name, metadata.version, site, digest, metadata))
    return dict(sorted(found.items()))


def file_sha256(path: Path) -> str:
    """SHA-256 (hex) of a file's bytes."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def _tree_origin(inside: Path) -> Origin | None:
    """Read the commit and origin of the git tree around `inside` from its files: git may not be installed."""
    git = next((folder / ".git" for folder in (inside, *inside.parents) if (folder / ".git").is_dir()), None)
    if git is None:
        return None
    head = (git / "HEAD").read_text(encoding="utf-8").strip()
    commit = _reference(git, head.removeprefix("ref: ")) if head.startswith("ref: ") else head
    config = ConfigParser(strict=False)
    try:
        config.read(git / "config", encoding="utf-8")
    except Error:
        return None
    url = config.get('remote "origin"', "url", fallback="")
    return Origin(url, commit) if url and commit else None


def _reference(git: Path, name: str) -> str:
    if (git / name).is_file():
        return (git / name).read_text(encoding="utf-8").strip()
    packed = git / "packed-refs"
    lines: Iterable[str] = packed.read_text(encoding="utf-8").splitlines() if packed.is_file() else ()
    return next((line.split()[0] for line in lines if line.endswith(f" {name}")), "")
