"""The Docker command line, as far as it is needed here: a few questions, each with a clear answer."""

import json
from pathlib import Path
from typing import Any

from harness import process
from harness.errors import InfrastructureError

__all__ = ["container_state", "image_id", "require_engine", "run_in_image"]

_QUESTION_SECONDS = 60.0
_CONTENT_SECONDS = 900.0


def require_engine() -> None:
    """Raise `InfrastructureError` unless an engine answers and the `buildx` plugin is there."""
    done = process.run(["docker", "version", "--format", "{{.Server.Version}}"], timeout=_QUESTION_SECONDS)
    if done.returncode != 0:
        raise InfrastructureError(
            f"no Docker engine answers: {_last(done.output)}. "
            "Next: start one, or a private one: scripts/docker-engine.sh start."
        )
    done = process.run(["docker", "buildx", "version"], timeout=_QUESTION_SECONDS)
    if done.returncode != 0:
        raise InfrastructureError(
            "`docker buildx` is missing: BuildKit keeps secrets out of layers. Next: install docker's buildx plugin."
        )


def image_id(reference: str) -> str | None:
    """Return the id (`sha256:...`) of an image of this machine, None if there is none of that name."""
    image = _inspect("image", reference)
    return None if image is None else str(image["Id"])


def container_state(name: str) -> dict[str, Any] | None:
    """Return a container's state (`Running`, `ExitCode`, `OOMKilled`, ...), None if it is gone."""
    container = _inspect("container", name)
    return None if container is None else dict(container["State"])


def _inspect(kind: str, name: str) -> dict[str, Any] | None:
    done = process.run(["docker", kind, "inspect", name], timeout=_QUESTION_SECONDS)
    if done.returncode != 0:
        if "no such" in done.output.lower():
            return None
        raise InfrastructureError(f"docker {kind} inspect {name}: {_last(done.output)}")
    found: dict[str, Any] = json.loads(done.output)[0]
    return found


def run_in_image(image: str, script: Path, log: Path) -> str:
    """Run a stand-alone Python script as root in a throw-away container of `image`; return its output.

    No network, nothing writable. Raises `InfrastructureError` if it fails.
    """
    argv = ["docker", "run", "--rm", "--network=none", "--read-only", "--user=0:0"]
    argv += [
        f"--volume={script}:/script.py:ro",
        "--entrypoint=/opt/stack/bin/python",
        image,
        "-B",
        "/script.py",
    ]
    done = process.run(argv, log=log, timeout=_CONTENT_SECONDS)
    if done.returncode != 0:
        raise InfrastructureError(f"{script.name} failed in {image}: {_last(done.output)}")
    return done.output


def _last(output: str) -> str:
    lines = output.strip().splitlines()
    return lines[-1] if lines else "no output"
