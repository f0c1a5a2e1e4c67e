"""Stacks: their files, digests, and what an unresolved pin does."""

import shutil
from pathlib import Path

import pytest

from harness.errors import UserError
from harness.stack import list_stacks, load_stack


@pytest.fixture
def project(tmp_path: Path, root: Path) -> Path:
    shutil.copytree(root / "lockfiles", tmp_path / "lockfiles")
    return tmp_path


def edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def test_the_stacks_that_ship_load(root: Path) -> None:
    assert list_stacks(root) == ["cpu", "trn2"]
    cpu, trn2 = load_stack(root, "cpu"), load_stack(root, "trn2")
    assert (cpu.ranks, cpu.device, cpu.device_layer) == (2, "cpu", "cpu")
    assert (trn2.ranks, trn2.device, trn2.device_layer) == (64, "neuron", "none")
    assert trn2.profile.name == "full"


def test_an_unresolved_stack_stops_with_its_sentence(root: Path) -> None:
    with pytest.raises(UserError) as raised:
        load_stack(root, "trn2").require_resolved()
    assert "Unresolved" in str(raised.value)
    assert "Next:" in str(raised.value)
    assert raised.value.exit_code == 2


def test_an_unknown_stack_names_the_known_ones(root: Path) -> None:
    with pytest.raises(UserError, match="cpu, trn2"):
        load_stack(root, "gpu")


def test_the_digest_does_not_depend_on_the_path_or_key_order(project: Path, root: Path) -> None:
    path = project / "lockfiles" / "cpu" / "stack.yaml"
    lines = path.read_text().splitlines(keepends=True)
    ranks = next(line for line in lines if line.startswith("ranks:"))
    lines.remove(ranks)
    path.write_text("".join(lines) + ranks)
    assert load_stack(project, "cpu").digest() == load_stack(root, "cpu").digest()


@pytest.mark.parametrize(
    ("file", "old", "new"),
    [("stack.yaml", "ranks: 2", "ranks: 4"), ("requirements.lock", "torch==2.14.0", "torch==2.14.1")],
)
def test_the_digest_follows_the_content(project: Path, root: Path, file: str, old: str, new: str) -> None:
    edit(project / "lockfiles" / "cpu" / file, old, new)
    assert load_stack(project, "cpu").digest() != load_stack(root, "cpu").digest()


def test_a_stack_that_calls_itself_something_else_is_refused(project: Path) -> None:
    edit(project / "lockfiles" / "cpu" / "stack.yaml", "name: cpu", "name: other")
    with pytest.raises(UserError, match=r"'other'.*'cpu'"):
        load_stack(project, "cpu")


def test_lock_files_name_no_host(root: Path) -> None:
    for lock in (root / "lockfiles").glob("*/requirements.lock"):
        assert "://" not in lock.read_text(), lock
