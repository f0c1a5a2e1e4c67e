"""Runs a whole session in a container of the stack's image, through compose, and accounts for its end.

`docker compose run` by itself hands on the harness's exit code, but a container that is killed takes the
harness with it: compose then says 137, and the evidence says `running` for ever. Here that is exit code 3,
and the evidence says what happened.
"""

import contextlib
import os
import secrets
from collections.abc import Callable, Iterator, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from harness import process
from harness.errors import InfrastructureError, UserError
from harness.evidence import Evidence, new_session_folder
from harness.image import docker
from harness.image.env_file import image_reference, image_variable
from harness.image.tail import Tail
from harness.outcome import Outcome, RunEnd

__all__ = ["Ended", "close_broken_runs", "run_in_container"]

_STOP_SECONDS = 60
_OWN_CODES = (0, 1, 2, 3, 130)
"""What `harness run` itself exits with."""
_IN_CONTAINER = "/project/runs"


@dataclass(frozen=True, slots=True)
class Ended:
    """How a session in a container ended: its folder on this machine and the exit code to give on."""

    folder: Path
    exit_code: int
    message: str = ""


def run_in_container(
    root: Path,
    stack: str,
    arguments: Sequence[str],
    *,
    echo: Callable[[str], None],
    started: Callable[[str], None] = lambda _: None,
) -> Ended:
    """Run `harness run ARGUMENTS` in a container of `stack`'s image and return how it ended.

    Its output goes to `echo` line by line and into the session's folder, JUnit XML too; `started` gets the container's
    name beforehand. The exit code is the session's own, or 3 if the container did not end by itself: then
    every unfinished run's evidence is closed as broken by infrastructure. Raises `UserError` if the image is
    not there, `InfrastructureError` if no container could be started.
    """
    image = _image(root, stack)
    folder = _session_folder(root)
    name = f"trn-harness-{folder.name}-{secrets.token_hex(2)}"
    service = "recipes" if stack == "cpu" else f"recipes-{stack}"
    argv = ["docker", "compose", "--project-directory", str(root), "--file", str(root / "compose.yaml")]
    argv += ["run", "--rm", "-T", "--name", name, service]
    inside = f"{_IN_CONTAINER}/{folder.name}"
    argv += ["run", *arguments, "--stack", stack, "--output", inside, "--junit", f"{inside}/junit.xml"]
    log = folder / "container.log"
    tail = Tail(log, echo)
    started(name)
    try:
        done = process.run(argv, env={**os.environ, image_variable(stack): image}, log=log, on_tick=tail.show)
    except BaseException:
        # The compose process is gone by now, its container not necessarily.
        process.run(["docker", "stop", f"--time={_STOP_SECONDS}", name])
        close_broken_runs(folder, RunEnd(Outcome.INTERRUPTED, "stopped by the user"))
        raise
    tail.show()
    return _judge(folder, done, stack)


def _session_folder(root: Path) -> Path:
    """Make the session's folder for the user that the container will run as: the owner of `compose.yaml`."""
    folder = new_session_folder(root / "runs")
    owner = (root / "compose.yaml").stat()
    with contextlib.suppress(PermissionError):
        os.chown(folder, owner.st_uid, owner.st_gid)
    return folder


def _image(root: Path, stack: str) -> str:
    docker.require_engine()
    reference = image_reference(root, stack)
    identity = docker.image_id(reference)
    if identity is None:
        raise UserError(f"no image `{reference}` on this machine. Next: `harness build {stack}`, or pull it.")
    # A digest of a registry says more than the local id; a tag says less.
    return reference if "@sha256:" in reference else identity


def _judge(folder: Path, done: process.Completed, stack: str) -> Ended:
    whole = (folder / "session.json").is_file()
    if done.returncode in _OWN_CODES and (whole or done.returncode == 2):
        return Ended(folder, done.returncode)
    lines = done.output.strip().splitlines()
    last = lines[-1] if lines else "no output"
    if done.returncode in _OWN_CODES or done.returncode == 125:
        raise InfrastructureError(f"the container of stack {stack} did not run the recipes: {last}")
    killed = done.returncode in (137, 143)
    how = (
        f"was killed (exit {done.returncode}), from outside or for memory"
        if killed
        else f"ended with exit {done.returncode}"
    )
    reason = f"the container {how} before the run had ended"
    closed = close_broken_runs(folder, RunEnd(Outcome.INFRASTRUCTURE, reason))
    where = ", ".join(closed) or "no run had begun"
    return Ended(folder, 3, f"the container {how}; nothing can be said of: {where}. Evidence: {folder}")


def close_broken_runs(folder: Path, end: RunEnd) -> list[str]:
    """Close the evidence of every run below `folder` that is still `running` as ended by `end`; return their names."""
    closed = []
    for evidence in _running(folder):
        evidence.write("outcome.json", {"state": "ended", "schema": 1, **asdict(end), "seconds": None})
        evidence.seal()
        closed.append(evidence.folder.relative_to(folder).as_posix())
    return closed


def _running(folder: Path) -> Iterator[Evidence]:
    for path in sorted(folder.glob("*/*/outcome.json")):
        outcome: dict[str, Any] = Evidence(path.parent).read(path.name) or {}
        if outcome.get("state") == "running":
            yield Evidence(path.parent)
