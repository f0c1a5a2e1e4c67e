"""Grading: evidence read and handed to checks as values; what is missing is not judged."""

import json
from pathlib import Path
from typing import Any

import pytest

from harness import grade
from harness.checks.finding import Verdict
from harness.evidence import Evidence
from harness.expectation import Expectations
from harness.recipe import CHECKS, load_recipes
from harness.stack import load_stack
from harness.workflow import _step_seconds


def judged(root: Path, folder: Path, run: str, check: str) -> Any:
    recipe, name = run.split("/")
    stack = load_stack(root, "cpu")
    expectations = Expectations(recipe=recipe, stack="cpu", runs={})
    return grade.grade(check, Evidence(folder), load_recipes(root)[recipe], name, stack, expectations, None)


@pytest.mark.parametrize(
    ("run", "check"),
    [
        ("hf-backend/published-weights", "configuration"),
        ("hf-backend/published-weights", "loss"),
        ("hf-backend/published-weights", "reference"),
        ("hf-backend/published-weights", "weights"),
        ("hf-backend/published-weights", "ranks"),
        ("hf-backend/published-weights", "buffers"),
        ("hf-backend/published-weights", "keys"),
        ("hf-backend/reload", "reload"),
        ("moe-nki/nki-rope", "overrides"),
        ("moe-nki/nki-rope", "kernel"),
        ("moe-nki/nki-rope", "twin"),
        ("moe-nki/kernel", "kernel"),
    ],
)
def test_an_empty_folder_judges_nothing_and_passes_nothing(
    root: Path, tmp_path: Path, run: str, check: str
) -> None:
    result = judged(root, tmp_path, run, check)
    assert result.verdict is Verdict.NOT_JUDGED
    assert result.reason


def test_every_check_is_among_those(root: Path) -> None:
    assert set(grade.GRADERS) == set(CHECKS)


def test_the_reason_says_how_the_run_ended(root: Path, tmp_path: Path) -> None:
    (tmp_path / "outcome.json").write_text(
        json.dumps({"state": "ended", "reason": "rank 1 failed first: KeyError"})
    )
    assert (
        "rank 1 failed first: KeyError"
        in judged(root, tmp_path, "native/random-init", "configuration").reason
    )


def adapter(**changes: Any) -> dict[str, Any]:
    names = ["model.embed_tokens.weight", "model.norm.weight"]
    return {"before": names, "after": names, "result": names, "storage": {names[0]: 0, names[1]: 1}} | changes


def codes(record: dict[str, Any], *, tied: bool) -> list[str]:
    return [finding.code for finding in grade._adapter(record, tied).findings]


def test_a_clean_adapter_passes() -> None:
    assert codes(adapter(), tied=False) == []


def test_a_changed_input_is_found_unless_it_is_the_known_one() -> None:
    changed = adapter(after=[*adapter()["before"], "lm_head.weight"])
    assert codes(changed, tied=False) == ["adapter.input-changed"]
    assert codes(changed, tied=True) == []
    assert any("from_hf() adds lm_head.weight" in fact for fact in grade._adapter(changed, True).facts)
    assert codes(adapter(after=["x", *adapter()["before"]]), tied=True) == ["adapter.input-changed"]


def test_a_round_trip_that_renames_is_found() -> None:
    assert codes(adapter(result=["model.model.embed_tokens.weight", "model.norm.weight"]), tied=True) == [
        "adapter.round-trip"
    ]


def test_two_names_of_one_storage_are_found() -> None:
    shared = adapter(storage=dict.fromkeys(adapter()["before"], 0))
    assert codes(shared, tied=False) == ["aliases.shared"]


def test_warm_up_is_apart_from_steady_state() -> None:
    rows = [
        {"step": step, "step_seconds": seconds} for step, seconds in ((1, 9.0), (2, 1.0), (3, 3.0), (4, 2.0))
    ]
    assert _step_seconds(rows) == {"warm_up": 9.0, "steady": 2.0}
    assert _step_seconds(rows[:1]) is None
    assert _step_seconds([]) is None
