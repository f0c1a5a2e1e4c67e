"""Excerpts of the Neuron runtime's and compiler's logs, turned into findings that say which side to mend.

Each function takes the text of a log and returns a finding, or None where its line is not in the text. The
wording of the runtime is matched loosely: it has changed between releases. Unverified on hardware.
"""

import re
from collections.abc import Callable, Iterable

from harness.checks.finding import Finding
from harness.doctor.compile_cache import describe_age
from harness.doctor.host import Holder

__all__ = ["cached_failure", "cores_taken", "driver_too_old", "missing_features", "newer_neff", "recognise"]

_RUNTIME_ID = re.compile(r"runtime\s*\(compatibility id:\s*(\d+)\)", re.IGNORECASE)
_DRIVER_RANGE = re.compile(r"runtime compatibility id range:\s*(\d+)\s*-\s*(\d+)", re.IGNORECASE)
_FEATURES = re.compile(
    r"features:?\s*(0x[0-9a-f]+)[^\n]*?support(?:ing|s|ed)?[^\n]*?(0x[0-9a-f]+)", re.IGNORECASE
)
_CACHED = re.compile(r"cached failed neff at\s+(\S+?model\.neff)", re.IGNORECASE)
_TAKEN = re.compile(r"not available\D*requested:\s*(\d+)\D*available:\s*(\d+)", re.IGNORECASE)
_MODULE = re.compile(r"(MODULE_[^/\s]+)/")
_COMPILER = re.compile(r"neuronxcc-([^/\s]+)/")
_BITS = 64


def driver_too_old(text: str) -> Finding | None:
    """Return a finding if the runtime says that the host's driver does not know its compatibility id."""
    runtime, driver = _RUNTIME_ID.search(text), _DRIVER_RANGE.search(text)
    if runtime is None or driver is None:
        return None
    number, low, high = int(runtime[1]), int(driver[1]), int(driver[2])
    if number > high:
        side, action = "the driver is too old", "upgrade aws-neuronx-dkms on the host (not in the image)"
    else:
        side, action = "the runtime is too old", "use an image with a newer aws-neuronx-runtime-lib"
    message = (
        f"runtime in the image needs driver compatibility id {number}, host driver offers {low}-{high}: {side}. "
        f"Next: {action}."
    )
    return Finding("neuron.driver", message, {"runtime": number, "driver": [low, high]})


def missing_features(need: int, have: int) -> tuple[int, ...]:
    """Return the bits of the feature mask `need` that `have` lacks, lowest first."""
    return tuple(bit for bit in range(_BITS) if need >> bit & 1 and not have >> bit & 1)


def newer_neff(text: str, compiler: str | None = None) -> Finding | None:
    """Return a finding if a compiled artefact (NEFF) needs features that the runtime does not have.

    `compiler` is the version that compiled it, where it is known.
    """
    found = _FEATURES.search(text)
    if found is None:
        return None
    need, have = int(found[1], 16), int(found[2], 16)
    bits = missing_features(need, have)
    if not bits:
        return None
    by = compiler or (named[1] if (named := _COMPILER.search(text)) else None)
    message = (
        f"NEFF needs features {need:#x}, runtime supports {have:#x}: "
        f"bit {', '.join(map(str, bits))} missing. Compiled by neuronx-cc {by or '(unknown)'}, the runtime is "
        "older. Next: clear the compile cache, or match compiler and runtime."
    )
    return Finding("neuron.neff-features", message, {"need": need, "have": have, "bits": list(bits)})


def cached_failure(text: str, age: Callable[[str], float | None] = lambda _: None) -> Finding | None:
    """Return a finding if a compilation failed earlier and was not attempted now.

    `age` gives the seconds since the entry with this path was written, None if that cannot be told.
    """
    found = _CACHED.search(text)
    if found is None:
        return None
    module = named[1] if (named := _MODULE.search(found[1])) else found[1]
    seconds = age(found[1])
    when = f", {describe_age(seconds)} old" if seconds is not None else ""
    message = (
        f"compile was not attempted; a failure is cached for {module}{when} ({found[1]}). "
        "Next: add --retry_failed_compilation to NEURON_CC_FLAGS, or use a clean cache."
    )
    return Finding("neuron.cached-failure", message, {"path": found[1], "age_seconds": seconds})


def cores_taken(text: str, holders: Iterable[Holder] = ()) -> Finding | None:
    """Return a finding if the runtime found no free core; `holders` are named if any are known."""
    found = _TAKEN.search(text)
    if found is None:
        return None
    requested, available = int(found[1]), int(found[2])
    held = "; ".join(
        f"pid {holder.pid}"
        + (f" (started {describe_age(holder.age)} ago)" if holder.age is not None else "")
        + f": {holder.command[:80]}"
        for holder in holders
    )
    message = (
        f"{requested} NeuronCore(s) requested, {available} available: "
        f"{f'held by {held}' if held else 'another process holds them'}. Nothing was executed. "
        "Next: end it, or wait for it; this is a fault of the machine, not of the recipe."
    )
    return Finding("neuron.cores-taken", message, {"requested": requested, "available": available})


_PLAIN = (
    (
        r"Could not open the nd(\d+)",
        "neuron.device-closed",
        "/dev/neuron{} cannot be opened",
        "pass it in, or free it",
    ),
    (r"Neuron cores are not contiguous", "neuron.hole", "the device nodes have a hole", "pass all of them"),
    (r"No neuron device available", "neuron.no-device", "no /dev/neuron* is visible", "see `harness doctor`"),
)


def recognise(text: str) -> tuple[Finding, ...]:
    """Return a finding for every known Neuron fault in a log, the machine's own faults first."""
    plain = []
    for pattern, code, what, action in _PLAIN:
        if seen := re.search(pattern, text, re.IGNORECASE):
            plain.append(Finding(code, f"{what.format(*seen.groups())}. Next: {action}."))
    found = (driver_too_old(text), *plain, cores_taken(text), newer_neff(text), cached_failure(text))
    return tuple(finding for finding in found if finding is not None)
