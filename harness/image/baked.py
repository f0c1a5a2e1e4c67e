"""The image this process runs in, if it runs in one that `harness build` made."""

import json
import os
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from harness.errors import UserError
from harness.stack import Stack

__all__ = ["BakedImage", "baked", "observed_image"]

_HOME = Path("/opt/harness")
_DIGEST = "sha256:"


@dataclass(frozen=True, slots=True)
class BakedImage:
    """What the build recorded of a stack's environment in the image, after it had verified it."""

    stack: str
    lock_digest: str
    prefix: Path
    packages: dict[str, str]
    base: dict[str, Any]

    def require(self, stack: Stack) -> None:
        """Raise `UserError` unless the image holds `stack` as its files and the variables around it say."""
        if stack.name != self.stack:
            raise UserError(
                f"this image holds stack `{self.stack}`, not `{stack.name}`. "
                f"Next: use the image of `{stack.name}` (`harness build {stack.name}`)."
            )
        if stack.lock_digest() != self.lock_digest:
            raise UserError(
                f"{stack.lock}: its digest is {stack.lock_digest()[:12]}, the image was built from "
                f"{self.lock_digest[:12]}. Next: `harness build {stack.name}`."
            )
        agreed = {**stack.environment, "HARNESS_RANKS": str(stack.ranks)}
        for name in ("HARNESS_RANKS", "NEURON_LOGICAL_NC_CONFIG"):
            given = os.environ.get(name)
            if given is not None and given != agreed.get(name, given):
                raise UserError(
                    f"{name} is {given} in the container, stack `{stack.name}` says {agreed[name]}. "
                    "Next: make compose.yaml and stack.yaml agree."
                )


def baked(home: Path | None = None) -> BakedImage | None:
    """Return the image's record, None outside an image. `home` is where the build put it."""
    path = (home or _HOME) / "image.json"
    if not path.is_file():
        return None
    data = json.loads(path.read_text(encoding="utf-8"))
    return BakedImage(
        data["stack"], data["lock_digest"], Path(data["prefix"]), data["packages"], data["base"]
    )


def observed_image(home: Path | None = None) -> dict[str, Any] | None:
    """Return what a run's evidence says of its image, None outside one.

    `digest` is the image's own, as whoever started the container passed it on (`HARNESS_IMAGE`); a
    container cannot see it, and a tag is no digest: it is None then.
    """
    image = baked(home)
    if image is None:
        return None
    reference = os.environ.get("HARNESS_IMAGE", "")
    start = reference.find(_DIGEST)
    labels = (home or _HOME) / "labels.json"
    return {
        "reference": reference or None,
        "digest": reference[start:] if start >= 0 else None,
        "labels": json.loads(labels.read_text(encoding="utf-8")) if labels.is_file() else {},
        "base": image.base,
        "lock_digest": image.lock_digest,
    }
