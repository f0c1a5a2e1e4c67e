"""Installing a lock and source pins into a real environment, from loopback indexes."""

import hashlib
import sys
from pathlib import Path

import pytest

from harness import process
from harness.environment import installed_packages
from harness.errors import InfrastructureError, UserError
from harness.lock.install import groups_by_index, install_locks, install_sources
from harness.lock.relock import lock_stack
from harness.lock.sources import tree_digest
from harness.lock.uv import uv_program
from harness.stack import Stack, load_stack
from tests.lock.conftest import Maker
from tests.lock.site import Site, git, wheel

pytestmark = pytest.mark.usefixtures("plain_uv", "cache")

BACKEND = """
import base64, hashlib, zipfile
NAME = "mytitan-0.2.2+neuron.1"
def build_wheel(folder, config_settings=None, metadata_directory=None):
    file = f"{NAME}-py3-none-any.whl"
    with open("build-left-this", "w"):
        pass
    with zipfile.ZipFile(f"{folder}/{file}", "w") as wheel:
        wheel.writestr("mytitan/__init__.py", "")
        about = "Metadata-Version: 2.1\\nName: mytitan\\nVersion: 0.2.2+neuron.1\\n"
        wheel.writestr(f"{NAME}.dist-info/METADATA", about)
        wheel.writestr(f"{NAME}.dist-info/WHEEL", "Wheel-Version: 1.0\\nRoot-Is-Purelib: true\\nTag: py3-none-any\\n")
        wheel.writestr(f"{NAME}.dist-info/RECORD", "")
    return file
"""
PROJECT = """[project]
name = "mytitan"
version = "0.2.2+neuron.1"
[build-system]
requires = []
build-backend = "backend"
backend-path = ["."]
"""


@pytest.fixture
def environment(tmp_path: Path) -> Path:
    folder = tmp_path / "environment"
    done = process.run([uv_program(), "venv", "--quiet", "--python", sys.executable, str(folder)])
    assert done.returncode == 0, done.output
    return folder


@pytest.fixture
def project(site: Site, make_stack: Maker, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> Path:
    repository = tmp_path / "repository"
    repository.mkdir()
    git(repository, "init", "--quiet")
    (repository / "backend.py").write_text(BACKEND)
    (repository / "pyproject.toml").write_text(PROJECT)
    git(repository, "add", ".")
    git(repository, "commit", "--quiet", "-m", "one")
    git(repository, "tag", "v1")
    # Both indexes have both names: only the rule says which counts.
    default = site.index(
        "public", wheel("plain", "1.0"), wheel("nki", "0.0.1"), wheel("nki", "0.7.0", padding=9)
    )
    own = site.index("neuron", wheel("nki", "0.7.0"), wheel("plain", "1.0", padding=9))
    monkeypatch.setenv("UV_DEFAULT_INDEX", default)
    source = {
        "version": "0.2.2+neuron.1",
        "repository": str(repository),
        "ref": "v1",
        "commit": git(repository, "rev-parse", "HEAD"),
        "tree": tree_digest(repository),
    }
    return make_stack(
        "plain==1.0\nnki==0.7.0\n",
        indexes={"neuron": {"url": own, "packages": ["nki"]}},
        sources={"mytitan": source},
    )


@pytest.fixture
def stack(project: Path) -> Stack:
    lock_stack(project, "small", parts=["packages"])
    return load_stack(project, "small")


def test_each_package_comes_from_its_index_and_the_source_from_its_commit(
    stack: Stack, environment: Path
) -> None:
    install_locks([stack.lock], environment / "bin" / "python", stack.indexes)
    install_sources(stack, environment / "bin" / "python")
    assert installed_packages(environment) == {"plain": "1.0", "nki": "0.7.0", "mytitan": "0.2.2+neuron.1"}
    # Building wrote into a copy: the checked tree is as it was, and is accepted again.
    install_sources(stack, environment / "bin" / "python")


def test_a_wrong_hash_fails_and_names_the_package(stack: Stack, environment: Path) -> None:
    right = hashlib.sha256(wheel("nki", "0.7.0")[1]).hexdigest()
    text = stack.lock.read_text()
    assert right in text
    stack.lock.write_text(text.replace(right, "0" * 64))
    with pytest.raises(
        InfrastructureError, match=r"(?s)Hash mismatch for `nki==0\.7\.0`.*Expected.*0{64}.*Computed"
    ):
        install_locks([stack.lock], environment / "bin" / "python", stack.indexes)
    assert "nki" not in installed_packages(environment)


def test_a_missing_hash_is_said_before_anything_is_installed(stack: Stack, environment: Path) -> None:
    stack.lock.write_text(stack.lock.read_text() + "other==1\n")
    with pytest.raises(UserError, match=r"other 1 has no hash\. This is not tampering"):
        install_locks([stack.lock], environment / "bin" / "python", stack.indexes)
    assert installed_packages(environment) == {}


def test_a_source_that_changed_is_not_installed(project: Path, environment: Path) -> None:
    path = project / "lockfiles" / "small" / "stack.yaml"
    tree = load_stack(project, "small").sources["mytitan"].tree
    path.write_text(path.read_text().replace(tree, "sha256:" + "0" * 64))
    with pytest.raises(UserError, match="the files are not the pinned ones"):
        install_sources(load_stack(project, "small"), environment / "bin" / "python")
    assert installed_packages(environment) == {}


def test_an_unresolved_source_is_not_installed(root: Path, environment: Path) -> None:
    with pytest.raises(UserError, match=r"torchtitan-neuron is unresolved\. Unresolved: .*harness lock trn2"):
        install_sources(load_stack(root, "trn2"), environment / "bin" / "python")


def test_a_lock_is_split_by_index_without_losing_anything(stack: Stack) -> None:
    groups = groups_by_index(stack.lock.read_text(), stack.indexes, "lock")
    assert groups.keys() == {None, "neuron"}
    assert groups["neuron"].startswith("nki==0.7.0")
    assert groups[None].startswith("plain==1.0")
