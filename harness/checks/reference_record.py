"""What the reference left, as data, and how its numbers are compared with a run's."""

import math
from dataclasses import dataclass
from typing import Any, Literal

from pydantic import BaseModel, ConfigDict

__all__ = ["ExportRecord", "ReferenceRecord", "StepRecord", "Tolerances", "compared", "number"]


@dataclass(frozen=True, slots=True)
class Tolerances:
    """Largest differences that pass.

    Measured on this project's CPU recipes: losses 6e-7 nats, gradient norms 4e-5, exported weights 4e-5.
    """

    first_loss: float = 1e-5
    """Nats, absolute."""
    loss: float = 1e-5
    """Nats, absolute, every step."""
    grad_norm: float = 1e-3
    """Relative."""
    learning_rate: float = 1e-6
    """Relative."""
    weights: float = 1e-4
    """Absolute."""


class StepRecord(BaseModel):
    """One step as the reference computed it. `batches` holds the digest of each rank's batch."""

    model_config = ConfigDict(frozen=True)
    step: int
    loss: float
    grad_norm: float | None
    lr: float
    batches: tuple[str, ...]


class ExportRecord(BaseModel):
    """How far the run's exported weights lie from the reference's; None where a value is not finite."""

    model_config = ConfigDict(frozen=True)
    tensors: int
    max_abs_diff: float | None
    worst: str | None
    missing: tuple[str, ...]
    extra: tuple[str, ...]
    not_comparable: tuple[str, ...] = ()


class ReferenceRecord(BaseModel):
    """What the reference left. Losses in nats per token; `random_loss` is ln(vocabulary)."""

    model_config = ConfigDict(frozen=True)
    mask: Literal["causal", "block_causal"]
    ranks: int
    trained: bool
    asked_steps: int
    steps: tuple[StepRecord, ...]
    other_mask_first_loss: float
    random_loss: float
    export: ExportRecord | None


def compared(step: int, expected: float, got: float) -> dict[str, Any]:
    """Return both values with their absolute and relative difference."""
    absolute = abs(got - expected)
    return {
        "step": step,
        "expected": expected,
        "got": got,
        "abs": absolute,
        "rel": absolute / abs(expected) if expected else (0.0 if absolute == 0 else math.inf),
    }


def number(value: Any) -> float:
    """Return `value` as a float; NaN, which no tolerance admits, if it is no number."""
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
