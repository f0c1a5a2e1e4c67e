"""The probe judged by the check: the shipped kernel passes, every seeded fault is caught for what it is.

The check is standard library only, so that both can run here.
"""

import copy
import json
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from harness.checks.finding import CheckResult, Verdict
from harness.checks.kernel import check_probe
from harness.stackside.nki import kernel_source, probe

ROOT = Path(__file__).parents[3]
RECIPE = ROOT / "recipes" / "moe-nki"
SALT = 7919

CAUGHT_AS = {
    "silent-torch-fallback": {"kernel.no-launch", "kernel.length-accepted"},
    "store-removed": {"kernel.sentinel", "kernel.instructions", "kernel.hbm-bytes", "kernel.forward"},
    "zeros-stored": {"kernel.zeros"},
    "stored-twice": {"kernel.instructions", "kernel.hbm-bytes"},
    "last-tile-skipped": {"kernel.sentinel", "kernel.receipt", "kernel.instructions", "kernel.forward"},
    "cores-share-rows": {"kernel.sentinel", "kernel.forward"},
    "sign-flipped": {"kernel.forward", "kernel.backward", "kernel.gradient"},
    "backward-sign-flipped": {"kernel.backward", "kernel.gradient"},
    "uninitialised-read": {"kernel.sentinel", "kernel.forward"},
    "partitions-256": {"kernel.raised", "kernel.length-refused"},
    "cos-perturbed": {"kernel.forward", "kernel.backward", "kernel.instructions"},
    "cos-perturbed-before": {"kernel.forward", "kernel.backward"},
    "low-precision-tiles": {"kernel.forward", "kernel.backward"},
    "backward-runs-forward": {"kernel.backward", "kernel.count", "kernel.gradient"},
    "no-gradient": {"kernel.gradient-missing"},
    "length-unchecked": {"kernel.length-accepted"},
    "length-checked-late": {"kernel.length-late"},
}

# What must not be found: a fault is to be named for what it is.
NOT_CAUGHT_AS = {
    "silent-torch-fallback": {"kernel.forward", "kernel.backward", "kernel.gradient"},
    "stored-twice": {"kernel.forward", "kernel.backward", "kernel.sentinel"},
    "backward-sign-flipped": {"kernel.forward", "kernel.instructions"},
    "cos-perturbed-before": {"kernel.instructions", "kernel.sentinel", "kernel.receipt"},
    "backward-runs-forward": {"kernel.forward"},
    "length-unchecked": {"kernel.forward", "kernel.sentinel"},
}


def run(mutant: str | None = None, lnc: tuple[int, ...] = (1, 2)) -> dict[str, Any]:
    request = {"recipe_dir": str(RECIPE), "salt": SALT, "lnc": list(lnc), "mutant": mutant}
    return probe.run(request)


def codes(result: CheckResult) -> set[str]:
    return {finding.code for finding in result.findings}


@pytest.fixture(scope="module")
def shipped() -> Iterator[dict[str, Any]]:
    yield run()
    for name in ("rope_kernel", "rope_op"):
        sys.modules.pop(name, None)


def test_the_shipped_kernel_passes(shipped: dict[str, Any]) -> None:
    result = check_probe(shipped, salt=SALT)
    assert result.verdict is Verdict.PASS, result.findings
    text = "\n".join(result.facts)
    assert "verified on interpreter only" in text
    assert "unverified on hardware" in text
    assert "max|diff| 0.0 over float32 cases" in text
    assert "max|diff| 0.0 over bfloat16 cases" in text


def test_the_record_is_strict_json_and_survives_the_way_through_a_file(shipped: dict[str, Any]) -> None:
    again = json.loads(json.dumps(shipped, allow_nan=False))
    assert check_probe(again, salt=SALT).verdict is Verdict.PASS
    ratios = [
        case[direction][name]["rounding_ratio"]
        for case in again["cases"]
        if case["dtype"] == "bfloat16"
        for direction in ("forward", "backward")
        for name in ("q", "k")
    ]
    assert len(ratios) == 32
    assert max(ratios) < 1.0


def test_every_mutant_of_the_recipe_is_expected_here() -> None:
    assert set(kernel_source.read_mutants(RECIPE)) == set(CAUGHT_AS)


@pytest.mark.parametrize("mutant", CAUGHT_AS)
def test_a_seeded_fault_is_caught(mutant: str) -> None:
    # Two cores, so that a fault in how they share the rows shows too.
    record = json.loads(json.dumps(run(mutant, lnc=(2,)), allow_nan=False))
    assert record["mutant"] == mutant
    result = check_probe(record, salt=SALT, lnc=(2,))
    assert result.verdict is Verdict.FAIL
    found = codes(result)
    assert CAUGHT_AS[mutant] <= found
    assert not NOT_CAUGHT_AS.get(mutant, set()) & found
    assert "kernel.mutant-survived" not in found


def test_the_fallback_has_a_difference_of_zero() -> None:
    """Why the difference alone proves nothing."""
    record = run("silent-torch-fallback", lnc=(1,))
    for case in record["cases"]:
        for direction in ("forward", "backward"):
            assert case[direction]["q"]["max_abs_diff"] == case[direction]["k"]["max_abs_diff"] == 0.0
        assert case["launches"] == []
        assert case["counts"] == {"forward": 1, "backward": 1}


def test_a_fault_that_nothing_shows_is_reported(shipped: dict[str, Any]) -> None:
    record = {**shipped, "mutant": "harmless"}
    assert codes(check_probe(record, salt=SALT)) == {"kernel.mutant-survived"}


def test_a_device_result_cannot_be_claimed_from_the_interpreter(shipped: dict[str, Any]) -> None:
    honest = check_probe(shipped, salt=SALT, claim="device")
    assert codes(honest) == {"kernel.device-claim"}
    assert "verified on interpreter only" in next(
        finding.data["all"][0] for finding in honest.findings if finding.code == "kernel.device-claim"
    )
    forged = copy.deepcopy(shipped)
    forged["backend"] |= {"name": "aws-nki", "device": "/dev/neuron0"}
    forged["provider"] = "torch_neuronx.nki_op"
    assert {"kernel.device-claim", "kernel.backend"} <= codes(check_probe(forged, salt=SALT, claim="device"))


def test_another_salt_is_noticed(shipped: dict[str, Any]) -> None:
    assert "kernel.receipt" in codes(check_probe(shipped, salt=SALT + 1))


def test_the_command_line_writes_the_record(tmp_path: Path) -> None:
    request, output = tmp_path / "request.json", tmp_path / "out" / "probe.json"
    request.write_text(
        json.dumps(
            {"recipe_dir": str(RECIPE), "salt": SALT, "lnc": [2], "mutant": None, "output": str(output)}
        )
    )
    command = [sys.executable, "-m", "harness.stackside.nki.probe"]
    subprocess.run([*command, str(request)], cwd=ROOT, check=True)
    assert check_probe(json.loads(output.read_text()), salt=SALT, lnc=(2,)).verdict is Verdict.PASS
    wrong = subprocess.run(command, cwd=ROOT, check=False, capture_output=True, text=True)
    assert wrong.returncode == 2
    assert "usage:" in wrong.stderr
