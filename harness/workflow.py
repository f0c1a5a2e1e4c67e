"""The pipeline: resolve, preflight, build, run, grade, record, report.

Each stage takes the former's value and returns the next one's. Front ends (`harness run`, the pytest
plugin) ask a `Session` for a run or a verdict; what that needs is done once.
"""

import datetime
import json
import statistics
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness import environment, faults, grade
from harness.assets_of import resolve_assets
from harness.checks.finding import CheckResult, not_judged
from harness.doctor import Level, Line, preflight
from harness.environment import Environment
from harness.errors import InfrastructureError, UserError
from harness.evidence import Evidence, new_session_folder, write_json
from harness.execute import INTERRUPTED, Executor, child_environment
from harness.expectation import load_expectations
from harness.launch import ForkLauncher, Launcher, TorchrunLauncher
from harness.observed import observe
from harness.outcome import Outcome, RunEnd
from harness.recipe import Recipe, load_recipes
from harness.stack import Stack, load_stack

__all__ = ["RunRecord", "Session", "Settings", "resolve"]

Listener = Callable[[str, Mapping[str, Any]], None]


@dataclass(frozen=True, slots=True)
class Settings:
    """What a front end asked for."""

    root: Path
    stack: str = "cpu"
    launcher: str | None = None
    """`fork` or `torchrun`; None takes the stack's own."""
    output: Path | None = None
    """Folder for the evidence; None makes a fresh one under `runs/`."""
    faults: tuple[str, ...] = ()


@dataclass(slots=True)
class RunRecord:
    """One executed run: its evidence, how it ended, and the verdicts so far by check."""

    recipe: Recipe
    name: str
    evidence: Evidence
    end: RunEnd
    results: dict[str, CheckResult] = field(default_factory=dict)


def resolve(root: Path, recipes: tuple[str, ...], stack_name: str) -> tuple[Stack, dict[str, Recipe]]:
    """Return the stack and the recipes (all when none is named). Raises `UserError` for what is not there."""
    stack = load_stack(root, stack_name)
    found = load_recipes(root, recipes)
    for recipe in found.values():
        load_expectations(recipe, stack)
        recipe.sizes_for(stack.profile)
    return stack, found


class Session:
    """Executes and judges runs on one stack; every run at most once."""

    def __init__(
        self, settings: Settings, listener: Listener = lambda *_: None, launcher: Launcher | None = None
    ) -> None:
        """Resolve only: nothing is built or started before the first run. Raises `UserError`.

        A given `launcher` is used as it is and left running: several sessions can share one.
        """
        unknown = sorted(set(settings.faults) - faults.FAULTS.keys())
        if unknown:
            known = ", ".join(sorted(faults.FAULTS))
            raise UserError(f"no seeded fault is called {unknown[0]!r}. Next: choose one of: {known}.")
        self.settings, self.listener, self._given_launcher = settings, listener, launcher
        self.stack = load_stack(settings.root, settings.stack)
        self.stack.require_resolved()
        self.records: dict[tuple[str, str], RunRecord] = {}
        self._executor: Executor | None = None

    @property
    def folder(self) -> Path | None:
        """Folder of the session's evidence, None before the first run."""
        return self._executor.folder if self._executor else None

    def ensure(self, recipe: Recipe, name: str) -> RunRecord:
        """Return the record of a run, executing it (and what it depends on) if that has not been done."""
        key = (recipe.name, name)
        if key not in self.records:
            run = recipe.runs[name]
            needed = [self.ensure(recipe, other) for other in dict.fromkeys((run.after, run.twin)) if other]
            executor = self.prepare()
            self.listener("run", {"recipe": recipe.name, "run": name, "summary": run.summary})
            after = needed[0].evidence if run.after else None
            try:
                evidence, end = executor.execute(recipe, name, after, self.listener)
            except KeyboardInterrupt:
                evidence = Evidence(executor.folder / recipe.name / name)
                self.records[key] = RunRecord(
                    recipe, name, evidence, RunEnd(Outcome.INTERRUPTED, INTERRUPTED)
                )
                raise
            self.records[key] = RunRecord(recipe, name, evidence, end)
            self.listener("ended", {"recipe": recipe.name, "run": name, **asdict(end)})
        return self.records[key]

    def judge(self, recipe: Recipe, name: str, check: str) -> CheckResult:
        """Return the verdict of one check of a run, executing the run if needed."""
        record = self.ensure(recipe, name)
        if check not in record.results:
            record.results[check] = self._grade(record, check)
            self._record(record)
            result = record.results[check]
            self.listener("verdict", {"recipe": recipe.name, "run": name, "result": result})
        return record.results[check]

    def _grade(self, record: RunRecord, check: str) -> CheckResult:
        if record.end.outcome.broken:
            return not_judged(check, f"the run broke ({record.end.outcome}): {record.end.reason}")
        run = record.recipe.runs[record.name]
        twin = self.records[(record.recipe.name, run.twin)].evidence if run.twin else None
        expectations = load_expectations(record.recipe, self.stack)
        return grade.grade(check, record.evidence, record.recipe, record.name, self.stack, expectations, twin)

    def _record(self, record: RunRecord) -> None:
        results = [asdict(result) for result in record.results.values()]
        record.evidence.write(
            "checks.json", {"schema": 1, "checks": json.loads(json.dumps(results, default=dict))}
        )

    def prepare(self) -> Executor:
        """Build the environment and the assets if that has not been done; return what executes runs."""
        if self._executor is None:
            built = environment.build(self.stack, say=lambda text: self.listener("say", {"text": text}))
            assets = resolve_assets(self.stack, built, say=lambda text: self.listener("say", {"text": text}))
            folder = self.settings.output or new_session_folder(self.settings.root / "runs")
            folder = folder.resolve()
            folder.mkdir(parents=True, exist_ok=True)
            require_sound(preflight(self.stack, built, folder), self.stack)
            observed = observe(
                built.folder, repository=self.settings.root, variables=child_environment(self.stack)
            )
            launcher = self._launcher(built, folder)
            self._executor = Executor(
                self.settings.root,
                self.stack,
                built,
                assets,
                launcher,
                folder,
                self.settings.faults,
                observed,
            )
            self.listener("session", {"folder": folder, "stack": self.stack, "packages": built.packages})
        return self._executor

    def _launcher(self, built: Environment, folder: Path) -> Launcher:
        if self._given_launcher is not None:
            return self._given_launcher
        kind = self.settings.launcher or self.stack.launcher
        if kind == "fork":
            if self.stack.device_layer != "cpu":
                raise UserError(
                    "the fork launcher is for the cpu device layer only. Next: --launcher torchrun."
                )
            return ForkLauncher(built.python, child_environment(self.stack), folder)
        return TorchrunLauncher(built.python)

    def close(self) -> None:
        """Stop what was started, and seal the evidence of every run that ended."""
        if self._executor is None:
            return
        if self._given_launcher is None:
            self._executor.launcher.close()
        for record in self.records.values():
            record.evidence.seal()
        write_json(self._executor.folder / "session.json", self.summary())

    def summary(self) -> dict[str, Any]:
        """Return the session as data: every run with its outcome and verdicts."""
        return {
            "schema": 1,
            "stack": self.stack.name,
            "stack_digest": self.stack.digest(),
            "faults": list(self.settings.faults),
            "written": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "folder": str(self.folder) if self.folder else None,
            "runs": [_run_summary(record) for record in self.records.values()],
        }

    def exit_code(self) -> int:
        """Return 0 if every run passed and every check was judged and passed, else 1 or 3; 2 for nothing at all."""
        ends = [record.end.outcome for record in self.records.values()]
        results = [result for record in self.records.values() for result in record.results.values()]
        if any(result.verdict == "fail" for result in results) or Outcome.FAILED in ends:
            return 1
        if Outcome.INTERRUPTED in ends:
            return 130
        if any(outcome.broken for outcome in ends):
            return 3
        if any(result.verdict != "pass" for result in results):
            return 1
        return 0 if results else 2


def require_sound(lines: Sequence[Line], stack: Stack) -> None:
    """Raise `InfrastructureError` if the machine cannot run `stack`: everything that is wrong, and what to do."""
    wrong = [line for line in lines if line.level is Level.ERROR]
    if wrong:
        said = "\n".join(
            f"  {line.code}: {line.found}. Expected: {line.expected}. Next: {line.action}." for line in wrong
        )
        raise InfrastructureError(f"this machine cannot run stack `{stack.name}`:\n{said}")


def _run_summary(record: RunRecord) -> dict[str, Any]:
    outcome = record.evidence.read("outcome.json") or {}
    return {
        "recipe": record.recipe.name,
        "run": record.name,
        "outcome": record.end.outcome,
        "reason": record.end.reason,
        "seconds": outcome.get("seconds"),
        "step_seconds": _step_seconds(record.evidence.metrics()),
        "evidence": str(record.evidence.folder),
        "checks": {
            name: {
                "verdict": result.verdict,
                "reason": result.reason,
                "facts": list(result.facts),
                "findings": [
                    {"code": finding.code, "message": finding.message} for finding in result.findings
                ],
            }
            for name, result in record.results.items()
        },
    }


def _step_seconds(rows: list[dict[str, Any]]) -> dict[str, float] | None:
    """Return the first step's time (warm-up) apart from the median of the others (steady), in seconds."""
    times = {row["step"]: row["step_seconds"] for row in rows}
    steady = [seconds for step, seconds in times.items() if step > 1]
    if 1 not in times or not steady:
        return None
    return {"warm_up": times[1], "steady": statistics.median(steady)}
