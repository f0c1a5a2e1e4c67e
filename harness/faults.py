"""The catalogue of seeded faults: what each breaks, and which check must catch it.

`harness run --fault NAME` breaks exactly one thing, says so in the evidence and in the summary, and is the
way to see that a check can say no.
"""

from dataclasses import dataclass

__all__ = ["FAULTS", "KERNEL_MUTANTS", "STACKSIDE", "Fault"]


@dataclass(frozen=True, slots=True)
class Fault:
    """One seeded fault. `caught_by` is the check that must fail, or `preflight` where no run may start."""

    name: str
    summary: str
    caught_by: str
    seen_in: str
    """`recipe/run` in which it can be seen."""
    where: str
    """`stack` (inside the run), `kernel` (the kernel's source), `export` (the written files), `controller`."""


_ALL = (
    Fault(
        "weights-not-loaded",
        "the initial load is skipped",
        "weights",
        "hf-backend/published-weights",
        "stack",
    ),
    Fault(
        "weight-perturbed",
        "one loaded tensor is scaled by 1.001",
        "weights",
        "hf-backend/published-weights",
        "stack",
    ),
    Fault(
        "wrong-sequence-length",
        "the sequence is half as long as asked",
        "configuration",
        "hf-backend/published-weights",
        "stack",
    ),
    Fault(
        "rope-sign",
        "queries and keys are rotated backwards",
        "reference",
        "hf-backend/published-weights",
        "stack",
    ),
    Fault(
        "rotary-repair-off",
        "torchtitan issue 4783 is not repaired",
        "buffers",
        "hf-backend/published-weights",
        "stack",
    ),
    Fault("nan-at-step-7", "a weight becomes NaN before step 7", "loss", "native/published-weights", "stack"),
    Fault("stop-at-step-9", "the data ends after step 9", "loss", "native/published-weights", "stack"),
    Fault(
        "seed-checkpoint-off",
        "every rank draws its own random weights",
        "ranks",
        "native/random-init",
        "controller",
    ),
    Fault(
        "stale-folder",
        "an old checkpoint lies in the run's folder",
        "preflight",
        "hf-backend/published-weights",
        "controller",
    ),
    Fault(
        "export-head-dropped",
        "the head is missing from the export",
        "keys",
        "hf-backend/published-weights",
        "export",
    ),
    Fault(
        "export-key-renamed",
        "one key of the export is renamed",
        "keys",
        "hf-backend/published-weights",
        "export",
    ),
    Fault(
        "export-values-changed",
        "one exported tensor's values are changed",
        "reference",
        "hf-backend/published-weights",
        "export",
    ),
    Fault(
        "export-truncated", "the exported file ends early", "keys", "hf-backend/published-weights", "export"
    ),
    Fault(
        "override-matches-nothing",
        "the override's selector matches no module",
        "overrides",
        "moe-nki/nki-rope",
        "stack",
    ),
    Fault(
        "silent-torch-fallback",
        "the kernel is replaced by its torch reference",
        "kernel",
        "moe-nki/kernel",
        "kernel",
    ),
    Fault(
        "backward-sign-flipped",
        "the kernel's backward rotates the wrong way",
        "kernel",
        "moe-nki/kernel",
        "kernel",
    ),
)

FAULTS = {fault.name: fault for fault in _ALL}
"""Every seeded fault by name."""

STACKSIDE = frozenset(fault.name for fault in _ALL if fault.where in ("stack", "kernel"))
"""Faults that act inside the stack's processes."""

KERNEL_MUTANTS = frozenset(fault.name for fault in _ALL if fault.where == "kernel")
"""Faults that are mutants of the kernel's source."""
