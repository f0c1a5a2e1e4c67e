"""The border to checkpoint folders: safetensors headers, index and config.json as frozen values.

Only headers are read, so a folder of any size takes milliseconds. Every defect is a `Finding` in the
result; a damaged folder never raises.
"""

import os
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

from harness.checks.finding import Finding
from harness.checks.wording import counted, few, shown
from harness.safetensors_header import Tensor, parse_json
from harness.safetensors_index import (
    INDEX_NAME,
    check_index,
    check_no_index,
    check_shard_names,
    parse_weight_map,
)
from harness.safetensors_shard import (
    POINTER,
    first_difference,
    read_header,
    read_regular,
    tensor_bytes,
    tensor_sha256,
)

__all__ = [
    "CONFIG_NAME",
    "CheckpointFiles",
    "Tensor",
    "first_difference",
    "read_checkpoint",
    "read_header",
    "read_json_object",
    "tensor_bytes",
    "tensor_sha256",
]

CONFIG_NAME = "config.json"

_JSON_LIMIT = 200_000_000
"""Longest index or config.json read, in bytes; an index of 1 000 000 tensors is shorter."""


@dataclass(frozen=True, slots=True)
class CheckpointFiles:
    """What a checkpoint folder holds.

    `tensors` by name, from the headers; `files` the safetensors files, sorted; `index` the map from
    tensor to file of a sharded checkpoint; `config` the parsed config.json; `problems` every defect;
    `notes` what was seen and left alone.
    """

    folder: Path
    tensors: Mapping[str, Tensor]
    files: tuple[str, ...]
    index: Mapping[str, str] | None
    config: Mapping[str, Any] | None
    problems: tuple[Finding, ...]
    notes: tuple[str, ...] = ()

    @property
    def nbytes(self) -> int:
        """Size of all tensors in bytes, headers excluded."""
        return sum([tensor.end - tensor.start for tensor in self.tensors.values()])


def read_checkpoint(folder: Path, *, require_config: bool = True) -> CheckpointFiles:
    """Return what `folder` holds: one `model.safetensors`, or shards with an index.

    `require_config=False` accepts a folder without config.json (torchtitan's export writes none).
    Symbolic links are followed: a Hub snapshot is made of links into `../../blobs`. Subfolders are
    not read. Never raises.
    """
    folder = Path(folder)
    try:
        names = sorted(os.listdir(folder))  # noqa: PTH208 - a third of the time of Path.iterdir
    except (OSError, ValueError) as error:
        return CheckpointFiles(folder, {}, (), None, None, (_no_folder(folder, error),))
    files = tuple(name for name in names if name.endswith(".safetensors") and name[0] != ".")
    problems: list[Finding] = []
    index, total = _read_index(folder, names, problems)
    named = set(index.values()) if index else set(files)
    # Files that a complete index does not name are no part of the checkpoint.
    read = [file for file in files if file in named] if named.issubset(files) else list(files)
    tensors, located, faulty = _read_headers(folder, read, index or {}, problems)
    if not files and not index:
        problems.insert(0, _no_weights(folder, names))
    elif index:
        problems += check_index(index, located, files, faulty)
    elif INDEX_NAME not in names:
        problems += [*check_no_index(files, _index_elsewhere(folder, names)), *check_shard_names(files)]
    config = _read_config(folder, names, problems, required=require_config)
    checkpoint = CheckpointFiles(
        folder, tensors, files, index, config, tuple(problems), tuple(_notes(folder, names))
    )
    if problems or total is None or total == checkpoint.nbytes:
        return checkpoint
    return replace(checkpoint, problems=(_wrong_total(total, checkpoint.nbytes),))


def read_json_object(path: Path, kind: str) -> tuple[dict[str, Any] | None, list[Finding]]:
    """Return the JSON object in `path`, and its defects, with codes `files.<kind>-json`.

    A key that stands twice is a defect: the parser would silently keep the last. Never raises.
    """
    label, code, data = shown(path.name), f"files.{kind}-json", {"file": str(path)}
    problem = ""
    try:
        raw = read_regular(path, _JSON_LIMIT)
        if raw is None:
            return None, [Finding("files.unreadable", f"{label} is no regular file of readable size.", data)]
        if raw[:64].lstrip(b"\xef\xbb\xbf \r\n\t").startswith(POINTER):
            message = (
                f"{label} is a git-lfs pointer (text, {len(raw)} bytes), not the file. Fetch the real one."
            )
            return None, [Finding("files.lfs-pointer", message, data)]
        document, repeated = parse_json(raw.decode("utf-8"))
    except OSError as error:
        return None, [Finding("files.unreadable", f"{label} cannot be read: {error.strerror}.", data)]
    except (ValueError, RecursionError) as error:
        problem = f"is not JSON ({shown(str(error))})"
    else:
        if not isinstance(document, dict):
            problem = f"is a JSON {type(document).__name__}, not an object"
    if problem:
        return None, [Finding(code, f"{label} {problem}. Fetch or write it again.", data)]
    if repeated:
        message = f"{label} repeats {counted(len(repeated), 'key')}: {few(repeated)}. Keep one of each."
        return document, [Finding("files.duplicate-key", message, {**data, "keys": list(repeated)})]
    return document, []


def _read_config(
    folder: Path, names: Sequence[str], problems: list[Finding], *, required: bool
) -> dict[str, Any] | None:
    if CONFIG_NAME in names:
        config, found = read_json_object(folder / CONFIG_NAME, "config")
        problems += found
        return config
    if required:
        message = (
            f"no {CONFIG_NAME} in {shown(str(folder))}: nothing says which tensors to expect; put it there."
        )
        problems.append(Finding("files.config-missing", message, {"folder": str(folder)}))
    return None


def _read_index(
    folder: Path, names: Sequence[str], problems: list[Finding]
) -> tuple[dict[str, str] | None, int | float | None]:
    """Return the map from tensor to shard and the total size that the index declares, in bytes."""
    if INDEX_NAME not in names:
        return None, None
    document, found = read_json_object(folder / INDEX_NAME, "index")
    problems += found
    if document is None:
        return None, None
    weight_map, found = parse_weight_map(document, INDEX_NAME)
    problems += found
    metadata = document.get("metadata")
    total = metadata.get("total_size") if isinstance(metadata, dict) else None
    if total is not None and (isinstance(total, bool) or not isinstance(total, int | float)):
        message = f"{INDEX_NAME}: total_size is {shown(total)}, not a number of bytes; write the index again."
        problems.append(Finding("files.index-json", message, {"file": str(folder / INDEX_NAME)}))
        total = None
    return weight_map, total


def _read_headers(
    folder: Path, files: Sequence[str], index: Mapping[str, str], problems: list[Finding]
) -> tuple[dict[str, Tensor], dict[str, str], set[str]]:
    """Return all tensors, the file of each, and the files with a defective header.

    A tensor stored twice is reported here once, and counts as found where the index says.
    """
    tensors: dict[str, Tensor] = {}
    located: dict[str, str] = {}
    faulty = set()
    twice: list[tuple[str, str, str]] = []
    for file in files:
        header, found = read_header(folder / file)
        if found:
            faulty.add(file)
            problems += found
        tensors.update(header)
        if len(tensors) != len(located) + len(header):
            twice += [(name, located[name], file) for name in header if name in located]
        located.update(dict.fromkeys(header, file))
    if twice:
        located.update({name: index[name] for name, _, _ in twice if name in index})
        name, one, other = twice[0]
        message = (
            f"{counted(len(twice), 'tensor')} stored twice: {shown(name)} in {shown(one)} and {shown(other)}. "
            "Which one is loaded depends on the reader; write the checkpoint again."
        )
        problems.append(
            Finding("files.duplicate-tensor", message, {"tensors": [list(entry) for entry in twice]})
        )
    if files and not tensors and not faulty:
        message = f"{counted(len(files), 'safetensors file')} ({few(files)}) without a single tensor."
        problems.append(Finding("files.no-tensors", message, {"files": list(files)}))
    return tensors, located, faulty


def _index_elsewhere(folder: Path, names: Sequence[str]) -> list[str]:
    """Say where else an index lies: a level up, a level down, or under another name."""
    found = [f"as {shown(name)}" for name in names if name.endswith(".index.json")]
    if os.path.isfile(folder / ".." / INDEX_NAME):  # noqa: PTH113 - Path.is_file can raise
        found.append("in the parent folder")
    below = [name for name in names if os.path.isfile(folder / name / INDEX_NAME)]  # noqa: PTH113
    return found + [f"in {shown(name)}/" for name in below]


def _notes(folder: Path, names: Sequence[str]) -> list[str]:
    notes = []
    if "sharded" in names and os.path.isdir(folder / "sharded"):  # noqa: PTH112 - Path.is_dir can raise
        notes.append("subfolder sharded/ (torchtitan's shards before they are merged) was not read")
    unfinished = [name for name in names if name.endswith((".incomplete", ".part", ".tmp", ".lock"))]
    if unfinished:
        notes.append(f"unfinished downloads beside the weights: {few(unfinished)}")
    return notes


def _wrong_total(declared: int | float, found: int) -> Finding:
    message = (
        f"{INDEX_NAME} declares total_size {shown(declared)}, the shards hold {found} bytes of tensors. "
        "The index was written for other files, or with another dtype; write it again."
    )
    return Finding("files.index-total-size", message, {"declared": declared, "found": found})


def _no_folder(folder: Path, error: Exception) -> Finding:
    name, data = shown(str(folder)), {"folder": str(folder)}
    if isinstance(error, FileNotFoundError):
        return Finding("files.no-folder", f"{name}: no such folder. Check the path.", data)
    if isinstance(error, NotADirectoryError):
        return Finding("files.not-a-folder", f"{name} is a file; give the folder that holds it.", data)
    reason = getattr(error, "strerror", None) or str(error)
    return Finding("files.unreadable", f"{name} cannot be read: {reason}.", data)


def _no_weights(folder: Path, names: Sequence[str]) -> Finding:
    name, data = shown(str(folder)), {"folder": str(folder)}
    if not names:
        return Finding(
            "files.empty-folder", f"{name} is empty: no weights, no config. Nothing was exported?", data
        )
    if "sharded" in names:
        message = (
            f"{name} holds no merged weights, only sharded/: the export was interrupted before the merge."
        )
        return Finding("files.no-weights", message, data)
    message = f"{name} holds no .safetensors file, only {few(names)}. Fetch or export the weights there."
    return Finding("files.no-weights", message, data)
