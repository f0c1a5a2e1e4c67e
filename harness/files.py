"""The border for the files of the project: safe loading, line numbers, one message per mistake."""

import json
from collections.abc import Mapping
from pathlib import Path
from typing import Any, TypeVar

import yaml
from pydantic import BaseModel, ConfigDict, ValidationError

from harness.errors import UserError

__all__ = ["FileModel", "load_json", "load_model", "load_yaml"]

_LOADER: Any = getattr(yaml, "CSafeLoader", yaml.SafeLoader)
"""Both are safe loaders; the C one is ten times faster, where PyYAML was built with it."""

Key = tuple[str | int, ...]
Model = TypeVar("Model", bound="FileModel")


class FileModel(BaseModel):
    """Base of the models of files: frozen, and an unknown key is a mistake rather than ignored."""

    model_config = ConfigDict(frozen=True, extra="forbid")


def load_model(path: Path, model: type[Model], context: Mapping[str, Any] | None = None) -> Model:
    """Return `path` validated as `model`.

    Raises `UserError` with one line per mistake: file, line, key, what was found, what is expected.
    """
    data, lines = load_yaml(path)
    try:
        return model.model_validate(data, context=context)
    except ValidationError as error:
        messages = [_explain(path, lines, detail) for detail in error.errors()]
        raise UserError("\n".join(messages)) from None


def load_yaml(path: Path) -> tuple[Any, dict[Key, int]]:
    """Return the file's data and the line (from 1) of every key path in it.

    Raises `UserError` for a missing or unreadable file, invalid YAML and duplicate keys.
    """
    try:
        text = path.read_text(encoding="utf-8")
    except FileNotFoundError:
        raise UserError(f"{path}: no such file. Next: check the name, or list with `harness list`.") from None
    except (OSError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: cannot be read: {error}") from None
    try:
        loader = _LOADER(text)
        node = loader.get_single_node()
        if node is None:
            raise UserError(f"{path}:1: the file is empty")
        lines: dict[Key, int] = {}
        _index(path, node, (), lines)
        return loader.construct_document(node), lines
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f"{path}:{mark.line + 1}" if mark else f"{path}"
        problem = getattr(error, "problem", None) or str(error)
        raise UserError(f"{where}: not valid YAML: {problem}") from None


def _index(path: Path, node: yaml.Node, key: Key, lines: dict[Key, int]) -> None:
    lines[key] = node.start_mark.line + 1
    if isinstance(node, yaml.MappingNode):
        seen: dict[Any, int] = {}
        for name_node, value in node.value:
            name = name_node.value
            line = name_node.start_mark.line + 1
            if name in seen:
                raise UserError(
                    f"{path}:{line}: key `{name}` stands twice (first at line {seen[name]}). Next: keep one."
                )
            seen[name] = line
            _index(path, value, (*key, name), lines)
            lines[(*key, name)] = line
    elif isinstance(node, yaml.SequenceNode):
        for position, value in enumerate(node.value):
            _index(path, value, (*key, position), lines)


def _explain(path: Path, lines: Mapping[Key, int], detail: Any) -> str:
    location: Key = tuple(detail["loc"])
    line = next((lines[location[:n]] for n in range(len(location), -1, -1) if location[:n] in lines), 1)
    key = ".".join(str(part) for part in location) or "(the file)"
    if detail["type"] == "missing":
        return f"{path}:{line}: `{key}` is missing. Next: add it."
    if detail["type"] == "extra_forbidden":
        return f"{path}:{line}: `{key}` is not a known key. Next: remove it, or check its spelling."
    found = repr(detail.get("input"))
    if len(found) > 80:
        found = found[:77] + "..."
    return f"{path}:{line}: `{key}`: found {found}. {detail['msg']}."


def load_json(path: Path) -> Any:
    """Return a JSON file's value. Raises `UserError` naming the file if it is missing or not JSON."""
    try:
        return json.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError:
        raise UserError(f"{path}: no such file") from None
    except (json.JSONDecodeError, UnicodeDecodeError) as error:
        raise UserError(f"{path}: not valid JSON: {error}") from None
