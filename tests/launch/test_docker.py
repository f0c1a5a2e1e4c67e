import json
import re
from pathlib import Path

import pytest

from harness.errors import InfrastructureError, UserError
from harness.evidence import Evidence
from harness.launch.docker import Ended, close_broken_runs, run_in_container
from harness.outcome import Outcome, RunEnd
from tests.image.conftest import FakeDocker, fake_docker

__all__ = ["fake_docker"]

IMAGE = f"sha256:{'c' * 64}"
SESSION_WRITER = """
import json, pathlib, sys
runs, inside = pathlib.Path(sys.argv[1]), [word for word in sys.argv if word.startswith("/project/runs/")]
folder = runs / inside[0].rpartition("/")[2]
"""


@pytest.fixture
def project(tmp_path: Path, fake_docker: FakeDocker) -> Path:
    """A checkout with an image of the cpu stack."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "compose.yaml").write_text("services: {}\n")
    fake_docker.has_image("trn-harness:cpu", IMAGE)
    return folder


def container(project: Path, fake: FakeDocker, code: int, *, session: bool, running: bool = False) -> None:
    """Let compose's container leave what a session leaves, and end with `code`."""
    script = (fake.folder / "docker").read_text()
    leave = SESSION_WRITER.replace("sys.argv[1]", repr(str(project / "runs")))
    leave += '(folder / "session.json").write_text("{}")\n' if session else ""
    if running:
        leave += (
            'run = folder / "native" / "random-init"\nrun.mkdir(parents=True)\n'
            '(run / "outcome.json").write_text(json.dumps({"state": "running"}))\n'
        )
    body = "".join(f"    {line}\n" for line in leave.strip().splitlines())
    head, rest = script.split("folder = pathlib", 1)
    guarded = f"if sys.argv[1] == 'compose':\n{body}"
    (fake.folder / "docker").write_text(f"{head}{guarded}folder = pathlib{rest}")
    fake.answer("compose", code, "step 1  loss 6.2\nlast words\n")


def run(project: Path, *arguments: str) -> tuple[Ended, list[str]]:
    said: list[str] = []
    return run_in_container(project, "cpu", ["native", *arguments], echo=said.append), said


@pytest.mark.parametrize("code", [0, 1, 3, 130])
def test_a_session_that_ended_by_itself_gives_its_own_code(
    project: Path, fake_docker: FakeDocker, code: int
) -> None:
    container(project, fake_docker, code, session=True)
    ended, said = run(project)
    assert (ended.exit_code, ended.message) == (code, "")
    assert said == ["step 1  loss 6.2", "last words"]
    assert (ended.folder / "container.log").read_text() == "step 1  loss 6.2\nlast words\n"


@pytest.mark.parametrize("code", [137, 143])
def test_a_killed_container_is_infrastructure_and_closes_the_evidence(
    project: Path, fake_docker: FakeDocker, code: int
) -> None:
    container(project, fake_docker, code, session=False, running=True)
    ended, _ = run(project)
    assert ended.exit_code == 3
    assert f"was killed (exit {code})" in ended.message
    assert "native/random-init" in ended.message
    evidence = Evidence(ended.folder / "native" / "random-init")
    outcome = evidence.read("outcome.json")
    assert outcome is not None
    assert (outcome["state"], outcome["outcome"]) == ("ended", "infrastructure")
    assert evidence.verify() == []


def test_a_killed_container_before_any_run_says_so(project: Path, fake_docker: FakeDocker) -> None:
    container(project, fake_docker, 137, session=False)
    ended, _ = run(project)
    assert ended.exit_code == 3
    assert "no run had begun" in ended.message


@pytest.mark.parametrize("code", [0, 1, 125])
def test_what_compose_itself_says_is_no_verdict(project: Path, fake_docker: FakeDocker, code: int) -> None:
    """Compose exits 1 for a missing image too: without a session nothing was judged."""
    container(project, fake_docker, code, session=False)
    with pytest.raises(InfrastructureError, match="did not run the recipes: last words"):
        run(project)


def test_a_mistake_of_the_user_keeps_its_code(project: Path, fake_docker: FakeDocker) -> None:
    container(project, fake_docker, 2, session=False)
    assert run(project)[0].exit_code == 2


def test_the_image_is_named_by_its_digest(project: Path, fake_docker: FakeDocker) -> None:
    container(project, fake_docker, 0, session=True)
    run(project, "--run", "random-init")
    call = fake_docker.calls_of("compose")[0]
    assert call[call.index("recipes") :][:5] == ["recipes", "run", "native", "--run", "random-init"]
    folder = call[call.index("--output") + 1]
    assert re.fullmatch(r"/project/runs/[0-9]{8}-[0-9]{6}-[0-9a-f]{4}", folder)
    assert call[call.index("--junit") + 1] == f"{folder}/junit.xml"


def test_no_image_says_how_to_get_one(tmp_path: Path, fake_docker: FakeDocker) -> None:
    (tmp_path / "compose.yaml").write_text("")
    with pytest.raises(UserError, match=r"no image `trn-harness:cpu` on this machine.*harness build cpu"):
        run(tmp_path)


def test_an_interrupt_stops_the_container_and_closes_the_evidence(
    project: Path, fake_docker: FakeDocker, monkeypatch: pytest.MonkeyPatch
) -> None:
    from harness import process

    real = process.run

    def interrupted(argv: list[str], **options: object) -> process.Completed:
        if argv[1] == "compose":
            raise KeyboardInterrupt
        return real(argv, **options)  # type: ignore[arg-type]

    monkeypatch.setattr(process, "run", interrupted)
    with pytest.raises(KeyboardInterrupt):
        run(project)
    stopped = fake_docker.calls_of("stop")
    assert len(stopped) == 1
    assert stopped[0][-1].startswith("trn-harness-")


def test_only_unfinished_runs_are_closed(tmp_path: Path) -> None:
    for name, state in (("done", "ended"), ("open", "running")):
        folder = tmp_path / "native" / name
        folder.mkdir(parents=True)
        (folder / "outcome.json").write_text(json.dumps({"state": state, "outcome": "passed"}))
    (tmp_path / "native" / "seed").mkdir()
    end = RunEnd(Outcome.INFRASTRUCTURE, "gone")
    assert close_broken_runs(tmp_path, end) == ["native/open"]
    assert Evidence(tmp_path / "native" / "done").read("outcome.json") == {
        "state": "ended",
        "outcome": "passed",
    }
    assert close_broken_runs(tmp_path, end) == []
