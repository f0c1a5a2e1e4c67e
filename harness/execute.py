"""The stage `run`: one run of a recipe, executed once, leaving evidence."""

import datetime
import os
import platform
import secrets
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

from harness import export_faults, faults
from harness.cache import cache_root
from harness.environment import Environment
from harness.errors import InfrastructureError, UserError
from harness.evidence import Evidence, redact
from harness.key_report import check_fresh_dump_folder
from harness.launch import Ended, Job, Launcher, torchrun_command
from harness.outcome import Outcome, RunEnd, classify
from harness.project import package_parent
from harness.recipe import Recipe, Run
from harness.run_request import reference_request, seed_request, training_request
from harness.stack import Stack

__all__ = ["INTERRUPTED", "Executor", "Progress", "child_environment"]

INTERRUPTED = "stopped by the user"

Progress = Callable[[str, Mapping[str, Any]], None]
"""Called with an event (`phase`, `step`) and its data while a run goes on."""


@dataclass(slots=True)
class Executor:
    """Executes runs of recipes on one stack, with one launcher, below one folder."""

    root: Path
    stack: Stack
    environment: Environment
    assets: Mapping[str, Path]
    """Role of a model, or `corpus` -> folder."""
    launcher: Launcher
    folder: Path
    faults: tuple[str, ...] = ()
    observed: Mapping[str, Any] = field(default_factory=dict)
    """What was observed of the environment, as `harness.observed` gives it."""
    _seeds: dict[str, Path] = field(default_factory=dict)

    def execute(
        self, recipe: Recipe, name: str, after: Evidence | None, progress: Progress
    ) -> tuple[Evidence, RunEnd]:
        """Execute run `name` and return its evidence and how it ended.

        `after` is the evidence of the run it depends on. Never raises for a run that breaks: that is an
        outcome. A keyboard interrupt is written into the evidence and raised again.
        """
        run = recipe.runs[name]
        evidence = Evidence(self.folder / recipe.name / name)
        self._open(evidence, recipe, name)
        started = time.monotonic()
        self._write_outcome(evidence, None, 0.0)
        try:
            end = self._run(evidence, recipe, name, run, after, progress)
        except InfrastructureError as error:
            end = RunEnd(Outcome.INFRASTRUCTURE, str(error))
        except KeyboardInterrupt:
            self._write_outcome(
                evidence, RunEnd(Outcome.INTERRUPTED, INTERRUPTED), time.monotonic() - started
            )
            raise
        self._write_outcome(evidence, end, time.monotonic() - started)
        return evidence, end

    def _open(self, evidence: Evidence, recipe: Recipe, name: str) -> None:
        if evidence.folder.exists():
            held = ", ".join(sorted(path.name for path in evidence.folder.iterdir()))
            raise UserError(
                f"{evidence.folder} already holds a run ({held}): torchtitan would resume from its checkpoint, "
                "train no step and exit 0. Next: choose another --output folder, or remove this one."
            )
        for folder in (evidence.folder, evidence.observed, evidence.logs):
            folder.mkdir(parents=True)
        evidence.write(
            "environment.json",
            {
                "stack": self.stack.name,
                "stack_digest": self.stack.digest(),
                "lock_digest": self.stack.lock_digest(),
                "recipe_digest": recipe.digest(),
                "environment_digest": self.environment.digest,
                "packages": self.environment.packages,
                "python": platform.python_version(),
                "machine": platform.machine(),
                "system": platform.platform(),
                "variables": redact(self._variables(evidence)),
                "faults": list(self.faults),
                "observed": dict(self.observed),
            },
        )
        evidence.write(
            "run.json",
            {
                "recipe": recipe.name,
                "run": name,
                "stack": self.stack.name,
                "started": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
                # Repeats a training run by hand, in a fresh copy of the folder.
                "torchrun": torchrun_command(self.environment.python, self.stack.ranks),
            },
        )

    def _write_outcome(self, evidence: Evidence, end: RunEnd | None, seconds: float) -> None:
        state = "running" if end is None else "ended"
        body = {} if end is None else {**asdict(end), "seconds": round(seconds, 3)}
        evidence.write("outcome.json", {"state": state, "schema": 1, **body})

    def _run(
        self,
        evidence: Evidence,
        recipe: Recipe,
        name: str,
        run: Run,
        after: Evidence | None,
        progress: Progress,
    ) -> RunEnd:
        if run.kind == "train":
            return self._train(evidence, recipe, name, run, progress)
        if run.kind == "kernel-probe":
            request: dict[str, Any] = {
                "recipe_dir": str(recipe.folder),
                "salt": secrets.randbelow(2**20) + 1,
                "lnc": [1, 2],
                "mutant": next((name for name in self.faults if name in faults.KERNEL_MUTANTS), None),
                "output": str(evidence.observed / "kernel-probe.json"),
            }
            return self._call(evidence, "harness.stackside.nki.probe", request, progress)
        export = after.export() if after is not None else None
        if after is None or export is None:
            return RunEnd(Outcome.FAILED, f"run `{run.after}` left no export to reload")
        request = {
            "export": str(export),
            "model": str(self.assets[run.model]),
            "trained_logits": str(after.observed / "trained-logits.json"),
            "output": str(evidence.observed / "reload.json"),
        }
        return self._call(evidence, "harness.stackside.reload", request, progress)

    def _train(self, evidence: Evidence, recipe: Recipe, name: str, run: Run, progress: Progress) -> RunEnd:
        request = training_request(self.stack, recipe, name, self.assets, evidence.folder, self.faults)
        if "stale-folder" in self.faults:
            export_faults.leave_stale_checkpoint(evidence.dump)
        if request["initial"] == "seed-checkpoint":
            progress("phase", {"phase": "seed checkpoint"})
            seed = self._seed(recipe, name, run, request)
            if isinstance(seed, RunEnd):
                return seed
            request["initial_load_path"] = request["configuration"]["checkpoint.initial_load_path"] = str(
                seed
            )
        evidence.write("request.json", request)
        fresh = check_fresh_dump_folder(
            evidence.dump, initial_load="published weights" if run.initial == "published" else None
        )
        if fresh.findings:
            return RunEnd(Outcome.FAILED, fresh.findings[0].message)
        progress("phase", {"phase": "training"})
        end = self._ranks(evidence, self.stack.ranks, progress)
        if end.outcome is not Outcome.PASSED:
            return end
        if (export := evidence.export()) is not None:
            export_faults.apply(self.faults, export)
        if "reference" not in run.checks:
            return end
        resolved = evidence.read("observed/resolved-config.json")
        if resolved is None:
            return RunEnd(Outcome.FAILED, "the run left no resolved configuration to give to the reference")
        asked = reference_request(self.stack, run, request, resolved, evidence)
        return self._call(evidence, "harness.stackside.reference", asked, progress)

    def _ranks(self, evidence: Evidence, ranks: int, progress: Progress) -> RunEnd:
        seen = 0

        def tick() -> None:
            nonlocal seen
            for row in evidence.metrics()[seen:]:
                seen += 1
                progress("step", row)

        job = Job(
            folder=evidence.folder,
            env=self._variables(evidence),
            log=evidence.logs / "launcher.log",
            timeout=self.stack.profile.timeout_seconds,
            ranks=ranks,
        )
        ended = self.launcher.launch(job, tick)
        tick()
        errors = list(evidence.per_rank("error").values())
        return _end(ended, errors)

    def _call(self, evidence: Evidence, module: str, request: dict[str, Any], progress: Progress) -> RunEnd:
        name = module.rpartition(".")[2]
        progress("phase", {"phase": name})
        evidence.write(f"request-{name}.json", request)
        job = Job(
            folder=evidence.folder,
            env=self._variables(evidence),
            log=evidence.logs / f"{name}.log",
            timeout=self.stack.profile.timeout_seconds,
            module=module,
            request=request,
        )
        end = _end(self.launcher.launch(job), [])
        if end.outcome is Outcome.FAILED:
            return RunEnd(end.outcome, f"{module} failed: {end.reason}; see {job.log}")
        return end

    def _seed(self, recipe: Recipe, name: str, run: Run, request: Mapping[str, Any]) -> Path | RunEnd:
        """Make the checkpoint that all ranks start from, by one rank; shared by the runs that start alike."""
        key = f"{run.config}-{run.model}"
        if key not in self._seeds:
            evidence = Evidence(self.folder / recipe.name / f"{name}.seed")
            for folder in (evidence.folder, evidence.observed, evidence.logs):
                folder.mkdir(parents=True)
            seed = seed_request(request, evidence.folder)
            evidence.write("request.json", seed)
            end = self._ranks(evidence, 1, lambda *_: None)
            if end.outcome is not Outcome.PASSED:
                return RunEnd(
                    end.outcome,
                    f"the seed checkpoint could not be made: {end.reason}",
                    end.rank,
                    end.traceback,
                )
            self._seeds[key] = evidence.dump / "checkpoint" / "step-0"
        return self._seeds[key]

    def _variables(self, evidence: Evidence) -> dict[str, str]:
        return child_environment(self.stack) | {
            "HARNESS_REQUEST": str(evidence.folder / "request.json"),
            "HARNESS_LOGS": str(evidence.logs),
        }


def child_environment(stack: Stack) -> dict[str, str]:
    """Return the environment variables of everything that runs inside the stack."""
    own = {
        name: value
        for name, value in os.environ.items()
        if not name.startswith(("PYTHON", "VIRTUAL_ENV", "HARNESS_"))
    }
    cache = cache_root()
    return {
        **own,
        "PYTHONPATH": str(package_parent()),
        # Bytecode is worth half of every import; it must not land in the project's folders.
        "PYTHONPYCACHEPREFIX": str(cache / "bytecode"),
        "PYTHONUNBUFFERED": "1",
        "HF_HOME": str(cache / "huggingface"),
        **stack.environment,
    }


def _end(ended: Ended, errors: list[Any]) -> RunEnd:
    return classify(
        ended.returncodes, ended=ended.ended, errors=errors, output=ended.output, stopped=ended.stopped
    )
