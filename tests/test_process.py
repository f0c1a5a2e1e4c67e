"""Starting, waiting for and stopping processes."""

import os
import signal
import sys
import threading
from pathlib import Path

import pytest

from harness import process
from harness.errors import InfrastructureError

PYTHON = sys.executable


def alive(pid: int) -> bool:
    """Whether a process exists and is more than a zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0] != "Z"
    except FileNotFoundError:
        return False


def test_output_and_exit_code_come_back() -> None:
    done = process.run([PYTHON, "-c", "import sys; print('out'); print('err', file=sys.stderr); sys.exit(3)"])
    assert (done.returncode, done.ended) == (3, "exited")
    assert "out" in done.output
    assert "err" in done.output


def test_output_goes_to_the_log(tmp_path: Path) -> None:
    done = process.run([PYTHON, "-c", "print('written')"], log=tmp_path / "logs" / "a.log")
    assert (tmp_path / "logs" / "a.log").read_text() == "written\n"
    assert done.output == "written\n"


def test_a_program_that_is_not_there_is_infrastructure() -> None:
    with pytest.raises(InfrastructureError, match="cannot start `/nowhere/python`"):
        process.run(["/nowhere/python"])


def test_a_timeout_stops_the_whole_group(tmp_path: Path) -> None:
    pids = tmp_path / "pids"
    code = (
        "import os, subprocess, sys, signal\n"
        "signal.signal(signal.SIGINT, signal.SIG_IGN); signal.signal(signal.SIGTERM, signal.SIG_IGN)\n"
        "child = subprocess.Popen([sys.executable, '-c', 'import signal; signal.pause()'])\n"
        f"open({str(pids)!r}, 'w').write(f'{{os.getpid()}} {{child.pid}}')\n"
        "signal.pause()\n"
    )
    done = process.run([PYTHON, "-c", code], timeout=1.0)
    assert done.ended == "timeout"
    assert done.returncode == -signal.SIGKILL, "it ignored the polite signals"
    for pid in pids.read_text().split():
        assert not alive(int(pid))


def test_an_interrupt_stops_the_group_and_is_raised_again(tmp_path: Path) -> None:
    ready = tmp_path / "ready"
    code = f"import os, time; open({str(ready)!r}, 'w').write(str(os.getpid())); time.sleep(60)"

    def interrupt() -> None:
        if ready.exists() and ready.read_text():
            raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        process.run([PYTHON, "-c", code], on_tick=interrupt)
    assert not alive(int(ready.read_text()))


def test_ticks_come_while_it_runs() -> None:
    release = threading.Event()
    ticks = []

    def tick() -> None:
        ticks.append(1)
        if len(ticks) == 3:
            release.set()

    process.run([PYTHON, "-c", "import time; time.sleep(0.5)"], on_tick=tick)
    assert release.is_set()


ECHO = "import sys\nprint('ready', flush=True)\nfor line in sys.stdin: print('got', line.strip(), flush=True)"


def service(tmp_path: Path, code: str) -> process.Service:
    return process.Service([PYTHON, "-c", code], env=dict(os.environ), cwd=tmp_path, log=tmp_path / "log")


def test_a_service_answers_line_by_line(tmp_path: Path) -> None:
    with service(tmp_path, ECHO) as server:
        assert server.receive(timeout=30) == "ready"
        server.send("one")
        server.send("two")
        assert server.receive(timeout=30) == "got one"
        assert server.receive(timeout=30) == "got two"
        assert server.receive(timeout=0.1) is None
    assert not alive(server.process.pid)


def test_a_service_that_dies_says_its_last_words(tmp_path: Path) -> None:
    with service(tmp_path, "import sys; print('no such thing', file=sys.stderr); sys.exit(4)") as server:
        with pytest.raises(InfrastructureError, match=r"exit 4.*no such thing|ended early.*no such thing"):
            server.receive(timeout=30)
        server.process.wait()
        with pytest.raises(InfrastructureError, match="no such thing"):
            server.send("hello")
