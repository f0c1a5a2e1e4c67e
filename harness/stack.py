"""A stack: a named pinned environment, `lockfiles/<name>/stack.yaml` and its hashed lock."""

import hashlib
from pathlib import Path
from typing import Annotated, Literal

from pydantic import Field

from harness.errors import UserError
from harness.files import FileModel, load_model

__all__ = ["HubAssets", "Profile", "Stack", "SyntheticAssets", "Unresolved", "list_stacks", "load_stack"]


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


class Unresolved(FileModel):
    """A pin that cannot be known here, and the command that resolves it where it can be."""

    what: str
    why: str
    command: str


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
    environment: dict[str, str]
    profile: Profile
    assets: Annotated[SyntheticAssets | HubAssets, Field(discriminator="kind")]
    unresolved: tuple[Unresolved, ...] = ()
    folder: Path = Field(default=Path(), exclude=True)

    @property
    def lock(self) -> Path:
        """The hashed lock file beside the stack file."""
        return self.folder / "requirements.lock"

    def lock_digest(self) -> str:
        """SHA-256 (hex) of the lock file's bytes. Raises `UserError` if there is none."""
        if not self.lock.is_file():
            raise UserError(
                f"{self.lock}: no such file: stack `{self.name}` has no lock. {self.unresolved_sentence()}"
            )
        return hashlib.sha256(self.lock.read_bytes()).hexdigest()

    def digest(self) -> str:
        """SHA-256 (hex) over the stack's content and its lock: independent of paths and key order."""
        content = hashlib.sha256(self.model_dump_json(exclude={"folder"}).encode())
        content.update(self.lock_digest().encode())
        return content.hexdigest()

    def unresolved_sentence(self) -> str:
        """One sentence per pin that is unresolved, with the command that resolves it; empty if none is."""
        return " ".join(
            f"Unresolved: {item.what} ({item.why}). Next: {item.command}." for item in self.unresolved
        )

    def require_resolved(self) -> None:
        """Raise `UserError` if any pin of the stack is unresolved."""
        if self.unresolved:
            raise UserError(f"stack `{self.name}` cannot run: {self.unresolved_sentence()}")


def list_stacks(root: Path) -> list[str]:
    """Return the names of the stacks under `root/lockfiles`, sorted."""
    return sorted(path.parent.name for path in (root / "lockfiles").glob("*/stack.yaml"))


def load_stack(root: Path, name: str) -> Stack:
    """Return the stack `name`. Raises `UserError` if it does not exist or its file is wrong."""
    path = root / "lockfiles" / name / "stack.yaml"
    if not path.is_file():
        known = ", ".join(list_stacks(root)) or "none"
        raise UserError(f"no stack `{name}` in {root / 'lockfiles'}. Next: choose one of: {known}.")
    stack = load_model(path, Stack)
    if stack.name != name:
        raise UserError(
            f"{path}: `name` is {stack.name!r}, but the folder is {name!r}. Next: make them equal."
        )
    return stack.model_copy(update={"folder": path.parent})
