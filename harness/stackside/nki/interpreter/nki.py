"""The module that kernels get as `nki` when AWS's wheel is absent."""

from typing import Any

from harness.stackside.nki.interpreter import isa, language
from harness.stackside.nki.interpreter.coverage import refusal
from harness.stackside.nki.interpreter.launch import Kernel, jit, simulate

__all__ = ["HARNESS_INTERPRETER", "Kernel", "isa", "jit", "language", "simulate"]

__version__ = "1"
"""Version of the interpreter itself: raised when what it computes or refuses changes."""

HARNESS_INTERPRETER = True
"""What tells this module from AWS's."""


def __getattr__(name: str) -> Any:
    raise AttributeError(refusal(f"nki.{name}"))
