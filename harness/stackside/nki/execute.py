"""Launch a kernel on the resolved backend. The only way in for op bodies."""

import inspect
import os
from typing import Any

from harness.stackside.nki.interpreter.launch import argument_of, source_of
from harness.stackside.nki.ledger import LEDGER, Launch
from harness.stackside.nki.resolver import resolve

__all__ = ["launch", "logical_cores"]


def logical_cores() -> int:
    """Return the LNC degree of this process: NEURON_LOGICAL_NC_CONFIG, which the runtime must match; default 1."""
    return int(os.environ.get("NEURON_LOGICAL_NC_CONFIG", "1"))


def launch(kernel: Any, *args: Any) -> Any:
    """Run `kernel[logical_cores()](*args)` and return its result.

    On a Neuron device the kernel is called with the device's tensors; elsewhere through
    `nki.simulate`, which AWS's wheel and the interpreter share. The interpreter records the launch
    itself, with exact counts; for AWS's backends only the call can be recorded.
    """
    backend = resolve()
    cores = logical_cores()
    bracketed = kernel[cores]
    if backend.name == "aws-nki":
        run = bracketed
    else:
        import nki

        run = nki.simulate(bracketed)
    if backend.name == "interpreter":
        return run(*args)
    error: BaseException | None = None
    try:
        return run(*args)
    except BaseException as raised:
        error = raised
        raise
    finally:
        function = getattr(kernel, "func", kernel)
        names = list(inspect.signature(function).parameters)
        LEDGER.add(
            Launch(
                kernel=str(getattr(function, "__name__", function)),
                source=source_of(function),
                backend=backend.name,
                grid=cores,
                arguments=tuple(argument_of(name, value) for name, value in zip(names, args, strict=False)),
                error=None if error is None else f"{type(error).__name__}: {error}",
            )
        )
