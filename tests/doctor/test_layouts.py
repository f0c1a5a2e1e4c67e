"""Every recorded host layout gets the one right error, and the healthy one gets none."""

from pathlib import Path

import pytest

from harness.doctor import Level, Line, exit_code, inspect, preflight
from harness.environment import Environment
from tests.doctor.layouts import layout_names, recorded

# layout -> code of its error, words of what was found, words of the next action
EXPECTED = {
    "busy-cores": (
        "holders.busy",
        "/dev/neuron0, /dev/neuron1 by pid 4121 (started 02:10:33 ago): python -m torchtitan.train",
        "not of the recipe",
    ),
    "cached-failure": (
        "compile-cache.cached-failure",
        "1 failed compilation(s) are cached, the oldest from 2026-11-19 18:44 UTC (17:16:00 ago)",
        "--retry_failed_compilation",
    ),
    "container-without-devices": (
        "devices.not-passed",
        "the driver lists 16, this container sees no /dev/neuron*",
        "--device=/dev/neuron15 (compose: `--profile trn2`); the variable alone works only with the OCI hook",
    ),
    "hole-in-devices": (
        "devices.hole",
        "15 nodes (0-6, 8-15): /dev/neuron7 missing in between",
        "reload the driver",
    ),
    "legacy-xla-build": ("torch.legacy-xla", "torch-neuronx 2.9.0.2.15.32035 is the legacy XLA", "unpinned"),
    "lnc-mismatch": (
        "lnc.mismatch",
        "NEURON_LOGICAL_NC_CONFIG is 2, NEURON_CC_FLAGS has --lnc=1",
        "set it to 2",
    ),
    "missing-device": (
        "devices.missing",
        "15 nodes (0-14), too few for 64 ranks at LNC 2",
        "reload the driver",
    ),
    "no-driver": ("driver.none", "no Neuron driver is loaded on this host", "install aws-neuronx-dkms"),
    "nodes-not-made": ("devices.no-nodes", "no /dev/neuron* although the driver lists 16", "modprobe"),
    "old-driver": (
        "driver.too-old",
        "runtime 2.35.30.0 (SDK 2.33.0) on driver 2.26.10.0 (SDK 2.28.1): this pair does not work",
        "on the host (not in the image)",
    ),
    "placeholder": (
        "placeholder.installed",
        "neuronx-cc 1.0.post1 is the public index's placeholder: its description says 'WRONG PACKAGE'",
        "uninstall neuronx-cc",
    ),
    "small-shm": ("shm.small", "0.06 GiB in /shm for 64 ranks", "--shm-size"),
    "unreadable-device": (
        "devices.unreadable",
        "1 of 16 not readable and writable by uid 1000: /dev/neuron3 (crw------- 0:0)",
        "--group-add",
    ),
    "wrong-compile-cache": (
        "compile-cache.other-compiler",
        "/var/tmp/neuron-compile-cache holds 1 module(s) of neuronx-cc 2.27.5334.0+f702b353",
        "NEURON_COMPILE_CACHE_URL",
    ),
}


def errors(lines: list[Line] | tuple[Line, ...]) -> list[Line]:
    return [line for line in lines if line.level is Level.ERROR]


def test_every_layout_is_expected_to_say_something() -> None:
    assert set(layout_names()) == EXPECTED.keys() | {"healthy-trn2"}


def test_a_healthy_host_has_nothing_to_complain_of(tmp_path: Path) -> None:
    found = recorded("healthy-trn2", tmp_path)
    report = inspect(found.host, found.stack)
    assert [line for line in report.lines if line.level in (Level.ERROR, Level.WARNING)] == []
    assert exit_code(report) == 0
    assert report.sdk.releases == ("2.33.0",)
    seen = {line.name for line in report.of(Level.OK)}
    assert {
        "stack",
        "python",
        "placeholder",
        "torch",
        "packages",
        "requirements",
        "indexes",
        "sdk",
        "driver",
        "devices",
        "cores",
        "lnc",
        "holders",
        "shm",
        "compile-cache",
        "disk",
        "determinism",
    } <= seen


@pytest.mark.parametrize("name", sorted(EXPECTED))
def test_a_layout_gets_the_one_right_error(name: str, tmp_path: Path) -> None:
    found = recorded(name, tmp_path)
    report = inspect(found.host, found.stack)
    code, words, action = EXPECTED[name]
    assert [line.code for line in errors(report.lines)] == [code]
    line = errors(report.lines)[0]
    assert words in line.found
    assert action in line.action
    assert line.expected
    assert exit_code(report) == 1
    # What is wrong on the machine never changes which release the image's components belong to.
    assert report.sdk.releases == ("2.33.0",)


@pytest.mark.parametrize("name", ["healthy-trn2", *sorted(EXPECTED)])
def test_a_run_asks_the_same_before_it_starts(name: str, tmp_path: Path) -> None:
    found = recorded(name, tmp_path)
    environment = Environment(found.environment, "digest", {})
    lines = preflight(found.stack, environment, tmp_path / "runs", host=found.host)
    codes = [line.code for line in errors(lines)]
    if name == "healthy-trn2" or EXPECTED[name][0].startswith("compile-cache"):
        assert codes == []
    else:
        assert codes == [EXPECTED[name][0]]


def test_the_container_variant_says_where_the_driver_belongs(tmp_path: Path) -> None:
    found = recorded("no-driver", tmp_path)
    (found.root / ".dockerenv").touch()
    from harness.doctor import read_host

    host = read_host(found.root, environment=found.environment, variables={})
    assert host.container
    line = next(line for line in inspect(host, found.stack).lines if line.code == "driver.none")
    assert "on the host of this container" in line.found


def test_the_old_driver_s_sysfs_tree_tells_the_cores(tmp_path: Path) -> None:
    assert recorded("old-driver", tmp_path).host.cores_per_device == 8
