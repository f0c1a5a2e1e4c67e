"""Executing a run: what is asked of the stack, what is written, how it ends. No stack is needed."""

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from harness.environment import Environment
from harness.errors import InfrastructureError, UserError
from harness.evidence import Evidence
from harness.execute import Executor
from harness.launch import Ended, Job
from harness.outcome import Outcome, RunEnd
from harness.recipe import load_recipes
from harness.stack import load_stack


class FakeLauncher:
    """Answers every job as it was told, and keeps what it was asked."""

    def __init__(self) -> None:
        self.jobs: list[Job] = []
        self.answer: Callable[[Job], Ended] = lambda job: Ended(
            dict.fromkeys(range(job.ranks or 1), 0), "exited", 1.0, ""
        )

    def launch(self, job: Job, on_tick: Callable[[], None] | None = None) -> Ended:
        self.jobs.append(job)
        return self.answer(job)

    def close(self) -> None: ...


class Bench:
    def __init__(self, root: Path, folder: Path, faults: tuple[str, ...] = ()) -> None:
        model = folder / "model"
        model.mkdir()
        (model / "config.json").write_text("{}")
        self.launcher = FakeLauncher()
        stack = load_stack(root, "cpu")
        assets = dict.fromkeys((*stack.assets.models, "corpus"), model)
        built = Environment(folder / "env", "digest", {"torch": "2.14.0"})
        self.executor = Executor(root, stack, built, assets, self.launcher, folder / "out", faults)
        self.recipes = load_recipes(root)
        self.events: list[tuple[str, Any]] = []

    def execute(self, path: str, after: Evidence | None = None) -> tuple[Evidence, RunEnd]:
        recipe, run = path.split("/")
        return self.executor.execute(
            self.recipes[recipe], run, after, lambda event, data: self.events.append((event, data))
        )


@pytest.fixture
def bench(root: Path, tmp_path: Path) -> Bench:
    return Bench(root, tmp_path)


def test_the_request_asks_what_the_stack_and_the_recipe_say(bench: Bench) -> None:
    evidence, end = bench.execute("hf-backend/published-weights-tied")
    # The reference needs the resolved configuration, which no launcher wrote here.
    assert end.outcome is Outcome.FAILED
    request = evidence.read("request.json")
    assert (request["ranks"], request["steps"], request["seq_len"], request["seed"]) == (2, 10, 128, 0)
    asked = request["configuration"]
    assert asked["checkpoint.initial_load_in_hf"] is True
    assert asked["checkpoint.initial_load_path"] == request["model"]
    assert asked["compile.enable"] is False
    assert asked["lr_scheduler.warmup_steps"] == 2


def test_placeholders_of_the_recipe_are_filled(bench: Bench) -> None:
    evidence, _ = bench.execute("native/random-init")
    assert evidence.read("request.json")["configuration"]["training.global_batch_size"] == 2


def test_a_random_start_loads_a_seed_checkpoint_made_by_one_rank_and_shared(bench: Bench) -> None:
    stock, _ = bench.execute("moe-nki/stock-rope")
    nki, _ = bench.execute("moe-nki/nki-rope")
    assert [job.ranks for job in bench.launcher.jobs] == [1, 2, 2]
    paths = {evidence.read("request.json")["initial_load_path"] for evidence in (stock, nki)}
    assert len(paths) == 1
    seed = json.loads((bench.launcher.jobs[0].folder / "request.json").read_text())
    assert (seed["initial"], seed["ranks"], seed["overrides"]) == ("make-seed", 1, [])


def test_without_the_seed_checkpoint_every_rank_draws(root: Path, tmp_path: Path) -> None:
    bench = Bench(root, tmp_path, faults=("seed-checkpoint-off",))
    evidence, _ = bench.execute("native/random-init")
    assert evidence.read("request.json")["initial"] == "random"
    assert [job.ranks for job in bench.launcher.jobs] == [2]


def test_a_second_run_into_the_same_folder_is_refused(bench: Bench) -> None:
    bench.execute("native/random-init")
    with pytest.raises(UserError, match=r"already holds a run.*choose another --output"):
        bench.execute("native/random-init")


def test_a_stale_checkpoint_stops_the_run_before_it_starts(root: Path, tmp_path: Path) -> None:
    bench = Bench(root, tmp_path, faults=("stale-folder",))
    evidence, end = bench.execute("hf-backend/published-weights")
    assert bench.launcher.jobs == []
    assert end.outcome is Outcome.FAILED
    assert "step-20" in end.reason
    assert evidence.read("outcome.json")["outcome"] == "failed"


def test_a_failing_rank_is_the_runs_failure_with_its_traceback(bench: Bench) -> None:
    def fail(job: Job) -> Ended:
        for rank, moment in ((0, 2.0), (1, 1.0)):
            error = {
                "rank": rank,
                "time": moment,
                "type": "KeyError",
                "message": f"'k{rank}'",
                "traceback": f"trace {rank}",
            }
            (job.folder / "observed" / f"error-rank{rank}.json").write_text(json.dumps(error))
        return Ended({0: 1, 1: 1}, "exited", 1.0, "ChildFailedError")

    bench.launcher.answer = fail
    evidence, end = bench.execute("hf-backend/published-weights")
    assert (end.outcome, end.rank, end.traceback) == (Outcome.FAILED, 1, "trace 1")
    assert evidence.read("outcome.json")["reason"] == "rank 1 failed first: KeyError: 'k1'"


def test_a_failed_seed_is_said_to_be_the_seed(bench: Bench) -> None:
    bench.launcher.answer = lambda job: Ended({0: 1}, "exited", 1.0, "no space\n")
    _, end = bench.execute("native/random-init")
    assert "the seed checkpoint could not be made" in end.reason


def test_a_machine_that_fails_is_an_outcome_not_an_exception(bench: Bench) -> None:
    def fail(job: Job) -> Ended:
        raise InfrastructureError("the server died")

    bench.launcher.answer = fail
    evidence, end = bench.execute("hf-backend/published-weights")
    assert (end.outcome, end.reason) == (Outcome.INFRASTRUCTURE, "the server died")
    assert evidence.read("outcome.json")["state"] == "ended"


def test_an_interrupt_is_written_and_raised_again(bench: Bench) -> None:
    def interrupt(job: Job) -> Ended:
        raise KeyboardInterrupt

    bench.launcher.answer = interrupt
    with pytest.raises(KeyboardInterrupt):
        bench.execute("hf-backend/published-weights")
    outcome = Evidence(bench.executor.folder / "hf-backend" / "published-weights").read("outcome.json")
    assert (outcome["state"], outcome["outcome"]) == ("ended", "interrupted")


def test_while_it_runs_the_evidence_says_so(bench: Bench) -> None:
    states = []

    def look(job: Job) -> Ended:
        states.append(Evidence(job.folder).read("outcome.json")["state"])
        return Ended({0: 0, 1: 0}, "exited", 1.0, "")

    bench.launcher.answer = look
    bench.execute("hf-backend/published-weights")
    assert states[0] == "running"


def test_the_environment_is_recorded_without_secrets(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HF_TOKEN", "planted")
    evidence, _ = bench.execute("moe-nki/kernel")
    text = (evidence.folder / "environment.json").read_text()
    assert "planted" not in text
    recorded = json.loads(text)
    assert recorded["packages"] == {"torch": "2.14.0"}
    assert recorded["variables"]["NEURON_LOGICAL_NC_CONFIG"] == "2"


def test_pythons_own_variables_do_not_reach_the_stack(bench: Bench, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "1")
    monkeypatch.setenv("PYTHONHASHSEED", "1")
    bench.execute("moe-nki/kernel")
    env = bench.launcher.jobs[0].env
    assert "PYTHONDONTWRITEBYTECODE" not in env
    assert "PYTHONHASHSEED" not in env


def test_the_kernel_probe_is_asked_for_a_fresh_salt_and_the_asked_mutant(root: Path, tmp_path: Path) -> None:
    bench = Bench(root, tmp_path, faults=("silent-torch-fallback",))
    evidence, _ = bench.execute("moe-nki/kernel")
    request = evidence.read("request-probe.json")
    assert request["mutant"] == "silent-torch-fallback"
    assert 0 < request["salt"] <= 2**20


def test_a_reload_without_an_export_fails_and_says_so(bench: Bench) -> None:
    before, _ = bench.execute("hf-backend/published-weights")
    _, end = bench.execute("hf-backend/reload", before)
    assert (end.outcome, end.reason) == (Outcome.FAILED, "run `published-weights` left no export to reload")


def test_a_run_without_a_resolved_configuration_gets_no_reference(bench: Bench) -> None:
    _, end = bench.execute("native/published-weights")
    assert end.outcome is Outcome.FAILED
    assert "resolved configuration" in end.reason
