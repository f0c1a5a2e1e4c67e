"""A set of asset files whose content is known: the manifest, the verification, the making.

    <cache>/assets/<key>/             the files
    <cache>/assets/<key>/assets.json  how they came about, and path, size and SHA-256 of each

The key is made of everything the content follows from, so another maker or another revision is another
folder. A set is verified each time it is opened: nothing is trusted because it is there.
"""

import hashlib
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path, PurePosixPath
from typing import Any, Literal

from pydantic import ValidationError, field_validator

from harness.cache import make_once
from harness.errors import InfrastructureError, UserError
from harness.files import FileModel

__all__ = [
    "MANIFEST",
    "AssetFile",
    "AssetSet",
    "content_digest",
    "file_sha256",
    "open_or_make",
    "stays_inside",
]

MANIFEST = "assets.json"
_NOT_ASSETS = frozenset({MANIFEST, ".complete"})
"""Files in the folder itself that are the harness's own."""


class AssetFile(FileModel):
    """One file of an asset set. `path` is relative, with forward slashes, and stays inside."""

    path: str
    size: int
    sha256: str

    @field_validator("path")
    @classmethod
    def _inside(cls, path: str) -> str:
        if not stays_inside(path):
            raise ValueError("a path inside the folder is expected")
        return path


class _Manifest(FileModel):
    format: Literal[1]
    origin: dict[str, Any]
    files: tuple[AssetFile, ...]


class AssetSet:
    """A folder of files whose content is known; `origin` says how they came about."""

    def __init__(self, folder: Path) -> None:
        """Read the manifest of `folder`. Raises `UserError` if there is none or it is damaged."""
        self.folder = folder
        try:
            manifest = _Manifest.model_validate_json((folder / MANIFEST).read_bytes())
        except (OSError, ValidationError) as error:
            reason = " ".join(str(error).splitlines()[:3])
            raise UserError(
                f"{folder / MANIFEST}: no manifest of assets: {reason}. {self._again()}"
            ) from None
        self.files = manifest.files
        self.origin: Mapping[str, Any] = manifest.origin

    @property
    def digest(self) -> str:
        """SHA-256 (hex) of the content: paths, sizes and digests of the files, wherever they lie."""
        return content_digest([[file.path, file.size, file.sha256] for file in self.files])

    def verify(self) -> None:
        """Read every file again. Raises `UserError` naming the first that is gone, changed or not listed."""
        listed = {file.path: file for file in self.files}
        there = {path.relative_to(self.folder).as_posix() for path in _files_below(self.folder)}
        for name in sorted(listed.keys() | there):
            path = self.folder / name
            if name not in listed:
                raise UserError(
                    f"{path}: is not one of the assets, and a run could read it. Next: remove it."
                )
            if name not in there:
                raise UserError(f"{path}: is gone. {self._again()}")
            if path.is_symlink():
                raise UserError(f"{path}: is a symbolic link, assets are files of their own. {self._again()}")
            found, expected = _describe(path, name), listed[name]
            if found != expected:
                raise UserError(
                    f"{path}: was changed: SHA-256 is {found.sha256} ({found.size} bytes), recorded were "
                    f"{expected.sha256} ({expected.size} bytes). {self._again()}"
                )

    def path(self, name: str) -> Path:
        """Return the absolute path of a file of the set, or of a folder that holds some; "." is the whole.

        Raises `UserError` if nothing of the set is there.
        """
        inside = PurePosixPath(name)
        known = {PurePosixPath(file.path) for file in self.files}
        folders = {parent for path in known for parent in path.parents}
        if not stays_inside(name) or inside not in known | folders:
            top = ", ".join(sorted({path.parts[0] for path in known}))
            raise UserError(f"{self.folder}: no asset is called {name!r}; there are {top or 'none'}.")
        return (self.folder / inside).absolute()

    def _again(self) -> str:
        return f"Next: remove {self.folder}; the assets are then made or fetched again."


def open_or_make(cache: Path, origin: dict[str, Any], make: Callable[[Path], None]) -> AssetSet:
    """Return the verified set that follows from `origin`, made by `make(folder)` if it is not in `cache`.

    Raises `InfrastructureError` if nothing was made, and whatever `make` raises.
    """

    def make_with_manifest(folder: Path) -> None:
        make(folder)
        files = tuple(_describe(path, path.relative_to(folder).as_posix()) for path in _files_below(folder))
        if not files:
            raise InfrastructureError(f"nothing was made for {origin}")
        manifest = _Manifest(format=1, origin=origin, files=files)
        (folder / MANIFEST).write_text(manifest.model_dump_json(indent=1) + "\n", encoding="utf-8")
        # Made private by the temporary folder it was; a container reads it as another user.
        folder.chmod(0o755)

    folder = cache / "assets" / content_digest(origin)[:32]
    make_once(folder, make_with_manifest)
    assets = AssetSet(folder)
    assets.verify()
    return assets


def _files_below(folder: Path) -> Iterator[Path]:
    """Yield the files and links below `folder`, in order, but the harness's own."""
    for path in sorted(folder.rglob("*")):
        own = path.parent == folder and path.name in _NOT_ASSETS
        if not own and (path.is_symlink() or not path.is_dir()):
            yield path


def _describe(path: Path, name: str) -> AssetFile:
    return AssetFile(path=name, size=path.stat().st_size, sha256=file_sha256(path))


def file_sha256(path: Path) -> str:
    """Return the SHA-256 (hex) of a file's content."""
    with path.open("rb") as file:
        return hashlib.file_digest(file, "sha256").hexdigest()


def content_digest(value: Any) -> str:
    """Return the SHA-256 (hex) of a JSON value, whatever the order of its keys."""
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()


def stays_inside(name: str) -> bool:
    """Return whether `name`, joined to a folder, is in that folder."""
    path = PurePosixPath(name)
    return bool(name) and not path.is_absolute() and ".." not in path.parts and "\\" not in name
