"""The command line: help, messages, exit codes."""

import json
from pathlib import Path

import pytest
from click.testing import CliRunner, Result

from harness.cli import cli
from harness.errors import InfrastructureError, UserError
from harness.faults import FAULTS
from harness.outcome import Outcome, RunEnd
from harness.workflow import Session
from tests.fake_runs import Script, make_executor, make_project


def harness(*arguments: str) -> Result:
    return CliRunner().invoke(cli, list(arguments))


@pytest.fixture
def project(tmp_path: Path, root: Path) -> Path:
    make_project(tmp_path, root)
    return tmp_path


@pytest.fixture
def run(project: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    def start(scripts: dict[str, Script], *arguments: str) -> Result:
        executor = make_executor(project / "work", scripts)
        executor.folder.mkdir(parents=True)

        def prepare(session: Session) -> object:
            session._executor = executor  # type: ignore[assignment]
            return executor

        monkeypatch.setattr(Session, "prepare", prepare)
        return harness("-C", str(project), "run", *arguments)

    return start


@pytest.mark.parametrize("command", [[], *[[name] for name in sorted(cli.commands)]])
def test_every_command_has_help(command: list[str]) -> None:
    result = harness(*command, "--help")
    assert result.exit_code == 0
    assert "Usage:" in result.output
    assert len(result.output.splitlines()) > 3


def test_every_command_and_option_has_a_help_text() -> None:
    for name, command in cli.commands.items():
        assert command.help, name
        for parameter in command.params:
            if parameter.param_type_name == "option":
                assert getattr(parameter, "help", None), f"{name} {parameter.name}"


def test_list_shows_recipes_runs_and_checks(root: Path) -> None:
    result = harness("-C", str(root), "list")
    assert result.exit_code == 0
    for word in ("hf-backend", "native", "moe-nki", "published-weights", "checks: configuration"):
        assert word in result.output
    found = json.loads(harness("-C", str(root), "list", "--json").output)
    assert found["recipes"]["native"]["random-init"] == ["configuration", "loss", "ranks", "buffers"]


def test_faults_are_listed() -> None:
    assert set(json.loads(harness("faults", "--json").output)) == set(FAULTS)
    assert all(name in harness("faults").output for name in FAULTS)


def test_a_passing_run_is_exit_0_with_a_summary(run) -> None:  # type: ignore[no-untyped-def]
    result = run({})
    assert result.exit_code == 0, result.output
    assert "2 runs, 4 checks: 4 passed, 0 failed, 0 not judged" in result.output
    assert "Unverified on hardware" in result.output


def test_a_failing_check_is_exit_1(run) -> None:  # type: ignore[no-untyped-def]
    result = run({"second": Script(losses=(6.0, 5.9, 5.7))})
    assert result.exit_code == 1
    assert "twin.differs" in result.output


def test_a_broken_run_is_exit_3(run) -> None:  # type: ignore[no-untyped-def]
    result = run({"first": Script(RunEnd(Outcome.INFRASTRUCTURE, "no disk"), losses=())}, "--run", "first")
    assert result.exit_code == 3
    assert "no disk" in result.output
    assert "2 not judged; 1 runs broke" in result.output


def test_an_interrupted_run_is_exit_130(run) -> None:  # type: ignore[no-untyped-def]
    assert run({"first": Script(raises=KeyboardInterrupt())}).exit_code == 130


@pytest.mark.parametrize(("error", "code"), [(UserError("do this"), 2), (InfrastructureError("no disk"), 3)])
def test_the_projects_own_errors_are_one_message(run, error: Exception, code: int) -> None:  # type: ignore[no-untyped-def]
    result = run({"first": Script(raises=error)})
    assert result.exit_code == code
    assert f"harness: {error}" in result.output
    assert "Traceback" not in result.output


def test_one_run_can_be_selected(run) -> None:  # type: ignore[no-untyped-def]
    result = run({}, "--run", "first", "--json")
    assert [entry["run"] for entry in json.loads(result.stdout)["runs"]] == ["first"]


def test_json_is_all_of_stdout(run) -> None:  # type: ignore[no-untyped-def]
    summary = json.loads(run({}, "--json").stdout)
    assert summary["runs"][0]["checks"]["loss"]["verdict"] == "pass"


def test_junit_is_written(run, tmp_path: Path) -> None:  # type: ignore[no-untyped-def]
    run({}, "--junit", str(tmp_path / "junit.xml"))
    assert 'tests="6"' in (tmp_path / "junit.xml").read_text()


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["run", "absent"], "no recipe `absent`"),
        (["run", "--run", "absent"], "no run `absent`"),
        (["run", "--stack", "gpu"], "no stack `gpu`"),
        (["run", "--fault", "absent"], "no seeded fault"),
        (["run", "--launcher", "slurm"], "Invalid value"),
        (["list", "--stack", "gpu"], "no stack `gpu`"),
        (["env", "--stack", "gpu"], "no stack `gpu`"),
        (["assets", "--stack", "gpu"], "no stack `gpu`"),
        (["verify", "/nowhere"], "no manifest"),
        (["dance"], "No such command"),
    ],
)
def test_bad_input_is_exit_2_with_a_message(project: Path, arguments: list[str], words: str) -> None:
    result = harness("-C", str(project), *arguments)
    assert result.exit_code == 2
    assert words in result.output
    assert "Traceback" not in result.output


def test_outside_a_project_the_message_says_so(tmp_path: Path) -> None:
    result = harness("-C", str(tmp_path), "list")
    assert result.exit_code == 2
    assert "Next: change into the project's folder" in result.output


def test_verify_names_changed_files(run, project: Path) -> None:  # type: ignore[no-untyped-def]
    run({}, "--run", "first")
    folder = project / "work" / "evidence" / "sample" / "first"
    assert harness("verify", str(folder)).exit_code == 0
    (folder / "request.json").write_text("{}")
    result = harness("verify", str(folder))
    assert result.exit_code == 1
    assert "request.json: changed" in result.output
