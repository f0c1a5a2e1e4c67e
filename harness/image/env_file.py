"""The project's `.env`: where compose reads which image to use."""

import os
from pathlib import Path

__all__ = ["image_reference", "image_variable", "remember_image"]


def image_variable(stack: str) -> str:
    """Return the name of the variable of `compose.yaml` that holds the image of `stack`."""
    return f"HARNESS_{stack.upper().replace('-', '_')}_IMAGE"


def image_reference(root: Path, stack: str) -> str:
    """Return the image that compose would take for `stack`: the environment's, `.env`'s, or the local tag."""
    variable = image_variable(stack)
    remembered = [line.partition("=")[2] for line in _lines(root) if line.startswith(f"{variable}=")]
    return os.environ.get(variable) or next(iter(remembered), "") or f"trn-harness:{stack}"


def remember_image(root: Path, stack: str, identity: str) -> None:
    """Set the variable of `stack` in `root/.env` to an image's id; other lines stay as they are."""
    variable = image_variable(stack)
    kept = [line for line in _lines(root) if not line.startswith(f"{variable}=")]
    (root / ".env").write_text("\n".join([*kept, f"{variable}={identity}"]) + "\n", encoding="utf-8")


def _lines(root: Path) -> list[str]:
    path = root / ".env"
    return path.read_text(encoding="utf-8").splitlines() if path.is_file() else []
