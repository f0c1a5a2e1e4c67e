"""Installed packages against the lock, with labels; torch and its family; CUDA packages."""

import pytest

from harness.doctor.host import Distribution, Host, Torch
from harness.doctor.packages import (
    check_family,
    check_lock,
    check_nvidia,
    check_placeholders,
    check_python,
    check_torch,
)
from harness.doctor.report import Line

LOCKED = {"torch": "2.9.0+cpu", "numpy": "2.4.6", "tqdm": "4.0"}


def installed(**packages: str) -> Host:
    return Host(distributions=tuple(Distribution(name.replace("_", "-"), v) for name, v in packages.items()))


def by_code(lines: list[Line]) -> dict[str, Line]:
    assert len({line.code for line in lines}) == len(lines)
    return {line.code: line for line in lines}


@pytest.mark.parametrize(
    ("python", "code"),
    [("3.12.1", "python"), ("3.14", "python"), ("3.11.7", "python.version"), ("3.15.0", "python.version")],
)
def test_the_python_against_the_stack(python: str, code: str) -> None:
    line = check_python(Host(python=python), ">=3.12,<3.15")
    assert line.code == code
    assert (line.level == "error") == (code != "python")
    assert python in line.found


def test_an_unknown_python_is_a_warning() -> None:
    assert check_python(Host(python=None), ">=3.12").level == "warning"


def test_exactly_the_lock_is_ok() -> None:
    lines = check_lock(installed(torch="2.9.0+cpu", numpy="2.4.6", tqdm="4.0"), LOCKED)
    assert [(line.level, line.found) for line in lines] == [("ok", "3 as locked")]


def test_another_build_of_the_same_number_is_named() -> None:
    seen = installed(torch="2.9.0+cu130", numpy="2.4.6", tqdm="4.0", nvidia_cuda_runtime="13.0.48")
    line = by_code(check_lock(seen, LOCKED))["packages.other-build"]
    assert line.level == "error"
    assert line.found == "same number, other build: torch 2.9.0+cu130 (1 nvidia-* packages are installed)"
    assert line.expected == "torch 2.9.0+cpu"


@pytest.mark.parametrize(("locked", "found"), [("2.9.0", "2.9.0+cpu"), ("2.9.0+cpu", "2.9.0")])
def test_a_label_lost_or_added_is_another_build(locked: str, found: str) -> None:
    assert [line.code for line in check_lock(installed(torch=found), {"torch": locked})] == [
        "packages.other-build"
    ]


def test_another_version_is_an_error_with_both() -> None:
    line = by_code(check_lock(installed(torch="2.9.0+cpu", numpy="1.26.4", tqdm="4.0"), LOCKED))[
        "packages.version"
    ]
    assert line.level == "error"
    assert "1 other than locked: numpy 1.26.4" in line.found
    assert line.expected == "numpy 2.4.6"


def test_a_missing_package_is_an_error() -> None:
    line = by_code(check_lock(installed(torch="2.9.0+cpu", tqdm="4.0"), LOCKED))["packages.missing"]
    assert (line.level, line.found) == ("error", "1 of 3 not installed: numpy")


def test_an_extra_package_is_a_warning_beside_ok() -> None:
    lines = check_lock(installed(torch="2.9.0+cpu", numpy="2.4.6", tqdm="4.0", wandb="1.0"), LOCKED)
    assert [line.level for line in lines] == ["ok", "warning"]
    assert lines[1].found == "1 not in the lock: wandb 1.0"


def test_the_same_version_in_another_spelling_is_the_same() -> None:
    assert [line.level for line in check_lock(installed(tqdm="4"), {"tqdm": "4.0"})] == ["ok"]


def test_versions_that_are_none_are_compared_as_text() -> None:
    assert check_lock(installed(odd="x-1"), {"odd": "x-1"})[0].level == "ok"
    assert check_lock(installed(odd="x-1"), {"odd": "x-2"})[0].code == "packages.version"


def test_many_differences_are_counted() -> None:
    line = check_lock(Host(), {f"p{index}": "1" for index in range(9)})[0]
    assert line.found == "9 of 9 not installed: p0, p1, p2, p3, p4, p5 and 3 more"


def test_explained_packages_are_left_out() -> None:
    lines = check_lock(installed(torch="2.9.0+cpu", numpy="1", tqdm="4.0"), LOCKED, explained={"numpy"})
    assert [line.level for line in lines] == ["ok"]


def test_an_installed_placeholder_is_named() -> None:
    item = Distribution("nki", "0.0.1", modules=("nki",), text="WRONG PACKAGE. Go elsewhere")
    lines, names = check_placeholders(Host(distributions=(item, Distribution("numpy", "2.0"))))
    assert names == {"nki"}
    assert [line.code for line in lines] == ["placeholder.installed"]
    assert "nki 0.0.1 is the public index's placeholder" in lines[0].found


def test_no_placeholder_says_how_many_were_looked_at() -> None:
    lines, names = check_placeholders(installed(numpy="2.0"))
    assert (names, lines[0].found) == (set(), "none among 1 distributions")


def torch_lines(version: str, torch: Torch | None, *, neuron: bool = False, **others: str) -> list[Line]:
    seen = Host(distributions=installed(torch=version, **others).distributions, torch=torch)
    return check_torch(seen, {"torch": "2.9.0+cpu"}, neuron=neuron)[0]


@pytest.mark.parametrize(
    ("metadata", "own", "recorded"),
    [
        ("2.9.0+cpu", "2.9.0+cpu", True),
        # The public wheel's metadata has no label, its own version has one.
        ("2.14.0", "2.14.0+cu130", True),
        ("2.14.0", "2.14.0+cu130", None),
    ],
)
def test_torch_as_it_was_installed(metadata: str, own: str, recorded: bool | None) -> None:
    lines = torch_lines(metadata, Torch(own, recorded))
    assert [line.level for line in lines] == ["ok"]
    assert f"torch.__version__ {own}" in lines[0].found


@pytest.mark.parametrize(
    ("metadata", "torch", "code", "words"),
    [
        (
            "2.9.0+cpu",
            Torch("2.8.0+cpu", False),
            "torch.swapped",
            "__version__ is 2.8.0+cpu, the metadata says 2.9.0",
        ),
        ("2.9.0+cpu", Torch("2.9.0+cu130", False), "torch.swapped", "2.9.0+cu130"),
        ("2.9.0+cpu", Torch("2.9.0+cpu", False), "torch.changed", "not the file that torch's RECORD names"),
    ],
)
def test_torch_swapped_by_another_install(metadata: str, torch: Torch, code: str, words: str) -> None:
    lines = torch_lines(metadata, torch)
    assert [line.code for line in lines] == [code]
    assert words in lines[0].found
    assert "another install put its files over" in lines[0].action
    assert "torch 2.9.0+cpu" in lines[0].expected


def test_two_metadata_folders_of_torch() -> None:
    items = (Distribution("torch", "2.9.0"), Distribution("torch", "2.8.0"))
    lines, explained = check_torch(Host(distributions=items), {}, neuron=False)
    assert lines[0].code == "torch.twice"
    assert "2.8.0 and 2.9.0" in lines[0].found
    assert explained == {"torch"}


def test_no_torch_is_not_judged() -> None:
    assert check_torch(Host(), {}, neuron=True)[0][0].level == "skipped"


@pytest.mark.parametrize(
    ("versions", "same"),
    [
        ({"torch": "2.9.0+cpu", "torch-neuronx": "2.8.0.2.12.22436+0f1dac25"}, False),
        ({"torch": "2.9.0", "torch-xla": "2.8.1"}, False),
        ({"torch": "2.9.1+cpu", "torch-neuronx": "2.9.0.2.13.26312", "torch-xla": "2.9.0"}, True),
        ({"torch": "2.14.0", "torch-neuronx": "2.14.3.0.1"}, True),
        ({"torch": "2.14.0"}, True),
        ({}, True),
    ],
)
def test_the_family_shares_two_numbers(versions: dict[str, str], same: bool) -> None:
    line = check_family(versions)
    assert (line is None) is same
    if line is not None:
        assert line.code == "torch.family"
        assert "torch 2.9.0" in line.found
        assert "undefined symbols" in line.found
        assert "Bump them together".lower() in line.action.lower()


def test_a_torch_bumped_alone_is_told() -> None:
    lines = torch_lines("2.15.0", Torch("2.15.0", True), neuron=True, torch_neuronx="2.14.3.0.1")
    assert [line.code for line in lines] == ["torch.family"]


def test_the_first_native_library_is_native() -> None:
    assert torch_lines("2.14.0", Torch("2.14.0", True), neuron=True, torch_neuronx="2.14")[0].level == "ok"


@pytest.mark.parametrize(("neuron", "code"), [(True, "torch.legacy-xla"), (False, "torch.family")])
def test_the_legacy_library_counts_on_a_neuron_device(neuron: bool, code: str) -> None:
    lines = torch_lines("2.14.0", Torch("2.14.0", True), neuron=neuron, torch_neuronx="2.9.0.2.15.32035")
    assert [line.code for line in lines] == [code]


@pytest.mark.parametrize(
    ("names", "locked", "level", "words"),
    [
        ({}, {}, "ok", "no nvidia-* packages"),
        ({"nvidia_nccl": "1"}, {"nvidia-nccl": "1"}, "ok", "1 nvidia-* packages, all of them the lock's own"),
        ({"nvidia_nccl": "1", "nvidia_cublas": "1"}, {"nvidia-nccl": "1"}, "warning", "nvidia-cublas"),
    ],
)
def test_cuda_packages(names: dict[str, str], locked: dict[str, str], level: str, words: str) -> None:
    line = check_nvidia(installed(**names), locked)
    assert line.level == level
    assert words in line.found
