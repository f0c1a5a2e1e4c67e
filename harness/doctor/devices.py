"""Device nodes, cores and ranks, LNC, processes that hold cores, and shared memory."""

from collections.abc import Iterable, Mapping

from harness.checks.finding import Finding
from harness.doctor.compile_cache import describe_age
from harness.doctor.flags import logical_cores_flag
from harness.doctor.host import Holder, Host
from harness.doctor.processes import holds_cores
from harness.doctor.report import Line, error, ok, skipped

__all__ = [
    "CORES_PER_DEVICE",
    "SHM_PER_RANK",
    "check_cores",
    "check_devices",
    "check_holders",
    "check_lnc",
    "check_shm",
    "left_behind",
    "logical_cores_variable",
    "visible_cores",
]

CORES_PER_DEVICE = 8
"""Physical NeuronCores of a Trainium2 device: 128 on the 16 devices of a trn2.48xlarge."""
_DEFAULT_LNC = 2
"""The default of Trainium2."""
SHM_PER_RANK = 64 * 2**20
"""Bytes of shared memory asked for per rank. The project's own figure: none is documented, and a container's
default is 64 MiB for everybody together.
"""


def logical_cores_variable(variables: Mapping[str, str]) -> int:
    """Return the LNC that the runtime will use: NEURON_LOGICAL_NC_CONFIG, else the default of 2."""
    value = variables.get("NEURON_LOGICAL_NC_CONFIG", "")
    return int(value) if value.isdigit() and int(value) else _DEFAULT_LNC


def check_devices(host: Host, ranks: int, lnc: int) -> Line:
    """Judge the nodes /dev/neuron*: there, without a hole, enough for `ranks` at `lnc`, usable by this user.

    None at all has three causes, each with its own line: no driver (the driver's line says so), nodes not
    passed into the container, nodes missing on the host.
    """
    if host.driver is None and not host.devices:
        return skipped("devices", "not judged: no driver is loaded, see `driver`")
    if not host.devices:
        return _none(host)
    expected = -(-ranks * lnc // (host.cores_per_device or CORES_PER_DEVICE))
    indexes = [device.index for device in host.devices]
    nodes = f"{len(indexes)} nodes ({_ranges(indexes)})"
    wanted = f"/dev/neuron0 to /dev/neuron{expected - 1}"
    if holes := sorted(set(range(max(indexes))) - set(indexes)):
        return error(
            "devices.hole",
            f"{nodes}: {', '.join(f'/dev/neuron{index}' for index in holes)} missing in between",
            f"{wanted} without a hole (the runtime says `Neuron cores are not contiguous`)",
            _pass(host, "check `dmesg` for the device and reload the driver"),
        )
    if len(indexes) < expected:
        return error(
            "devices.missing",
            f"{nodes}, too few for {ranks} ranks at LNC {lnc}",
            wanted,
            _pass(host, "check `dmesg` for the missing device and reload the driver"),
        )
    if locked := [device for device in host.devices if not device.usable]:
        names = ", ".join(f"/dev/neuron{device.index} ({device.access})" for device in locked[:4])
        return error(
            "devices.unreadable",
            f"{len(locked)} of {len(indexes)} not readable and writable by uid {host.uid}: {names}",
            "every node open to the user who runs",
            "set mode 666 by udev on the host, or run as the nodes' group (`--group-add` for a container)",
        )
    return ok("devices", f"{nodes}, all usable by uid {host.uid}")


def _none(host: Host) -> Line:
    listed = f"the driver lists {host.driver_devices}" if host.driver_devices else "the driver is loaded"
    if not host.container:
        return error(
            "devices.no-nodes",
            f"no /dev/neuron* although {listed}",
            "/dev/neuron0 and on",
            "reload the driver on this host: `modprobe -r neuron && modprobe neuron`",
        )
    hook = ""
    if any(name in host.variables for name in ("AWS_NEURON_VISIBLE_DEVICES", "NEURON_VISIBLE_DEVICES")):
        hook = (
            "; the variable alone works only with the OCI hook (aws-neuronx-oci-hook) as the engine's runtime"
        )
    last = (host.driver_devices or 16) - 1
    return error(
        "devices.not-passed",
        f"{listed}, this container sees no /dev/neuron*",
        "every node passed into the container",
        f"pass --device=/dev/neuron0 to --device=/dev/neuron{last} (compose: `--profile trn2`){hook}",
    )


def _pass(host: Host, otherwise: str) -> str:
    if host.container and (host.driver_devices or 0) > len(host.devices):
        return f"the host has {host.driver_devices}: pass the missing ones by --device as well"
    return otherwise


def _ranges(indexes: list[int]) -> str:
    parts: list[list[int]] = []
    for index in sorted(indexes):
        if parts and parts[-1][1] == index - 1:
            parts[-1][1] = index
        else:
            parts.append([index, index])
    return ", ".join(f"{first}-{last}" if first != last else f"{first}" for first, last in parts)


def visible_cores(variables: Mapping[str, str]) -> int | None:
    """Return how many logical cores NEURON_RT_VISIBLE_CORES (`0-3,8`) or NEURON_RT_NUM_CORES leaves, None if
    neither is set or one is no such list.
    """
    listed = variables.get("NEURON_RT_VISIBLE_CORES", "").strip()
    if not listed:
        number = variables.get("NEURON_RT_NUM_CORES", "").strip()
        return int(number) if number.isdigit() else None
    total = 0
    for part in listed.split(","):
        first, _, last = part.strip().partition("-")
        if not first.isdigit() or (last and not last.isdigit()):
            return None
        total += int(last or first) - int(first) + 1
    return total


def check_cores(host: Host, ranks: int, lnc: int, variables: Mapping[str, str], devices: Line) -> Line:
    """Judge ranks against logical cores: torchtitan ends at process-group set-up unless they are equal.

    `devices` is the line on the device nodes: without the right nodes there is nothing to count.
    """
    if devices.level != "ok":
        return skipped("cores", "not judged: see `devices`")
    physical = host.cores_per_device or CORES_PER_DEVICE
    per_device = physical // lnc
    logical = len(host.devices) * per_device
    source = f"{len(host.devices)} devices x {physical} physical cores / LNC {lnc}"
    listed = host.neuron_ls.devices if host.neuron_ls else ()
    if listed and {device.lnc for device in listed} == {lnc}:
        logical = sum(device.cores for device in listed)
        source = f"neuron-ls, {len(listed)} devices at LNC {lnc}"
    visible = visible_cores(variables)
    if visible is not None and visible < logical:
        logical, source = visible, f"{source}, limited by NEURON_RT_VISIBLE_CORES or NEURON_RT_NUM_CORES"
    if logical == ranks:
        return ok("cores", f"{logical} logical cores for {ranks} ranks ({source})")
    return error(
        "cores.ranks",
        f"{ranks} ranks, {logical} logical cores ({source})",
        "as many ranks as logical cores",
        "use a stack with this many ranks, or another NEURON_LOGICAL_NC_CONFIG",
    )


def check_lnc(variables: Mapping[str, str]) -> Line:
    """Judge the runtime's LNC variable against the compiler's flag: both must say the same."""
    given = variables.get("NEURON_LOGICAL_NC_CONFIG")
    runtime = logical_cores_variable(variables)
    compiler = logical_cores_flag(variables.get("NEURON_CC_FLAGS", ""))
    if given not in (None, "1", "2"):
        return error(
            "lnc.value",
            f"NEURON_LOGICAL_NC_CONFIG={given!r}",
            "1 or 2",
            "set it in the stack's `environment`",
        )
    if compiler is not None and compiler != runtime:
        return error(
            "lnc.mismatch",
            f"NEURON_LOGICAL_NC_CONFIG is {runtime}, NEURON_CC_FLAGS has --lnc={compiler}",
            "the same number for runtime and compiler",
            f"remove the flag, or set it to {runtime}",
        )
    said = f"compiler flag {compiler}" if compiler is not None else "no compiler flag"
    return ok("lnc", f"{runtime} ({'variable' if given else 'default'}; {said})")


def check_holders(host: Host) -> Line:
    """Judge whether another process holds cores; what only watches (neuron-monitor, neuron-top) does not.

    A container sees its own processes only, and another user's open files cannot be read without root.
    """
    if not host.devices:
        return skipped("holders", "not judged: no device node to hold")
    holders = {holder.pid: holder for holder in host.holders}
    for device in host.neuron_ls.devices if host.neuron_ls else ():
        for holder in device.holders:
            holders.setdefault(holder.pid, holder)
    busy = [holder for holder in holders.values() if holds_cores(holder)]
    if not busy:
        return ok("holders", "no other process holds a device")
    shown = "; ".join(
        f"{', '.join(f'/dev/neuron{index}' for index in holder.devices)} by pid {holder.pid}"
        f"{f' (started {describe_age(holder.age)} ago)' if holder.age is not None else ''}: {holder.command[:80]}"
        for holder in sorted(busy, key=lambda holder: holder.pid)[:4]
    )
    return error(
        "holders.busy",
        f"NeuronCores are held by {len(busy)} other process(es): {shown}",
        "no process on the cores; the runtime would say `logical neuron core(s) not available`",
        "end it, or wait for it; a fault of the machine, not of the recipe",
    )


def left_behind(before: Iterable[Holder], after: Iterable[Holder]) -> Finding | None:
    """Return a finding if a process holds cores after a run that did not before it, None if none does."""
    known = {holder.pid for holder in before}
    left = [holder for holder in after if holder.pid not in known and holds_cores(holder)]
    if not left:
        return None
    shown = "; ".join(f"pid {holder.pid}: {holder.command[:80]}" for holder in left)
    message = (
        f"{len(left)} process(es) hold NeuronCores after the run ended: {shown}. "
        "Next: end them, or the next run finds no free core."
    )
    return Finding("holders.left-behind", message, {"pids": [holder.pid for holder in left]})


def check_shm(host: Host, ranks: int) -> Line:
    """Judge the size of the shared memory file system against the number of ranks."""
    needed = ranks * SHM_PER_RANK
    if host.shm is None:
        return skipped("shm", "its size cannot be read")
    found = f"{host.shm.total / 2**30:.2f} GiB in {host.shm.path} for {ranks} ranks"
    if host.shm.total >= needed:
        return ok("shm", found)
    return error(
        "shm.small",
        found,
        f"{needed / 2**30:.2f} GiB ({SHM_PER_RANK // 2**20} MiB a rank; the project's own figure)",
        "give the container more (`--shm-size`, compose `shm_size`)",
    )
