"""Loss: the steps that were asked, finite, starting where it should, and falling.

"Below random" and "falls" are necessary and not sufficient (garbage in a rotary table passes both);
equality with a reference is the `reference` check's.
"""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from typing import Any

from harness.checks.finding import CheckResult, Finding, judge

__all__ = ["FirstLoss", "check_loss"]

NAME = "loss"
RANDOM_MARGIN = 0.3
"""In nats: a first loss above ln(vocabulary) minus this is what random weights give, not published ones."""
BROKEN_MARGIN = 1.5
"""In nats: random initialisation was seen up to 0.5 above ln(vocabulary) here and 0.5 at 4B; beyond this
a model is worse than random: broken, not untrained. Tied random heads start higher: they have a band."""


@dataclass(frozen=True, slots=True)
class FirstLoss:
    """The two-sided band of the first step's loss, and where it comes from."""

    low: float
    high: float
    origin: str


def check_loss(
    rows: Sequence[Mapping[str, Any]],
    *,
    steps: int,
    vocabulary: int,
    published: bool,
    first: FirstLoss | None = None,
    falls_by: float = 0.0,
    ended: str = "",
) -> CheckResult:
    """Judge a run's metrics rows ({"step", "loss", "grad_norm"}).

    `published` says that the run started from published weights; `ended` is how the run ended, in words,
    for the message when steps are missing. Losses are in nats per token.
    """
    if not rows:
        return judge(
            NAME, [Finding("loss.empty", f"no step was recorded, {steps} were asked{_because(ended)}")], ()
        )
    findings = [*_steps(rows, steps, ended), *_finite(rows)]
    by_step = {row["step"]: row for row in rows}
    facts = [f"{len(by_step)} steps recorded of {steps} asked"]
    losses = [by_step[step]["loss"] for step in sorted(by_step)]
    if 1 in by_step and math.isfinite(by_step[1]["loss"]):
        findings += _first(by_step[1]["loss"], vocabulary, published, first)
        facts.append(f"first loss {by_step[1]['loss']:.6g}, ln(vocabulary) {math.log(vocabulary):.4f}")
    if not findings:
        findings += _falls(losses, falls_by)
        facts.append(f"last loss {losses[-1]:.6g}")
    return judge(NAME, findings, facts)


def _because(ended: str) -> str:
    return f"; the run ended: {ended}" if ended else ""


def _steps(rows: Sequence[Mapping[str, Any]], steps: int, ended: str) -> list[Finding]:
    counts = Counter(row["step"] for row in rows)
    findings = []
    missing = [step for step in range(1, steps + 1) if step not in counts]
    if missing:
        findings.append(
            Finding(
                "loss.missing-step",
                f"steps {_list(missing)} are missing: {len(counts)} of {steps} asked were recorded{_because(ended)}",
                {"missing": missing},
            )
        )
    if extra := sorted(step for step in counts if not 1 <= step <= steps):
        findings.append(
            Finding(
                "loss.extra-step",
                f"steps {_list(extra)} were not asked: only 1 to {steps} were",
                {"extra": extra},
            )
        )
    if twice := sorted(step for step, count in counts.items() if count > 1):
        findings.append(
            Finding(
                "loss.duplicate-step",
                f"steps {_list(twice)} were recorded more than once: two runs wrote into one folder?",
                {"duplicated": twice},
            )
        )
    return findings


def _list(steps: Sequence[int]) -> str:
    if len(steps) > 1 and list(steps) == list(range(steps[0], steps[-1] + 1)):
        return f"{steps[0]} to {steps[-1]}"
    return ", ".join(map(str, steps))


def _finite(rows: Sequence[Mapping[str, Any]]) -> list[Finding]:
    findings = []
    for row in rows:
        for name in ("loss", "grad_norm"):
            value = row.get(name)
            if not isinstance(value, float | int) or not math.isfinite(value):
                message = f"step {row['step']}: {name} is {value}; every step must be finite"
                findings.append(Finding("loss.not-finite", message, {"step": row["step"], "name": name}))
            elif value == 0.0:
                message = f"step {row['step']}: {name} is exactly 0.0: nothing is learned, or a display filter wrote it"
                findings.append(Finding("loss.zero", message, {"step": row["step"], "name": name}))
    return findings


def _first(loss: float, vocabulary: int, published: bool, band: FirstLoss | None) -> list[Finding]:
    random = math.log(vocabulary)
    if loss > random + BROKEN_MARGIN and (band is None or loss > band.high):
        return [
            Finding(
                "loss.worse-than-random",
                f"step 1 loss {loss:.5g} is far above ln({vocabulary}) = {random:.4f}: not an untrained model but a "
                "broken one. Next: look at output scale, tying, RoPE, and shards in the wrong place",
                {"loss": loss, "random": random},
            )
        ]
    if published and loss >= random - RANDOM_MARGIN:
        return [
            Finding(
                "loss.random-like",
                f"step 1 loss {loss:.5g} is what random weights give (ln({vocabulary}) = {random:.4f}), but published "
                "weights were asked. Next: see whether they were loaded (check `weights`)",
                {"loss": loss, "random": random},
            )
        ]
    if band is None or band.low <= loss <= band.high:
        return []
    side = "below" if loss < band.low else "above"
    return [
        Finding(
            f"loss.{side}-band",
            f"step 1 loss {loss:.6g} is {side} the band {band.low:.6g} to {band.high:.6g} ({band.origin})",
            {"loss": loss, "low": band.low, "high": band.high},
        )
    ]


def _falls(losses: Sequence[float], falls_by: float) -> list[Finding]:
    if len(losses) < 2:
        return []
    if len(set(losses)) == 1:
        return [
            Finding("loss.constant", f"all {len(losses)} losses are exactly {losses[0]}: nothing is trained")
        ]
    fell = losses[0] - min(losses[-3:])
    if fell > falls_by:
        return []
    return [
        Finding(
            "loss.not-falling",
            f"loss fell by {fell:.4g} from the first step to the best of the last three, more than {falls_by:g} was "
            "expected: training is not learning",
            {"fell": fell},
        )
    ]
