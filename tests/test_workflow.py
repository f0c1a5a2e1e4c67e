"""The workflow: each run once, dependencies first, verdicts from evidence, exit codes from verdicts."""

from pathlib import Path
from typing import Any

import pytest

from harness import grade
from harness.checks.finding import Verdict
from harness.errors import InfrastructureError, UserError
from harness.outcome import Outcome, RunEnd
from harness.recipe import CHECKS, load_recipe
from harness.workflow import Session, Settings, resolve
from tests.fake_runs import FakeExecutor, Script, make_executor, make_project


class Bench:
    """A session over scripted runs."""

    def __init__(self, tmp_path: Path, root: Path, scripts: dict[str, Script]) -> None:
        self.recipe = load_recipe(make_project(tmp_path, root))
        self.executor: FakeExecutor = make_executor(tmp_path / "work", scripts)
        self.events: list[str] = []
        self.session = Session(Settings(tmp_path), lambda event, data: self.events.append(event))
        self.session._executor = self.executor  # type: ignore[assignment]

    def judge_all(self) -> None:
        for name, run in self.recipe.runs.items():
            self.session.ensure(self.recipe, name)
            for check in run.checks:
                self.session.judge(self.recipe, name, check)


def broken(outcome: Outcome = Outcome.TIMEOUT) -> Script:
    return Script(RunEnd(outcome, "it broke"), losses=())


def test_every_check_has_a_grader() -> None:
    assert set(grade.GRADERS) == set(CHECKS)


def test_everything_passes(tmp_path: Path, root: Path) -> None:
    bench = Bench(tmp_path, root, {})
    bench.judge_all()
    assert bench.session.exit_code() == 0
    assert bench.executor.executed == ["first", "second"]


def test_a_run_is_executed_once_and_what_it_needs_first(tmp_path: Path, root: Path) -> None:
    bench = Bench(tmp_path, root, {})
    bench.session.judge(bench.recipe, "second", "twin")
    bench.session.judge(bench.recipe, "second", "loss")
    assert bench.executor.executed == ["first", "second"]


def test_nothing_judged_is_not_a_pass(tmp_path: Path, root: Path) -> None:
    bench = Bench(tmp_path, root, {})
    assert bench.session.exit_code() == 2
    bench.session.ensure(bench.recipe, "first")
    assert bench.session.exit_code() == 2


def test_a_failed_check_is_exit_1(tmp_path: Path, root: Path) -> None:
    bench = Bench(tmp_path, root, {"second": Script(losses=(6.0, 5.9, 5.7))})
    bench.judge_all()
    assert bench.session.judge(bench.recipe, "second", "twin").verdict is Verdict.FAIL
    assert bench.session.exit_code() == 1


def test_a_failed_run_is_exit_1_and_its_loss_is_still_judged(tmp_path: Path, root: Path) -> None:
    script = Script(
        RunEnd(Outcome.FAILED, "rank 0 failed first: RuntimeError: Loss is not finite"), losses=(6.0, 5.9)
    )
    bench = Bench(tmp_path, root, {"first": script})
    bench.judge_all()
    result = bench.session.judge(bench.recipe, "first", "loss")
    assert result.verdict is Verdict.FAIL
    assert "Loss is not finite" in result.findings[0].message
    assert bench.session.exit_code() == 1


@pytest.mark.parametrize(
    "outcome", [Outcome.TIMEOUT, Outcome.INFRASTRUCTURE, Outcome.COMPILE, Outcome.OUT_OF_MEMORY]
)
def test_a_broken_run_is_not_judged_and_exit_3(tmp_path: Path, root: Path, outcome: Outcome) -> None:
    bench = Bench(tmp_path, root, {"first": broken(outcome)})
    result = bench.session.judge(bench.recipe, "first", "loss")
    assert result.verdict is Verdict.NOT_JUDGED
    assert "it broke" in result.reason
    assert bench.session.exit_code() == 3


def test_missing_evidence_is_not_judged_and_not_green(tmp_path: Path, root: Path) -> None:
    bench = Bench(tmp_path, root, {})
    record = bench.session.ensure(bench.recipe, "first")
    (record.evidence.observed / "resolved-config.json").unlink()
    result = bench.session.judge(bench.recipe, "first", "configuration")
    assert result.verdict is Verdict.NOT_JUDGED
    assert "resolved-config.json" in result.reason
    assert bench.session.exit_code() == 1


def test_the_evidence_holds_the_verdicts_and_is_sealed(tmp_path: Path, root: Path) -> None:
    bench = Bench(tmp_path, root, {})
    bench.executor.folder.mkdir(parents=True)
    bench.judge_all()
    bench.session.close()
    record = bench.session.records[("sample", "first")]
    written: Any = record.evidence.read("checks.json")
    assert {check["check"]: check["verdict"] for check in written["checks"]} == {
        "configuration": "pass",
        "loss": "pass",
    }
    assert record.evidence.verify() == []
    assert bench.executor.launcher.closed == 1


def test_errors_of_the_machine_pass_through(tmp_path: Path, root: Path) -> None:
    bench = Bench(tmp_path, root, {"first": Script(raises=InfrastructureError("no disk"))})
    with pytest.raises(InfrastructureError, match="no disk"):
        bench.session.ensure(bench.recipe, "first")


def test_an_unknown_fault_names_the_known_ones(tmp_path: Path, root: Path) -> None:
    make_project(tmp_path, root)
    with pytest.raises(UserError, match="rope-sign"):
        Session(Settings(tmp_path, faults=("rope-sing",)))


def test_an_unresolved_stack_stops_before_anything_is_built(root: Path) -> None:
    with pytest.raises(UserError, match="Unresolved"):
        Session(Settings(root, stack="trn2"))


def test_resolve_reads_every_file_of_the_selection(root: Path) -> None:
    stack, recipes = resolve(root, ("native",), "cpu")
    assert (stack.name, list(recipes)) == ("cpu", ["native"])
