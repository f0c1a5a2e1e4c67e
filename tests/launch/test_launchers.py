"""Launchers: the commands they start, and what comes back."""

import json
import os
import sys
from pathlib import Path

import pytest

from harness.errors import InfrastructureError
from harness.launch import ForkLauncher, Job, TorchrunLauncher, torchrun_command


def job(folder: Path, **changes: object) -> Job:
    values: dict[str, object] = {
        "folder": folder,
        "env": dict(os.environ),
        "log": folder / "log",
        "timeout": 30.0,
        "module": "json.tool",
        "request": {"a": 1},
    } | changes
    return Job(**values)  # type: ignore[arg-type]


def test_the_torchrun_command_names_ranks_and_entry_point() -> None:
    command = torchrun_command(Path("/stack/python"), 64)
    assert command[0] == "/stack/python"
    assert "--nproc-per-node=64" in command
    assert command[-2:] == ["-m", "harness.stackside.entry"]


def test_a_call_gets_its_request_as_a_file(tmp_path: Path) -> None:
    ended = TorchrunLauncher(Path(sys.executable)).launch(job(tmp_path))
    assert ended.returncodes == {0: 0}
    assert json.loads(ended.output) == {"a": 1}


def test_a_call_that_fails_says_so(tmp_path: Path) -> None:
    ended = TorchrunLauncher(Path(sys.executable)).launch(job(tmp_path, module="no.such.module"))
    assert ended.returncodes[0] != 0
    assert "No module named" in ended.output


FAKE_SERVER = """
import json, sys, time
print(json.dumps({"ready": True, "import_seconds": 0.5}), flush=True)
for line in sys.stdin:
    asked = json.loads(line)
    if asked["env"].get("FAKE") == "hang":
        time.sleep(60)
    if asked["env"].get("FAKE") == "die":
        print("last words", file=sys.stderr); sys.exit(3)
    codes = {str(rank): 0 for rank in range(asked.get("ranks", 1))}
    print(json.dumps({"returncodes": codes, "stopped": [], "seconds": 1.5}), flush=True)
"""


@pytest.fixture
def fork(tmp_path: Path) -> ForkLauncher:
    """A fork launcher whose `python` is a stand-in for the stack's, running a scripted server."""
    server = tmp_path / "server.py"
    server.write_text(FAKE_SERVER)
    python = tmp_path / "python"
    python.write_text(f"#!/bin/sh\nexec {sys.executable} {server}\n")
    python.chmod(0o755)
    return ForkLauncher(python, dict(os.environ), tmp_path)


def test_jobs_share_one_server(fork: ForkLauncher, tmp_path: Path) -> None:
    first = fork.launch(job(tmp_path, ranks=2))
    server = fork._server
    second = fork.launch(job(tmp_path))
    assert (first.returncodes, second.returncodes) == ({0: 0, 1: 0}, {0: 0})
    assert fork._server is server
    assert fork.import_seconds == 0.5
    fork.close()


def test_a_job_past_its_time_takes_the_server_with_it_and_the_next_gets_a_new_one(
    fork: ForkLauncher, tmp_path: Path
) -> None:
    slow = fork.launch(job(tmp_path, timeout=0.5, env={**os.environ, "FAKE": "hang"}))
    assert slow.ended == "timeout"
    assert fork.launch(job(tmp_path)).ended == "exited"
    fork.close()


def test_a_server_that_dies_is_infrastructure(fork: ForkLauncher, tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="last words"):
        fork.launch(job(tmp_path, env={**os.environ, "FAKE": "die"}))
    assert fork._server is None
