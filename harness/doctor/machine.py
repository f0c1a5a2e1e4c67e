"""Disk space, determinism variables, the SDK release: what is judged on every stack."""

from collections.abc import Mapping
from dataclasses import dataclass

from harness.doctor.host import Host
from harness.doctor.placeholders import placeholder_reason
from harness.doctor.report import Line, error, ok, skipped, warning
from harness.sdk import COMPONENTS, SdkMatch

__all__ = ["check_determinism", "check_disk", "check_sdk", "observed_components"]

GIB = 2**30


@dataclass(frozen=True, slots=True)
class _Need:
    gib: int
    why: str
    stops: bool
    """Whether a run cannot work with less."""


_NEEDS = {
    "cpu": {
        # The environment of the cpu stack takes 5.8 GB, its assets some MB.
        "cache": _Need(7, "environment and assets", False),
        "runs": _Need(1, "evidence of one session", True),
    },
    "neuron": {
        # Published weights (bfloat16, 8 GB) and compiled graphs.
        "cache": _Need(20, "weights and compiled graphs", False),
        # 4.0 billion parameters in float32 are 16 GB; an export writes them twice.
        "runs": _Need(40, "one exported checkpoint of 4B parameters in float32, written twice", True),
        "image": _Need(30, "the training image", False),
    },
}


def check_disk(host: Host, device: str) -> list[Line]:
    """Judge free space where images, the cache and runs are kept, each against what a run of `device` needs."""
    lines = []
    for place, need in _NEEDS[device].items():
        disk = host.disks.get(place)
        if disk is None:
            continue
        found = f"{place}: {disk.free / GIB:.1f} GiB free in {disk.path}"
        expected = f"{need.gib} GiB for {need.why}"
        if disk.free >= need.gib * GIB:
            lines.append(ok("disk", found, expected))
        else:
            level = error if need.stops else warning
            action = "free some space, or keep it elsewhere (HARNESS_CACHE, --output)"
            lines.append(level(f"disk.{place}", found, expected, action))
    return lines or [skipped("disk", "no folder could be read")]


_CHANGES_NUMBERS = {
    "XLA_USE_BF16": "casts float32 to bfloat16 silently",
    "XLA_DOWNCAST_BF16": "casts float32 to bfloat16 silently",
    "NEURON_RT_STOCHASTIC_ROUNDING_EN": "rounds at random",
}
"""Set to anything but 0, these make losses incomparable."""
_CAN_CHANGE = (
    "CUBLAS_WORKSPACE_CONFIG",
    "MKL_CBWR",
    "MKL_NUM_THREADS",
    "NEURON_CC_FLAGS",
    "NEURON_FUSE_SOFTMAX",
    "NEURON_RT_STOCHASTIC_ROUNDING_SEED",
    "OMP_NUM_THREADS",
)
"""These can change a result, so a stack that needs one states it."""


def check_determinism(variables: Mapping[str, str], stated: Mapping[str, str]) -> list[Line]:
    """Judge the caller's variables that change numbers: only what the stack states is part of its identity.

    `variables` are the caller's, `stated` the stack's own, which win over them.
    """
    lines = []
    for name, effect in _CHANGES_NUMBERS.items():
        value = {**variables, **stated}.get(name, "0")
        if value not in ("", "0"):
            action = f"unset {name}"
            lines.append(
                error("determinism.rounding", f"{name}={value} {effect}", f"{name} unset or 0", action)
            )
    loose = [name for name in _CAN_CHANGE if name in variables and name not in stated]
    if loose:
        lines.append(
            warning(
                "determinism.undeclared",
                f"set here but not by the stack: {', '.join(f'{name}={variables[name]}' for name in loose)}",
                "only what the stack's `environment` states",
                "unset them, or state them in the stack file, where they count in its digest",
            )
        )
    return lines or [ok("determinism", "no variable outside the stack changes the numbers")]


def observed_components(host: Host) -> dict[str, str]:
    """Return the Neuron components that are installed beside the runs: name -> full version.

    The driver is left out: it is the host's, and can belong to another release than the image. So are
    placeholders: they are no component of anything.
    """
    wheels = {
        item.name: item.version
        for item in host.distributions
        if item.name in COMPONENTS and not placeholder_reason(item)
    }
    packages = {name: version for name, version in host.os_packages.items() if name in COMPONENTS}
    return {name: pin for name, pin in {**packages, **wheels}.items() if name != "aws-neuronx-dkms"}


def check_sdk(match: SdkMatch, expected: str | None) -> Line:
    """Judge the derived SDK release against the stack's, if it states one. Ambiguity is told, not resolved."""
    if not match.components:
        return skipped("sdk", match.sentence())
    wanted = f"SDK {expected}" if expected else "one SDK release"
    if not match.releases:
        return warning("sdk.none", match.sentence(), wanted, "install the components of one release")
    if expected is not None and expected not in match.releases:
        return warning("sdk.other", match.sentence(), wanted, "use the image of the stack's SDK")
    if len(match.releases) > 1 and expected is None:
        return warning("sdk.ambiguous", match.sentence(), wanted, "compare more components, or state the SDK")
    return ok("sdk", match.sentence(), wanted)
