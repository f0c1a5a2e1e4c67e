"""A machine is read from below one root folder; nothing raises, and without a device nothing is started."""

import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

import pytest

from harness.doctor import readers
from harness.doctor.host import Disk, Holder, Host
from harness.doctor.processes import read_holders, wait_until_free
from harness.doctor.readers import Probes, is_container, parse_dpkg, read_dpkg, read_host
from tests.doctor.layouts import load_layout, recorded

QUIET = Probes(
    usable=lambda _: True, access=lambda _: "", disk=lambda _: None, now=lambda: 5.0, uid=lambda: 7
)


def test_an_empty_folder_is_an_empty_machine(tmp_path: Path) -> None:
    host = read_host(tmp_path, variables={}, probes=QUIET)
    assert (host.driver, host.devices, host.holders, host.neuron_ls) == (None, (), (), None)
    assert (host.now, host.uid, host.container, host.os_packages) == (5.0, 7, False, {})
    assert host.python is not None


def test_a_healthy_host_is_read(tmp_path: Path) -> None:
    host = recorded("healthy-trn2", tmp_path).host
    assert host.driver == "2.31.7.0"
    assert [device.index for device in host.devices] == list(range(16))
    assert host.driver_devices == 16
    assert host.cores_per_device is None
    assert host.os_packages["aws-neuronx-runtime-lib"] == "2.35.30.0"
    assert "aws-neuronx-oci-hook" not in host.os_packages
    assert host.python == "3.14.0"
    assert len(host.distributions) == len(load_layout("healthy-trn2")["packages"])
    assert [entry.state for entry in host.cache_entries] == ["done"]


def test_the_disks_asked_for_are_read_and_the_image_store_too(tmp_path: Path) -> None:
    (tmp_path / "var/lib/docker").mkdir(parents=True)
    asked: list[Path] = []

    def disk(path: Path) -> Disk | None:
        asked.append(path)
        return None if path.name == "runs" else Disk(str(path), 1, 2)

    places = {"cache": tmp_path / "c", "runs": tmp_path / "runs"}
    host = read_host(tmp_path, variables={}, places=places, probes=replace(QUIET, disk=disk))
    assert set(host.disks) == {"cache", "image"}
    assert tmp_path / "dev/shm" in asked


def test_the_stack_s_variables_win_for_the_compile_cache(tmp_path: Path) -> None:
    host = read_host(
        tmp_path,
        variables={"NEURON_COMPILE_CACHE_URL": "/a"},
        stated={"NEURON_COMPILE_CACHE_URL": "/b"},
        probes=QUIET,
    )
    assert host.compile_cache == "/b"
    assert host.variables == {"NEURON_COMPILE_CACHE_URL": "/a"}


def test_cores_are_found_where_the_new_sysfs_tree_may_keep_them(tmp_path: Path) -> None:
    folder = tmp_path / "sys/class/neuron_device/neuron0/info"
    folder.mkdir(parents=True)
    (folder / "core_count").write_text("8\n")
    host = read_host(tmp_path, variables={}, probes=QUIET)
    assert (host.driver_devices, host.cores_per_device) == (1, 8)


@pytest.mark.parametrize("content", ["", "x", "0"])
def test_a_core_count_that_is_no_number_is_unknown(tmp_path: Path, content: str) -> None:
    folder = tmp_path / "sys/class/neuron_device/neuron0"
    folder.mkdir(parents=True)
    (folder / "core_count").write_text(content)
    assert read_host(tmp_path, variables={}, probes=QUIET).cores_per_device is None


def with_neuron_ls(tmp_path: Path, tools: str, output: str | None) -> tuple[list[list[str]], Host]:
    (tmp_path / "dev").mkdir()
    (tmp_path / "dev/neuron0").touch()
    (tmp_path / "dev/neuron_other").touch()
    program = tmp_path / "opt/aws/neuron/bin/neuron-ls"
    program.parent.mkdir(parents=True)
    program.touch()
    status = tmp_path / "var/lib/dpkg/status"
    status.parent.mkdir(parents=True)
    status.write_text(f"Package: aws-neuronx-tools\nStatus: install ok installed\nVersion: {tools}\n")
    calls: list[list[str]] = []

    def run(argv: Sequence[str]) -> str | None:
        calls.append(list(argv[1:]))
        return output

    return calls, read_host(tmp_path, variables={}, probes=replace(QUIET, run=run))


ONE = '{"neuron_device": 0, "nc_count": 4, "logical_neuroncore_config": 2, "neuron_processes": []}'


def test_neuron_ls_is_asked_as_its_version_wants(tmp_path: Path) -> None:
    calls, host = with_neuron_ls(tmp_path, "2.33.38.0", f"[{ONE}]")
    assert calls == [["-j"]]
    assert host.neuron_ls is not None
    assert len(host.neuron_ls.devices) == 1
    assert len(host.devices) == 1


def test_a_new_neuron_ls_is_asked_otherwise(tmp_path: Path) -> None:
    calls, host = with_neuron_ls(tmp_path, "2.34.1.0", f'{{"devices": [{ONE}]}}')
    assert calls == [["--output-format", "json"]]
    assert host.neuron_ls is not None
    assert len(host.neuron_ls.devices) == 1


def test_a_neuron_ls_that_fails_is_told(tmp_path: Path) -> None:
    _, host = with_neuron_ls(tmp_path, "2.33.38.0", None)
    assert host.neuron_ls is not None
    assert "failed" in host.neuron_ls.problem


def test_without_a_device_nothing_is_started_and_proc_is_not_walked(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a process was started, or /proc was walked, without a device")

    monkeypatch.setattr("harness.process.run", refuse)
    monkeypatch.setattr(readers, "read_holders", refuse)
    read_host(tmp_path, variables={})


def test_the_system_s_own_answers(tmp_path: Path) -> None:
    probes = Probes()
    (tmp_path / "node").touch(mode=0o644)
    assert probes.usable(tmp_path / "node")
    assert probes.access(tmp_path / "node").startswith("-rw-r--r-- ")
    assert probes.access(tmp_path / "nowhere") == ""
    disk = probes.disk(tmp_path / "not" / "made" / "yet")
    assert disk is not None
    assert 0 < disk.free <= disk.total
    assert disk.path == str(tmp_path / "not" / "made" / "yet")
    assert probes.run(["/bin/echo", "hello"]) == "hello\n"
    assert probes.run(["/bin/false"]) is None
    assert probes.run([str(tmp_path / "nowhere")]) is None


@pytest.mark.parametrize(
    ("files", "variables", "inside"),
    [
        ({}, {}, False),
        ({".dockerenv": ""}, {}, True),
        ({"run/.containerenv": ""}, {}, True),
        ({}, {"container": "podman"}, True),
        ({}, {"KUBERNETES_SERVICE_HOST": "10.0.0.1"}, True),
        ({"proc/1/cgroup": "0::/init.scope\n"}, {}, False),
        ({"proc/1/cgroup": "12:cpu:/kubepods/burstable/pod1\n"}, {}, True),
    ],
)
def test_a_container_is_recognised(
    tmp_path: Path, files: dict[str, str], variables: dict[str, str], inside: bool
) -> None:
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(text)
    assert is_container(tmp_path, variables) is inside


def test_only_installed_debian_packages_count() -> None:
    text = (
        "Package: b\nStatus: install ok installed\nVersion: 1:2.0-1\nDescription: x\n Version: 9\n\n"
        "Package: a\nStatus: deinstall ok config-files\nVersion: 1\n\n"
        "Package: c\nStatus: hold ok installed\nVersion: 3\n\nPackage: d\nStatus: install ok installed\n"
    )
    assert parse_dpkg(text) == {"b": "1:2.0-1", "c": "3"}
    assert parse_dpkg("") == {}


def test_no_dpkg_is_no_packages(tmp_path: Path) -> None:
    assert read_dpkg(tmp_path) == {}


def process(
    root: Path, pid: int, *targets: str, stat: str | None = None, command: bytes = b"python\0x y\0"
) -> None:
    folder = root / "proc" / str(pid)
    (folder / "fd").mkdir(parents=True)
    for number, target in enumerate(targets):
        (folder / "fd" / str(number)).symlink_to(target)
    (folder / "cmdline").write_bytes(command)
    if stat is not None:
        (folder / "stat").write_text(stat)


def test_holders_are_read_from_open_files(tmp_path: Path) -> None:
    ticks = os.sysconf("SC_CLK_TCK")
    process(
        tmp_path,
        12,
        "/dev/neuron3",
        "/dev/neuron0",
        "/dev/null",
        stat=f"12 (a b)) S {'0 ' * 18}{40 * ticks} 0\n",
    )
    process(tmp_path, 5, "/dev/neuron1", stat="5 (x) S 0\n")
    process(tmp_path, 6, "/dev/neuron_x", "/dev/null")
    process(tmp_path, 7, "/dev/neuron1")
    (tmp_path / "proc" / "uptime").write_text("100.5 1.0\n")
    (tmp_path / "proc" / "8").mkdir()
    (tmp_path / "proc" / "9x").mkdir()
    first, second = read_holders(tmp_path, frozenset({7}))
    assert (first.pid, first.age, first.devices) == (5, None, (1,))
    assert (second.pid, second.age, second.devices, second.command) == (12, 60.5, (0, 3), "python x y")


def test_without_an_uptime_there_is_no_age(tmp_path: Path) -> None:
    process(tmp_path, 12, "/dev/neuron3", stat=f"12 (a) S {'0 ' * 18}4000 0\n")
    assert read_holders(tmp_path)[0].age is None


@pytest.mark.parametrize(
    ("busy_reads", "limit", "left", "slept"), [(0, 30, 0, 0), (2, 30, 0, 2), (99, 5, 1, 5), (99, 0, 1, 0)]
)
def test_cores_are_waited_for_up_to_a_limit(busy_reads: int, limit: float, left: int, slept: int) -> None:
    busy, watcher = Holder(4, "python train.py", 1.0, (0,)), Holder(5, "neuron-top", 1.0, (0,))
    clock = [100.0]
    reads = [0]

    def read() -> tuple[Holder, ...]:
        reads[0] += 1
        return (busy, watcher) if reads[0] <= busy_reads else (watcher,)

    def sleep(seconds: float) -> None:
        clock[0] += seconds

    found = wait_until_free(limit, read, clock=lambda: clock[0], sleep=sleep)
    assert [holder.pid for holder in found] == ([4, 5] if left else [5])
    assert clock[0] - 100.0 == slept
