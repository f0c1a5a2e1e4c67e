"""Environments: locks are read strictly, and what is installed is compared with them."""

from pathlib import Path

import pytest

from harness import environment
from harness.errors import InfrastructureError, UserError
from harness.lock.requirements import logical_lines
from harness.stack import load_stack

HASH = "--hash=sha256:" + "0" * 64


def lock(folder: Path, text: str) -> Path:
    path = folder / "requirements.lock"
    path.write_text(text)
    return path


def test_names_and_versions_are_read_with_their_labels(tmp_path: Path) -> None:
    text = f"# a comment\nTorch_Thing==2.9.0+cpu \\\n    {HASH} \\\n    {HASH}\n"
    text += f"other==1.0 ; python_version > '3' {HASH}\n"
    assert environment.lock_packages(lock(tmp_path, text)) == {"torch-thing": "2.9.0+cpu", "other": "1.0"}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        (f"torch>=2 {HASH}\n", ":1: found 'torch>=2"),
        (f"torch==2.0 {HASH}\nnumpy==1.0\n", ":2: numpy has no hash"),
        (f"-r other.txt\ntorch==2 {HASH}\n", ":1: found"),
        (f"torch @ file:///x.whl {HASH}\n", "expected `name==version"),
        ("# nothing\n", "no package"),
        ("", "no package"),
    ],
)
def test_anything_but_a_hashed_pin_is_refused(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(UserError, match=words):
        environment.lock_packages(lock(tmp_path, text))


def test_the_locks_that_ship_are_hashed_pins(root: Path) -> None:
    packages = environment.lock_packages(root / "lockfiles" / "cpu" / "requirements.lock")
    assert packages["torch"] == "2.14.0"
    assert packages["transformers"] == "5.16.0"
    assert packages["torchtitan"] == "0.3.0"


def distribution(folder: Path, name: str, version: str) -> None:
    info = folder / "lib" / "python3.11" / "site-packages" / f"{name}-{version}.dist-info"
    info.mkdir(parents=True)
    (info / "METADATA").write_text(
        f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n\nVersion: no\n"
    )


def test_installed_packages_come_from_their_metadata(tmp_path: Path) -> None:
    distribution(tmp_path, "Torch_Thing", "2.9.0+cu130")
    assert environment.installed_packages(tmp_path) == {"torch-thing": "2.9.0+cu130"}


@pytest.mark.parametrize(
    ("installed", "words"),
    [
        ({}, "torch: the lock says 2.9.0.cpu, installed is nothing"),
        ({"torch": "2.9.0+cu130"}, "installed is 2.9.0.cu130"),
        ({"torch": "2.9.0+cpu", "extra": "1"}, "extra: the lock says nothing, installed is 1"),
    ],
)
def test_an_environment_that_is_not_its_lock_is_refused(
    tmp_path: Path, installed: dict[str, str], words: str
) -> None:
    for name, version in installed.items():
        distribution(tmp_path, name, version)
    with pytest.raises(InfrastructureError, match=words):
        environment._verify([lock(tmp_path, f"torch==2.9.0+cpu {HASH}\n")], tmp_path)


def test_an_environment_that_is_its_lock_is_accepted(tmp_path: Path) -> None:
    distribution(tmp_path, "torch", "2.9.0+cpu")
    environment._verify([lock(tmp_path, f"torch==2.9.0+cpu {HASH}\n")], tmp_path)


def test_an_unsuitable_python_is_named(root: Path, cache: Path) -> None:
    stack = load_stack(root, "cpu").model_copy(update={"python": ">=3.99"})
    with pytest.raises(UserError, match=r"needs Python >=3\.99"):
        environment.build(stack)


def test_an_unresolved_stack_is_not_built(root: Path, cache: Path) -> None:
    with pytest.raises(UserError, match="Unresolved"):
        environment.build(load_stack(root, "trn2"))


def small_stack(root: Path, folder: Path, text: str):  # type: ignore[no-untyped-def]
    lock(folder, text)
    return load_stack(root, "cpu").model_copy(update={"folder": folder, "name": "small"})


def test_a_wrong_hash_fails_and_names_the_package(root: Path, tmp_path: Path, cache: Path) -> None:
    stack = small_stack(root, tmp_path, f"iniconfig==2.3.1 {HASH}\n")
    with pytest.raises(InfrastructureError, match="iniconfig"):
        environment.build(stack)
    assert not list(cache.glob("environments/small-*/bin"))


def test_an_unchanged_lock_is_built_once_and_needs_no_network(
    root: Path, tmp_path: Path, cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    wanted = logical_lines((root / "lockfiles" / "testing" / "requirements.lock").read_text())
    line = next(text for _, text in wanted if text.startswith("iniconfig=="))
    stack = small_stack(root, tmp_path, line + "\n")
    built = environment.build(stack)
    assert built.packages == {"iniconfig": line.split("==")[1].split()[0]}
    assert built.python.exists()

    def refuse(*args: object, **kwargs: object) -> None:
        raise AssertionError("a second build started a process")

    monkeypatch.setattr(environment.process, "run", refuse)
    assert environment.build(stack) == built
