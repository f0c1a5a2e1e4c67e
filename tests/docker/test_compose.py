"""compose.yaml as the real compose reads it."""

import json
import os
from typing import Any

import pytest

from harness import process
from harness.stack import load_stack
from tests.conftest import ROOT

RECIPES = ("hf-backend", "native", "moe-nki")


def config(*options: str, **variables: str) -> dict[str, Any]:
    env = {name: value for name, value in os.environ.items() if not name.startswith(("HARNESS_", "COMPOSE_"))}
    argv = ["docker", "compose", "--env-file", "/dev/null", *options, "config", "--format", "json"]
    done = process.run(argv, cwd=ROOT, env=env | variables)
    assert done.returncode == 0, done.output
    assert "level=warning" not in done.output
    found: dict[str, Any] = json.loads(done.output)
    return found["services"]


def test_one_service_per_recipe_and_none_needs_a_device() -> None:
    services = config()
    assert set(services) == {*RECIPES, "recipes", "tests", "doctor"}
    for service in services.values():
        assert not service.get("devices")
        assert not service.get("privileged")
        assert service["network_mode"] == "none"
        assert service["read_only"] is True
        assert service["cap_drop"] == ["ALL"]
        assert set(service["cap_add"]) == {"CHOWN", "SETGID", "SETUID"}
        assert service["pull_policy"] == "never"


@pytest.mark.parametrize("name", [*RECIPES, "recipes", "tests", "doctor"])
def test_trn2_has_devices_capabilities_and_shared_memory(name: str) -> None:
    service = config("--profile", "trn2")[f"{name}-trn2"]
    assert [device["source"] for device in service["devices"]] == [f"/dev/neuron{n}" for n in range(16)]
    assert {"SYS_ADMIN", "IPC_LOCK"} <= set(service["cap_add"])
    assert service["cap_drop"] == ["ALL"]
    assert int(service["shm_size"]) == 64 << 30
    assert not service.get("privileged")
    targets = {volume["target"] for volume in service["volumes"]}
    assert {"/project/runs", "/cache", "/compile-cache", "/assets"} <= targets
    stack = load_stack(ROOT, "trn2")
    assert service["environment"]["HARNESS_RANKS"] == str(stack.ranks)
    assert service["environment"]["NEURON_LOGICAL_NC_CONFIG"] == stack.environment["NEURON_LOGICAL_NC_CONFIG"]


def test_without_variables_the_local_image_is_meant_and_never_latest() -> None:
    images = {service["image"] for service in config("--profile", "trn2").values()}
    assert images == {"trn-harness:cpu", "trn-harness:trn2"}


def test_an_image_can_be_given_by_digest_and_reaches_the_evidence() -> None:
    pinned = f"registry.example/harness@sha256:{'a' * 64}"
    service = config(HARNESS_CPU_IMAGE=pinned)["native"]
    assert service["image"] == service["environment"]["HARNESS_IMAGE"] == pinned
