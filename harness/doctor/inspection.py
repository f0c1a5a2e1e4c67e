"""Puts the checks together: `inspect` for the whole doctor, `preflight` for what a run asks first."""

from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

from harness.cache import cache_root
from harness.doctor.compile_cache import check_compile_cache
from harness.doctor.devices import (
    check_cores,
    check_devices,
    check_holders,
    check_lnc,
    check_shm,
    logical_cores_variable,
)
from harness.doctor.driver import check_driver
from harness.doctor.host import Host
from harness.doctor.indexes import check_indexes
from harness.doctor.machine import check_determinism, check_disk, check_sdk, observed_components
from harness.doctor.packages import check_lock, check_nvidia, check_placeholders, check_python, check_torch
from harness.doctor.processes import holds_cores, wait_until_free
from harness.doctor.readers import read_host
from harness.doctor.report import Line, Report, error, ok, skipped, warning
from harness.doctor.requirements import check_requirements
from harness.environment import Environment, lock_packages
from harness.image.baked import baked
from harness.sdk import derive_sdk
from harness.stack import Stack

__all__ = ["examine", "inspect", "preflight"]

WAIT_SECONDS = 30.0
"""How long a run waits for cores that another process is about to release."""
_IMAGE_HOME = "opt/harness"


def examine(
    stack: Stack,
    *,
    runs: Path,
    environment: Path | None = None,
    built: Path | None = None,
    root: Path = Path("/"),
) -> Report:
    """Read this machine and return everything the doctor has to say of it for `stack`.

    `runs` is the folder that evidence is written to. The environment looked at is `environment` where it is
    given, else the image's own inside an image of the harness, else `built`: where the stack's environment is,
    or would be, built (None: nowhere, for want of a lock).
    """
    image = baked(root / _IMAGE_HOME)
    chosen = environment or (image.prefix if image else built)
    return inspect(_read(stack, chosen if chosen and chosen.is_dir() else None, runs, root), stack)


def _read(stack: Stack, environment: Path | None, runs: Path, root: Path = Path("/")) -> Host:
    return read_host(
        root,
        environment=environment,
        stated=stack.environment,
        places={"cache": cache_root(), "runs": runs},
    )


def inspect(host: Host, stack: Stack, *, locked: Mapping[str, str] | None = None) -> Report:
    """Return everything the doctor has to say of `host` for `stack`. Pure but for the stack's lock file.

    `locked` are the packages of the lock (default: read from the stack's file; none if it has none). Raises
    `UserError` for a lock that is not one.
    """
    packages = _locked(stack) if locked is None else dict(locked)
    neuron = stack.device == "neuron"
    sdk = derive_sdk(observed_components(host))
    lines = [*_stack_lines(stack, packages), *_package_lines(host, stack, packages, neuron=neuron)]
    ruled = {name for rule in stack.indexes.values() for name in rule.packages}
    lines += check_indexes(host, packages.keys() - stack.sources.keys(), ruled, neuron=neuron)
    lines.append(check_sdk(sdk, stack.sdk))
    lines += _device_lines(host, stack)
    if neuron:
        compiler = observed_components(host).get("neuronx-cc", packages.get("neuronx-cc"))
        lines += check_compile_cache(host, compiler)
    else:
        lines.append(_not_needed("compile-cache", stack))
    lines += check_disk(host, stack.device)
    lines += check_determinism(host.variables, stack.environment)
    return Report(stack.name, host.container, tuple(lines), sdk)


def _locked(stack: Stack) -> dict[str, str]:
    """What must be installed: the lock, and the packages that come from a commit."""
    if not stack.lock.is_file():
        return {}
    return {**lock_packages(stack.lock), **{name: pin.version for name, pin in stack.sources.items()}}


def _stack_lines(stack: Stack, locked: Mapping[str, str]) -> list[Line]:
    if pins := stack.open_pins("run"):
        found = f"{len(pins)} pin(s) of stack {stack.name} are unresolved"
        return [error("stack.unresolved", found, "every pin resolved", stack.unresolved_sentence())]
    if not locked:
        action = f"`harness lock {stack.name}`"
        return [error("stack.no-lock", f"{stack.lock} is not there", "a hashed lock", action)]
    lines = [ok("stack", f"{stack.name}: {len(locked)} packages, every pin that a run needs is resolved")]
    if pins := stack.open_pins("image"):
        open_for_image = "; ".join(f"{pin.what}: {pin.command}" for pin in pins)
        lines.append(skipped("stack.image", f"no image can be built yet: {open_for_image}"))
    return lines


def _package_lines(host: Host, stack: Stack, locked: Mapping[str, str], *, neuron: bool) -> list[Line]:
    python = check_python(host, stack.python)
    if host.environment is None:
        action = f"`harness env --stack {stack.name}`"
        found = f"the environment of stack {stack.name} is not built"
        return [python, warning("packages.no-environment", found, "an environment from the lock", action)]
    lines, explained = _installed(host, locked, neuron=neuron)
    lines += [check_nvidia(host, locked)] if locked else []
    return [python, *lines, *check_requirements(host.distributions, host.python, explained=explained)]


def _installed(host: Host, locked: Mapping[str, str], *, neuron: bool) -> tuple[list[Line], set[str]]:
    """Lines on what is installed, and the distributions that a line more telling than the lock's speaks of."""
    placeholders, false = check_placeholders(host)
    torch, explained = check_torch(host, locked, neuron=neuron, ignored=false)
    explained |= false
    lines = [*placeholders, *torch]
    return lines + (check_lock(host, locked, explained=explained) if locked else []), explained


def _device_lines(host: Host, stack: Stack) -> list[Line]:
    if stack.device != "neuron":
        return [_not_needed(name, stack) for name in ("driver", "devices", "cores", "lnc", "holders", "shm")]
    variables = {**host.variables, **stack.environment}
    lnc = logical_cores_variable(variables)
    devices = check_devices(host, stack.ranks, lnc)
    return [
        check_driver(host),
        devices,
        check_cores(host, stack.ranks, lnc, variables, devices),
        check_lnc(variables),
        check_holders(host),
        check_shm(host, stack.ranks),
    ]


def _not_needed(name: str, stack: Stack) -> Line:
    return skipped(name, f"not needed: stack {stack.name} runs on the CPU")


def preflight(
    stack: Stack,
    environment: Environment,
    runs: Path,
    *,
    host: Host | None = None,
    wait_seconds: float = WAIT_SECONDS,
) -> list[Line]:
    """Return the lines that a run looks at before it starts anything; an error among them must stop it.

    Python, packages against the lock, placeholders and torch's family, disk space, determinism variables; on a
    Neuron device also driver, nodes, cores, LNC, holders and shared memory. Cores that another process still
    holds are waited for, `wait_seconds` at most. `runs` is the folder the evidence will be written to.
    `host` replaces reading this machine (and waiting).
    """
    neuron = stack.device == "neuron"
    seen = host
    if seen is None:
        seen = _read(stack, environment.folder, runs)
        if any(holds_cores(holder) for holder in seen.holders):
            seen = replace(seen, holders=wait_until_free(wait_seconds))
    lines, _ = _installed(seen, _locked(stack), neuron=neuron)
    lines += _device_lines(seen, stack) if neuron else []
    lines += check_disk(seen, stack.device)
    lines += check_determinism(seen.variables, stack.environment)
    return [check_python(seen, stack.python), *lines]
