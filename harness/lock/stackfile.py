"""Writes resolved values into a stack file, one line each; comments and order stay."""

import json
import os
import re
import tempfile
from collections.abc import Mapping
from pathlib import Path

import yaml

from harness.errors import UserError
from harness.files import load_yaml
from harness.pins import value_at

__all__ = ["set_values", "write_text"]

_LINE = re.compile(r"^(?P<head>\s*[^\s#:][^:]*:\s+)(?P<value>[^\s#]+)(?P<tail>\s*(#.*)?)$")


def set_values(path: Path, values: Mapping[str, str]) -> None:
    """Set scalar values of a YAML file by dotted key; everything else stays as it is, byte for byte.

    Raises `UserError` if a key is not there, or its value does not stand on the key's own line.
    """
    if not values:
        return
    _, keys = load_yaml(path)
    lines = path.read_text(encoding="utf-8").splitlines(keepends=True)
    for key, value in values.items():
        number = next((line for parts, line in keys.items() if ".".join(map(str, parts)) == key), None)
        match = _LINE.match(lines[number - 1].rstrip("\n")) if number else None
        if number is None or match is None:
            raise UserError(
                f"{path}: `{key}` has no value on its own line. Next: write `{value}` there by hand."
            )
        lines[number - 1] = f"{match['head']}{_scalar(value)}{match['tail']}\n"
    before = path.read_text(encoding="utf-8")
    write_text(path, "".join(lines))
    data, _ = load_yaml(path)
    wrong = [key for key, value in values.items() if value_at(data, key) != value]
    if wrong:
        write_text(path, before)
        raise UserError(
            f"{path}: `{wrong[0]}` cannot be set. Next: write `{values[wrong[0]]}` there by hand."
        )


def _scalar(value: str) -> str:
    """A commit can be all digits: then YAML would read a number, unless it is quoted."""
    return value if yaml.safe_load(value) == value else json.dumps(value)


def write_text(path: Path, text: str) -> None:
    """Write a file whole or not at all; one that has this content already is not touched."""
    if path.is_file() and path.read_text(encoding="utf-8", errors="replace") == text:
        return
    handle, name = tempfile.mkstemp(prefix=f".{path.name}.", dir=path.parent)
    try:
        with os.fdopen(handle, "w", encoding="utf-8") as file:
            file.write(text)
        mode = path.stat().st_mode & 0o777 if path.exists() else 0o644
        Path(name).chmod(mode)
        Path(name).replace(path)
    except BaseException:
        Path(name).unlink(missing_ok=True)
        raise
