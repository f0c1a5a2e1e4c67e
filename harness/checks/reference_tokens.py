"""Were run and reference given the same tokens? Without that their losses say nothing about each other."""

from collections import Counter
from collections.abc import Mapping, Sequence
from typing import Any

from harness.checks.finding import Finding
from harness.checks.reference_record import StepRecord
from harness.checks.wording import counted

__all__ = ["judge_tokens"]


def judge_tokens(
    batches: Mapping[int, Sequence[Mapping[str, Any]]], expected: Mapping[int, StepRecord], ranks: int
) -> tuple[list[Finding], list[str]]:
    """Return the first difference in what a rank was given, or the fact that there is none.

    `batches` is rank -> [{"step", "sha256"}] of the run, `expected` the reference by step.
    """
    given: dict[tuple[int, int], list[str]] = {}
    for rank, seen in batches.items():
        for row in seen:
            given.setdefault((row["step"], rank), []).append(row["sha256"])
    equal = 0
    for step, reference in sorted(expected.items()):
        for rank in range(max(ranks, len(batches))):
            theirs = [reference.batches[rank]] if rank < len(reference.batches) else []
            ours = given.get((step, rank), [])
            if ours != theirs:
                return [_first_difference(step, rank, ours, theirs, given, expected)], []
            equal += 1
    if not equal:
        return [Finding("reference.tokens-missing", "no batch was compared: neither side recorded any")], []
    return [], [f"{counted(equal, 'batch digest')} equal ({len(expected)} steps, {ranks} ranks)"]


def _first_difference(
    step: int,
    rank: int,
    ours: Sequence[str],
    theirs: Sequence[str],
    given: Mapping[tuple[int, int], list[str]],
    expected: Mapping[int, StepRecord],
) -> Finding:
    where = f"step {step}, rank {rank}"
    data = {"step": step, "rank": rank, "run": list(ours), "reference": list(theirs)}
    if not ours:
        message = (
            f"{where}: the run recorded no batch, so nothing says that the losses are of the same tokens."
        )
        return Finding("reference.tokens-missing", message, data)
    in_run = Counter(digest for (at, _), all_of in given.items() if at in expected for digest in all_of)
    in_reference = Counter(digest for row in expected.values() for digest in row.batches)
    if in_run == in_reference:
        message = (
            f"{where}: another batch than the reference's, though both were given the same set: another order, or "
            "ranks exchanged. Losses cannot be compared step by step. Look at how the data are split and shuffled."
        )
        return Finding("reference.token-order", message, data)
    what = f"{len(ours)} batches" if len(ours) != 1 else f"batch {ours[0][:12]}"
    message = (
        f"{where}: {what} in the run, {theirs[0][:12] if theirs else 'none'} in the reference: other tokens or "
        "positions, so losses cannot be compared. Look at tokenizer, corpus, packing, ranks and batch size."
    )
    return Finding("reference.other-tokens", message, data)
