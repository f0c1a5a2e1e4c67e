"""What `harness lock` and `harness diff` print, and their exit codes."""

import json
import shutil
from pathlib import Path

import pytest

from harness.lock.front import run_check, run_diff, run_lock


@pytest.fixture
def project(tmp_path: Path, root: Path) -> Path:
    shutil.copytree(root / "lockfiles", tmp_path / "lockfiles")
    return tmp_path


def test_a_clean_lock_is_0_and_a_changed_pin_1(project: Path) -> None:
    said: list[str] = []
    assert run_check(project, "cpu", online=False, as_json=False, echo=said.append) == 0
    assert said[0] == "lock: pass"
    path = project / "lockfiles" / "cpu" / "requirements.in"
    path.write_text(path.read_text().replace("torchtitan==0.3.0", "torchtitan==0.2.2"))
    said.clear()
    assert run_check(project, "cpu", online=False, as_json=False, echo=said.append) == 1
    assert any("torchtitan==0.2.2, but the lock has torchtitan 0.3.0" in line for line in said)


def test_an_unresolved_image_is_said_and_is_no_failure(
    project: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    said: list[str] = []
    assert run_check(project, "cpu", online=True, as_json=True, echo=said.append) == 0
    checks = json.loads(said[0])["checks"]
    assert [(check["check"], check["verdict"]) for check in checks] == [
        ("lock", "pass"),
        ("image", "not-judged"),
    ]
    assert any("still unresolved: the digest of the base image" in fact for fact in checks[0]["facts"])


def test_a_stack_without_a_lock_is_1(project: Path) -> None:
    said: list[str] = []
    assert run_check(project, "trn2", online=False, as_json=True, echo=said.append) == 1
    (finding,) = json.loads(said[0])["checks"][0]["findings"]
    assert finding["code"] == "lock.missing"


@pytest.mark.parametrize("as_json", [False, True])
def test_what_cannot_be_reached_is_3(project: Path, monkeypatch: pytest.MonkeyPatch, as_json: bool) -> None:
    path = project / "lockfiles" / "cpu" / "stack.yaml"
    path.write_text(path.read_text().replace("public.ecr.aws/docker", "127.0.0.1:1/docker"))
    said: list[str] = []
    code = run_lock(
        project, "cpu", upgrade=False, parts=["image"], as_json=as_json, echo=said.append, say=lambda _: None
    )
    assert code == 3
    text = json.loads(said[0])["parts"][0]["text"] if as_json else said[0]
    assert "stays unresolved" in text
    assert "Next: `harness lock cpu` on a machine that reaches it." in text


def test_a_difference_is_text_or_data(project: Path) -> None:
    said: list[str] = []
    assert run_diff(project, "cpu", "trn2", as_json=False, echo=said.append) == 0
    assert said[0] == "cpu -> trn2"
    assert "  ~ ranks 2 -> 64" in said
    said.clear()
    assert run_diff(project, "cpu", str(project / "lockfiles" / "cpu"), as_json=True, echo=said.append) == 0
    assert json.loads(said[0])["changes"] == []
