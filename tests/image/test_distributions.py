from pathlib import Path

import pytest

from harness.image.inside.distributions import Origin, canonical
from tests.image.installed import COMMIT, found, install

KNOWN = {"nki": "0.0.1", "neuronx-cc": "1.0.post1", "torch-neuronx": "1.0"}


@pytest.mark.parametrize(
    ("name", "normal"), [("Torch_NeuronX", "torch-neuronx"), ("a.b--c__d", "a-b-c-d"), ("numpy", "numpy")]
)
def test_names_are_compared_in_their_normal_form(name: str, normal: str) -> None:
    assert canonical(name) == normal


def test_a_description_of_a_placeholder_gives_it_away_whatever_its_name(tmp_path: Path) -> None:
    install(tmp_path, "something-else", description="# WRONG PACKAGE\nuse the vendor's index")
    assert "'WRONG PACKAGE'" in found(tmp_path)["something-else"].placeholder(KNOWN)


def test_a_summary_of_a_placeholder_gives_it_away(tmp_path: Path) -> None:
    install(tmp_path, "nki", "9.9", header="Summary: WRONG PACKAGE\n")
    assert found(tmp_path)["nki"].placeholder(KNOWN)


def test_a_neuron_package_without_a_module_is_a_placeholder(tmp_path: Path) -> None:
    install(tmp_path, "neuronx-cc", "2.28", files={"neuronx_cc/note.txt": "nothing here"})
    assert found(tmp_path)["neuronx-cc"].placeholder(KNOWN) == "nothing in it can be imported"


def test_a_folder_that_no_import_can_name_is_no_module(tmp_path: Path) -> None:
    install(tmp_path, "neuronx-cc", "2.28", files={"neuronx-cc/__init__.py": ""})
    assert found(tmp_path)["neuronx-cc"].placeholder(KNOWN)


def test_a_known_placeholder_version_is_one_even_with_a_module(tmp_path: Path) -> None:
    install(tmp_path, "torch-neuronx", "1.0")
    assert "1.0 is the version" in found(tmp_path)["torch-neuronx"].placeholder(KNOWN)


@pytest.mark.parametrize(("name", "version"), [("torch-neuronx", "2.14.3.0.1+a1b2"), ("numpy", "1.0")])
def test_the_real_thing_is_no_placeholder(tmp_path: Path, name: str, version: str) -> None:
    install(tmp_path, name, version, description="A long text that says nothing of the kind.")
    assert found(tmp_path)[name].placeholder(KNOWN) == ""


def test_of_two_the_first_on_the_path_counts(tmp_path: Path) -> None:
    from harness.image.inside.distributions import read_distributions

    for folder, version in (("a", "2.0"), ("b", "1.0")):
        install(tmp_path / folder, "numpy", version)
    both = [str(tmp_path / "a"), str(tmp_path / "b")]
    assert read_distributions(both)["numpy"].version == "2.0"
    assert read_distributions(both[::-1])["numpy"].version == "1.0"


def test_any_changed_file_changes_the_digest_and_bytecode_does_not(tmp_path: Path) -> None:
    install(tmp_path, "torch", files={"torch/a.py": "1", "torch/b.so": "2", "torch/__pycache__/a.pyc": "3"})
    before = found(tmp_path)["torch"].files_digest()
    (tmp_path / "torch/__pycache__/a.pyc").write_text("other")
    assert found(tmp_path)["torch"].files_digest() == before
    (tmp_path / "torch/b.so").write_text("other")
    changed = found(tmp_path)["torch"].files_digest()
    assert changed != before
    (tmp_path / "torch/b.so").unlink()
    assert found(tmp_path)["torch"].files_digest() not in (before, changed)


def test_a_package_from_git_names_its_commit(tmp_path: Path) -> None:
    recorded = {"url": "https://example.test/titan.git", "vcs_info": {"vcs": "git", "commit_id": COMMIT}}
    install(tmp_path, "titan", direct_url=recorded)
    assert found(tmp_path)["titan"].origin() == Origin("https://example.test/titan.git", COMMIT)


def test_a_package_from_an_index_has_no_origin(tmp_path: Path) -> None:
    install(tmp_path, "titan")
    assert found(tmp_path)["titan"].origin() is None


def git_tree(folder: Path, head: str) -> None:
    git = folder / ".git"
    git.mkdir(parents=True)
    (git / "HEAD").write_text(head)
    (git / "config").write_text(
        '[core]\n\tbare = false\n[remote "origin"]\n\turl = https://example.test/titan\n'
    )


@pytest.mark.parametrize("kind", ["detached", "branch", "packed"])
def test_a_source_tree_names_its_commit_without_git(tmp_path: Path, kind: str) -> None:
    tree, site = tmp_path / "tree", tmp_path / "site"
    git_tree(tree, f"{COMMIT}\n" if kind == "detached" else "ref: refs/heads/main\n")
    if kind == "branch":
        (tree / ".git/refs/heads").mkdir(parents=True)
        (tree / ".git/refs/heads/main").write_text(f"{COMMIT}\n")
    if kind == "packed":
        (tree / ".git/packed-refs").write_text(f"# pack-refs\n{COMMIT} refs/heads/main\n")
    (tree / "titan").mkdir()
    (tree / "titan/__init__.py").write_text("")
    install(site, "titan", files={}, direct_url={"url": f"file://{tree}", "dir_info": {"editable": True}})
    item = found(site)["titan"]
    assert item.origin() == Origin("https://example.test/titan", COMMIT)
    assert item.modules() == [tree / "titan/__init__.py"]


def test_a_tree_without_git_has_no_origin(tmp_path: Path) -> None:
    tree, site = tmp_path / "tree", tmp_path / "site"
    tree.mkdir()
    install(site, "titan", files={}, direct_url={"url": f"file://{tree}", "dir_info": {"editable": True}})
    assert found(site)["titan"].origin() is None
