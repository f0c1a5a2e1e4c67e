"""Import the stack once, fork the ranks of several runs: the same runs in a third of the time."""

import json
import time
from collections.abc import Callable, Mapping
from pathlib import Path

from harness import process
from harness.errors import InfrastructureError
from harness.launch.job import Ended, Job

__all__ = ["ForkLauncher"]

_START_SECONDS = 300.0
"""How long the imports may take; measured at 5 to 35 s on two busy cores."""


class ForkLauncher:
    """Keeps one fork server per launcher. A job that has to be stopped takes the server with it."""

    def __init__(self, python: Path, env: Mapping[str, str], folder: Path) -> None:
        """Use the stack's `python`; the server starts with the first job and logs into `folder`."""
        self.python, self.env, self.folder = python, env, folder
        self.import_seconds: float | None = None
        self._server: process.Service | None = None

    def launch(self, job: Job, on_tick: Callable[[], None] | None = None) -> Ended:
        """Run `job` in forked children of the server."""
        started = time.monotonic()
        try:
            server = self._running(on_tick)
            server.send(json.dumps(_line(job)))
            line = server.receive(timeout=job.timeout, on_tick=on_tick)
        except BaseException:
            self.close()
            raise
        seconds = time.monotonic() - started
        if line is None:
            self.close()
            return Ended({}, "timeout", seconds, _text(job.log))
        answer = json.loads(line)
        codes = {int(rank): code for rank, code in answer["returncodes"].items()}
        return Ended(codes, "exited", answer["seconds"], _text(job.log), tuple(answer["stopped"]))

    def _running(self, on_tick: Callable[[], None] | None) -> process.Service:
        if self._server is None:
            argv = [str(self.python), "-m", "harness.stackside.forkserver"]
            self._server = process.Service(
                argv, env=self.env, cwd=self.folder, log=self.folder / "forkserver.log"
            )
            line = self._server.receive(timeout=_START_SECONDS, on_tick=on_tick)
            if line is None:
                raise InfrastructureError(f"the stack's imports took more than {_START_SECONDS:.0f} s")
            self.import_seconds = json.loads(line)["import_seconds"]
        return self._server

    def close(self) -> None:
        """Stop the server and whatever it forked."""
        if self._server is not None:
            self._server.stop()
            self._server = None


def _line(job: Job) -> dict[str, object]:
    common = {"cwd": str(job.folder), "env": dict(job.env), "log": str(job.log)}
    if job.ranks:
        return {"kind": "ranks", "ranks": job.ranks, **common}
    return {"kind": "call", "module": job.module, "request": dict(job.request), **common}


def _text(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace") if path.exists() else ""
