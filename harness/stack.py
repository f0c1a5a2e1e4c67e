"""A stack: a named pinned environment, `lockfiles/<name>/stack.yaml` and its hashed lock."""

import hashlib
import json
from pathlib import Path
from typing import Annotated, Literal, Self

from pydantic import Field, model_validator

from harness.errors import UserError
from harness.files import FileModel, load_model
from harness.pins import (
    OPEN,
    BaseImage,
    IndexRule,
    Purpose,
    SourcePin,
    Target,
    Unresolved,
    open_values,
    value_at,
)

__all__ = [
    "HubAssets",
    "HubModel",
    "Profile",
    "Stack",
    "SyntheticAssets",
    "Unresolved",
    "find_stack",
    "list_stacks",
    "load_stack",
    "load_stack_folder",
]

_LOCK = "requirements.lock"


class Profile(FileModel):
    """The sizes a stack runs recipes at. A recipe's own sizes are looked up by the profile's name."""

    name: str
    steps: Annotated[int, Field(ge=1)]
    seq_len: Annotated[int, Field(ge=1)]
    local_batch_size: Annotated[int, Field(ge=1)] = 1
    seed: int = 0
    compute_dtype: Literal["float32", "bfloat16"]
    seed_checkpoint: bool
    """Random initialisation comes from a checkpoint that one rank made, not from every rank's own draw."""
    reference: Literal["training", "first-step"]
    """How much of a run the plain-Transformers reference repeats."""
    weights_probe: Literal["all"] | Annotated[int, Field(ge=1)] = "all"
    """How many of the loaded tensors are compared with the file's bytes."""
    timeout_seconds: Annotated[int, Field(ge=1)]


class SyntheticAssets(FileModel):
    """Corpus, tokenizer and small checkpoints made on the spot, offline."""

    kind: Literal["synthetic"]
    models: dict[str, str]
    """Role a recipe asks for -> folder among the assets."""


class HubModel(FileModel):
    """A repository of the Hugging Face Hub at one commit."""

    repo: str
    revision: str


class HubAssets(FileModel):
    """Artefacts of the Hugging Face Hub at pinned revisions, fetched once."""

    kind: Literal["hub"]
    models: dict[str, HubModel]
    corpus: str
    """Folder with the `c4_test` data file, outside the Hub."""


class Stack(FileModel):
    """A pinned environment as its file states it."""

    name: str
    summary: str
    device: Literal["cpu", "neuron"]
    device_layer: Literal["cpu", "none"]
    """`cpu`: torchtitan is adapted to a machine without accelerator; `none`: nothing of that is imported."""
    python: str
    ranks: Annotated[int, Field(ge=1)]
    launcher: Literal["fork", "torchrun"]
    trainer: str
    """Module whose `main()` trains, started on every rank."""
    modules: dict[str, str] = Field(default_factory=dict)
    """torchtitan module -> the stack's own in its place, for the recipes' imports."""
    environment: dict[str, str]
    profile: Profile
    assets: Annotated[SyntheticAssets | HubAssets, Field(discriminator="kind")]
    locked_for: Target
    base_image: BaseImage | None = None
    sdk: str | None = None
    """The Neuron SDK release that is expected on the machine; None where there is none."""
    sources: dict[str, SourcePin] = {}
    """Distribution name -> the commit it is installed from."""
    indexes: dict[str, IndexRule] = {}
    """Name of an index -> where it is and which packages come from there only."""
    unresolved: tuple[Unresolved, ...] = ()
    folder: Path = Field(default=Path(), exclude=True)

    @model_validator(mode="after")
    def _every_open_value_is_explained(self) -> Self:
        explained = {pin for item in self.unresolved for pin in item.pins}
        for key in open_values(self.model_dump(mode="json", exclude={"unresolved"})):
            if key not in explained:
                raise ValueError(
                    f"`{key}` is {OPEN}, but no entry of `unresolved` names it in `pins` and says how to resolve it"
                )
        return self

    @property
    def lock(self) -> Path:
        """The hashed lock file beside the stack file."""
        return self.folder / _LOCK

    @property
    def requirements(self) -> Path:
        """The list of direct pins beside the stack file, from which the lock is resolved."""
        return self.folder / "requirements.in"

    def lock_digest(self) -> str:
        """SHA-256 (hex) of the lock file's bytes. Raises `UserError` if there is none."""
        if not self.lock.is_file():
            raise UserError(
                f"{self.lock}: no such file: stack `{self.name}` has no lock. {self.unresolved_sentence()}"
            )
        return hashlib.sha256(self.lock.read_bytes()).hexdigest()

    def digest(self) -> str:
        """SHA-256 (hex) over the stack's content and its lock: independent of paths and key order.

        What is unresolved is left out: it describes how to get a value, and the value itself counts.
        """
        data = self.model_dump(mode="json", exclude={"folder", "unresolved"})
        content = hashlib.sha256(json.dumps(data, sort_keys=True).encode())
        content.update(self.lock_digest().encode())
        return content.hexdigest()

    def open_pins(self, purpose: Purpose = "image") -> tuple[Unresolved, ...]:
        """Return what is still unresolved and stands in the way of `purpose`.

        Whatever stops a run stops an image too. An entry whose value has been resolved since does not count.
        """
        return tuple(
            item
            for item in self.unresolved
            if (purpose == "image" or item.stops == "run")
            and (not item.pins or any(self.is_open(pin) for pin in item.pins))
        )

    def is_open(self, pin: str) -> bool:
        """Return whether the value at a dotted key is unresolved, or the lock file is missing."""
        if pin == _LOCK:
            return not self.lock.is_file()
        return bool(value_at(self.model_dump(mode="json"), pin) == OPEN)

    def unresolved_sentence(self, purpose: Purpose = "run") -> str:
        """One sentence per pin that is unresolved, with the command that resolves it; empty if none is."""
        return " ".join(
            f"Unresolved: {item.what} ({item.why}). Next: {item.command}." for item in self.open_pins(purpose)
        )

    def require_resolved(self, purpose: Purpose = "run") -> None:
        """Raise `UserError` if any pin that `purpose` needs is unresolved."""
        if sentence := self.unresolved_sentence(purpose):
            verb = "run" if purpose == "run" else "be built as an image"
            raise UserError(f"stack `{self.name}` cannot {verb}: {sentence}")


def list_stacks(root: Path) -> list[str]:
    """Return the names of the stacks under `root/lockfiles`, sorted."""
    return sorted(path.parent.name for path in (root / "lockfiles").glob("*/stack.yaml"))


def load_stack(root: Path, name: str) -> Stack:
    """Return the stack `name`. Raises `UserError` if it does not exist or its file is wrong."""
    path = root / "lockfiles" / name / "stack.yaml"
    if not path.is_file():
        known = ", ".join(list_stacks(root)) or "none"
        raise UserError(f"no stack `{name}` in {root / 'lockfiles'}. Next: choose one of: {known}.")
    stack = load_stack_folder(path.parent)
    if stack.name != name:
        raise UserError(
            f"{path}: `name` is {stack.name!r}, but the folder is {name!r}. Next: make them equal."
        )
    return stack


def load_stack_folder(folder: Path) -> Stack:
    """Return the stack of any folder with a `stack.yaml`, whatever the folder is called. Raises `UserError`."""
    return load_model(folder / "stack.yaml", Stack).model_copy(update={"folder": folder})


def find_stack(root: Path, name_or_folder: str) -> Stack:
    """Return a stack by its name, or by a path to its folder: what has a slash in it, or holds a `stack.yaml`.

    Raises `UserError` if neither is there.
    """
    folder = Path(name_or_folder)
    by_path = "/" in name_or_folder or (folder / "stack.yaml").is_file()
    if name_or_folder in list_stacks(root) or not by_path:
        return load_stack(root, name_or_folder)
    if not (folder / "stack.yaml").is_file():
        raise UserError(f"{folder / 'stack.yaml'}: no such file. Next: give a stack's name, or its folder.")
    return load_stack_folder(folder)
