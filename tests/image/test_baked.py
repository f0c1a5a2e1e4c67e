import json
from pathlib import Path
from typing import Any

import pytest

from harness import environment
from harness.errors import UserError
from harness.image import baked as module
from harness.image.baked import baked, observed_image
from harness.image.env_file import image_reference, remember_image
from harness.stack import Stack, load_stack


@pytest.fixture
def stack(root: Path) -> Stack:
    return load_stack(root, "cpu")


@pytest.fixture
def home(tmp_path: Path, stack: Stack, monkeypatch: pytest.MonkeyPatch) -> Path:
    """What an image of the cpu stack holds, at the place where the harness looks."""
    for name in ("HARNESS_IMAGE", "HARNESS_RANKS", "NEURON_LOGICAL_NC_CONFIG"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(module, "_HOME", tmp_path)
    write(tmp_path, stack=stack.name, lock_digest=stack.lock_digest())
    (tmp_path / "labels.json").write_text(json.dumps({"trn-harness.stack": "cpu"}))
    return tmp_path


def write(home: Path, **values: Any) -> None:
    data = {"prefix": "/opt/stack", "packages": {"torch": "2.14.0"}, "base": {"local": True}, **values}
    (home / "image.json").write_text(json.dumps(data))


def test_outside_an_image_there_is_nothing(tmp_path: Path) -> None:
    assert baked(tmp_path) is None
    assert observed_image(tmp_path) is None


def test_in_an_image_its_own_environment_is_used(home: Path, stack: Stack) -> None:
    built = environment.build(stack)
    assert built.python == Path("/opt/stack/bin/python")
    assert built.packages == {"torch": "2.14.0"}


def test_an_image_of_another_stack_is_refused(home: Path, root: Path, stack: Stack) -> None:
    write(home, stack="trn2", lock_digest=stack.lock_digest())
    with pytest.raises(UserError, match="this image holds stack `trn2`, not `cpu`"):
        environment.build(stack)


def test_an_image_of_another_lock_is_refused(home: Path, stack: Stack) -> None:
    write(home, stack="cpu", lock_digest="0" * 64)
    with pytest.raises(UserError, match="the image was built from 000000000000"):
        environment.build(stack)


def test_test_tools_are_not_added_to_an_image(home: Path, stack: Stack) -> None:
    with pytest.raises(UserError, match="carries its lock and nothing else"):
        environment.build(stack, extra_locks=[stack.lock])


@pytest.mark.parametrize(("name", "value"), [("HARNESS_RANKS", "64"), ("NEURON_LOGICAL_NC_CONFIG", "1")])
def test_compose_and_stack_must_agree(
    home: Path, stack: Stack, monkeypatch: pytest.MonkeyPatch, name: str, value: str
) -> None:
    monkeypatch.setenv(name, value)
    with pytest.raises(UserError, match=f"{name} is {value} in the container, stack `cpu` says 2"):
        environment.build(stack)
    monkeypatch.setenv(name, "2")
    assert environment.build(stack)


@pytest.mark.parametrize(
    ("reference", "digest"),
    [
        (f"sha256:{'a' * 64}", f"sha256:{'a' * 64}"),
        (f"registry.example/x@sha256:{'a' * 64}", f"sha256:{'a' * 64}"),
        ("trn-harness:cpu", None),
        ("", None),
    ],
)
def test_evidence_says_the_digest_and_a_tag_is_none(
    home: Path, monkeypatch: pytest.MonkeyPatch, reference: str, digest: str | None
) -> None:
    monkeypatch.setenv("HARNESS_IMAGE", reference)
    image = observed_image(home)
    assert image is not None
    assert image["digest"] == digest
    assert image["reference"] == (reference or None)
    assert image["labels"] == {"trn-harness.stack": "cpu"}
    assert image["base"] == {"local": True}


def test_compose_takes_what_is_set_then_what_was_built_then_the_tag(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delenv("HARNESS_CPU_IMAGE", raising=False)
    assert image_reference(tmp_path, "cpu") == "trn-harness:cpu"
    remember_image(tmp_path, "cpu", "sha256:1")
    remember_image(tmp_path, "trn2", "sha256:2")
    remember_image(tmp_path, "cpu", "sha256:3")
    assert image_reference(tmp_path, "cpu") == "sha256:3"
    assert (tmp_path / ".env").read_text() == "HARNESS_TRN2_IMAGE=sha256:2\nHARNESS_CPU_IMAGE=sha256:3\n"
    monkeypatch.setenv("HARNESS_CPU_IMAGE", "x@sha256:4")
    assert image_reference(tmp_path, "cpu") == "x@sha256:4"
