"""Every seeded fault is caught, by the check that should, with a message that names it."""

import pytest

from harness.checks.finding import Verdict
from harness.faults import FAULTS, Fault
from harness.outcome import Outcome

pytestmark = pytest.mark.recipes

WORDS = {
    "weights-not-loaded": "loaded",
    "weight-perturbed": "differ",
    "wrong-sequence-length": "training.seq_len is 64, asked was 128",
    "rope-sign": "step 1",
    "rotary-repair-off": "inv_freq",
    "nan-at-step-7": "steps 7 to 10 are missing",
    "stop-at-step-9": "steps 10 are missing: 9 of 10",
    "seed-checkpoint-off": "ranks",
    "export-head-dropped": "lm_head.weight",
    "export-key-renamed": "model.final_norm.weight",
    "export-values-changed": "model.layers.1.mlp.down_proj.weight",
    "export-truncated": "model-00001-of-00001.safetensors",
    "override-matches-nothing": "rope_override.nki_rope",
    "silent-torch-fallback": "launch",
    "backward-sign-flipped": "backward",
}


@pytest.mark.parametrize(
    "fault", [fault for fault in FAULTS.values() if fault.caught_by != "preflight"], ids=lambda f: f.name
)
def test_a_seeded_fault_is_caught(run, fault: Fault) -> None:  # type: ignore[no-untyped-def]
    session = run(fault.seen_in, faults=(fault.name,))
    recipe, name = fault.seen_in.split("/")
    result = session.records[(recipe, name)].results[fault.caught_by]
    assert result.verdict is Verdict.FAIL
    said = " ".join(finding.message for finding in result.findings)
    assert WORDS[fault.name] in said
    assert session.exit_code() == 1
    assert session.summary()["faults"] == [fault.name]


def test_a_stale_checkpoint_is_refused_before_the_run(run) -> None:  # type: ignore[no-untyped-def]
    session = run("hf-backend/published-weights", faults=("stale-folder",))
    end = session.records[("hf-backend", "published-weights")].end
    assert end.outcome is Outcome.FAILED
    assert "step-20" in end.reason
    assert session.records[("hf-backend", "published-weights")].evidence.metrics() == []
    assert session.exit_code() == 1


def test_a_backward_with_the_wrong_sign_trains_and_is_caught_by_its_twin(run) -> None:  # type: ignore[no-untyped-def]
    session = run("moe-nki/nki-rope", faults=("backward-sign-flipped",))
    record = session.records[("moe-nki", "nki-rope")]
    assert record.end.outcome is Outcome.PASSED
    assert record.results["loss"].verdict is Verdict.PASS, "the loss alone does not show it"
    finding = record.results["twin"].findings[0]
    assert (finding.code, finding.data["first_step"], finding.data["key"]) == ("twin.differs", 1, "grad_norm")


def test_a_silent_fallback_trains_with_equal_losses_and_is_caught_by_the_launches(run) -> None:  # type: ignore[no-untyped-def]
    session = run("moe-nki/nki-rope", faults=("silent-torch-fallback",))
    results = session.records[("moe-nki", "nki-rope")].results
    assert results["loss"].verdict is Verdict.PASS
    assert results["kernel"].verdict is Verdict.FAIL
    assert "launch" in results["kernel"].findings[0].message


def test_changed_values_are_seen_when_the_export_is_loaded_again(run) -> None:  # type: ignore[no-untyped-def]
    session = run("hf-backend/reload", faults=("export-values-changed",))
    finding = session.records[("hf-backend", "reload")].results["reload"].findings[0]
    assert finding.code == "reload.logits-differ"


def test_a_backwards_rotation_is_caught_in_torchtitans_own_model_too(run) -> None:  # type: ignore[no-untyped-def]
    session = run("native/published-weights", faults=("rope-sign",))
    results = session.records[("native", "published-weights")].results
    assert results["reference"].verdict is Verdict.FAIL
    assert results["buffers"].verdict is Verdict.PASS, "the table is right, the maths is not"
