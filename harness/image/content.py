"""Whether two images hold the same: compared by content, because times make every layer differ."""

import json
import tempfile
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.image import docker

__all__ = ["Comparison", "compare", "compare_manifests", "read_manifest"]

_SHOWN = 20
_SCRIPT = Path(__file__).parent / "manifest.py"


@dataclass(frozen=True, slots=True)
class Comparison:
    """What two images have in common. `differences` are lines, sorted by path; empty when all is equal."""

    entries: int
    same_digest: bool
    differences: tuple[str, ...]

    @property
    def equal(self) -> bool:
        """Whether the contents are equal, whatever the digests say."""
        return not self.differences

    def lines(self) -> list[str]:
        """Return the result in words: the verdict first, then what differs."""
        if self.equal:
            digest = "digests equal" if self.same_digest else "digests differ (times in the layers)"
            return [f"the two builds hold the same {self.entries} entries; {digest}"]
        shown = [f"  {line}" for line in self.differences[:_SHOWN]]
        more = len(self.differences) - len(shown)
        shown += [f"  and {more} more"] if more > 0 else []
        return [f"the two builds differ in {len(self.differences)} of {self.entries} entries:", *shown]


def compare(first: str, second: str) -> Comparison:
    """Compare two images of this machine by the content of every file in them.

    Raises `InfrastructureError` if one cannot be read.
    """
    with tempfile.TemporaryDirectory() as folder:
        manifests = [read_manifest(image, Path(folder) / str(n)) for n, image in enumerate((first, second))]
    return compare_manifests(*manifests, same_digest=docker.image_id(first) == docker.image_id(second))


def read_manifest(image: str, log: Path) -> dict[str, dict[str, Any]]:
    """Return path -> entry of everything in `image`. Raises `InfrastructureError`."""
    lines = docker.run_in_image(image, _SCRIPT, log).splitlines()
    return {entry["path"]: entry for entry in map(json.loads, lines)}


def compare_manifests(
    first: Mapping[str, Mapping[str, Any]], second: Mapping[str, Mapping[str, Any]], *, same_digest: bool
) -> Comparison:
    """Return the comparison of two manifests, path -> entry."""
    paths = sorted(first.keys() | second.keys())
    lines = [line for path in paths if (line := _difference(path, first.get(path), second.get(path)))]
    return Comparison(len(paths), same_digest, tuple(lines))


def _difference(path: str, one: Mapping[str, Any] | None, other: Mapping[str, Any] | None) -> str:
    if one is None or other is None:
        return f"{path}: only in the {'second' if one is None else 'first'}"
    changed = [
        f"{key} {str(one[key])[:12]} -> {str(other[key])[:12]}"
        for key in ("kind", "mode", "owner", "content")
        if one[key] != other[key]
    ]
    return f"{path}: {', '.join(changed)}" if changed else ""
