"""What the interpreter covers, in one place, for every message that refuses something else."""

__all__ = ["COVERED", "NkiValidationError", "refusal"]

COVERED = (
    "nki.jit, kernel[lnc], nki.simulate; "
    "nl.ndarray/ds/tile_size/program_id/num_programs/program_ndim, nl.add/subtract/multiply/maximum/minimum; "
    "slicing by int and slice, .ap() with a static pattern; "
    "nisa.dma_copy/tensor_copy/tensor_tensor/memset"
)


class NkiValidationError(Exception):
    """A hardware constraint is violated; the name is that of AWS's `nki.isa.NkiValidationError`."""


def refusal(what: str) -> str:
    """Return the message for something that is not interpreted."""
    return f"{what} is not covered by the NKI interpreter, which covers: {COVERED}"
