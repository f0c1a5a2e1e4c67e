"""Judges the kernel records of a training run, one per rank."""

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
from harness.checks.kernel_records import RecordError, Training, read

__all__ = ["check_training"]

# Sites that are no module: see harness/stackside/nki/counters.py.
_COMPILED = "(compiled)"
_NO_MODULE = ("", "(unnamed)")


def check_training(
    records: Sequence[Mapping[str, Any]],
    *,
    sites: Sequence[str],
    steps: int,
    ranks: int,
    microbatches: int = 1,
    recomputed: bool = False,
    claim: Claim = "any",
    salt: int | None = None,
    kernel_path: str = KERNEL_PATH,
    kernel_sha256: str | None = None,
) -> CheckResult:
    """Judge the records of `harness.stackside.nki.record` (their JSON), one per rank.

    `sites` are the modules that the override replaced, one per layer. In each of `steps` steps and
    for each site the op must have run forward and backward once per microbatch (forward twice with
    activation checkpointing, `recomputed`), and every run must be a launch of the shipped kernel with
    the counts its shapes imply. `salt`, if given, demands a receipt for it.
    """
    try:
        read_records = [
            read(Training, record, f"rank record {index}") for index, record in enumerate(records)
        ]
    except RecordError as error:
        return judge(CHECK, [Finding(f"{CHECK}.record", f"a kernel record cannot be read: {error}")], [])
    findings: list[Finding] = []
    present = sorted(record.rank for record in read_records)
    if present != list(range(ranks)):
        findings.append(
            Finding(
                f"{CHECK}.ranks",
                f"kernel records of ranks {present}, expected ranks 0 to {ranks - 1}, one each",
            )
        )
    if not sites:
        findings.append(
            Finding(f"{CHECK}.empty", "no site was expected to run a kernel: nothing would be verified")
        )
    per_call = {"forward": microbatches * (2 if recomputed else 1), "backward": microbatches}
    facts: list[str] = []
    for record in sorted(read_records, key=lambda one: one.rank):
        where = f"rank {record.rank}"
        findings += backend_findings(record.backend, record.provider, claim, ())
        findings += _steps(where, record, sites, steps, per_call)
        findings += _launches(where, record)
        findings += source_findings(record.launches.sources, record.kernel, kernel_path, kernel_sha256)
        findings += _receipt(where, record, salt)
        facts += _facts(where, record, sites, steps)
    if read_records:
        first = read_records[0]
        facts = [*backend_facts(first.backend, first.provider, first.kernel), *facts]
    return judge(CHECK, fold(findings), facts)


def _steps(
    where: str, record: Training, sites: Sequence[str], steps: int, per_call: Mapping[str, int]
) -> Iterator[Finding]:
    numbers = [step.step for step in record.steps]
    if numbers != list(range(1, steps + 1)):
        yield Finding(f"{CHECK}.steps", f"{where}: steps {numbers} recorded, expected 1 to {steps}")
    for step in record.steps:
        for direction, counts in (("forward", step.forward), ("backward", step.backward)):
            expected = per_call[direction]
            label = f"{where} step {step.step} {direction}"
            total, wanted = sum(counts.values()), expected * len(sites)
            if total != wanted:
                yield Finding(
                    f"{CHECK}.count",
                    f"{label}: the op ran {total} times, expected {wanted} ({len(sites)} sites)",
                )
            if set(counts) == {_COMPILED}:
                continue
            yield from _per_site(label, counts, sites, expected)


def _per_site(
    label: str, counts: Mapping[str, int], sites: Sequence[str], expected: int
) -> Iterator[Finding]:
    wrong = [f"{site} {counts.get(site, 0)}" for site in sites if counts.get(site, 0) != expected]
    if wrong:
        yield Finding(f"{CHECK}.site", f"{label}: expected {expected} per site, got {', '.join(wrong)}")
    nameless = [site for site in counts if site in _NO_MODULE]
    others = sorted(set(counts) - set(sites) - set(nameless))
    if nameless:
        yield Finding(
            f"{CHECK}.site-unnamed",
            f"{label}: calls from modules without a name; set their kernel_site once the model is built",
        )
    if others:
        yield Finding(f"{CHECK}.site", f"{label}: unexpected sites {', '.join(others)}")


def _launches(where: str, record: Training) -> Iterator[Finding]:
    launches, backend = record.launches, record.backend.name
    runs = {
        direction: sum(sum(getattr(step, direction).values()) for step in record.steps)
        + sum(record.outside.get(direction, {}).values())
        for direction in ("forward", "backward")
    }
    if launches.count == 0:
        yield Finding(
            f"{CHECK}.no-launch",
            f"{where}: the op ran {sum(runs.values())} times, but no kernel was launched: something else computed it",
        )
    elif launches.count != sum(runs.values()):
        yield Finding(
            f"{CHECK}.launch-count",
            f"{where}: {launches.count} launches for {sum(runs.values())} runs of the op, expected one each",
        )
    counted = {"forward": 0, "backward": 0}
    for signature in launches.signatures:
        label = f"{where}, {signature.count} equal launches"
        yield from cost_findings(
            label, signature.args, signature.grid, signature.ops, signature.hbm_bytes_written, backend
        )
        if signature.grid != record.lnc:
            yield Finding(
                f"{CHECK}.arguments", f"{label}: on {signature.grid} cores, the run has LNC={record.lnc}"
            )
        backward = any(argument.name == "backward" and argument.value is True for argument in signature.args)
        counted["backward" if backward else "forward"] += signature.count
    if launches.count and counted != runs:
        yield Finding(
            f"{CHECK}.direction",
            f"{where}: kernels launched {counted['forward']} times forward and {counted['backward']} backward, the op "
            f"ran {runs['forward']} and {runs['backward']} times",
        )
    if launches.sentinels or (launches.sentinels is None and backend == "interpreter"):
        yield Finding(
            f"{CHECK}.sentinel", f"{where}: {launches.sentinels} elements of results are uninitialised memory"
        )
    if launches.errors:
        yield Finding(f"{CHECK}.raised", f"{where}: launches ended with {'; '.join(launches.errors)}")


def _receipt(where: str, record: Training, salt: int | None) -> Iterator[Finding]:
    receipt = record.receipt
    if receipt is not None and salt is not None:
        yield from receipt_findings(receipt, salt, record.lnc)
    elif salt is not None or record.backend.name != "interpreter":
        # Python's counters move only while a kernel is traced: on AWS's backends they are no proof.
        yield Finding(
            f"{CHECK}.receipt",
            f"{where}: no receipt for a salt, and on {record.backend.name} the counts alone prove no execution",
        )


def _facts(where: str, record: Training, sites: Sequence[str], steps: int) -> Iterator[str]:
    runs = [
        sum(sum(getattr(step, name).values()) for step in record.steps) for name in ("forward", "backward")
    ]
    if not record.steps:
        return
    yield (
        f"{where}: {runs[0]} runs forward and {runs[1]} backward over {len(record.steps)} of {steps} steps and "
        f"{len(sites)} sites; {record.launches.count} launches of {', '.join(record.launches.sources) or 'no kernel'} "
        f"at LNC={record.lnc}; layouts seen: {', '.join(sorted(record.layouts)) or 'none'}"
    )
    outside = {direction: sum(found.values()) for direction, found in record.outside.items()}
    if any(outside.values()):
        yield f"{where}: outside the steps the op ran {outside}"
