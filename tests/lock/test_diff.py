"""What differs between two stacks."""

import shutil
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.errors import UserError
from harness.lock.diff import SECTIONS, Change, StackDiff, StackView, diff_stacks, diff_views, text_lines
from harness.stack import find_stack, load_stack
from tests.lock.conftest import Maker

HASH = "--hash=sha256:" + "a" * 64


@pytest.fixture
def two(tmp_path: Path, root: Path) -> tuple[Path, Path]:
    """Two copies of the cpu stack's folder."""
    for name in ("old", "new"):
        shutil.copytree(root / "lockfiles" / "cpu", tmp_path / name)
    return tmp_path / "old", tmp_path / "new"


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new, 1))


def compare(root: Path, two: tuple[Path, Path]) -> StackDiff:
    return diff_stacks(find_stack(root, str(two[0])), find_stack(root, str(two[1])))


def test_a_stack_does_not_differ_from_itself(root: Path, two: tuple[Path, Path]) -> None:
    difference = compare(root, two)
    assert difference.changes == ()
    assert sum(difference.unchanged.values()) > 100
    assert list(text_lines(difference))[-1] == "no difference"


def test_every_kind_of_change_is_named(root: Path, two: tuple[Path, Path]) -> None:
    lock, stack = two[1] / "requirements.lock", two[1] / "stack.yaml"
    edit(lock, "torch==2.14.0", "torch==2.14.0+cpu")
    edit(lock, "numpy==2.4.6", "numpy==2.4.7")
    edit(lock, "absl-py==2.5.1", "zzz==1")
    edit(stack, "ranks: 2", "ranks: 4")
    edit(stack, 'OMP_NUM_THREADS: "1"', 'OMP_NUM_THREADS: "2"')
    edit(stack, "digest: unresolved", "digest: sha256:" + "1" * 64)
    edit(stack, "steps: 10", "steps: 20")
    edit(stack, 'python: "3.11"', 'python: "3.12"')
    assert [(c.section, c.kind, c.key, c.before, c.after, c.note) for c in compare(root, two).changes] == [
        ("stack", "changed", "locked_for.python", "3.11", "3.12", ""),
        ("stack", "changed", "ranks", "2", "4", ""),
        ("base image", "changed", "digest", "unresolved", "sha256:" + "1" * 64, ""),
        ("packages", "removed", "absl-py", "2.5.1", "", ""),
        ("packages", "changed", "numpy", "2.4.6", "2.4.7", ""),
        ("packages", "changed", "torch", "2.14.0", "2.14.0+cpu", "same number, other build"),
        ("packages", "added", "zzz", "", "1", ""),
        ("environment", "changed", "OMP_NUM_THREADS", "1", "2", ""),
        ("profile", "changed", "steps", "10", "20", ""),
    ]


def test_the_text_shows_full_versions_and_the_other_build(root: Path, two: tuple[Path, Path]) -> None:
    edit(two[1] / "requirements.lock", "torch==2.14.0", "torch==2.14.0+cu130")
    lines = list(text_lines(compare(root, two)))
    assert lines[0] == f"cpu ({two[0]}) -> cpu ({two[1]})"
    assert "packages: 1 different, 106 the same" in lines
    assert "  ~ torch 2.14.0 -> 2.14.0+cu130  (same number, other build)" in lines


def test_a_stack_without_a_lock_is_compared_by_its_pins_and_that_is_said(root: Path) -> None:
    difference = diff_stacks(load_stack(root, "cpu"), load_stack(root, "trn2"))
    assert (
        "trn2 has no lock, so the direct pins are compared. Unresolved: the hashed lock"
        in difference.notes[0]
    )
    packages = {change.key: change for change in difference.changes if change.section == "packages"}
    assert packages.keys() == {"torchtitan", "torch-neuronx", "neuronx-cc", "nki"}
    assert packages["torch-neuronx"].after == "==2.14.3.0.*"
    sections = {change.section for change in difference.changes}
    assert {"stack", "base image", "sources", "indexes", "profile", "assets"} <= sections
    keys = {change.key for change in difference.changes if change.section == "stack"}
    assert {"python", "ranks", "device", "device_layer", "launcher", "sdk"} <= keys


def test_a_stack_is_found_by_name_or_by_folder(root: Path, two: tuple[Path, Path], make_stack: Maker) -> None:
    assert find_stack(root, "cpu").folder == root / "lockfiles" / "cpu"
    assert find_stack(root, str(two[0])).folder == two[0]
    with pytest.raises(UserError, match="no stack `nothing`"):
        find_stack(root, "nothing")
    with pytest.raises(UserError, match=r"stack\.yaml: no such file"):
        find_stack(root, str(two[0] / "nothing"))


texts = st.dictionaries(st.sampled_from(["a", "b", "c", "d"]), st.sampled_from(["1", "2", "1+x"]))


def seen(sections: dict[str, dict[str, str]]) -> StackView:
    return StackView("s", "folder", "lock", sections)


def flipped(change: Change) -> Change:
    kinds = {"added": "removed", "removed": "added", "changed": "changed"}
    kind = kinds[change.kind]
    return Change(change.section, change.key, kind, change.after, change.before, change.note)  # type: ignore[arg-type]


@given(st.dictionaries(st.sampled_from(SECTIONS), texts), st.dictionaries(st.sampled_from(SECTIONS), texts))
def test_the_other_way_round_is_the_mirror_and_rebuilds(
    one: dict[str, dict[str, str]], other: dict[str, dict[str, str]]
) -> None:
    there, back = diff_views(seen(one), seen(other)), diff_views(seen(other), seen(one))
    assert tuple(map(flipped, there.changes)) == back.changes
    rebuilt = {section: dict(one.get(section, {})) for section in SECTIONS}
    for change in there.changes:
        if change.kind == "removed":
            del rebuilt[change.section][change.key]
        else:
            rebuilt[change.section][change.key] = change.after
    assert rebuilt == {section: other.get(section, {}) for section in SECTIONS}
