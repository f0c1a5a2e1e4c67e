"""A project whose runs are scripted: what the front ends and the workflow do, without a stack."""

import json
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from harness.evidence import Evidence
from harness.outcome import Outcome, RunEnd
from harness.recipe import Recipe

RECIPE = """
name: sample
summary: a sample recipe
runs:
  first:
    summary: trains
    kind: train
    config: start
    model: published
    checks: [configuration, loss]
  second:
    summary: trains the same
    kind: train
    config: start
    model: published
    twin: first
    checks: [loss, twin]
"""


@dataclass
class Script:
    """How a scripted run ends and what it leaves."""

    end: RunEnd = field(default_factory=lambda: RunEnd(Outcome.PASSED))
    losses: tuple[float, ...] = (6.0, 5.9, 5.8)
    raises: BaseException | None = None


@dataclass
class FakeLauncher:
    closed: int = 0

    def close(self) -> None:
        self.closed += 1


@dataclass
class FakeExecutor:
    """Stands where `Executor` does; writes evidence as a real run would."""

    folder: Path
    model: Path
    scripts: dict[str, Script]
    executed: list[str] = field(default_factory=list)
    launcher: FakeLauncher = field(default_factory=FakeLauncher)

    def execute(
        self,
        recipe: Recipe,
        name: str,
        after: Evidence | None,
        progress: Callable[[str, Mapping[str, Any]], None],
    ) -> tuple[Evidence, RunEnd]:
        self.executed.append(name)
        script = self.scripts.get(name, Script())
        evidence = Evidence(self.folder / recipe.name / name)
        evidence.observed.mkdir(parents=True)
        if script.raises is not None:
            raise script.raises
        rows = [
            {"step": n, "loss": loss, "grad_norm": 1.0, "step_seconds": 0.1}
            for n, loss in enumerate(script.losses, 1)
        ]
        (evidence.observed / "metrics.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
        for row in rows:
            progress("step", row)
        evidence.write(
            "request.json", {"steps": 3, "model": str(self.model), "configuration": {"training.steps": 3}}
        )
        evidence.write("observed/resolved-config.json", {"training": {"steps": 3}})
        evidence.write(
            "outcome.json", {"state": "ended", "outcome": script.end.outcome, "reason": script.end.reason}
        )
        return evidence, script.end


def make_project(folder: Path, root: Path) -> Path:
    """Write a project with one scripted recipe into `folder`; return the recipe file."""
    for name in ("stack.yaml", "requirements.lock"):
        path = folder / "lockfiles" / "cpu" / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text((root / "lockfiles" / "cpu" / name).read_text())
    recipe = folder / "recipes" / "sample" / "recipe.yaml"
    recipe.parent.mkdir(parents=True)
    recipe.write_text(RECIPE)
    return recipe


def make_executor(folder: Path, scripts: dict[str, Script]) -> FakeExecutor:
    """Return a scripted executor that leaves its evidence below `folder`."""
    model = folder / "model"
    model.mkdir(parents=True)
    (model / "config.json").write_text('{"vocab_size": 512}')
    return FakeExecutor(folder / "evidence", model, scripts)
