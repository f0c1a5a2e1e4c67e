"""Evidence: what a run leaves. The only module of the controller that writes it.

A run's folder:

    request.json       what was asked
    environment.json   what was there: packages, Python, variables with secrets redacted
    outcome.json       how it ended; `state` is `running` until it did
    checks.json        the verdicts
    manifest.json      SHA-256 of every file of the evidence (torchtitan's own dump left out)
    logs/              what the processes printed
    observed/          what was recorded inside the stack, as data
    dump/              torchtitan's dump folder, with the export
"""

import hashlib
import json
import os
import re
import secrets
import tempfile
import time
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import UserError

__all__ = ["Evidence", "new_session_folder", "redact", "write_json"]

SCHEMA = 1
"""Version of the layout and of the JSON files."""

_SECRET_NAME = re.compile(
    r"(TOKEN|SECRET|PASSWORD|PASSWD|CREDENTIAL|API_?KEY|ACCESS_?KEY|PRIVATE_?KEY|AUTH|COOKIE)", re.IGNORECASE
)
_SECRET_VALUE = re.compile(
    r"hf_[A-Za-z0-9]{16,}|gh[pousr]_[A-Za-z0-9]{16,}|AKIA[0-9A-Z]{16}|(?<=://)[^/@\s:]+:[^/@\s]+(?=@)"
)
_NOT_SECRET = {"TOKENIZERS_PARALLELISM"}
REDACTED = "[redacted]"


def new_session_folder(runs: Path) -> Path:
    """Make and return a fresh folder `runs/<UTC time>-<4 random hex digits>`; never one that exists."""
    while True:
        folder = runs / f"{time.strftime('%Y%m%d-%H%M%S', time.gmtime())}-{secrets.token_hex(2)}"
        try:
            folder.mkdir(parents=True)
        except FileExistsError:
            continue
        return folder


def write_json(path: Path, value: Any) -> None:
    """Write `value` as JSON so that a reader sees the old file or the whole new one, never half of it."""
    path.parent.mkdir(parents=True, exist_ok=True)
    descriptor, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(descriptor, "w", encoding="utf-8") as file:
            json.dump(value, file, indent=1, sort_keys=True, allow_nan=True)
            file.write("\n")
            file.flush()
            os.fsync(file.fileno())
        Path(name).chmod(0o644)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise


def redact(variables: Mapping[str, str]) -> dict[str, str]:
    """Return environment variables with secrets replaced, by name and by the shape of the value."""
    clean: dict[str, str] = {}
    for name, value in sorted(variables.items()):
        if _SECRET_NAME.search(name) and name not in _NOT_SECRET:
            clean[name] = REDACTED
        else:
            clean[name] = _SECRET_VALUE.sub(REDACTED, value)
    return clean


@dataclass(frozen=True, slots=True)
class Evidence:
    """One run's evidence. Reading never raises for a file that is missing or half a line long."""

    folder: Path

    @property
    def observed(self) -> Path:
        """Folder of what was recorded inside the stack."""
        return self.folder / "observed"

    @property
    def logs(self) -> Path:
        """Folder of the processes' output."""
        return self.folder / "logs"

    @property
    def dump(self) -> Path:
        """torchtitan's dump folder."""
        return self.folder / "dump"

    def write(self, name: str, value: Any) -> None:
        """Write a JSON file of the evidence atomically."""
        write_json(self.folder / name, value)

    def read(self, name: str) -> Any | None:
        """Return a JSON file of the evidence, None if it is not there or not whole."""
        try:
            return json.loads((self.folder / name).read_text(encoding="utf-8"))
        except (FileNotFoundError, NotADirectoryError, json.JSONDecodeError, UnicodeDecodeError):
            return None

    def metrics(self) -> list[dict[str, Any]]:
        """Return the rows of metrics.jsonl in the order written; an unfinished last line is left out."""
        return list(_rows(self.observed / "metrics.jsonl"))

    def per_rank(self, stem: str) -> dict[int, Any]:
        """Return `observed/<stem>-rank<r>.json` by rank."""
        found: dict[int, Any] = {}
        for path in self.observed.glob(f"{stem}-rank*.json"):
            value = self.read(f"observed/{path.name}")
            if value is not None:
                found[int(path.stem.rpartition("rank")[2])] = value
        return dict(sorted(found.items()))

    def export(self) -> Path | None:
        """Return the folder of the last exported checkpoint, None if there is none."""
        steps = [path for path in (self.dump / "checkpoint").glob("step-*") if path.name[5:].isdigit()]
        return max(steps, key=lambda path: int(path.name[5:]), default=None)

    def seal(self) -> None:
        """Write manifest.json: SHA-256 and size of every file but the manifest and torchtitan's dump."""
        files = {path.relative_to(self.folder).as_posix(): _file_entry(path) for path in self._sealed_files()}
        self.write("manifest.json", {"schema": SCHEMA, "files": files})

    def verify(self) -> list[str]:
        """Return what no longer is as it was sealed; empty when all is. Raises `UserError` without a manifest."""
        manifest = self.read("manifest.json")
        if manifest is None:
            raise UserError(
                f"{self.folder}: no manifest.json: the run did not end, or this is no evidence folder."
            )
        sealed: dict[str, Any] = manifest["files"]
        present = {path.relative_to(self.folder).as_posix(): path for path in self._sealed_files()}
        wrong = [f"{name}: missing" for name in sealed.keys() - present.keys()]
        wrong += [f"{name}: added" for name in present.keys() - sealed.keys()]
        wrong += [
            f"{name}: changed"
            for name in sealed.keys() & present.keys()
            if _file_entry(present[name]) != sealed[name]
        ]
        return sorted(wrong)

    def _sealed_files(self) -> Iterator[Path]:
        for path in sorted(self.folder.rglob("*")):
            inside = path.relative_to(self.folder)
            if path.is_file() and inside.parts[0] != "dump" and inside.as_posix() != "manifest.json":
                yield path


def _file_entry(path: Path) -> dict[str, Any]:
    return {"sha256": hashlib.sha256(path.read_bytes()).hexdigest(), "bytes": path.stat().st_size}


def _rows(path: Path) -> Iterator[dict[str, Any]]:
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        return
    for line in text.splitlines():
        try:
            yield json.loads(line)
        except json.JSONDecodeError:
            return
