"""Recipes as pytest items."""

from pathlib import Path

import pytest

from harness.outcome import Outcome, RunEnd
from harness.workflow import Session
from tests.fake_runs import Script, make_executor, make_project


@pytest.fixture
def run(pytester: pytest.Pytester, root: Path, monkeypatch: pytest.MonkeyPatch):  # type: ignore[no-untyped-def]
    make_project(pytester.path, root)

    def start(scripts: dict[str, Script], *arguments: str) -> pytest.RunResult:
        executor = make_executor(pytester.path / "work", scripts)
        executor.folder.mkdir(parents=True)

        def prepare(session: Session) -> object:
            session._executor = executor  # type: ignore[assignment]
            return executor

        monkeypatch.setattr(Session, "prepare", prepare)
        return pytester.runpytest_inprocess("recipes", "--stack", "cpu", "-v", *arguments)

    return start


def test_a_run_and_its_checks_are_items(run) -> None:  # type: ignore[no-untyped-def]
    result = run({})
    result.assert_outcomes(passed=6)
    result.stdout.fnmatch_lines(
        ["*recipes/sample/recipe.yaml::first::run PASSED*", "*recipe.yaml::second::twin PASSED*"]
    )


def test_selection_by_name_runs_what_is_needed(run) -> None:  # type: ignore[no-untyped-def]
    run({}, "-k", "twin").assert_outcomes(passed=1, deselected=5)


def test_a_failed_check_fails_with_its_finding(run) -> None:  # type: ignore[no-untyped-def]
    result = run({"second": Script(losses=(6.0, 5.9, 5.7))})
    result.assert_outcomes(passed=5, failed=1)
    result.stdout.fnmatch_lines(["*twin.differs: 1 of 3 steps differ from `first`*"])
    result.stdout.no_fnmatch_line("*Traceback*")


def test_checks_of_a_broken_run_are_errors_not_passes_or_skips(run) -> None:  # type: ignore[no-untyped-def]
    result = run({"first": Script(RunEnd(Outcome.TIMEOUT, "ran past its limit"), losses=())})
    # The run and its two checks; the twin has nothing to compare with and fails.
    result.assert_outcomes(errors=3, passed=2, failed=1)
    result.stdout.fnmatch_lines(["*not judged: the run broke (timeout): ran past its limit*"])


def test_junit_tells_error_from_failure(run, pytester: pytest.Pytester) -> None:  # type: ignore[no-untyped-def]
    run(
        {"first": Script(RunEnd(Outcome.FAILED, "rank 1 failed first"), losses=(6.0,))},
        "--junit-xml=junit.xml",
    )
    text = (pytester.path / "junit.xml").read_text()
    assert 'errors="0"' in text
    assert "rank 1 failed first" in text


def test_a_wrong_recipe_file_is_a_collection_error_without_traceback(run, pytester: pytest.Pytester) -> None:  # type: ignore[no-untyped-def]
    path = pytester.path / "recipes" / "sample" / "recipe.yaml"
    path.write_text(path.read_text().replace("[loss, twin]", "[loss, twim]"))
    result = run({})
    result.stdout.fnmatch_lines(["*recipe.yaml:*no check is called 'twim'*"])
    assert result.ret == pytest.ExitCode.INTERRUPTED
