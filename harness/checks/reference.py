"""Reference: the run computes what plain Transformers and PyTorch compute on the same tokens.

The strongest check of a whole training path: a wrong mask, rotation, scale or update changes these numbers
where "below random" and "falls" still hold. It says first whether the two can be compared at all.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from pydantic import ValidationError

from harness.checks.finding import CheckResult, Finding, judge
from harness.checks.loss import BROKEN_MARGIN, RANDOM_MARGIN
from harness.checks.reference_record import ReferenceRecord, StepRecord, Tolerances, compared, number
from harness.checks.reference_tokens import judge_tokens
from harness.checks.wording import counted, few, shown

__all__ = ["Tolerances", "check_reference"]

NAME = "reference"
_MASKS = {"causal": "block-causal", "block_causal": "causal"}
"""The reference's mask -> the name of the other one."""
_RATIO_TOLERANCE = 2e-3
"""How near to a whole number a ratio of losses is taken for a summed or twice-divided loss; relative to
the number if it is one of the run's factors, absolute if not, or every large ratio would be near one."""

Rows = Mapping[int, Mapping[str, Any]]
"""The run's metrics by step."""


def check_reference(
    rows: Sequence[Mapping[str, Any]],
    batches: Mapping[int, Sequence[Mapping[str, Any]]],
    record: Mapping[str, Any],
    *,
    mask: str | None = None,
    steps: int | None = None,
    exported: bool = False,
    factors: Mapping[str, int] | None = None,
    tolerances: Tolerances | None = None,
) -> CheckResult:
    """Judge a run against the record that the reference left for it.

    `rows` are the run's metrics ({"step", "loss", "grad_norm", "learning_rate" or "lr"}), `batches` what
    each rank was given (rank -> [{"step", "sha256"}]). `mask` is the attention mask that the recipe
    declares and `steps` the number it asked for (default: what the reference was asked); `exported` says
    that the run exported its weights. `factors` (name -> number, such as {"ranks": 2}) are named when a
    loss is a multiple of the expected one. A reference of the first step only judges only that one.

    Codes `reference.record`, `.missing-step`, `.extra-step`, `.duplicate-step`, `.short`;
    `.tokens-missing`, `.token-order`, `.other-tokens`; `.not-finite`, `.other-mask`, `.scaled`,
    `.worse-than-random`, `.random-like`, `.first-loss-above`, `.first-loss-below`, `.step-loss`,
    `.grad-norm`, `.learning-rate`; `.no-export`, `.weights`, `.weights-missing`, `.weights-extra`.
    """
    allowed = tolerances or Tolerances()
    try:
        reference = ReferenceRecord.model_validate(record)
    except ValidationError as error:
        where = ".".join(map(str, error.errors()[0]["loc"]))
        message = f"the reference's record is not whole: `{where}`: {error.errors()[0]['msg']}. Run it again."
        return judge(NAME, [Finding("reference.record", message)], ())
    if mask is not None and mask != reference.mask:
        message = f"the recipe declares mask {mask}, the reference used {reference.mask}. Run it again."
        return judge(NAME, [Finding("reference.record", message)], ())
    asked = reference.asked_steps if steps is None else steps
    expected = {step.step: step for step in reference.steps}
    wanted = range(1, asked + 1) if reference.trained else range(1, 2)
    findings = _complete(rows, expected, wanted, asked)
    tokens, facts = judge_tokens(batches, expected, reference.ranks)
    if tokens:
        return judge(NAME, [*findings, *tokens], ())
    by_step: Rows = {row["step"]: row for row in rows}
    common = [step for step in wanted if step in by_step and step in expected]
    for found, fact in (
        _losses(by_step, expected, common, reference, factors or {}, allowed),
        _learning_rates(by_step, expected, common, allowed),
        _weights(reference, exported, allowed),
    ):
        findings += found
        facts += fact
    return judge(NAME, findings, facts)


def _complete(
    rows: Sequence[Mapping[str, Any]], expected: Mapping[int, StepRecord], wanted: range, asked: int
) -> list[Finding]:
    findings = []
    counts = Counter(row["step"] for row in rows)
    for code, present, who in (
        ("reference.missing-step", counts, "the run did not record"),
        ("reference.short", expected, "the reference did not repeat"),
    ):
        if missing := [step for step in wanted if step not in present]:
            message = f"{who} {counted(len(missing), 'step')} of {len(wanted)}: {few(missing)}. Run it again."
            findings.append(Finding(code, message, {"missing": missing}))
    if twice := sorted(step for step, count in counts.items() if count > 1):
        message = (
            f"the run recorded {counted(len(twice), 'step')} twice: {few(twice)}: two runs in one folder?"
        )
        findings.append(Finding("reference.duplicate-step", message, {"duplicated": twice}))
    if extra := sorted(step for step in counts if not 1 <= step <= asked):
        message = f"the run recorded {counted(len(extra), 'step')} that were not asked: {few(extra)} (asked: {asked})."
        findings.append(Finding("reference.extra-step", message, {"extra": extra}))
    return findings


def _losses(
    rows: Rows,
    expected: Mapping[int, StepRecord],
    common: Sequence[int],
    reference: ReferenceRecord,
    factors: Mapping[str, int],
    allowed: Tolerances,
) -> tuple[list[Finding], list[str]]:
    broken = [step for step in common if not math.isfinite(number(rows[step].get("loss")))]
    if broken:
        loss = rows[broken[0]].get("loss")
        message = (
            f"step {broken[0]}: the run's loss is {loss}, the reference's {expected[broken[0]].loss:.7g}."
        )
        return [Finding("reference.not-finite", message, {"steps": broken})], []
    table = [compared(step, expected[step].loss, rows[step]["loss"]) for step in common]
    if not table:
        return [], []
    first, last = table[0], max(table, key=lambda entry: _sortable(entry["abs"]))
    if first["step"] == 1 and not first["abs"] <= allowed.first_loss:
        return [_first_loss(first, reference, factors, allowed)], []
    late = [entry for entry in table if not entry["abs"] <= allowed.loss]
    norms, facts = _grad_norms(rows, expected, common, factors, allowed)
    if late:
        return [_step_loss(late[0], table, len(late)), *norms], facts
    facts = [
        f"first loss {first['got']:.7g}, reference {first['expected']:.7g}: difference {first['abs']:.2g}",
        (
            f"losses of {counted(len(table), 'step')} equal within {allowed.loss:g}: largest difference "
            f"{last['abs']:.2g} at step {last['step']}"
        ),
        *facts,
    ]
    if abs(reference.other_mask_first_loss - first["expected"]) <= allowed.first_loss:
        facts.append("both masks give this first loss: it does not tell which one the run used")
    return norms, facts


def _first_loss(
    entry: Mapping[str, Any], reference: ReferenceRecord, factors: Mapping[str, int], allowed: Tolerances
) -> Finding:
    """Say what a wrong first loss looks like: each face is another fault."""
    expected, got, random = entry["expected"], entry["got"], reference.random_loss
    data = {**entry, "random": random, "other_mask": reference.other_mask_first_loss}
    start = f"step 1 loss {got:.7g}, reference {expected:.7g}"
    if abs(got - reference.other_mask_first_loss) <= allowed.first_loss:
        mask = reference.mask.replace("_", "-")
        message = f"{start}: the run used {_MASKS[reference.mask]} attention, the reference {mask}. Align the masks."
        return Finding("reference.other-mask", message, data)
    if multiple := _multiple(got / expected if expected else math.nan, factors):
        message = f"{start}: {multiple}. Look at how the loss is averaged over micro-batches and ranks."
        return Finding("reference.scaled", message, data)
    if got > random + BROKEN_MARGIN:
        message = (
            f"{start}: far above ln(vocabulary) = {random:.4f}, worse than random: not an untrained model but a broken "
            "one. Look at output scale, tying, RoPE, and shards in the wrong place."
        )
        return Finding("reference.worse-than-random", message, data)
    if got >= random - RANDOM_MARGIN > expected:
        message = f"{start}: like random weights (ln(vocabulary) = {random:.4f}): the published ones were not loaded."
        return Finding("reference.random-like", message, data)
    side = "above" if got > expected else "below"
    hint = (
        "Tokens are equal, so look at weights, RoPE, norms and mask."
        if side == "above"
        else "Tokens are equal, so look for labels or attention that see the next token, or other weights."
    )
    message = f"{start}: {side} it by {entry['abs']:.3g}, allowed {allowed.first_loss:g}. {hint}"
    return Finding(f"reference.first-loss-{side}", message, data)


def _multiple(ratio: float, factors: Mapping[str, int]) -> str:
    """Say which multiple `ratio` is and which of the run's factors has that value; empty if it is none."""
    for kind, value in (("x the expected one", ratio), ("of it", 1 / ratio if ratio else math.nan)):
        whole = round(value) if math.isfinite(value) else 0
        named = [f"{name} is {size}" for name, size in factors.items() if size == whole]
        if whole >= 2 and abs(value - whole) <= _RATIO_TOLERANCE * (whole if named else 1):
            amount = f"{value:.3f} {kind}" if kind.startswith("x") else f"1/{value:.3f} {kind}"
            return f"it is {amount}" + (f", and {few(named)}" if named else "")
    return ""


def _step_loss(entry: Mapping[str, Any], table: Sequence[Mapping[str, Any]], wrong: int) -> Finding:
    equal = table[0]["step"] == 1 != entry["step"]
    clue = (
        "; step 1 is equal, so the forward is right: look at backward, optimizer and learning rate"
        if equal
        else ""
    )
    message = (
        f"step {entry['step']} loss {entry['got']:.7g}, reference {entry['expected']:.7g} (difference "
        f"{entry['abs']:.3g}); {wrong} of {len(table)} steps differ{clue}."
    )
    return Finding("reference.step-loss", message, {"table": list(table)})


def _grad_norms(
    rows: Rows,
    expected: Mapping[int, StepRecord],
    common: Sequence[int],
    factors: Mapping[str, int],
    allowed: Tolerances,
) -> tuple[list[Finding], list[str]]:
    table = [
        compared(step, norm, number(rows[step].get("grad_norm")))
        for step in common
        if (norm := expected[step].grad_norm) is not None
    ]
    wrong = [entry for entry in table if not entry["rel"] <= allowed.grad_norm]
    if wrong:
        entry = wrong[0]
        multiple = _multiple(entry["got"] / entry["expected"] if entry["expected"] else math.nan, factors)
        message = (
            f"step {entry['step']} gradient norm {entry['got']:.7g}, reference {entry['expected']:.7g} (relative "
            f"{entry['rel']:.3g}, allowed {allowed.grad_norm:g}){'; ' + multiple if multiple else ''}. Losses do not "
            "show a wrong backward at once: look at the backward and at how gradients are reduced over ranks."
        )
        return [Finding("reference.grad-norm", message, {"table": table})], []
    if not table:
        return [], []
    worst = max(table, key=lambda entry: _sortable(entry["rel"]))
    return [], [
        f"gradient norms equal: largest relative difference {worst['rel']:.2g} at step {worst['step']}"
    ]


def _learning_rates(
    rows: Rows, expected: Mapping[int, StepRecord], common: Sequence[int], allowed: Tolerances
) -> tuple[list[Finding], list[str]]:
    for step in common:
        rate, wanted = rows[step].get("learning_rate", rows[step].get("lr")), expected[step].lr
        if not compared(step, wanted, number(rate))["rel"] <= allowed.learning_rate:
            message = (
                f"step {step} learning rate {'not recorded' if rate is None else rate}, expected {wanted:.9g}. "
                "Look at warm-up, decay and the number of steps."
            )
            return [
                Finding("reference.learning-rate", message, {"step": step, "expected": wanted, "got": rate})
            ], []
    return [], [f"learning rates of {counted(len(common), 'step')} equal the schedule"] if common else []


def _weights(
    reference: ReferenceRecord, exported: bool, allowed: Tolerances
) -> tuple[list[Finding], list[str]]:
    export = reference.export
    if export is None:
        if not exported:
            return [], []
        if not reference.trained:
            return [], ["exported weights not compared: the reference repeats the first step only"]
        message = "the run exported its weights, but the reference did not compare them. Run it again."
        return [Finding("reference.no-export", message)], []
    findings = [
        Finding(
            f"reference.weights-{kind}",
            f"export: {counted(len(names), 'tensor')} {kind}: {few(names)}. Compare the key names.",
            {"names": list(names)},
        )
        for kind, names in (("missing", export.missing), ("extra", export.extra))
        if names
    ]
    if export.max_abs_diff is None or not export.max_abs_diff <= allowed.weights:
        size = (
            "not finite or of another shape" if export.max_abs_diff is None else f"{export.max_abs_diff:.3g}"
        )
        message = (
            f"exported weights differ from the reference's: {size} at {shown(export.worst)}, "
            f"allowed {allowed.weights:g}. If the losses agree, look at the export and its names."
        )
        findings.append(Finding("reference.weights", message, export.model_dump()))
    if findings:
        return findings, []
    return [], [
        (
            f"{counted(export.tensors, 'exported tensor')} equal within {allowed.weights:g}: largest difference "
            f"{export.max_abs_diff:.2g} at {shown(export.worst)}"
        )
    ]


def _sortable(value: float) -> float:
    return math.inf if math.isnan(value) else value
