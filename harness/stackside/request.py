"""What a run was asked: `request.json`, written by the controller, read on every rank."""

import importlib
import json
import os
from dataclasses import dataclass, field
from pathlib import Path
from types import ModuleType
from typing import Any

from harness.stackside.records import write_record

__all__ = ["ENVIRONMENT_VARIABLE", "Request", "current", "stack_module", "write_observed"]

ENVIRONMENT_VARIABLE = "HARNESS_REQUEST"
"""Path of the request file of the run this process belongs to."""


@dataclass(frozen=True, slots=True)
class Request:
    """A training run as it was asked. Paths are absolute; see docs/adding-a-recipe.md for the fields."""

    recipe: str
    run: str
    stack: str
    folder: str
    recipe_folder: str
    config: str
    ranks: int
    steps: int
    seq_len: int
    local_batch_size: int
    seed: int
    compute_dtype: str
    device_layer: str
    trainer: str
    model: str
    corpus: str
    initial: str
    """`random` (every rank draws), `seed-checkpoint` (`initial_load_path`), `make-seed` or `published`."""
    initial_load_path: str | None
    export: bool
    overrides: list[str]
    sizes: dict[str, Any]
    configuration: dict[str, Any]
    weights_probe: str | int = "all"
    salt: int = 0
    modules: dict[str, str] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)

    @property
    def observed(self) -> Path:
        """Folder for what is recorded."""
        return Path(self.folder) / "observed"

    @property
    def dump(self) -> Path:
        """torchtitan's dump folder."""
        return Path(self.folder) / "dump"

    def hf_config(self) -> dict[str, Any]:
        """Return the model's Hugging Face configuration."""
        config: dict[str, Any] = json.loads((Path(self.model) / "config.json").read_text(encoding="utf-8"))
        return config


_current: Request | None = None


def current() -> Request:
    """Return this process's request. Raises `RuntimeError` when started without the harness."""
    global _current
    if _current is None:
        path = os.environ.get(ENVIRONMENT_VARIABLE)
        if path is None:
            raise RuntimeError(
                f"{ENVIRONMENT_VARIABLE} is not set: recipes read their sizes and assets from the request file of a "
                "run. Next: start the run with `harness run`, or set it to the request.json of an earlier run."
            )
        _current = Request(**json.loads(Path(path).read_text(encoding="utf-8")))
    return _current


def stack_module(name: str) -> ModuleType:
    """Return a torchtitan module, or the one that the stack names in its place.

    Raises `ModuleNotFoundError` naming the module that is not there, and in whose place it was asked for.
    """
    chosen = current().modules.get(name, name)
    try:
        return importlib.import_module(chosen)
    except ModuleNotFoundError as error:
        instead = f" (the stack names it in the place of {name})" if chosen != name else ""
        raise ModuleNotFoundError(f"{error}{instead}", name=error.name) from error


def write_observed(name: str, value: Any) -> None:
    """Write `observed/<name>` as JSON, whole or not at all."""
    write_record(current().observed / name, value, allow_nan=True)
