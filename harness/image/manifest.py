"""The content of an image as one JSON line per file: path, mode, owner, kind, SHA-256 of the bytes.

Run in a container of the image. Left out is what differs between two builds without meaning anything:
times (no column for them), bytecode, logs, package managers' and the dynamic linker's caches.
"""

import hashlib
import json
import os
import stat
import sys
from collections.abc import Iterator
from pathlib import Path

__all__ = ["LEFT_OUT", "entries"]

LEFT_OUT = ("dev", "proc", "run", "sys", "tmp", "var/cache", "var/log", "script.py")
"""Folders (and the container's own files) that are no content of an image, relative to its root."""
_OF_THE_CONTAINER = ("etc/hosts", "etc/hostname", "etc/resolv.conf", ".dockerenv")


def entries(root: Path) -> Iterator[dict[str, object]]:
    """Yield the entries of everything below `root`, sorted by path."""
    for folder, folders, files in os.walk(root):
        inside = os.path.relpath(folder, root)
        prefix = "" if inside == "." else f"{inside}/"
        folders[:] = sorted(
            name for name in folders if prefix + name not in LEFT_OUT and name != "__pycache__"
        )
        for name in sorted(folders + files):
            path = prefix + name
            if path in LEFT_OUT or path in _OF_THE_CONTAINER or name.endswith(".pyc"):
                continue
            yield _entry(root / path, path)


def _entry(full: Path, path: str) -> dict[str, object]:
    status = full.lstat()
    entry: dict[str, object] = {
        "path": path,
        "mode": oct(stat.S_IMODE(status.st_mode)),
        "owner": f"{status.st_uid}:{status.st_gid}",
    }
    if full.is_symlink():
        return {**entry, "kind": "link", "content": str(full.readlink())}
    if full.is_dir():
        return {**entry, "kind": "folder", "content": ""}
    with full.open("rb") as file:
        return {**entry, "kind": "file", "content": hashlib.file_digest(file, "sha256").hexdigest()}


if __name__ == "__main__":
    for item in entries(Path("/")):
        sys.stdout.write(json.dumps(item) + "\n")
