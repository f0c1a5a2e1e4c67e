"""What distributions require of each other: missing, conflicting, and impossible with both owners."""

import pytest

from harness.doctor.host import Distribution
from harness.doctor.report import Line
from harness.doctor.requirements import check_requirements


def dist(name: str, version: str, *requires: str) -> Distribution:
    return Distribution(name, version, requires)


def errors(
    *items: Distribution, python: str | None = "3.12.1", explained: tuple[str, ...] = ()
) -> list[Line]:
    return [line for line in check_requirements(items, python, explained=explained) if line.level == "error"]


def test_what_holds_is_counted() -> None:
    lines = check_requirements([dist("a", "1", "b>=1"), dist("b", "1.5")], "3.12")
    assert [(line.level, line.found) for line in lines] == [("ok", "1 requirements of 2 distributions hold")]


def test_a_missing_dependency_names_who_wants_it() -> None:
    (line,) = errors(dist("mytrainer", "1.0", "tinytok>=2"))
    assert line.code == "requirements.missing"
    assert line.found == "mytrainer 1.0 requires tinytok>=2: not installed"
    assert "add tinytok to the lock" in line.action


def test_a_conflict_names_owner_range_and_version() -> None:
    (line,) = errors(dist("neuronx-cc", "2.13.66", "protobuf<3.20"), dist("protobuf", "3.20.3"))
    assert line.code == "requirements.conflict"
    assert line.found == "neuronx-cc 2.13.66 requires protobuf<3.20: installed is 3.20.3"


def test_ranges_that_cannot_meet_name_both_owners() -> None:
    (line,) = errors(
        dist("neuronx-cc", "2.22.0", "numpy<=1.25.2,>=1.24.3"),
        dist("transformers", "5.9.0", "numpy>=1.17"),
        dist("torchtitan-extras", "0.1", "numpy>=2.0"),
        dist("numpy", "1.25.0"),
    )
    assert line.code == "requirements.impossible"
    assert "numpy ranges cannot meet" in line.found
    assert "neuronx-cc 2.22.0 wants <=1.25.2,>=1.24.3" in line.found
    assert "torchtitan-extras 0.1 wants >=2.0" in line.found
    assert "transformers" not in line.found


def test_three_ranges_that_meet_in_pairs_only() -> None:
    (line,) = errors(
        dist("a", "1", "n!=2.0"), dist("b", "1", "n>=2.0"), dist("c", "1", "n<=2.0"), dist("n", "2.0")
    )
    assert line.code == "requirements.impossible"
    assert all(f"{owner} 1 wants" in line.found for owner in "abc")


def test_impossible_is_said_even_if_nothing_is_installed() -> None:
    (line,) = errors(dist("a", "1", "n<1"), dist("b", "1", "n>=2"))
    assert line.code == "requirements.impossible"


@pytest.mark.parametrize(
    ("requirement", "python", "wanted"),
    [
        ("tomli; python_version < '3.11'", "3.12.1", False),
        ("tomli; python_version < '3.11'", "3.10.2", True),
        ("new; python_full_version >= '3.12.0'", "3.12", True),
        ("win; sys_platform == 'win32'", "3.12.1", False),
    ],
)
def test_markers_are_those_of_the_environment(requirement: str, python: str, wanted: bool) -> None:
    assert bool(errors(dist("a", "1", requirement), python=python)) is wanted


def test_an_installed_pre_release_satisfies_its_range() -> None:
    assert errors(dist("a", "1", "b>=1.0"), dist("b", "2.0rc1")) == []


def test_names_are_compared_normalised() -> None:
    assert errors(dist("a", "1", "Typing_Extensions>=4"), dist("typing-extensions", "4.1")) == []


def test_a_requirement_nobody_can_read_is_left_to_pip() -> None:
    assert errors(dist("a", "1", "???", "b @")) == []


def test_explained_distributions_are_left_out_on_both_sides() -> None:
    items = (dist("a", "1", "b>=2"), dist("b", "1", "c"), dist("d", "1", "e"))
    assert [line.found for line in errors(*items, explained=("b",))] == ["d 1 requires e: not installed"]


def test_a_version_that_is_none_does_not_hold() -> None:
    assert [line.code for line in errors(dist("a", "1", "b>=1"), dist("b", "odd"))] == [
        "requirements.conflict"
    ]


def test_many_owners_are_cut_short() -> None:
    owners = [dist(f"o{number}", "1", "gone") for number in range(5)]
    assert errors(*owners)[0].found.endswith("; and 2 more: not installed")
