"""Where the project's folders are."""

from pathlib import Path

from harness.errors import UserError

__all__ = ["find_root", "package_parent"]


def find_root(start: Path | None = None) -> Path:
    """Return the nearest folder from `start` (default: the working folder) upwards with recipes and lockfiles.

    Raises `UserError` if there is none.
    """
    here = (start or Path.cwd()).resolve()
    for folder in (here, *here.parents):
        if (folder / "recipes").is_dir() and (folder / "lockfiles").is_dir():
            return folder
    raise UserError(
        f"{here}: no `recipes` and `lockfiles` here or above. Next: change into the project's folder."
    )


def package_parent() -> Path:
    """Return the folder that must be on a stack's path for it to import `harness.stackside`."""
    return Path(__file__).resolve().parent.parent
