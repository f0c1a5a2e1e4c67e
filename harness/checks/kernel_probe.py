"""Judges the record of the kernel probe."""

from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from harness.checks.finding import CheckResult, Finding, judge
from harness.checks.kernel_common import (
    CHECK,
    KERNEL_PATH,
    Claim,
    backend_facts,
    backend_findings,
    cost_findings,
    fold,
    receipt_findings,
    source_findings,
)
from harness.checks.kernel_model import ROWS_PER_TILE
from harness.checks.kernel_records import (
    Case,
    Comparison,
    Gradients,
    Launch,
    Length,
    Probe,
    RecordError,
    read,
)

__all__ = ["CHECK", "Claim", "check_probe"]

# float32 against the reference. The interpreter rounds each product and sum once, as the reference
# does: equal bits. On Trainium AWS's guide publishes 0.0; 1e-6 leaves room for the engines.
_MAX_DIFF = {"interpreter": 0.0, "aws-nki-simulator": 1e-6, "aws-nki": 1e-6}

# An absolute limit alone lets zeros pass where the reference is small.
_MAX_RELATIVE = 1e-5

# Rounding ratio above which a low-precision result is unsound: AWS's own kernel tooling.
_MAX_ROUNDING_RATIO = 1.2

# Parameter gradients of float32 models differ by about 3e-8 for reasons of layout alone.
_MAX_GRADIENT_RELATIVE = 1e-6

_DTYPES = ("float32", "bfloat16")
_LENGTHS = (250, 255, 256, 257, 512)


def check_probe(
    record: Mapping[str, Any],
    *,
    salt: int,
    lnc: Sequence[int] = (1, 2),
    claim: Claim = "any",
    kernel_path: str = KERNEL_PATH,
    kernel_sha256: str | None = None,
) -> CheckResult:
    """Judge a record of `harness.stackside.nki.probe` (its JSON).

    `salt` and `lnc` are what was asked for, `claim="device"` demands a result measured on a Neuron
    device, `kernel_path` is the end of the shipped kernel's path and `kernel_sha256` the digest of
    the recipe's file. A record of a seeded fault never passes: if nothing else is found, that is the
    finding.
    """
    try:
        probe = read(Probe, record)
    except RecordError as error:
        return judge(CHECK, [Finding(f"{CHECK}.record", f"the probe's record cannot be read: {error}")], [])
    launches = [launch for case in probe.cases for launch in case.launches]
    launches += [launch for receipt in probe.receipts for launch in receipt.launches]
    findings = [
        *backend_findings(probe.backend, probe.provider, claim, [launch.backend for launch in launches]),
        *_coverage(probe, salt, lnc),
        *source_findings([launch.source for launch in launches], probe.kernel, kernel_path, kernel_sha256),
    ]
    for case in probe.cases:
        findings += _case(case, probe.backend.name, claim)
    for receipt in probe.receipts:
        findings += receipt_findings(receipt, salt, receipt.lnc)
        findings += _launches(
            f"receipt LNC{receipt.lnc}", receipt.launches, 1, receipt.lnc, probe.backend.name
        )
    for length in probe.lengths:
        findings += _length(length)
    for gradients in probe.gradients:
        findings += _gradients(gradients)
    if probe.mutant is not None and not findings:
        findings.append(
            Finding(
                f"{CHECK}.mutant-survived",
                f"the seeded fault {probe.mutant!r} passed every test of the check",
            )
        )
    return judge(CHECK, fold(findings), _facts(probe))


def _coverage(probe: Probe, salt: int, lnc: Sequence[int]) -> Iterator[Finding]:
    """Yield what was asked for and is not in the record: nothing measured is nothing proven."""
    if probe.salt != salt:
        yield Finding(f"{CHECK}.receipt", f"the probe used salt {probe.salt}, {salt} was asked for")
    for cores in lnc:
        measured = {case.dtype for case in probe.cases if case.lnc == cores}
        missing = [f"{dtype} cases" for dtype in _DTYPES if dtype not in measured]
        missing += [] if any(one.lnc == cores for one in probe.receipts) else ["a receipt"]
        missing += [] if any(one.lnc == cores for one in probe.gradients) else ["upstream gradients"]
        for direction in ("forward", "backward"):
            tried = {one.seq for one in probe.lengths if one.lnc == cores and one.direction == direction}
            missing += [f"{direction} at seq {seq}" for seq in _LENGTHS if seq not in tried]
        if missing:
            yield Finding(
                f"{CHECK}.incomplete", f"LNC{cores}: the probe did not measure {', '.join(missing)}"
            )


def _case(case: Case, backend: str, claim: Claim) -> Iterator[Finding]:
    shape = case.shape
    where = f"B{shape.batch} H{shape.heads} KH{shape.kv_heads} S{shape.seq} D{shape.dim} {case.dtype} LNC{case.lnc}"
    if claim == "device" and case.device == "cpu":
        yield Finding(
            f"{CHECK}.device-claim", f"{where}: a device result is claimed, but its tensors were on the CPU"
        )
    if case.error is not None:
        failure = case.error
        yield Finding(f"{CHECK}.raised", f"{where}: {failure.phase} raised {failure.type}: {failure.message}")
        return
    for direction, results in (("forward", case.forward), ("backward", case.backward)):
        for name in ("q", "k"):
            comparison = None if results is None else results.get(name)
            if comparison is None:
                yield Finding(f"{CHECK}.gradient-missing", f"{where}: {direction} gave nothing for {name}")
            else:
                yield from _numbers(f"{where} {direction} {name}", direction, comparison, case.dtype, backend)
    for direction, count in (("forward", case.counts.forward), ("backward", case.counts.backward)):
        if count != 1:
            yield Finding(f"{CHECK}.count", f"{where}: the op ran {count} times {direction}, expected 1")
    yield from _launches(where, case.launches, 2, case.lnc, backend)
    for launch in case.launches:
        yield from _arguments(where, launch, case)


def _numbers(where: str, direction: str, result: Comparison, dtype: str, backend: str) -> Iterator[Finding]:
    data = {
        "max_abs_diff": result.max_abs_diff,
        "relative": result.relative,
        "rounding_ratio": result.rounding_ratio,
    }
    if result.nonzero == 0 and result.max_abs_reference > 0:
        yield Finding(
            f"{CHECK}.zeros",
            f"{where}: output is all zeros (0 of {result.elements} nonzero), reference max "
            f"{result.max_abs_reference:.1e}: max|diff| {_number(result.max_abs_diff)} would pass an absolute limit "
            f"above it, but relative error is {_number(result.relative)}",
            data,
        )
    if result.max_abs_diff is None or result.relative is None:
        yield Finding(
            f"{CHECK}.{direction}",
            f"{where}: {result.nonfinite} of {result.elements} values not finite",
            data,
        )
        return
    exact = backend == "interpreter"
    limit = _MAX_DIFF.get(backend, 0.0)
    if (exact or dtype == "float32") and (result.max_abs_diff > limit or result.relative > _MAX_RELATIVE):
        yield Finding(
            f"{CHECK}.{direction}",
            f"{where}: max|diff| {result.max_abs_diff:.3e} (relative {result.relative:.3e}), allowed {limit} on "
            f"{backend}; {_pattern(result)}",
            data,
        )
    if dtype != "float32" and (result.rounding_ratio is None or result.rounding_ratio > _MAX_ROUNDING_RATIO):
        yield Finding(
            f"{CHECK}.rounding",
            f"{where}: error is {_number(result.rounding_ratio)} times that of {dtype} arithmetic throughout, "
            f"allowed {_MAX_ROUNDING_RATIO}",
            data,
        )


def _number(value: float | None) -> str:
    return "undefined" if value is None else f"{value:.3g}"


def _pattern(result: Comparison) -> str:
    listed = ", ".join(str(row) for row in result.first_rows_differ)
    dots = ", ..." if result.rows_differ > len(result.first_rows_differ) else ""
    broadcast = (
        ", which all equal row 0: looks like a broadcast fault" if result.differing_rows_equal_row_0 else ""
    )
    return f"{result.rows_differ} of {result.rows} rows differ ({listed}{dots}){broadcast}"


def _launches(
    where: str, launches: Sequence[Launch], expected: int, lnc: int, backend: str
) -> Iterator[Finding]:
    if not launches:
        yield Finding(
            f"{CHECK}.no-launch",
            f"{where}: a result came back, but no kernel was launched: something else computed it",
        )
    elif len(launches) != expected:
        yield Finding(
            f"{CHECK}.launch-count", f"{where}: {len(launches)} kernel launches, expected {expected}"
        )
    for launch in launches:
        if launch.error is not None:
            yield Finding(f"{CHECK}.raised", f"{where}: a launch ended with {launch.error}")
            continue
        if launch.grid != lnc:
            yield Finding(f"{CHECK}.arguments", f"{where}: launched on {launch.grid} cores, expected {lnc}")
        yield from cost_findings(
            where, launch.args, launch.grid, launch.ops, launch.hbm_bytes_written, backend
        )
        if launch.sentinels:
            yield Finding(
                f"{CHECK}.sentinel",
                f"{where}: {launch.sentinels} elements of the result are uninitialised memory",
            )
        elif launch.sentinels is None and backend == "interpreter":
            yield Finding(
                f"{CHECK}.sentinel", f"{where}: the interpreter's launch does not say what was left unwritten"
            )


def _arguments(where: str, launch: Launch, case: Case) -> Iterator[Finding]:
    shape = case.shape
    expected = {
        "q": (shape.batch, shape.heads, shape.seq, shape.dim),
        "k": (shape.batch, shape.kv_heads, shape.seq, shape.dim),
        "cos": case.tables,
        "sin": case.tables,
    }
    got = {argument.name: argument for argument in launch.args}
    for name, sizes in expected.items():
        argument = got.get(name)
        if argument is None or argument.shape != sizes or (name in "qk" and argument.dtype != case.dtype):
            found = "nothing" if argument is None else f"{argument.shape} {argument.dtype}"
            yield Finding(
                f"{CHECK}.arguments",
                f"{where}: launched with {name} = {found}, expected {sizes} {case.dtype}",
            )


def _length(length: Length) -> Iterator[Finding]:
    unit = ROWS_PER_TILE * length.lnc
    where = f"LNC{length.lnc} {length.direction} with seq {length.seq}"
    if length.seq % unit == 0:
        if length.raised is not None:
            said = f"{length.raised.type}: {length.raised.message}"
            yield Finding(f"{CHECK}.length-refused", f"{where}, a multiple of {unit}, was refused: {said}")
        return
    if length.raised is None:
        yield Finding(
            f"{CHECK}.length-accepted",
            f"{where}, no multiple of {unit}, returned numbers: the kernel's own check did not run; "
            f"pad to {(length.seq // unit + 1) * unit} or use the reference attention",
        )
        return
    rule = f"seq len must be multiple of {ROWS_PER_TILE} * LNC={length.lnc}, got {length.seq}"
    if rule not in length.raised.message:
        said = f"{length.raised.type}: {length.raised.message}"
        yield Finding(
            f"{CHECK}.length-text", f"{where} raised {said!r}, expected the kernel's own text {rule!r}"
        )
    if length.instructions:
        yield Finding(
            f"{CHECK}.length-late",
            f"{where} was refused after {length.instructions} instructions, expected before any",
        )


def _gradients(gradients: Gradients) -> Iterator[Finding]:
    where = f"LNC{gradients.lnc}"
    if gradients.error is not None:
        failure = gradients.error
        yield Finding(
            f"{CHECK}.raised", f"{where}: the gradient toy raised {failure.type}: {failure.message}"
        )
        return
    total = len(gradients.parameters)
    without = [parameter.name for parameter in gradients.parameters if parameter.comparison is None]
    if without or not total:
        yield Finding(
            f"{CHECK}.gradient-missing",
            f"{where}: output ok, but {len(without)} of {total} parameters ({', '.join(without)}) upstream of the "
            "op have no gradient; register the backward",
        )
    for parameter in gradients.parameters:
        grad = parameter.comparison
        if grad is None:
            continue
        if grad.nonfinite or grad.nonzero == 0:
            kind = f"{grad.nonfinite} non-finite values" if grad.nonfinite else "only zeros"
            yield Finding(f"{CHECK}.gradient", f"{where}: the gradient of {parameter.name} has {kind}")
        elif grad.relative is None or grad.relative > _MAX_GRADIENT_RELATIVE:
            yield Finding(
                f"{CHECK}.gradient",
                f"{where}: the gradient of {parameter.name} is {_number(grad.relative)} (relative) from the reference, "
                f"allowed {_MAX_GRADIENT_RELATIVE}",
            )
    if gradients.tables_with_gradient:
        yield Finding(
            f"{CHECK}.gradient-table",
            f"{where}: {gradients.tables_with_gradient} of the cos/sin tables got a gradient",
        )


def _facts(probe: Probe) -> list[str]:
    if not probe.cases:
        return []
    worst: dict[str, float] = {}
    for case in probe.cases:
        for results in (case.forward, case.backward):
            for result in (results or {}).values():
                if result is not None and result.max_abs_diff is not None:
                    worst[case.dtype] = max(worst.get(case.dtype, 0.0), result.max_abs_diff)
    facts = backend_facts(probe.backend, probe.provider, probe.kernel)
    facts += [
        f"max|diff| {value} over {dtype} cases, forward and backward"
        for dtype, value in sorted(worst.items())
    ]
    launches = sum(len(case.launches) for case in probe.cases)
    refused = sum(length.raised is not None for length in probe.lengths)
    facts.append(f"{len(probe.cases)} cases with {launches} launches at LNC {', '.join(map(str, probe.lnc))}")
    facts.append(f"{refused} of {len(probe.lengths)} length probes refused; {len(probe.receipts)} receipts")
    return facts
