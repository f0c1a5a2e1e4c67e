"""What the judgement of a probe and of a training run share: backends, launches, receipts."""

from collections.abc import Iterable, Iterator, Sequence
from pathlib import PurePath
from typing import Literal

from harness.checks.finding import Finding
from harness.checks.kernel_model import expected_receipt, rope_cost
from harness.checks.kernel_records import Argument, Backend, Kernel, Receipt

__all__ = [
    "CHECK",
    "KERNEL_PATH",
    "Claim",
    "backend_facts",
    "backend_findings",
    "cost_findings",
    "fold",
    "receipt_findings",
    "source_findings",
]

CHECK = "kernel"

KERNEL_PATH = "moe-nki/rope_kernel.py"
"""End of the path of the shipped kernel: the part that is the same on every machine."""

Claim = Literal["any", "device"]
"""What is claimed: a result on whatever backend it was measured, or one on a Neuron device."""

# Messages of one code that are kept; a kernel that never works has one for every case.
_LISTED = 20

_BACKENDS = ("interpreter", "aws-nki-simulator", "aws-nki")
_DEVICE_PROVIDER = "torch_neuronx.nki_op"


def backend_findings(
    backend: Backend, provider: str, claim: Claim, ran_on: Iterable[str]
) -> Iterator[Finding]:
    """Yield what is wrong with where the kernel ran; `ran_on` are the backends that the launches name."""
    if backend.name not in _BACKENDS:
        yield Finding(
            f"{CHECK}.backend", f"unknown kernel backend {backend.name!r}, expected one of {_BACKENDS}"
        )
    others = sorted(set(ran_on) - {backend.name})
    if others:
        yield Finding(
            f"{CHECK}.backend",
            f"the record names backend {backend.name}, but launches ran on {', '.join(others)}",
        )
    on_device = backend.name == "aws-nki" and backend.device is not None and provider == _DEVICE_PROVIDER
    if claim == "device" and (not on_device or others):
        yield Finding(
            f"{CHECK}.device-claim",
            f"a device result is claimed, but the kernel ran on {', '.join(others) or backend.name} through "
            f"{provider} (device {backend.device}): verified on {', '.join(others) or backend.name} only; "
            "run the check on a Neuron device",
        )


def backend_facts(backend: Backend, provider: str, kernel: Kernel) -> list[str]:
    """Return where the kernel ran and what that leaves open."""
    scope = f"on device {backend.device}" if backend.name == "aws-nki" else f"on {backend.name} only"
    source = f"{kernel.path} (sha256 {kernel.sha256[:12]})"
    return [
        f"verified {scope}: backend {backend.name} {backend.version}, op by {provider}, kernel {source}",
        f"limits of {backend.name}: {backend.limits}",
    ]


def source_findings(
    sources: Iterable[str], kernel: Kernel, kernel_path: str, sha256: str | None
) -> Iterator[Finding]:
    """Yield a finding for each launch source (`file:line`) that is not the shipped kernel file."""
    for source in sorted(set(sources)):
        path = source.rpartition(":")[0]
        if path != kernel.path or PurePath(path).parts[-2:] != PurePath(kernel_path).parts[-2:]:
            yield Finding(
                f"{CHECK}.launch-source",
                f"a kernel of {source} was launched, expected the shipped {kernel_path}",
                {"source": source},
            )
    if sha256 is not None and kernel.sha256 != sha256:
        yield Finding(
            f"{CHECK}.launch-source",
            f"{kernel.path} has sha256 {kernel.sha256[:12]}, the recipe's file has {sha256[:12]}",
        )


def cost_findings(
    where: str,
    args: Sequence[Argument],
    grid: int,
    ops: dict[str, int] | None,
    written: int | None,
    backend: str,
) -> Iterator[Finding]:
    """Yield what a launch counted otherwise than its arguments imply. Only the interpreter counts."""
    if ops is None or written is None:
        if backend == "interpreter":
            yield Finding(
                f"{CHECK}.instructions", f"{where}: the interpreter's launch has no instruction counts"
            )
        return
    try:
        cost = rope_cost(args, grid)
    except ValueError as error:
        yield Finding(f"{CHECK}.arguments", f"{where}: {error}")
        return
    if ops != cost.ops:
        yield Finding(
            f"{CHECK}.instructions",
            f"{where}: {_ops(ops)} executed, the shapes imply {_ops(cost.ops)}",
            {"got": ops, "expected": cost.ops},
        )
    if written != cost.hbm_bytes_written:
        yield Finding(
            f"{CHECK}.hbm-bytes",
            f"{where}: {written} bytes written to device memory, the shapes imply {cost.hbm_bytes_written}",
        )


def receipt_findings(receipt: Receipt, salt: int, lnc: int) -> Iterator[Finding]:
    """Yield a finding unless the receipt is the salt plus the tiles, on each of `lnc` cores."""
    if receipt.error is not None or receipt.shape is None or receipt.values is None:
        failure = receipt.error
        said = "" if failure is None else f": {failure.type}: {failure.message}"
        yield Finding(f"{CHECK}.receipt", f"LNC{lnc}: the receipt launch gave no receipt{said}")
        return
    expected = expected_receipt(salt, receipt.shape, lnc)
    if receipt.salt != salt or receipt.lnc != lnc or receipt.values != expected:
        yield Finding(
            f"{CHECK}.receipt",
            f"LNC{lnc}: receipt {list(receipt.values)} for salt {receipt.salt} at LNC{receipt.lnc}, expected "
            f"{list(expected)} (salt {salt} plus the row tiles of each core)",
        )


def fold(findings: Iterable[Finding]) -> list[Finding]:
    """Return one finding per code, the first, with `data["count"]`; `data["all"]` has the first messages."""
    groups: dict[str, list[Finding]] = {}
    for finding in findings:
        groups.setdefault(finding.code, []).append(finding)
    folded = []
    for code, group in groups.items():
        more = f" (and {len(group) - 1} more)" if len(group) > 1 else ""
        listed = [finding.message for finding in group[:_LISTED]]
        data = {**group[0].data, "count": len(group), "all": listed}
        folded.append(Finding(code, group[0].message + more, data))
    return folded


def _ops(ops: dict[str, int]) -> str:
    return ", ".join(f"{count} {name}" for name, count in sorted(ops.items())) or "no instruction"
