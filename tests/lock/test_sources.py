"""Source pins with throw-away repositories: one commit, one content, or a refusal that names both."""

import shutil
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from harness.errors import InfrastructureError, UserError
from harness.lock.sources import declared_requirements, read_ref, tree_digest, verified_tree
from harness.pins import SourcePin
from tests.lock.site import git

ONE = "0123456789abcdef" * 2 + "01234567"


@pytest.fixture
def repository(tmp_path: Path) -> Path:
    """A repository with two commits; the tag v1 is at the first, the branch main at the second."""
    folder = tmp_path / "repository"
    folder.mkdir()
    git(folder, "init", "--quiet")
    (folder / "module.py").write_text("VALUE = 1\n")
    (folder / "run.sh").write_text("#!/bin/sh\n")
    (folder / "run.sh").chmod(0o755)
    (folder / "link").symlink_to("module.py")
    git(folder, "add", ".")
    git(folder, "commit", "--quiet", "-m", "one")
    git(folder, "tag", "-a", "v1", "-m", "first")
    (folder / "module.py").write_text("VALUE = 2\n")
    git(folder, "commit", "--quiet", "-am", "two")
    return folder


def pin(repository: Path, ref: str = "v1", **changes: object) -> SourcePin:
    now = read_ref(str(repository), ref)
    assert now is not None
    return SourcePin(
        version="1", repository=str(repository), ref=ref, commit=now.commit, tree="unresolved"
    ).model_copy(update=changes)


def resolved(repository: Path, cache: Path, ref: str = "v1") -> SourcePin:
    first = pin(repository, ref)
    return first.model_copy(update={"tree": tree_digest(verified_tree("thing", first, cache=cache))})


def test_an_annotated_tag_means_its_commit(repository: Path) -> None:
    tag, branch = read_ref(str(repository), "v1"), read_ref(str(repository), "main")
    assert tag is not None
    assert branch is not None
    assert (tag.kind, tag.commit) == ("tag", git(repository, "rev-parse", "main~1"))
    assert (branch.kind, branch.commit) == ("branch", git(repository, "rev-parse", "main"))
    assert read_ref(str(repository), "v9") is None


def test_a_name_that_means_two_commits_is_refused(repository: Path) -> None:
    git(repository, "branch", "v1", "main")
    with pytest.raises(UserError, match=r"has a tag v1 .* and a branch v1"):
        read_ref(str(repository), "v1")


def test_a_repository_that_is_not_there_is_the_machines_fault(tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="`git ls-remote` failed"):
        read_ref(str(tmp_path / "nothing"), "v1")


def test_the_files_are_those_of_the_commit_and_come_once(repository: Path, tmp_path: Path) -> None:
    said: list[str] = []
    source = resolved(repository, tmp_path / "cache")
    tree = verified_tree("thing", source, cache=tmp_path / "other", say=said.append)
    assert (tree / "module.py").read_text() == "VALUE = 1\n"
    assert (tree / "link").is_symlink()
    assert not (tree / ".git").exists()
    assert len(said) == 1
    shutil.rmtree(repository)
    assert verified_tree("thing", source, cache=tmp_path / "other", say=said.append) == tree
    assert len(said) == 1


def test_this_machines_settings_do_not_change_the_files(
    repository: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    before = resolved(repository, tmp_path / "one")
    config = tmp_path / "gitconfig"
    config.write_text("[core]\n autocrlf = true\n eol = crlf\n")
    monkeypatch.setenv("GIT_CONFIG_GLOBAL", str(config))
    assert resolved(repository, tmp_path / "two").tree == before.tree


def test_a_tag_that_moved_is_refused_with_both_commits(repository: Path, tmp_path: Path) -> None:
    source = resolved(repository, tmp_path / "one")
    git(repository, "tag", "-f", "v1", "main")
    with pytest.raises(UserError) as raised:
        verified_tree("thing", source, cache=tmp_path / "two")
    assert f"expected {source.commit}, found {git(repository, 'rev-parse', 'main')}" in str(raised.value)
    assert not list((tmp_path / "two" / "sources").glob("thing*/module.py"))


def test_a_tag_that_is_gone_is_refused(repository: Path, tmp_path: Path) -> None:
    source = resolved(repository, tmp_path / "one")
    git(repository, "tag", "-d", "v1")
    with pytest.raises(UserError, match="has no tag or branch v1"):
        verified_tree("thing", source, cache=tmp_path / "two")


def test_a_branch_that_went_on_keeps_the_pinned_commit(repository: Path, tmp_path: Path) -> None:
    source = resolved(repository, tmp_path / "one", "main")
    (repository / "module.py").write_text("VALUE = 3\n")
    git(repository, "commit", "--quiet", "-am", "three")
    said: list[str] = []
    tree = verified_tree("thing", source, cache=tmp_path / "two", say=said.append)
    assert (tree / "module.py").read_text() == "VALUE = 2\n"
    assert "the pin stays at" in said[-1]


def test_content_that_is_not_the_pinned_one_is_refused_with_both_digests(
    repository: Path, tmp_path: Path
) -> None:
    wrong = pin(repository, tree="sha256:" + "0" * 64)
    with pytest.raises(UserError) as raised:
        verified_tree("thing", wrong, cache=tmp_path / "cache")
    assert f"expected {wrong.tree}, found sha256:" in str(raised.value)
    assert not list((tmp_path / "cache" / "sources").glob("thing*/module.py"))


@pytest.mark.parametrize("damage", ["change", "add", "remove", "mode", "link"])
def test_files_that_changed_in_the_cache_are_refused(repository: Path, tmp_path: Path, damage: str) -> None:
    source = resolved(repository, tmp_path / "cache")
    tree = verified_tree("thing", source, cache=tmp_path / "cache")
    match damage:
        case "change":
            (tree / "module.py").write_text("VALUE = 9\n")
        case "add":
            (tree / "more.py").write_text("")
        case "remove":
            (tree / "module.py").unlink()
        case "mode":
            (tree / "module.py").chmod(0o755)
        case "link":
            (tree / "link").unlink()
            (tree / "link").symlink_to("run.sh")
    with pytest.raises(UserError, match="the files are not the pinned ones"):
        verified_tree("thing", source, cache=tmp_path / "cache")


def test_an_unresolved_commit_is_not_fetched(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(UserError, match="its commit is unresolved"):
        verified_tree("thing", pin(repository, commit="unresolved"), cache=tmp_path)


def test_a_commit_that_does_not_exist_is_said(repository: Path, tmp_path: Path) -> None:
    with pytest.raises(InfrastructureError, match="git checkout"):
        verified_tree("thing", pin(repository, "main", commit=ONE), cache=tmp_path)


def test_submodules_are_refused(repository: Path, tmp_path: Path) -> None:
    (repository / ".gitmodules").write_text("")
    git(repository, "add", ".gitmodules")
    git(repository, "commit", "--quiet", "-m", "modules")
    with pytest.raises(UserError, match="submodules"):
        verified_tree("thing", pin(repository, "main"), cache=tmp_path)


files = st.dictionaries(
    st.lists(st.from_regex(r"[a-z]{1,3}", fullmatch=True), min_size=1, max_size=3).map("/".join),
    st.binary(max_size=20),
    min_size=1,
    max_size=5,
)


def write(folder: Path, content: dict[str, bytes]) -> dict[str, bytes]:
    """Write the files that fit beside each other, and return them."""
    written = {}
    for name, data in content.items():
        path = folder / name
        if path.exists() or any(parent.is_file() for parent in path.parents):
            continue
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(data)
        written[name] = data
    return written


@settings(max_examples=30, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(files)
def test_the_digest_is_the_content_and_nothing_else(tmp_path: Path, content: dict[str, bytes]) -> None:
    one, two = tmp_path / "a", tmp_path / "b"
    for folder in (one, two):
        shutil.rmtree(folder, ignore_errors=True)
        folder.mkdir()
    written = write(one, content)
    assert write(two, dict(reversed(list(written.items())))) == written
    (two / ".git").mkdir()
    (two / ".git" / "HEAD").write_text("x")
    (two / "empty").mkdir(exist_ok=True)
    assert tree_digest(one) == tree_digest(two)
    name = next(iter(written))
    (two / name).write_bytes(written[name] + b"!")
    assert tree_digest(one) != tree_digest(two)


def test_moving_bytes_between_name_and_content_changes_the_digest(tmp_path: Path) -> None:
    digests = set()
    for number, (name, data) in enumerate([("a", b"bc"), ("ab", b"c"), ("abc", b""), ("a/b", b"c")]):
        (tmp_path / str(number)).mkdir()
        write(tmp_path / str(number), {name: data})
        digests.add(tree_digest(tmp_path / str(number)))
    assert len(digests) == 4


def project(folder: Path, text: str) -> Path:
    (folder / "pyproject.toml").write_text(text)
    return folder


def test_a_tree_says_what_it_needs(repository: Path, tmp_path: Path) -> None:
    project(tmp_path, '[project]\nname = "x"\ndependencies = ["numpy>=1", "einops"]\n')
    (tmp_path / "requirements.txt").write_text("# more\neinops\ntyro == 1.0  # pinned\n")
    assert declared_requirements(tmp_path, pin(repository)) == ["numpy>=1", "einops"]
    both = pin(repository, requirements=("requirements.txt",))
    assert declared_requirements(tmp_path, both) == ["numpy>=1", "einops", "tyro == 1.0"]
    with pytest.raises(UserError, match=r"other\.txt: no such file"):
        declared_requirements(tmp_path, pin(repository, requirements=("other.txt",)))


@pytest.mark.parametrize("line", ["-r other.txt", "--pre", "x @ git+https://example.invalid/x", "torch>=>2"])
def test_what_is_no_plain_requirement_is_refused(repository: Path, tmp_path: Path, line: str) -> None:
    (tmp_path / "requirements.txt").write_text(f"numpy\n{line}\n")
    with pytest.raises(UserError, match=r"requirements\.txt:2: .* is not a plain requirement"):
        declared_requirements(tmp_path, pin(repository, requirements=("requirements.txt",)))


def test_dependencies_that_are_computed_need_a_list(repository: Path, tmp_path: Path) -> None:
    project(tmp_path, '[project]\nname = "x"\ndynamic = ["dependencies"]\n')
    with pytest.raises(UserError, match="computed when it is built"):
        declared_requirements(tmp_path, pin(repository))
    (tmp_path / "requirements.txt").write_text("numpy\n")
    listed = pin(repository, requirements=("requirements.txt",))
    assert declared_requirements(tmp_path, listed) == ["numpy"]
