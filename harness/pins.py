"""The pins of a stack file that lie outside its package lock: base image, sources, indexes, open ends."""

from collections.abc import Mapping
from typing import Annotated, Any, Literal

from packaging.utils import canonicalize_name
from pydantic import StringConstraints, field_validator

from harness.files import FileModel

__all__ = [
    "OPEN",
    "BaseImage",
    "IndexRule",
    "Purpose",
    "SourcePin",
    "Target",
    "Unresolved",
    "open_values",
    "value_at",
]

OPEN = "unresolved"
"""What stands in a stack file where a value is not known yet. Nothing is invented in its place."""

Purpose = Literal["run", "image"]
Digest = Annotated[str, StringConstraints(pattern=r"^(sha256:[0-9a-f]{64}|unresolved)$")]
Commit = Annotated[str, StringConstraints(pattern=r"^([0-9a-f]{40}|[0-9a-f]{64}|unresolved)$")]


class Target(FileModel):
    """The Python and platform a lock is resolved for, whatever machine resolves it."""

    python: Annotated[str, StringConstraints(pattern=r"^3\.\d+(\.\d+)?$")]
    platform: Literal["x86_64-unknown-linux-gnu", "aarch64-unknown-linux-gnu"]


class BaseImage(FileModel):
    """The image a stack's image is built on. The tag is for people; the digest is the pin."""

    repository: str
    tag: str
    digest: Digest
    keeps: tuple[str, ...] = ()
    """Distributions of the base that an image must carry unchanged."""

    @property
    def reference(self) -> str:
        """`repository:tag@sha256:...`; without the digest while that is unresolved."""
        tagged = f"{self.repository}:{self.tag}"
        return tagged if self.digest == OPEN else f"{tagged}@{self.digest}"


class SourcePin(FileModel):
    """A package that is installed from a git repository: one commit, one content."""

    version: str
    """The version that the installed metadata must state."""
    repository: str
    ref: str
    """Tag or branch the commit was taken from; for people, and to notice that it moved."""
    commit: Commit
    tree: Digest
    """Digest of the files at that commit, see `harness.lock.sources.tree_digest`."""
    requirements: tuple[str, ...] = ()
    """Files of the tree that list its dependencies, beside its `pyproject.toml`."""

    @property
    def resolved(self) -> bool:
        """Whether commit and content are both known."""
        return OPEN not in (self.commit, self.tree)


class IndexRule(FileModel):
    """An index of its own, and the packages that may come from there only."""

    url: str
    packages: tuple[str, ...]
    families: dict[str, str] = {}
    """Package -> the family its vendor publishes (`2.14.3.0.*`); the lock takes a full version of it."""

    @field_validator("packages", mode="after")
    @classmethod
    def _normalise(cls, names: tuple[str, ...]) -> tuple[str, ...]:
        return tuple(sorted({str(canonicalize_name(name)) for name in names}))

    @field_validator("families", mode="after")
    @classmethod
    def _families(cls, families: dict[str, str]) -> dict[str, str]:
        for name, family in families.items():
            if not family.endswith(".*"):
                raise ValueError(f"the family of {name} must end with `.*`")
        return {str(canonicalize_name(name)): family for name, family in families.items()}


class Unresolved(FileModel):
    """A pin that cannot be known here, and the command that resolves it where it can be."""

    what: str
    why: str
    command: str
    pins: tuple[str, ...] = ()
    """Keys of the open values (`base_image.digest`), or the file that is missing (`requirements.lock`).
    The entry counts only while one of them is open; without any it always counts."""
    stops: Purpose = "run"
    """`run`: nothing of the stack can be built or run; `image`: only its image cannot be built."""


def open_values(data: Any, prefix: str = "") -> list[str]:
    """Return the dotted keys whose value is `unresolved`, in file order."""
    if isinstance(data, Mapping):
        return [
            key
            for name, value in data.items()
            for key in open_values(value, f"{prefix}.{name}" if prefix else str(name))
        ]
    return [prefix] if data == OPEN else []


def value_at(data: Any, key: str) -> Any:
    """Return the value at a dotted key of nested mappings, None if there is none.

    A name with a dot in it is found too: the longest name that fits is taken.
    """
    if not key:
        return data
    if not isinstance(data, Mapping):
        return None
    for name, value in data.items():
        if key == name or key.startswith(f"{name}."):
            found = value_at(value, key[len(name) + 1 :])
            if found is not None:
                return found
    return None
