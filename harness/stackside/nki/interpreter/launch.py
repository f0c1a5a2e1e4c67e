"""`nki.jit`, `kernel[lnc]` and `nki.simulate`: run a kernel and write its launch to the ledger."""

import functools
import inspect
from collections.abc import Callable
from pathlib import Path
from typing import Any

import ml_dtypes
import numpy as np

from harness.stackside.nki.interpreter.coverage import NkiValidationError, refusal
from harness.stackside.nki.interpreter.state import Running, running
from harness.stackside.nki.interpreter.tensor import MemoryRegion, NkiTensor
from harness.stackside.nki.ledger import LEDGER, Argument, Launch

__all__ = ["BACKEND", "Kernel", "argument_of", "jit", "simulate", "source_of"]

BACKEND = "interpreter"

# Logical cores that a launch can span: LNC 1 or 2 on trn2 (NEURON_LOGICAL_NC_CONFIG).
MAX_LNC = 2


class Kernel:
    """A kernel function, with the number of logical cores of its next launch (`kernel[lnc]`)."""

    def __init__(self, function: Callable[..., Any], grid: int = 0) -> None:
        self.func = function
        self.grid = grid
        self.signature = inspect.signature(function)
        functools.update_wrapper(self, function)

    def __getitem__(self, lnc: int | tuple[int]) -> "Kernel":
        """Return the kernel for a launch on `lnc` cores (1 or 2); NkiValidationError for anything else."""
        grid = int(lnc[0] if isinstance(lnc, tuple) else lnc)
        if not 1 <= grid <= MAX_LNC:
            raise NkiValidationError(f"kernel[{lnc}]: LNC is 1 or {MAX_LNC}")
        return Kernel(self.func, grid)

    def __call__(self, *args: Any, **kwargs: Any) -> Any:
        """Launch; the same as `nki.simulate(kernel)(...)`."""
        return simulate(self)(*args, **kwargs)


def jit(function: Callable[..., Any] | None = None, **options: Any) -> Any:
    """Return `function` as a `Kernel`; also usable as `@nki.jit()`. Options are refused."""
    if options:
        raise NotImplementedError(refusal(f"nki.jit({', '.join(options)})"))
    return Kernel if function is None else Kernel(function)


def simulate(kernel: Any) -> Callable[..., Any]:
    """Return a callable that executes `kernel` on NumPy arrays or CPU torch tensors.

    Results come in the kind of the arguments. Each call adds one `Launch` to the ledger, also when
    the kernel raises. Raises RuntimeError for a launch inside a launch.
    """
    chosen = kernel if isinstance(kernel, Kernel) else Kernel(kernel)
    return functools.partial(_launch, chosen)


def source_of(function: Any) -> str:
    """Return `file:line` of a function (absolute file), `unknown` when it has no code of its own."""
    code = getattr(inspect.unwrap(function), "__code__", None)
    return "unknown" if code is None else f"{Path(code.co_filename).absolute()}:{code.co_firstlineno}"


def argument_of(name: str, value: Any) -> Argument:
    """Return how an argument of a launch is recorded."""
    if hasattr(value, "shape"):
        dtype = str(value.dtype).removeprefix("torch.")
        return Argument(name, shape=tuple(int(size) for size in value.shape), dtype=dtype)
    plain = value if isinstance(value, (bool, int, float, str, type(None))) else repr(value)
    return Argument(name, value=plain)


def _launch(kernel: Kernel, *args: Any, **kwargs: Any) -> Any:
    if running.get() is not None:
        raise RuntimeError(f"kernel {kernel.func.__name__} was launched inside another launch")
    bound = kernel.signature.bind(*args, **kwargs)
    bound.apply_defaults()
    region = MemoryRegion.shared_hbm if kernel.grid else MemoryRegion.private_hbm
    inputs = {
        name: NkiTensor(_to_array(value), region) if hasattr(value, "shape") else value
        for name, value in bound.arguments.items()
    }
    state = Running(grid=kernel.grid)
    outputs: tuple[NkiTensor, ...] = ()
    error: BaseException | None = None
    token = running.set(state)
    try:
        # Garbage in uninitialised memory must not warn on its way through the arithmetic: it is counted.
        with np.errstate(all="ignore"):
            result = _execute(kernel, state, inputs)
            outputs = _tensors(kernel, result)
    except BaseException as raised:
        error = raised
        raise
    finally:
        running.reset(token)
        LEDGER.add(_record(kernel, bound.arguments, state, inputs, outputs, error))
    to_torch = any(type(value).__module__.startswith("torch") for value in bound.arguments.values())
    arrays = [_to_tensor(tensor.array) if to_torch else tensor.array for tensor in outputs]
    return tuple(arrays) if isinstance(result, (tuple, list)) else (arrays[0] if arrays else None)


def _execute(kernel: Kernel, state: Running, inputs: dict[str, Any]) -> Any:
    """Run every core in turn; return the result, which must be the same tensors on each."""
    results = []
    for program in range(kernel.grid or 1):
        state.begin(program)
        results.append(kernel.func(**inputs))
    identities = {tuple(id(tensor) for tensor in _tensors(kernel, result)) for result in results}
    if len(identities) != 1:
        raise NkiValidationError(
            f"kernel {kernel.func.__name__}: its {len(results)} programs return different tensors; "
            "allocate outputs in nl.shared_hbm"
        )
    return results[0]


def _tensors(kernel: Kernel, result: Any) -> tuple[NkiTensor, ...]:
    found = () if result is None else tuple(result) if isinstance(result, (tuple, list)) else (result,)
    for tensor in found:
        if not isinstance(tensor, NkiTensor) or tensor.buffer is not MemoryRegion.shared_hbm:
            raise NkiValidationError(
                f"kernel {kernel.func.__name__} returns {tensor!r}: results must be nl.shared_hbm tensors"
            )
    return found


def _record(
    kernel: Kernel,
    arguments: dict[str, Any],
    state: Running,
    inputs: dict[str, Any],
    outputs: tuple[NkiTensor, ...],
    error: BaseException | None,
) -> Launch:
    # An element that nothing wrote is NaN too: it is counted once, as unwritten.
    nan = sum(
        _count_nan(tensor.array if tensor.written is None else tensor.array[tensor.written])
        for tensor in outputs
    )
    given = [value.array for value in inputs.values() if isinstance(value, NkiTensor)]
    return Launch(
        kernel=kernel.func.__name__,
        source=source_of(kernel.func),
        backend=BACKEND,
        grid=kernel.grid or 1,
        arguments=tuple(argument_of(name, value) for name, value in arguments.items()),
        ops=dict(state.ops),
        hbm_bytes_written=state.hbm_bytes_written,
        unwritten=sum(
            int(tensor.written.size - np.count_nonzero(tensor.written))
            for tensor in outputs
            if tensor.written is not None
        ),
        nan=nan,
        nan_inputs=sum(_count_nan(array) for array in given) if nan else 0,
        error=None if error is None else f"{type(error).__name__}: {error}",
    )


def _count_nan(array: np.ndarray[Any, np.dtype[Any]]) -> int:
    return 0 if array.dtype.kind in "iub" else int(np.count_nonzero(np.isnan(array)))


def _to_array(value: Any) -> np.ndarray[Any, np.dtype[Any]]:
    """Return the argument's own memory as an array; refuses what would need a copy or a device."""
    if isinstance(value, np.ndarray):
        array = value
    else:
        import torch

        if not isinstance(value, torch.Tensor) or value.device.type != "cpu":
            where = getattr(value, "device", type(value).__name__)
            raise TypeError(refusal(f"an argument on {where}"))
        tensor = value.detach()
        if tensor.dtype == torch.bfloat16:
            array = tensor.view(torch.uint16).numpy().view(ml_dtypes.bfloat16)
        else:
            array = tensor.numpy()
    if not array.flags.c_contiguous:
        raise ValueError(
            f"kernel arguments must be contiguous, got strides {array.strides} for {array.shape}"
        )
    return array


def _to_tensor(array: np.ndarray[Any, np.dtype[Any]]) -> Any:
    import torch

    if array.dtype == ml_dtypes.bfloat16:
        return torch.from_numpy(array.view(np.uint16)).view(torch.bfloat16)
    return torch.from_numpy(array)
