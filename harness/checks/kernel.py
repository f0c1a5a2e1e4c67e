"""Kernel check: did the kernel run, and is what it computed right?

A difference of 0.0 alone proves nothing: a silent detour through PyTorch has it too. So the numbers
are judged together with the proof that the kernel was executed: launches with the exact instruction
counts and bytes that their shapes imply, op counts per site, the kernel's own error for an illegal
length, and a receipt that only the kernel can compute.

Standard library only.
"""

from harness.checks.kernel_probe import CHECK, Claim, check_probe
from harness.checks.kernel_training import check_training

__all__ = ["CHECK", "Claim", "check_probe", "check_training"]
