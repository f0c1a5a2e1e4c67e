"""Ctrl-C: every child stops, the evidence says so, the exit code is 130."""

import json
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.conftest import ROOT

pytestmark = pytest.mark.recipes


def children(session_of: int) -> list[int]:
    """The live processes that descend from a process, by /proc."""
    parents: dict[int, int] = {}
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                fields = (entry / "stat").read_text().rpartition(")")[2].split()
            except (FileNotFoundError, ProcessLookupError):
                continue
            if fields[0] != "Z":
                parents[int(entry.name)] = int(fields[1])
    found, fresh = set(), {session_of}
    while fresh:
        fresh = {pid for pid, parent in parents.items() if parent in fresh} - found
        found |= fresh
    return sorted(found)


def wait_for(condition, seconds: float) -> bool:  # type: ignore[no-untyped-def]
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        if condition():
            return True
        time.sleep(0.05)
    return False


def foreground() -> None:
    signal.signal(signal.SIGINT, signal.default_int_handler)


@pytest.mark.parametrize("signum", [signal.SIGINT, signal.SIGTERM])
@pytest.mark.parametrize("launcher", ["fork", "torchrun"])
def test_an_interrupt_leaves_readable_evidence_and_no_children(
    tmp_path: Path, signum: int, launcher: str
) -> None:
    output = tmp_path / "evidence"
    argv = [str(Path(sys.executable).with_name("harness")), "-C", str(ROOT), "run", "native"]
    argv += ["--run", "published-weights", "--output", str(output), "--launcher", launcher, "--json"]
    # A foreground program: what starts the tests may have been put into the background, where Ctrl-C is ignored.
    options = {"stdout": subprocess.PIPE, "stderr": subprocess.PIPE, "text": True}
    with subprocess.Popen(argv, preexec_fn=foreground, **options) as process:  # type: ignore[call-overload]
        folder = output / "native" / "published-weights"
        metrics = folder / "observed" / "metrics.jsonl"
        assert wait_for(lambda: metrics.exists() and metrics.read_text(), 120), "the run did not start"
        started = children(process.pid)
        assert len(started) >= 3, "a server or launcher and two ranks"
        os.kill(process.pid, signum)
        stdout, stderr = process.communicate(timeout=30)
    assert process.returncode == 130, stderr
    assert wait_for(lambda: not any(Path(f"/proc/{pid}").exists() for pid in started), 5), "a child is left"
    outcome = json.loads((folder / "outcome.json").read_text())
    assert (outcome["state"], outcome["outcome"]) == ("ended", "interrupted")
    assert json.loads(stdout)["runs"][0]["outcome"] == "interrupted"
    assert json.loads((folder / "request.json").read_text())["run"] == "published-weights"
    assert "Traceback" not in stderr
