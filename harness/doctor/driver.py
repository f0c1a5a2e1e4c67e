"""The host's driver against the runtime in the image: the exact pair, and whether it can work."""

from collections.abc import Mapping

from packaging.version import InvalidVersion, Version

from harness.doctor.host import Host
from harness.doctor.report import Line, error, ok, skipped, warning
from harness.sdk import derive_sdk, documented_version, load_releases

__all__ = ["DRIVER_FLOOR", "check_driver", "runtime_version"]

DRIVER_FLOOR = (Version("2.32"), Version("2.27"))
"""A runtime from the first on does not work with a driver below the second: stated for the 2.30 image (runtime
2.32) and drivers up to 2.26 in the release notes of the Neuron containers; taken to hold for what came later.
"""

_UPGRADE = "upgrade aws-neuronx-dkms on the host (not in the image), or use an image of the driver's SDK"


def runtime_version(host: Host) -> str | None:
    """Return the version of the Neuron runtime that would load: the Debian package's, else nrtpy's; without
    its hash.
    """
    package = host.os_packages.get("aws-neuronx-runtime-lib")
    wheel = host.installed().get("nrtpy")
    found = package or (wheel.version if wheel else None)
    return documented_version(found) if found else None


def check_driver(host: Host) -> Line:
    """Judge whether the driver is loaded, and the pair of driver and runtime."""
    if host.driver is None:
        where = "the host of this container" if host.container else "this host"
        return error(
            "driver.none",
            f"/sys/module/neuron is not there: no Neuron driver is loaded on {where}",
            "aws-neuronx-dkms installed and loaded on the host",
            "on the host: install aws-neuronx-dkms for its running kernel, then `modprobe neuron`",
        )
    runtime = runtime_version(host)
    if runtime is None:
        return skipped(
            "driver.no-runtime", f"driver {host.driver}; no runtime is installed to compare it with"
        )
    return _judge_pair(host.driver, runtime)


def _judge_pair(driver: str, runtime: str) -> Line:
    released = _of("aws-neuronx-runtime-lib", runtime), _of("aws-neuronx-dkms", driver)
    pair = f"runtime {runtime}{released[0]} on driver {driver}{released[1]}"
    try:
        versions = Version(documented_version(driver)), Version(runtime)
    except InvalidVersion:
        return warning(
            "driver.unknown", pair, "versions of numbers", "read /sys/module/neuron/version by hand"
        )
    driver_version, new_runtime = versions[0], versions[1] >= DRIVER_FLOOR[0]
    if new_runtime and driver_version < DRIVER_FLOOR[1]:
        return error(
            "driver.too-old",
            f"{pair}: this pair does not work",
            f"driver {DRIVER_FLOOR[1]} or newer for runtime {DRIVER_FLOOR[0]} and later",
            _UPGRADE,
        )
    wanted = _driver_of(runtime)
    if wanted is not None and driver_version < Version(wanted):
        return warning(
            "driver.older",
            f"{pair}: the driver is older than the one released with this runtime",
            f"driver {wanted} or newer",
            _UPGRADE,
        )
    return ok("driver", pair)


def _of(component: str, version: str) -> str:
    releases = derive_sdk({component: version}).releases
    return f" (SDK {' or '.join(releases)})" if releases else ""


def _driver_of(runtime: str) -> str | None:
    """The oldest driver that was released together with a runtime, None if the runtime is not in the table."""
    together: list[Mapping[str, tuple[str, ...]]] = [
        release.packages
        for release in load_releases()
        if runtime in release.packages.get("aws-neuronx-runtime-lib", ())
    ]
    drivers = [version for packages in together for version in packages.get("aws-neuronx-dkms", ())]
    return min(drivers, key=Version, default=None)
