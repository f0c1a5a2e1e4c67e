"""Import the stack once, then fork the processes of many runs.

Most of a short run's time is imports. The server reads one JSON job per line on stdin and answers one
JSON line when the job is done:

    {"kind": "ranks", "ranks": 2, "cwd": ..., "env": {...}, "log": ...}      torchtitan on every rank
    {"kind": "call", "module": "harness.stackside.reference", "request": {...}, "cwd", "env", "log"}

Each job runs in forked children that share nothing with later ones. A job is the same as under
torchrun, which stays the launcher a run can always be repeated with.
"""

import importlib
import json
import os
import signal
import socket
import sys
import time
import traceback
from collections.abc import Callable
from typing import Any

__all__ = ["main"]

_PRELOAD = (
    "torch",
    "torchtitan.train",
    "torchtitan.models.qwen3.config_registry",
    "transformers.models.auto.modeling_auto",
    "transformers.models.qwen3.modeling_qwen3",
    "datasets",
    "tokenizers",
)
"""Never the Transformers backend of torchtitan: it patches Transformers for the whole process."""

_PEER_GRACE_SECONDS = 5.0
"""How long the other ranks may take to fail by themselves after the first one did."""


def main() -> None:
    """Serve until stdin ends."""
    started = time.perf_counter()
    for name in _PRELOAD:
        importlib.import_module(name)
    answers = os.fdopen(os.dup(1), "w", buffering=1)
    # Whatever a library prints must not look like an answer.
    os.dup2(2, 1)
    print(json.dumps({"ready": True, "import_seconds": time.perf_counter() - started}), file=answers)
    for line in sys.stdin:
        job = json.loads(line)
        began = time.perf_counter()
        codes, stopped = _run_ranks(job) if job["kind"] == "ranks" else _run_call(job)
        answer = {"returncodes": codes, "stopped": stopped, "seconds": time.perf_counter() - began}
        print(json.dumps(answer), file=answers)


def _run_ranks(job: dict[str, Any]) -> tuple[dict[str, int], list[int]]:
    port = str(_free_port())
    world = str(job["ranks"])
    pids: dict[int, int] = {}
    for rank in range(job["ranks"]):
        env = {
            "RANK": str(rank),
            "LOCAL_RANK": str(rank),
            "WORLD_SIZE": world,
            "LOCAL_WORLD_SIZE": world,
            "MASTER_ADDR": "127.0.0.1",
            "MASTER_PORT": port,
        }
        pids[_fork({**job, "env": {**job["env"], **env}}, _enter)] = rank
    codes, stopped = _wait(pids)
    return {str(rank): code for rank, code in sorted(codes.items())}, stopped


def _enter() -> None:
    from harness.stackside import entry

    entry.main()


def _run_call(job: dict[str, Any]) -> tuple[dict[str, int], list[int]]:
    def call() -> None:
        importlib.import_module(job["module"]).run(job["request"])

    codes, stopped = _wait({_fork(job, call): 0})
    return {"0": codes[0]}, stopped


def _fork(job: dict[str, Any], body: Callable[[], None]) -> int:
    pid = os.fork()
    if pid:
        return pid
    code = 1
    try:
        signal.signal(signal.SIGINT, signal.SIG_DFL)
        descriptor = os.open(job["log"], os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o644)
        os.dup2(descriptor, 1)
        os.dup2(descriptor, 2)
        os.close(0)
        os.environ.update(job["env"])
        os.chdir(job["cwd"])
        body()
        code = 0
    except SystemExit as end:
        code = end.code if isinstance(end.code, int) else int(end.code is not None)
    except BaseException:
        traceback.print_exc()
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        # No interpreter shutdown: the parent's exit handlers are not this child's.
        os._exit(code)


def _wait(pids: dict[int, int]) -> tuple[dict[int, int], list[int]]:
    """Return exit codes by rank, and the ranks that were ended here because another had failed first."""
    codes: dict[int, int] = {}
    stopped: list[int] = []
    deadline = float("inf")
    while pids:
        pid, status = os.waitpid(-1, 0 if deadline == float("inf") else os.WNOHANG)
        if pid:
            codes[pids.pop(pid)] = os.waitstatus_to_exitcode(status)
            if any(codes.values()) and not stopped:
                deadline = min(deadline, time.monotonic() + _PEER_GRACE_SECONDS)
        elif time.monotonic() > deadline:
            for other, rank in pids.items():
                os.kill(other, signal.SIGKILL)
                stopped.append(rank)
            deadline = float("inf")
        else:
            time.sleep(0.02)
    return codes, stopped


def _free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


if __name__ == "__main__":
    main()
