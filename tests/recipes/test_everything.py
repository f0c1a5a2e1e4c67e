"""The main job: three recipes, every run, every check, for real."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from harness.checks.finding import Verdict
from harness.launch import TorchrunLauncher
from harness.outcome import Outcome
from harness.workflow import Session
from tests.conftest import ROOT

pytestmark = pytest.mark.recipes

TRAINED = ("hf-backend/published-weights", "native/random-init", "moe-nki/nki-rope")


def rows(session: Session, run: str) -> list[tuple[int, str, str]]:
    recipe, name = run.split("/")
    metrics = session.records[(recipe, name)].evidence.metrics()
    return [(row["step"], row["loss"].hex(), row["grad_norm"].hex()) for row in metrics]


def test_every_check_of_every_run_passes(everything: Session) -> None:
    verdicts = {
        f"{recipe}/{name}/{check}": (
            result.verdict,
            [finding.message for finding in result.findings],
            result.reason,
        )
        for (recipe, name), record in everything.records.items()
        for check, result in record.results.items()
    }
    assert {key: value for key, value in verdicts.items() if value[0] is not Verdict.PASS} == {}
    assert len(verdicts) >= 40
    assert everything.exit_code() == 0


def test_evidence_is_sealed_and_whole(everything: Session) -> None:
    for record in everything.records.values():
        assert record.evidence.verify() == []
        assert record.evidence.read("outcome.json")["state"] == "ended"
        assert record.evidence.read("environment.json")["packages"]["torch"] == "2.14.0"


def test_the_device_layer_is_in_the_evidence(everything: Session) -> None:
    layer = everything.records[("native", "published-weights")].evidence.read("observed/device-layer.json")
    assert layer["installed"] is True
    assert set(layer) == {"installed", "device", "reduction", "attention", "eager"}


def test_repairs_are_in_the_evidence(everything: Session) -> None:
    start = everything.records[("hf-backend", "published-weights")].evidence.read("observed/start-rank0.json")
    assert any("4783" in repair for repair in start["repairs"])


def test_metrics_are_whole(everything: Session) -> None:
    for row in everything.records[("native", "published-weights")].evidence.metrics():
        assert row["memory_kind"] == "process-peak-resident"
        assert row["memory_bytes"] > 2**20
        assert row["mfu_percent"] is None
        assert row["step_seconds"] > 0


@pytest.mark.parametrize("name", TRAINED)
def test_a_repeat_is_bitwise_the_same(everything: Session, run, name: str) -> None:  # type: ignore[no-untyped-def]
    again = run(name)
    assert rows(again, name) == rows(everything, name)
    assert len(rows(again, name)) == 10


def test_torchrun_gives_the_same_bits(everything: Session, run) -> None:  # type: ignore[no-untyped-def]
    executor = everything._executor
    assert executor is not None
    name = "native/published-weights"
    again = run(name, given=TorchrunLauncher(executor.environment.python))
    assert rows(again, name) == rows(everything, name)
    assert again.exit_code() == 0


def test_the_command_in_the_evidence_is_torchrun(everything: Session) -> None:
    record = everything.records[("native", "published-weights")]
    command = record.evidence.read("run.json")["torchrun"]
    assert command[1:3] == ["-m", "torch.distributed.run"]
    assert json.dumps(command).count("harness.stackside.entry") == 1


def test_a_failing_rank_surfaces_through_torchrun(everything: Session, run) -> None:  # type: ignore[no-untyped-def]
    executor = everything._executor
    assert executor is not None
    launcher = TorchrunLauncher(executor.environment.python)
    session = run("native/published-weights", faults=("nan-at-step-7",), given=launcher)
    end = session.records[("native", "published-weights")].end
    assert end.outcome is Outcome.FAILED
    assert "failed first: RuntimeError: Loss is not finite" in end.reason
    assert "trainer.py" in end.traceback, "the rank's own traceback, not torchrun's summary"
    assert "ChildFailedError" not in end.reason + end.traceback


def test_recipes_are_pytest_items(tmp_path: Path) -> None:
    argv = [
        sys.executable,
        "-m",
        "pytest",
        "recipes/moe-nki",
        "--stack",
        "cpu",
        "-k",
        "kernel and not nki-rope",
    ]
    argv += ["--evidence", str(tmp_path / "evidence"), "--junit-xml", str(tmp_path / "junit.xml"), "-q"]
    done = subprocess.run(argv, cwd=ROOT, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout
    assert "2 passed" in done.stdout
    assert 'tests="2"' in (tmp_path / "junit.xml").read_text()
    assert json.loads((tmp_path / "evidence" / "moe-nki" / "kernel" / "checks.json").read_text())["checks"]
