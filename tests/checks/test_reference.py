"""The reference check, passing and failing."""

import copy
import math
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.checks.finding import CheckResult, Verdict
from harness.checks.reference import Tolerances, check_reference

STEPS, RANKS = 10, 2
LOSSES = [1.958, 1.957, 1.95, 1.93, 1.92, 1.9, 1.89, 1.88, 1.875, 1.87]
OTHER_MASK = 1.91
RANDOM = math.log(512)


def digest(step: int, rank: int) -> str:
    return f"{step:02d}{rank}" + "a" * 61


def record(**changes: Any) -> dict[str, Any]:
    steps = [
        {
            "step": step,
            "loss": loss,
            "loss_hex": loss.hex(),
            "grad_norm": 0.9 + step / 10,
            "lr": 8e-4 / step,
            "batches": [digest(step, rank) for rank in range(RANKS)],
        }
        for step, loss in enumerate(LOSSES, 1)
    ]
    export = {
        "tensors": 25,
        "max_abs_diff": 3e-6,
        "worst": "model.norm.weight",
        "missing": [],
        "extra": [],
        "not_comparable": [],
    }
    return {
        "mask": "causal",
        "ranks": RANKS,
        "seq_len": 128,
        "trained": True,
        "asked_steps": STEPS,
        "steps": steps,
        "other_mask_first_loss": OTHER_MASK,
        "random_loss": RANDOM,
        "export": export,
        **changes,
    }


def rows() -> list[dict[str, Any]]:
    return [
        {
            "step": s["step"],
            "loss": s["loss"] + 1e-7,
            "grad_norm": s["grad_norm"] + 1e-6,
            "learning_rate": s["lr"],
        }
        for s in record()["steps"]
    ]


def batches() -> dict[int, list[dict[str, Any]]]:
    return {
        rank: [{"step": step, "sha256": digest(step, rank)} for step in range(1, STEPS + 1)]
        for rank in range(RANKS)
    }


def judged(
    data: list[dict[str, Any]] | None = None,
    given: dict[int, list[dict[str, Any]]] | None = None,
    reference: dict[str, Any] | None = None,
    **options: Any,
) -> CheckResult:
    return check_reference(
        rows() if data is None else data,
        batches() if given is None else given,
        record() if reference is None else reference,
        **options,
    )


def codes(result: CheckResult) -> list[str]:
    assert result.verdict is Verdict.FAIL
    return [finding.code for finding in result.findings]


def first_loss(loss: float) -> list[dict[str, Any]]:
    changed = rows()
    changed[0]["loss"] = loss
    return changed


def test_equal_numbers_pass_with_the_worst_differences_as_facts() -> None:
    result = judged(mask="causal", steps=STEPS, exported=True)
    assert result.verdict is Verdict.PASS
    facts = "\n".join(result.facts)
    assert "20 batch digests equal (10 steps, 2 ranks)" in facts
    assert "losses of 10 steps equal within 1e-05: largest difference 1e-07" in facts
    assert "gradient norms equal: largest relative difference 1e-06 at step 1" in facts
    assert "learning rates of 10 steps equal" in facts
    assert "25 exported tensors equal within 0.0001: largest difference 3e-06 at model.norm.weight" in facts


def test_the_key_lr_is_a_learning_rate_too() -> None:
    data = [{**row, "lr": row["learning_rate"]} for row in rows()]
    for row in data:
        del row["learning_rate"]
    assert judged(data).verdict is Verdict.PASS


# Completeness


@pytest.mark.parametrize("broken", [{}, {"steps": "none"}, {"mask": "full"}])
def test_a_record_that_is_not_whole_fails(broken: dict[str, Any]) -> None:
    reference = {**record(), **broken} if broken else {}
    assert codes(judged(reference=reference)) == ["reference.record"]


def test_a_reference_without_a_finite_loss_is_not_whole() -> None:
    reference = record()
    reference["steps"][3]["loss"] = None
    result = judged(reference=reference)
    assert codes(result) == ["reference.record"]
    assert "steps.3.loss" in result.findings[0].message


def test_a_reference_of_another_mask_than_declared_is_refused() -> None:
    result = judged(mask="block_causal")
    assert codes(result) == ["reference.record"]
    assert "declares mask block_causal, the reference used causal" in result.findings[0].message


def test_missing_steps_fail() -> None:
    result = judged(rows()[:8])
    assert codes(result) == ["reference.missing-step"]
    assert "did not record 2 steps of 10: 9, 10" in result.findings[0].message


def test_no_rows_fail() -> None:
    assert "reference.missing-step" in codes(judged([]))


def test_both_sides_short_fail() -> None:
    reference = record(steps=record()["steps"][:5])
    assert set(codes(judged(rows()[:5], reference=reference))) == {
        "reference.missing-step",
        "reference.short",
    }


def test_more_steps_asked_than_the_reference_was_fail() -> None:
    assert set(codes(judged(steps=12))) == {"reference.missing-step", "reference.short"}


def test_steps_that_were_not_asked_fail() -> None:
    extra = [*rows(), {**rows()[-1], "step": 11}]
    assert codes(judged(extra)) == ["reference.extra-step"]


def test_a_step_twice_fails() -> None:
    result = judged([*rows(), rows()[0]])
    assert codes(result) == ["reference.duplicate-step"]


# Tokens


def test_other_tokens_name_the_first_step_and_rank_and_stop_there() -> None:
    given = batches()
    given[1][2]["sha256"] = "f" * 64
    given[0][4]["sha256"] = "e" * 64
    data = first_loss(5.0)
    result = judged(data, given)
    assert codes(result) == ["reference.other-tokens"]
    assert "step 3, rank 1" in result.findings[0].message
    assert "losses cannot be compared" in result.findings[0].message
    assert "ffffffffffff" in result.findings[0].message


def test_exchanged_ranks_are_another_order() -> None:
    given = batches()
    result = judged(given={0: given[1], 1: given[0]})
    assert codes(result) == ["reference.token-order"]
    assert "step 1, rank 0" in result.findings[0].message


def test_the_same_batches_in_another_order_are_another_order() -> None:
    given = batches()
    given[0][0]["sha256"], given[0][1]["sha256"] = given[0][1]["sha256"], given[0][0]["sha256"]
    assert codes(judged(given=given)) == ["reference.token-order"]


@pytest.mark.parametrize("given", [{}, {0: batches()[0]}, {0: batches()[0], 1: batches()[1][:9]}])
def test_batches_that_were_not_recorded_fail(given: dict[int, list[dict[str, Any]]]) -> None:
    result = judged(given=given)
    assert codes(result) == ["reference.tokens-missing"]
    assert "recorded no batch" in result.findings[0].message


def test_two_batches_in_one_step_are_other_tokens() -> None:
    given = batches()
    given[0].insert(1, {"step": 1, "sha256": "f" * 64})
    result = judged(given=given)
    assert codes(result) == ["reference.other-tokens"]
    assert "2 batches in the run" in result.findings[0].message


def test_a_rank_more_than_the_reference_has_is_other_tokens() -> None:
    given = {**batches(), 2: batches()[0]}
    assert codes(judged(given=given)) == ["reference.other-tokens"]


def test_nothing_on_both_sides_is_no_pass() -> None:
    reference = record(steps=[])
    assert "reference.tokens-missing" in codes(judged([], {}, reference))


# Losses


def test_the_other_mask_is_named() -> None:
    result = judged(first_loss(OTHER_MASK + 1e-7))
    assert codes(result) == ["reference.other-mask"]
    assert "the run used block-causal attention, the reference causal" in result.findings[0].message


def test_the_other_mask_is_named_the_other_way_round() -> None:
    result = judged(first_loss(OTHER_MASK), reference=record(mask="block_causal"))
    assert "the run used causal attention, the reference block-causal" in result.findings[0].message


def test_masks_that_cannot_be_told_apart_are_a_fact() -> None:
    result = judged(reference=record(other_mask_first_loss=LOSSES[0]))
    assert result.verdict is Verdict.PASS
    assert any("both masks give this first loss" in fact for fact in result.facts)


@pytest.mark.parametrize(
    ("loss", "code", "words"),
    [
        (1.958 * 2, "reference.scaled", "2.000 x the expected one, and ranks is 2"),
        (1.958 / 4, "reference.scaled", "1/4.000 of it"),
        (1.958 * 31.95, "reference.scaled", "31.950 x the expected one, and local_batch_size is 32"),
        (1.958 * 15.98, "reference.worse-than-random", "worse than random"),
        (RANDOM - 0.2, "reference.random-like", "were not loaded"),
        (RANDOM + 0.5, "reference.random-like", "ln(vocabulary) = 6.2383"),
        (143.2, "reference.worse-than-random", "worse than random"),
        (1.958 + 2e-5, "reference.first-loss-above", "above it by 2e-05, allowed 1e-05"),
        (2.6, "reference.first-loss-above", "RoPE"),
        (1.2, "reference.first-loss-below", "below it by 0.758"),
    ],
)
def test_each_face_of_a_wrong_first_loss(loss: float, code: str, words: str) -> None:
    result = judged(first_loss(loss), factors={"ranks": 2, "local_batch_size": 32})
    assert codes(result) == [code]
    assert words in result.findings[0].message
    assert f"step 1 loss {loss:.7g}, reference 1.958" in result.findings[0].message
    assert result.findings[0].data["got"] == loss


def test_a_reference_near_random_calls_nothing_random_like() -> None:
    reference = record(random_loss=2.0)
    assert codes(judged(first_loss(2.1), reference=reference)) == ["reference.first-loss-above"]


def test_a_later_difference_names_the_first_step_and_keeps_the_table() -> None:
    data = rows()
    for row in data[4:]:
        row["loss"] += 3e-5
    result = judged(data)
    assert codes(result) == ["reference.step-loss"]
    assert "step 5 loss" in result.findings[0].message
    assert "6 of 10 steps differ; step 1 is equal" in result.findings[0].message
    assert [entry["step"] for entry in result.findings[0].data["table"]] == list(range(1, 11))


@pytest.mark.parametrize("wrong", range(1, STEPS))
def test_one_wrong_step_of_ten_fails(wrong: int) -> None:
    data = rows()
    data[wrong]["loss"] += 2e-5
    assert codes(judged(data)) == ["reference.step-loss"]


@pytest.mark.parametrize("value", [math.nan, math.inf, None])
def test_a_loss_that_is_no_number_fails(value: float | None) -> None:
    data = rows()
    data[6]["loss"] = value
    result = judged(data)
    assert "reference.not-finite" in codes(result)
    assert "step 7" in result.findings[0].message


def test_a_gradient_norm_shows_what_losses_hide() -> None:
    data = rows()
    data[0]["grad_norm"] *= 2
    result = judged(data, factors={"ranks": 2})
    assert codes(result) == ["reference.grad-norm"]
    assert "2.000 x the expected one, and ranks is 2" in result.findings[0].message


@pytest.mark.parametrize("value", [math.nan, None])
def test_a_gradient_norm_that_is_no_number_fails(value: float | None) -> None:
    data = rows()
    data[2]["grad_norm"] = value
    assert codes(judged(data)) == ["reference.grad-norm"]


# Learning rates, weights


@pytest.mark.parametrize("rate", [8e-4 / 3 * (1 + 2e-6), None, math.nan])
def test_another_learning_rate_fails(rate: float | None) -> None:
    data = rows()
    data[2]["learning_rate"] = rate
    result = judged(data)
    assert codes(result) == ["reference.learning-rate"]
    assert "step 3 learning rate" in result.findings[0].message


@pytest.mark.parametrize(
    ("change", "code", "words"),
    [
        ({"max_abs_diff": 2e-4}, "reference.weights", "0.0002 at model.norm.weight"),
        ({"max_abs_diff": None}, "reference.weights", "not finite or of another shape"),
        ({"missing": ["lm_head.weight"]}, "reference.weights-missing", "1 tensor missing: lm_head.weight"),
        ({"extra": ["a.weight"]}, "reference.weights-extra", "1 tensor extra: a.weight"),
    ],
)
def test_a_wrong_export_fails(change: dict[str, Any], code: str, words: str) -> None:
    result = judged(reference=record(export={**record()["export"], **change}))
    assert codes(result) == [code]
    assert words in result.findings[0].message


def test_an_export_that_was_not_compared_fails_only_if_there_is_one() -> None:
    reference = record(export=None)
    assert judged(reference=reference).verdict is Verdict.PASS
    assert codes(judged(reference=reference, exported=True)) == ["reference.no-export"]


def test_a_reference_of_the_first_step_judges_that_one() -> None:
    reference = record(trained=False, steps=record()["steps"][:1], export=None)
    reference["steps"][0]["grad_norm"] = None
    data = rows()
    data[5]["loss"] = 3.0
    result = judged(data, reference=reference, exported=True)
    assert result.verdict is Verdict.PASS
    assert any("losses of 1 step" in fact for fact in result.facts)
    assert any("exported weights not compared" in fact for fact in result.facts)
    assert codes(judged(first_loss(1.97), reference=reference)) == ["reference.first-loss-above"]


# Properties


@settings(deadline=None)
@given(st.lists(st.floats(-9e-6, 9e-6), min_size=STEPS, max_size=STEPS))
def test_differences_within_the_tolerance_pass(noise: list[float]) -> None:
    data = [{**row, "loss": row["loss"] - 1e-7 + shift} for row, shift in zip(rows(), noise, strict=True)]
    assert judged(data).verdict is Verdict.PASS


@settings(deadline=None)
@given(st.integers(0, STEPS - 1), st.floats(2e-5, 1e3), st.sampled_from([1, -1]))
def test_a_difference_beyond_the_tolerance_never_passes(step: int, size: float, sign: int) -> None:
    data = rows()
    data[step]["loss"] += sign * size
    assert judged(data).verdict is Verdict.FAIL


@settings(deadline=None)
@given(st.integers(0, STEPS - 1), st.sampled_from(["loss", "grad_norm", "learning_rate"]))
def test_an_exact_comparison_sees_the_smallest_change(step: int, name: str) -> None:
    exact = Tolerances(0.0, 0.0, 0.0, 0.0, 0.0)
    reference = record(export=None)
    data = [
        {"step": s["step"], "loss": s["loss"], "grad_norm": s["grad_norm"], "learning_rate": s["lr"]}
        for s in reference["steps"]
    ]
    assert judged(data, reference=reference, tolerances=exact).verdict is Verdict.PASS
    data[step][name] = math.nextafter(data[step][name], math.inf)
    assert judged(data, reference=reference, tolerances=exact).verdict is Verdict.FAIL


def test_nothing_given_is_changed() -> None:
    data, given_batches, reference = rows(), batches(), record()
    before = copy.deepcopy((data, given_batches, reference))
    judged(data, given_batches, reference)
    assert (data, given_batches, reference) == before
