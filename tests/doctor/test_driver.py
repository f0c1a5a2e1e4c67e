"""The pair of driver and runtime, by their numbers."""

import pytest

from harness.doctor.driver import check_driver, runtime_version
from harness.doctor.host import Distribution, Host


def host(driver: str | None, runtime: str | None = "2.35.30.0-ac18d186d", **wheels: str) -> Host:
    return Host(
        driver=driver,
        os_packages={"aws-neuronx-runtime-lib": runtime} if runtime else {},
        distributions=tuple(Distribution(name, version) for name, version in wheels.items()),
    )


@pytest.mark.parametrize(
    ("driver", "runtime", "code"),
    [
        ("2.31.7.0", "2.35.30.0", "driver"),
        ("2.40.0.0", "2.35.30.0", "driver"),
        # The pair the release notes name: the 2.30 image, and drivers up to 2.26.
        ("2.26.10.0", "2.32.31.0-abc", "driver.too-old"),
        ("2.26.99.0", "2.35.30.0", "driver.too-old"),
        ("2.26.10.0", "2.32", "driver.too-old"),
        ("2.27", "2.32.31.0", "driver.older"),
        ("2.27.4.0", "2.32.31.0", "driver.older"),
        ("2.30.2.0", "2.35.30.0", "driver.older"),
        ("2.28.0.0", "2.32.31.0", "driver"),
        # Before 2.32 nothing is stated: an older driver is a warning.
        ("2.26.10.0", "2.31.24.0", "driver.older"),
        ("2.27.4.0", "2.31.24.0", "driver"),
        # A runtime the table does not know.
        ("2.30.0.0", "2.99.0.0", "driver"),
        ("odd", "2.35.30.0", "driver.unknown"),
    ],
)
def test_a_pair_is_judged(driver: str, runtime: str, code: str) -> None:
    line = check_driver(host(driver, runtime))
    assert line.code == code
    assert driver in line.found
    assert runtime.partition("-")[0] in line.found


def test_both_sides_are_named_with_their_sdk() -> None:
    line = check_driver(host("2.26.10.0", "2.32.31.0"))
    assert "runtime 2.32.31.0 (SDK 2.30.0) on driver 2.26.10.0 (SDK 2.28.1)" in line.found
    assert "driver 2.27 or newer" in line.expected
    assert "on the host (not in the image)" in line.action


def test_no_driver_says_whose_host_is_meant() -> None:
    assert "on this host" in check_driver(host(None)).found
    assert check_driver(host(None)).level == "error"


def test_no_runtime_is_not_judged() -> None:
    line = check_driver(host("2.31.7.0", None))
    assert (line.level, line.code) == ("skipped", "driver.no-runtime")


def test_the_runtime_s_wheel_stands_in_for_its_package() -> None:
    assert runtime_version(host("2.31.7.0", None, nrtpy="2.35.30+abc")) == "2.35.30"
    assert runtime_version(host("2.31.7.0", "2.34.10.0-x", nrtpy="2.35.30")) == "2.34.10.0"
    assert check_driver(host("2.26.1.0", None, nrtpy="2.35.30")).code == "driver.too-old"
