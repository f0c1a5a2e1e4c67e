"""`neuron-ls` output of both forms; what is not understood is said, never half read."""

import json
from typing import Any

import pytest

from harness.doctor.neuron_ls import json_arguments, parse_neuron_ls

DEVICES: list[dict[str, Any]] = [
    {
        "neuron_device": 1,
        "bdf": "b5:00.0",
        "connected_to": [13, 0, 5, 2],
        "nc_count": 4,
        "logical_neuroncore_config": 2,
        "memory_size": 103079215104,
        "neuron_processes": [
            {"pid": 113985, "command": "neuron-bench exec", "neuron_runtime_version": "2.0.0"}
        ],
    },
    {"neuron_device": 0, "connected_to": None, "nc_count": 4, "neuron_processes": []},
]


@pytest.mark.parametrize(
    ("version", "arguments"),
    [
        ("2.33.38.0", ("-j",)),
        ("2.33.38.0-abc", ("-j",)),
        (None, ("-j",)),
        ("odd", ("-j",)),
        ("2.34.1.0", ("--output-format", "json")),
        ("3.0", ("--output-format", "json")),
    ],
)
def test_the_arguments_follow_the_version(version: str | None, arguments: tuple[str, ...]) -> None:
    assert json_arguments(version) == arguments


def test_the_array_up_to_2_33() -> None:
    found = parse_neuron_ls(json.dumps(DEVICES), "2.33.38.0")
    assert found.problem == ""
    assert [(device.index, device.cores, device.lnc) for device in found.devices] == [(0, 4, None), (1, 4, 2)]
    holder = found.devices[1].holders[0]
    assert (holder.pid, holder.command, holder.devices) == (113985, "neuron-bench exec", (1,))


@pytest.mark.parametrize("key", ["neuron_devices", "devices", "anything"])
def test_the_object_announced_for_2_34(key: str) -> None:
    text = json.dumps({"instance": {"type": "trn2.48xlarge"}, key: DEVICES})
    assert len(parse_neuron_ls(text, "2.34.0.0").devices) == 2


@pytest.mark.parametrize(
    ("text", "version", "words"),
    [
        ("FATA[0000] Failed to discover", None, "not JSON"),
        ("", None, "not JSON"),
        (json.dumps(DEVICES), "2.34.0.0", "a JSON list, expected a dict"),
        (json.dumps({"devices": DEVICES}), "2.33.0.0", "a JSON dict, expected a list"),
        ('{"instance": {}}', "2.34.0.0", "no object with `neuron_device`"),
        ("[1, 2]", None, "no object with `neuron_device`"),
        ('[{"neuron_device": 0}]', None, "not as documented"),
        ('[{"neuron_device": "x", "nc_count": 4}]', None, "not as documented"),
        (
            '[{"neuron_device": 0, "nc_count": 4, "neuron_processes": [{"command": "x"}]}]',
            None,
            "not as documented",
        ),
    ],
)
def test_what_is_not_understood_is_said(text: str, version: str | None, words: str) -> None:
    found = parse_neuron_ls(text, version)
    assert found.devices == ()
    assert words in found.problem


def test_no_device_is_no_problem() -> None:
    assert parse_neuron_ls("[]") == parse_neuron_ls("[ ]")
    assert parse_neuron_ls("[]").problem == ""
