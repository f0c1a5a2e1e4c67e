"""A load that was asked for happened, and nothing in the folder decided otherwise."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.checks.finding import CheckResult, Verdict
from harness.checks.load import check_fresh_folder, check_load


def codes(result: CheckResult) -> list[str]:
    return [finding.code for finding in result.findings]


def test_a_load_that_happened() -> None:
    record = {"requested": True, "loaded": True, "source": "/models/a", "format": "hf"}
    result = check_load(record, source="/models/a/")
    assert result.verdict is Verdict.PASS
    assert result.facts == ("loaded from /models/a (format hf)",)
    result = check_load({**record, "loaded_tensors": 398})
    assert result.facts == ("loaded 398 tensors from /models/a (format hf)",)


def test_no_load_asked_for_and_none_happened() -> None:
    record = {"requested": False, "loaded": False, "source": None, "format": None}
    assert check_load(record).verdict is Verdict.PASS


@pytest.mark.parametrize(
    "outcome", [{"loaded": False}, {"loaded": True, "loaded_tensors": 0}, {"loaded_tensors": 0}]
)
def test_a_requested_load_that_loaded_nothing(outcome: dict[str, Any]) -> None:
    result = check_load({"requested": True, **outcome}, source="/models/a")
    assert codes(result) == ["load.nothing"]
    assert "/models/a was requested, 0 tensors loaded" in result.findings[0].message


def test_a_named_step_that_is_not_there() -> None:
    record = {
        "requested": {"load_step": 500},
        "found_steps": [100, 200],
        "loaded_tensors": 0,
        "step1_loss": 12.4312,
        "vocab_size": 151936,
    }
    result = check_load(record)
    assert codes(result) == ["load.step-absent"]
    assert "load_step=500 requested, but found steps 100, 200; 0 tensors loaded" in result.findings[0].message


def test_a_named_step_that_is_not_there_although_another_was_loaded() -> None:
    record = {"requested": True, "load_step": 500, "found_steps": [100], "loaded": True}
    assert codes(check_load(record)) == ["load.step-absent"]


def test_a_named_step_that_is_there() -> None:
    record = {"requested": {"load_step": 200}, "found_steps": [100, 200], "loaded_tensors": 25}
    assert check_load(record).verdict is Verdict.PASS


def test_the_latest_step_needs_any_step() -> None:
    record: dict[str, Any] = {"requested": {"load_step": -1}, "found_steps": [], "loaded_tensors": 0}
    result = check_load(record)
    assert codes(result) == ["load.step-absent"]
    assert "no step was found" in result.findings[0].message
    assert check_load({**record, "found_steps": [3], "loaded_tensors": 9}).verdict is Verdict.PASS


def test_a_load_that_nobody_asked_for() -> None:
    result = check_load({"requested": False, "loaded": True, "source": "outputs/checkpoint/step-20"})
    assert codes(result) == ["load.unasked"]
    assert "outputs/checkpoint/step-20" in result.findings[0].message


def test_a_load_from_elsewhere() -> None:
    result = check_load({"requested": True, "loaded": True, "source": "/old"}, source="/new")
    assert codes(result) == ["load.source"]
    assert "from /old, expected /new" in result.findings[0].message
    assert codes(check_load({"requested": True, "loaded": True}, source="/new")) == ["load.source"]


@pytest.mark.parametrize("record", [{}, {"requested": True}, {"loaded": True}, []])
def test_a_malformed_record(record: Any) -> None:
    assert codes(check_load(record)) == ["load.record"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=3),
    lambda inner: (
        st.lists(inner, max_size=2) | st.dictionaries(st.sampled_from(["load_step", "x"]), inner, max_size=2)
    ),
    max_leaves=4,
)
FIELDS = st.sampled_from(
    ["requested", "loaded", "loaded_tensors", "found_steps", "load_step", "source", "format"]
)


@given(st.dictionaries(FIELDS, JSON))
def test_a_damaged_record_never_raises(record: dict[str, Any]) -> None:
    for finding in check_load(record, source="/models/a").findings:
        assert finding.message.isprintable()


# --- before the run ---------------------------------------------------------------------------


def test_a_fresh_folder_passes() -> None:
    result = check_fresh_folder("outputs/checkpoint", [], initial_load="HF weights")
    assert result.verdict is Verdict.PASS


def test_a_stale_folder_outranks_the_initial_load() -> None:
    result = check_fresh_folder("outputs/checkpoint", ["step-20", "step-3"], initial_load="HF weights")
    assert codes(result) == ["fresh-folder.stale"]
    message = result.findings[0].message
    assert message.startswith("recipe asks for HF weights but outputs/checkpoint already holds step-20")
    assert "ignore the initial load" in message
    assert "fresh dump folder or delete" in message


def test_a_stale_folder_of_a_run_from_random_weights() -> None:
    result = check_fresh_folder("outputs/checkpoint", ["step-10"])
    assert codes(result) == ["fresh-folder.stale"]
    assert "asks for random weights" in result.findings[0].message


def test_leftovers_that_are_no_step() -> None:
    result = check_fresh_folder("outputs/checkpoint", ["tmp"])
    assert codes(result) == ["fresh-folder.stale"]
    assert "already holds tmp" in result.findings[0].message


def test_a_resumed_run_needs_its_step() -> None:
    assert check_fresh_folder("c", ["step-10"], load_step=10).verdict is Verdict.PASS
    result = check_fresh_folder("c", ["step-10", "step-5"], load_step=20)
    assert codes(result) == ["fresh-folder.step-absent"]
    assert "load_step=20 requested, but found steps 5, 10; in c" in result.findings[0].message
    assert codes(check_fresh_folder("c", [], load_step=20)) == ["fresh-folder.step-absent"]
