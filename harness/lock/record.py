"""`lock.json`: when a lock was resolved, with what and from what. It names no host."""

import hashlib
import json
from collections.abc import Iterable
from pathlib import Path
from typing import Literal

from pydantic import Field

from harness.files import FileModel, load_model
from harness.lock.requirements import Wanted

__all__ = ["RECORD_NAME", "LockRecord", "read_record", "record_text", "requirements_digest", "text_digest"]

RECORD_NAME = "lock.json"


class LockRecord(FileModel):
    """What is known of how a lock came about."""

    layout: Literal[1] = Field(default=1, alias="schema")
    stack: str
    written: str
    """When (UTC, ISO 8601)."""
    uv: str
    """Version of the resolver."""
    python: str
    platform: str
    """What the lock was resolved for, whatever machine did it."""
    requirements_sha256: str
    """See `requirements_digest`."""
    lock_sha256: str
    sources: dict[str, str] = {}
    """Source pin -> digest of the tree whose dependency lists were resolved too."""
    default_index: int
    """How many packages came from the machine's own index."""
    other_indexes: dict[str, tuple[str, ...]] = {}
    """Index of stack.yaml -> the packages that came from there."""
    held_back: dict[str, str] = {}
    """Package -> why a newer version of its family was left out."""


def read_record(folder: Path) -> LockRecord | None:
    """Return the record beside a lock, None if there is none. Raises `UserError` if it cannot be read."""
    path = folder / RECORD_NAME
    return load_model(path, LockRecord) if path.is_file() else None


def record_text(record: LockRecord) -> str:
    """Return a record as its file's content: keys sorted, the same record always the same bytes."""
    return json.dumps(record.model_dump(mode="json", by_alias=True), indent=1, sort_keys=True) + "\n"


def requirements_digest(wanted: Iterable[Wanted]) -> str:
    """Return the SHA-256 (hex) of direct pins; comments, blank lines and order do not count."""
    return text_digest("\n".join(sorted(item.text for item in wanted)))


def text_digest(text: str) -> str:
    """Return the SHA-256 (hex) of a text in UTF-8."""
    return hashlib.sha256(text.encode()).hexdigest()
