"""`neuron-ls`: which arguments ask for JSON, and what the JSON says.

Up to SDK 2.33 `neuron-ls -j` prints an array with one object per device. It is announced that 2.34
replaces it by `--output-format json`, with further top-level fields; that form is read leniently, by the
device objects it must hold somewhere. Unverified on hardware.
"""

import json
from collections.abc import Iterator
from typing import Any

from packaging.version import InvalidVersion, Version

from harness.doctor.host import Holder, NeuronLs, NeuronLsDevice
from harness.sdk import documented_version

__all__ = ["json_arguments", "parse_neuron_ls"]

_NEW_FORM = Version("2.34")
"""`aws-neuronx-tools` is numbered as the SDK (2.33.38.0 in SDK 2.33.0)."""


def json_arguments(tools_version: str | None) -> tuple[str, ...]:
    """Return the arguments that make this version of `neuron-ls` print JSON; unknown counts as <= 2.33."""
    return ("--output-format", "json") if _is_new(tools_version) else ("-j",)


def _is_new(tools_version: str | None) -> bool:
    try:
        return tools_version is not None and Version(documented_version(tools_version)) >= _NEW_FORM
    except InvalidVersion:
        return False


def parse_neuron_ls(text: str, tools_version: str | None = None) -> NeuronLs:
    """Return the devices in the JSON that `neuron-ls` printed. Never raises: `problem` says what is wrong.

    Of the form up to 2.33 only an array is accepted, of the later one only an object, so that output of
    the other version is reported instead of half understood.
    """
    try:
        value = json.loads(text)
    except json.JSONDecodeError:
        return NeuronLs((), f"not JSON: {text.strip()[:80]!r}")
    expected: type = dict if _is_new(tools_version) else list
    if not isinstance(value, expected):
        return NeuronLs((), f"a JSON {type(value).__name__}, expected a {expected.__name__} of this version")
    rows = list(_device_objects(value))
    if value and not rows:
        return NeuronLs((), "no object with `neuron_device` in it")
    try:
        devices = tuple(_device(row) for row in rows)
    except (KeyError, TypeError, ValueError) as problem:
        return NeuronLs((), f"a device object is not as documented: {problem!r}")
    return NeuronLs(tuple(sorted(devices, key=lambda device: device.index)))


def _device_objects(value: Any) -> Iterator[dict[str, Any]]:
    if isinstance(value, dict):
        if "neuron_device" in value:
            yield value
            return
        value = list(value.values())
    if isinstance(value, list):
        for item in value:
            yield from _device_objects(item)


def _device(row: dict[str, Any]) -> NeuronLsDevice:
    index = int(row["neuron_device"])
    lnc = row.get("logical_neuroncore_config")
    holders = tuple(
        Holder(int(process["pid"]), str(process.get("command", "")), None, (index,))
        for process in row.get("neuron_processes") or ()
    )
    return NeuronLsDevice(index, int(row["nc_count"]), None if lnc is None else int(lnc), holders)
