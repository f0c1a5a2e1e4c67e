"""Device nodes, cores and ranks, LNC, holders, shared memory."""

from dataclasses import replace

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.doctor.devices import (
    SHM_PER_RANK,
    check_cores,
    check_devices,
    check_holders,
    check_lnc,
    check_shm,
    left_behind,
    logical_cores_variable,
    visible_cores,
)
from harness.doctor.host import Device, Disk, Holder, Host, NeuronLs, NeuronLsDevice
from harness.doctor.report import Line, ok


def host(*indexes: int, **changes: object) -> Host:
    devices = tuple(Device(index, True, "crw-rw-rw- 0:0") for index in indexes)
    return replace(Host(driver="2.31.7.0", devices=devices, uid=1000), **changes)  # type: ignore[arg-type]


ALL = range(16)


def test_sixteen_nodes_for_sixty_four_ranks() -> None:
    line = check_devices(host(*ALL), 64, 2)
    assert (line.level, line.found) == ("ok", "16 nodes (0-15), all usable by uid 1000")


@pytest.mark.parametrize(
    ("ranks", "lnc", "level"), [(64, 2, "ok"), (128, 1, "ok"), (128, 2, "error"), (65, 2, "error")]
)
def test_ranks_and_lnc_say_how_many_are_needed(ranks: int, lnc: int, level: str) -> None:
    assert check_devices(host(*ALL), ranks, lnc).level == level


def test_the_driver_s_own_number_of_cores_counts() -> None:
    assert check_devices(host(*range(4), cores_per_device=2), 8, 1).level == "ok"
    assert check_devices(host(*range(4), cores_per_device=2), 9, 1).code == "devices.missing"


def test_a_hole_is_told_before_a_missing_device() -> None:
    line = check_devices(host(0, 1, 3, 5), 64, 2)
    assert line.code == "devices.hole"
    assert "/dev/neuron2, /dev/neuron4 missing in between" in line.found


def test_a_container_that_got_fewer_than_the_host_has() -> None:
    line = check_devices(host(*range(4), container=True, driver_devices=16), 64, 2)
    assert line.code == "devices.missing"
    assert line.action == "the host has 16: pass the missing ones by --device as well"


@pytest.mark.parametrize(("container", "listed"), [(True, 4), (True, None), (False, 16)])
def test_a_device_that_the_host_lacks_is_looked_for_there(container: bool, listed: int | None) -> None:
    line = check_devices(host(*range(4), container=container, driver_devices=listed), 64, 2)
    assert "dmesg" in line.action


def test_unusable_nodes_are_listed_with_mode_and_owner() -> None:
    devices = tuple(Device(index, index not in (2, 9), "crw------- 0:0") for index in ALL)
    line = check_devices(host(devices=devices), 64, 2)
    assert line.code == "devices.unreadable"
    assert "2 of 16" in line.found
    assert "/dev/neuron2 (crw------- 0:0), /dev/neuron9" in line.found


@pytest.mark.parametrize(
    ("changes", "code", "words"),
    [
        ({"driver": None}, "devices", "see `driver`"),
        ({"container": False, "driver_devices": 16}, "devices.no-nodes", "the driver lists 16"),
        ({"container": False}, "devices.no-nodes", "the driver is loaded"),
        (
            {"container": True, "driver_devices": 4},
            "devices.not-passed",
            "the driver lists 4, this container sees",
        ),
    ],
)
def test_no_node_at_all_has_three_causes(changes: dict[str, object], code: str, words: str) -> None:
    line = check_devices(host(**changes), 64, 2)
    assert line.code == code
    assert words in line.found


def test_the_hook_is_spoken_of_only_if_its_variable_is_set() -> None:
    without = check_devices(host(container=True, driver_devices=4), 64, 2)
    assert "--device=/dev/neuron3" in without.action
    assert "hook" not in without.action
    variables = {"AWS_NEURON_VISIBLE_DEVICES": "ALL"}
    assert "OCI hook" in check_devices(host(container=True, variables=variables), 64, 2).action


GOOD = ok("devices", "")


def cores(seen: Host, ranks: int, lnc: int = 2, devices: Line = GOOD, **variables: str) -> Line:
    return check_cores(seen, ranks, lnc, variables, devices)


def test_ranks_equal_logical_cores() -> None:
    assert cores(host(*ALL), 64).level == "ok"
    assert cores(host(*ALL), 128, lnc=1).level == "ok"


@pytest.mark.parametrize(("ranks", "lnc"), [(32, 2), (64, 1), (63, 2)])
def test_any_other_number_is_an_error_with_both(ranks: int, lnc: int) -> None:
    line = cores(host(*ALL), ranks, lnc)
    assert line.code == "cores.ranks"
    assert (
        f"{ranks} ranks, {128 // lnc} logical cores (16 devices x 8 physical cores / LNC {lnc})" in line.found
    )


def test_a_limited_runtime_counts_what_is_left() -> None:
    assert cores(host(*ALL), 32, NEURON_RT_VISIBLE_CORES="0-31").level == "ok"
    line = cores(host(*ALL), 64, NEURON_RT_NUM_CORES="8")
    assert line.code == "cores.ranks"
    assert "8 logical cores" in line.found
    assert "limited by" in line.found


def test_neuron_ls_is_believed_where_its_lnc_is_the_run_s() -> None:
    def listing(lnc: int | None) -> NeuronLs:
        return NeuronLs(tuple(NeuronLsDevice(index, 2, lnc) for index in ALL))

    assert "neuron-ls" in cores(host(*ALL, neuron_ls=listing(2)), 32).found
    assert cores(host(*ALL, neuron_ls=listing(2)), 32).level == "ok"
    assert cores(host(*ALL, neuron_ls=listing(1)), 64).level == "ok"
    assert cores(host(*ALL, neuron_ls=listing(None)), 64).level == "ok"
    assert cores(host(*ALL, neuron_ls=NeuronLs((), "not JSON")), 64).level == "ok"


def test_without_the_right_nodes_nothing_is_counted() -> None:
    assert cores(host(), 64, devices=check_devices(host(), 64, 2)).level == "skipped"


@pytest.mark.parametrize(
    ("variables", "cores"),
    [
        ({}, None),
        ({"NEURON_RT_VISIBLE_CORES": "0"}, 1),
        ({"NEURON_RT_VISIBLE_CORES": "0-3,8, 10-11"}, 7),
        ({"NEURON_RT_VISIBLE_CORES": "a-b"}, None),
        ({"NEURON_RT_VISIBLE_CORES": "1-b"}, None),
        ({"NEURON_RT_VISIBLE_CORES": "a"}, None),
        ({"NEURON_RT_VISIBLE_CORES": "0-"}, 1),
        ({"NEURON_RT_NUM_CORES": "16"}, 16),
        ({"NEURON_RT_NUM_CORES": "x"}, None),
    ],
)
def test_visible_cores(variables: dict[str, str], cores: int | None) -> None:
    assert visible_cores(variables) == cores


@given(st.lists(st.integers(0, 60), min_size=1, unique=True))
def test_a_list_of_cores_counts_its_cores(cores: list[int]) -> None:
    assert visible_cores({"NEURON_RT_VISIBLE_CORES": ",".join(map(str, cores))}) == len(cores)


@pytest.mark.parametrize(("value", "lnc"), [("1", 1), ("2", 2), ("", 2), ("x", 2), ("0", 2)])
def test_the_lnc_variable(value: str, lnc: int) -> None:
    assert logical_cores_variable({"NEURON_LOGICAL_NC_CONFIG": value}) == lnc


@pytest.mark.parametrize(
    ("variables", "code"),
    [
        ({}, "lnc"),
        ({"NEURON_LOGICAL_NC_CONFIG": "1"}, "lnc"),
        ({"NEURON_LOGICAL_NC_CONFIG": "2", "NEURON_CC_FLAGS": "--lnc=2"}, "lnc"),
        ({"NEURON_LOGICAL_NC_CONFIG": "2", "NEURON_CC_FLAGS": "-lnc 1"}, "lnc.mismatch"),
        # The runtime's default is 2, so a flag alone can contradict it.
        ({"NEURON_CC_FLAGS": "--logical-nc-config=1"}, "lnc.mismatch"),
        ({"NEURON_LOGICAL_NC_CONFIG": "4"}, "lnc.value"),
        ({"NEURON_LOGICAL_NC_CONFIG": "two"}, "lnc.value"),
    ],
)
def test_the_variable_against_the_flag(variables: dict[str, str], code: str) -> None:
    line = check_lnc(variables)
    assert line.code == code
    assert (line.level == "ok") == (code == "lnc")


TRAINING = Holder(4121, "python -m torchtitan.train", 7833.0, (0, 1))


def test_a_holder_is_named_with_pid_age_and_command() -> None:
    line = check_holders(host(*ALL, holders=(TRAINING,)))
    assert line.code == "holders.busy"
    assert (
        "/dev/neuron0, /dev/neuron1 by pid 4121 (started 02:10:33 ago): python -m torchtitan.train"
        in line.found
    )


def test_a_holder_that_only_neuron_ls_saw() -> None:
    device = NeuronLsDevice(3, 4, 2, (Holder(9, "neuron-bench exec", None, (3,)),))
    line = check_holders(host(*ALL, neuron_ls=NeuronLs((device,))))
    assert "/dev/neuron3 by pid 9: neuron-bench exec" in line.found


def test_one_process_seen_twice_is_one_holder() -> None:
    device = NeuronLsDevice(0, 4, 2, (replace(TRAINING, age=None),))
    assert (
        "by 1 other process"
        in check_holders(host(*ALL, holders=(TRAINING,), neuron_ls=NeuronLs((device,)))).found
    )


@pytest.mark.parametrize("program", ["neuron-monitor", "/opt/aws/neuron/bin/neuron-top -x", "neuron-ls -j"])
def test_what_only_watches_holds_nothing(program: str) -> None:
    assert check_holders(host(*ALL, holders=(Holder(1, program, 1.0, (0,)),))).level == "ok"


def test_only_what_came_with_the_run_is_left_behind() -> None:
    before = (Holder(1, "python other.py", 1.0, (9,)),)
    watching = Holder(3, "neuron-monitor", 1.0, (0,))
    assert left_behind(before, (*before, watching)) is None
    finding = left_behind(before, (*before, TRAINING))
    assert finding is not None
    assert finding.code == "holders.left-behind"
    assert "pid 4121: python -m torchtitan.train" in finding.message
    assert finding.data["pids"] == [4121]


def test_nobody_holds_what_is_not_there() -> None:
    assert check_holders(host()).level == "skipped"
    assert check_holders(host(*ALL)).level == "ok"


@pytest.mark.parametrize(("total", "level"), [(64 * SHM_PER_RANK, "ok"), (64 * SHM_PER_RANK - 1, "error")])
def test_shared_memory_per_rank(total: int, level: str) -> None:
    line = check_shm(host(shm=Disk("/dev/shm", total, total)), 64)
    assert line.level == level
    if level == "error":
        assert "4.00 GiB" in line.expected


def test_shared_memory_that_cannot_be_read() -> None:
    assert check_shm(host(), 64).level == "skipped"
