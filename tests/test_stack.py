"""Stacks: their files, digests, and what an unresolved pin does."""

import shutil
from pathlib import Path

import pytest

from harness.errors import UserError
from harness.lock.requirements import read_requirements
from harness.pins import open_values, value_at
from harness.stack import find_stack, list_stacks, load_stack, load_stack_folder


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


def test_what_is_open_is_explained_with_the_command_that_resolves_it(root: Path) -> None:
    trn2 = load_stack(root, "trn2")
    keys = open_values(trn2.model_dump(mode="json", exclude={"unresolved"}))
    assert keys == [
        "assets.models.published.revision",
        "assets.models.moe.revision",
        "base_image.digest",
        "sources.torchtitan-neuron.commit",
        "sources.torchtitan-neuron.tree",
    ]
    assert len(trn2.open_pins()) == 4
    assert all("harness lock trn2" in item.command for item in trn2.open_pins())
    assert {pin for item in trn2.unresolved for pin in item.pins} == {*keys, "requirements.lock"}


def test_an_open_value_without_an_explanation_is_refused(project: Path) -> None:
    path = project / "lockfiles" / "trn2" / "stack.yaml"
    edit(path, "  - pins: [base_image.digest]", "  - pins: [base_image.tag]")
    with pytest.raises(UserError, match=r"`base_image\.digest` is unresolved, but no entry"):
        load_stack(project, "trn2")


def test_an_image_can_be_open_while_runs_are_not(project: Path, root: Path) -> None:
    cpu = load_stack(root, "cpu")
    cpu.require_resolved()
    with pytest.raises(
        UserError, match=r"cannot be built as an image: Unresolved: the digest of the base image"
    ):
        cpu.require_resolved("image")
    edit(project / "lockfiles" / "cpu" / "stack.yaml", "digest: unresolved", f"digest: sha256:{'1' * 64}")
    load_stack(project, "cpu").require_resolved("image")


def test_an_entry_whose_values_are_resolved_no_longer_counts(project: Path) -> None:
    path = project / "lockfiles" / "trn2" / "stack.yaml"
    edit(path, "commit: unresolved", f"commit: {'a' * 40}")
    assert any("torchtitan-neuron" in item.what for item in load_stack(project, "trn2").open_pins())
    edit(path, "tree: unresolved", f"tree: sha256:{'1' * 64}")
    (project / "lockfiles" / "trn2" / "requirements.lock").write_text("")
    left = [item.pins[0] for item in load_stack(project, "trn2").open_pins()]
    assert left == ["base_image.digest", "assets.models.published.revision"]


def test_the_digest_says_nothing_of_what_is_open(project: Path, root: Path) -> None:
    edit(project / "lockfiles" / "cpu" / "stack.yaml", "why: its registry", "why: the registry")
    assert load_stack(project, "cpu").digest() == load_stack(root, "cpu").digest()


def test_the_digest_does_not_depend_on_the_order_of_variables(project: Path, root: Path) -> None:
    path = project / "lockfiles" / "cpu" / "stack.yaml"
    edit(path, '  OMP_NUM_THREADS: "1"\n', "")
    edit(
        path,
        '  TOKENIZERS_PARALLELISM: "false"\n',
        '  TOKENIZERS_PARALLELISM: "false"\n  OMP_NUM_THREADS: "1"\n',
    )
    assert load_stack(project, "cpu").digest() == load_stack(root, "cpu").digest()


@pytest.mark.parametrize(
    ("old", "new", "words"),
    [
        ("digest: unresolved", "digest: latest", "base_image.digest"),
        ("digest: unresolved", "digest: sha256:abc", "base_image.digest"),
        ("commit: unresolved", "commit: release-2.33", "sources.torchtitan-neuron.commit"),
        ('python: "3.14"', 'python: "3"', "locked_for.python"),
        ("platform: x86_64-unknown-linux-gnu", "platform: linux", "locked_for.platform"),
        ('torch-neuronx: "2.14.3.0.*"', 'torch-neuronx: "2.14.3"', "must end with"),
    ],
)
def test_a_pin_that_is_none_is_refused_with_its_key(project: Path, old: str, new: str, words: str) -> None:
    edit(project / "lockfiles" / "trn2" / "stack.yaml", old, new)
    with pytest.raises(UserError, match=words):
        load_stack(project, "trn2")


def test_the_pins_of_trn2_are_those_of_the_release(root: Path) -> None:
    trn2 = load_stack(root, "trn2")
    wanted = {
        item.name: str(item.specifier) for item in read_requirements(trn2.requirements, trn2.locked_for)
    }
    assert wanted | {"ml-dtypes": ""} == {
        "torch": "==2.14.0",
        "torch-neuronx": "==2.14.3.0.*",
        "neuronx-cc": "==2.28.7631.0",
        "nki": "==0.7.0",
        "transformers": "==5.16.0",
        "ml-dtypes": "",
    }
    assert (trn2.sdk, trn2.ranks, trn2.environment["NEURON_LOGICAL_NC_CONFIG"]) == ("2.33.0", 64, "2")
    source = trn2.sources["torchtitan-neuron"]
    assert (source.version, source.ref) == ("0.2.2+neuron.1", "release-2.33")
    assert trn2.base_image is not None
    assert trn2.base_image.repository.startswith("public.ecr.aws/neuron/")
    assert "sdk2.33.0" in trn2.base_image.tag


def test_a_stack_is_read_from_any_folder(project: Path, root: Path) -> None:
    moved = (project / "lockfiles" / "cpu").rename(project / "elsewhere")
    assert load_stack_folder(moved).digest() == load_stack(root, "cpu").digest()
    assert find_stack(root, str(moved)).folder == moved
    with pytest.raises(UserError, match=r"elsewhere/no/stack\.yaml: no such file"):
        find_stack(root, str(moved / "no"))


def test_nested_values_are_found_by_dotted_keys() -> None:
    data = {"a": {"b.c": {"d": "unresolved"}, "b": "1"}, "e": None}
    assert value_at(data, "a.b.c.d") == "unresolved"
    assert value_at(data, "a.b") == "1"
    assert value_at(data, "a.x") is None
    assert value_at(data, "e.f") is None
    assert open_values(data) == ["a.b.c.d"]


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
