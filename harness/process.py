"""The only module that starts processes.

A process always leads a group of its own, so that stopping it stops everything it started. Stopping
climbs a ladder: interrupt, terminate, kill, with a pause for the group to end at each rung.
"""

import contextlib
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from types import TracebackType
from typing import IO, Literal, Self

from harness.errors import InfrastructureError

__all__ = ["Completed", "Service", "run"]

GRACE_SECONDS = 3.0
"""How long a group may take to end at each rung of the ladder."""
_TICK_SECONDS = 0.05

Ended = Literal["exited", "timeout"]


@dataclass(frozen=True, slots=True)
class Completed:
    """How a process ended. `returncode` is negative for a signal, as in `subprocess`."""

    argv: tuple[str, ...]
    returncode: int
    ended: Ended
    seconds: float
    output: str


def run(
    argv: Sequence[str],
    *,
    env: Mapping[str, str] | None = None,
    cwd: Path | None = None,
    log: Path | None = None,
    timeout: float | None = None,
    on_tick: Callable[[], None] | None = None,
) -> Completed:
    """Run `argv` to its end and return how it ended, with stdout and stderr together.

    The output goes to `log` as it comes when one is given (and is read back from there). `on_tick` is
    called about twenty times a second. A keyboard interrupt stops the group and is raised again.
    Raises `InfrastructureError` if the program cannot be started.
    """
    started = time.monotonic()
    with contextlib.ExitStack() as stack:
        sink: IO[bytes] | int = subprocess.PIPE
        if log is not None:
            log.parent.mkdir(parents=True, exist_ok=True)
            sink = stack.enter_context(log.open("wb"))
        process = _start(
            argv, env=env, cwd=cwd, stdin=subprocess.DEVNULL, stdout=sink, stderr=subprocess.STDOUT
        )
        with process:
            ended, output = _wait(process, started, timeout, on_tick)
    if log is not None:
        output = log.read_bytes()
    text = output.decode("utf-8", errors="replace")
    return Completed(tuple(argv), process.returncode, ended, time.monotonic() - started, text)


def _wait(
    process: subprocess.Popen[bytes],
    started: float,
    timeout: float | None,
    on_tick: Callable[[], None] | None,
) -> tuple[Ended, bytes]:
    try:
        while True:
            try:
                output, _ = process.communicate(timeout=_TICK_SECONDS)
                return "exited", output or b""
            except subprocess.TimeoutExpired:
                if timeout is not None and time.monotonic() - started > timeout:
                    stop_group(process)
                    return "timeout", process.communicate()[0] or b""
                if on_tick is not None:
                    on_tick()
    except BaseException:
        stop_group(process)
        raise


def _start(argv: Sequence[str], **options: object) -> subprocess.Popen[bytes]:
    try:
        return subprocess.Popen(list(argv), start_new_session=True, **options)  # type: ignore[call-overload,no-any-return]
    except OSError as error:
        raise InfrastructureError(f"cannot start `{argv[0]}`: {error.strerror or error}") from error


def stop_group(process: subprocess.Popen[bytes], grace: float = GRACE_SECONDS) -> None:
    """Stop the process and its whole group, politely first. Returns when the group is gone."""
    for signum in (signal.SIGINT, signal.SIGTERM, signal.SIGKILL):
        if not _signal_group(process.pid, signum):
            break
        deadline = time.monotonic() + grace
        while time.monotonic() < deadline:
            process.poll()
            if not _signal_group(process.pid, 0):
                return
            time.sleep(_TICK_SECONDS)
    with contextlib.suppress(subprocess.TimeoutExpired):
        process.wait(timeout=grace)


def _signal_group(group: int, signum: int) -> bool:
    """Send `signum` to a group; return whether the group still has a live member."""
    try:
        os.killpg(group, signum)
    except ProcessLookupError:
        return False
    except PermissionError:
        return False
    return True


class Service:
    """A long-lived process that answers lines on its stdout to lines on its stdin."""

    def __init__(self, argv: Sequence[str], *, env: Mapping[str, str], cwd: Path, log: Path) -> None:
        """Start it; stderr goes to `log`. Raises `InfrastructureError` if it cannot be started."""
        log.parent.mkdir(parents=True, exist_ok=True)
        self.program, self.log = argv[0], log
        with log.open("ab") as sink:
            self.process = _start(
                argv, env=env, cwd=cwd, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=sink, bufsize=0
            )
        self._pending = b""

    def send(self, line: str) -> None:
        """Send one line. Raises `InfrastructureError` if the process is gone."""
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(line.encode() + b"\n")
        except (BrokenPipeError, ValueError) as error:
            raise InfrastructureError(self._gone()) from error

    def receive(self, *, timeout: float, on_tick: Callable[[], None] | None = None) -> str | None:
        """Return the next line, or None when `timeout` seconds pass without one.

        Raises `InfrastructureError` if the process ends first.
        """
        assert self.process.stdout is not None
        descriptor = self.process.stdout.fileno()
        os.set_blocking(descriptor, False)
        deadline = time.monotonic() + timeout
        while b"\n" not in self._pending:
            chunk = self._read(descriptor)
            if chunk is None:
                if time.monotonic() > deadline:
                    return None
                if on_tick is not None:
                    on_tick()
                select.select([descriptor], [], [], _TICK_SECONDS)
            elif chunk == b"":
                raise InfrastructureError(self._gone())
            else:
                self._pending += chunk
        line, _, self._pending = self._pending.partition(b"\n")
        return line.decode()

    @staticmethod
    def _read(descriptor: int) -> bytes | None:
        try:
            return os.read(descriptor, 65536)
        except BlockingIOError:
            return None

    def _gone(self) -> str:
        code = self.process.poll()
        tail = self.log.read_text(errors="replace").strip().splitlines()[-5:]
        return f"`{self.program}` ended early (exit {code}); last words in {self.log}: {' | '.join(tail)}"

    def stop(self) -> None:
        """Stop the process and everything it started."""
        if self.process.stdin is not None:
            with contextlib.suppress(OSError):
                self.process.stdin.close()
        stop_group(self.process)
        if self.process.stdout is not None:
            self.process.stdout.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()
