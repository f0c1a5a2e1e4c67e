"""The cpu image, really built, and recipes run in it through compose as a user would."""

import json
import re
from pathlib import Path

import pytest

from harness import process
from harness.image.build import Built, Request
from harness.launch.docker import run_in_container
from tests.docker.conftest import OWNER, PROJECT, Compose, build

INSTALLING = ("tools", "stack", "controller")


def newest_session(checkout: Path) -> Path:
    return max((checkout / "runs").iterdir(), key=lambda path: path.name)


def test_the_image_is_what_was_asked(image: Built, request_cpu: Request) -> None:
    done = process.run(["docker", "image", "inspect", image.id])
    config = json.loads(done.output)[0]["Config"]
    assert config["Labels"] == image.labels
    assert config["Labels"]["trn-harness.local-base"] == "true"
    assert config["Labels"]["trn-harness.lock-digest"] == request_cpu.stack.lock_digest()
    assert config["User"] == "1000:1000"
    assert config["Healthcheck"] == {"Test": ["NONE"]}
    assert f"HARNESS_CPU_IMAGE={image.id}\n" in (request_cpu.root / ".env").read_text()


def test_native_passes_and_its_evidence_belongs_to_the_caller(
    image: Built, compose: Compose, checkout: Path
) -> None:
    done = compose("run", "--rm", "native")
    assert done.returncode == 0, done.output
    session = newest_session(checkout)
    assert {path.stat().st_uid for path in (session, *session.rglob("*"))} == {OWNER}
    runs = json.loads((session / "session.json").read_text())["runs"]
    assert [(run["run"], run["outcome"]) for run in runs] == [
        ("random-init", "passed"),
        ("published-weights", "passed"),
    ]
    environment = json.loads((session / "native" / "random-init" / "environment.json").read_text())
    assert environment["observed"]["image"]["digest"] == image.id
    assert environment["observed"]["image"]["labels"] == image.labels


def test_nothing_is_left_of_a_container(image: Built, compose: Compose) -> None:
    assert compose("run", "--rm", "native", "list").returncode == 0
    label = f"label=com.docker.compose.project={PROJECT}"
    assert process.run(["docker", "ps", "--all", "--quiet", "--filter", label]).output == ""


def test_a_broken_expectation_is_exit_1_and_rebuilds_no_dependency_layer(
    image: Built, request_cpu: Request, compose: Compose, checkout: Path
) -> None:
    expectation = checkout / "recipes" / "native" / "expectations" / "cpu.yaml"
    before = expectation.read_text()
    # Bands and the values they were made from, one higher.
    broken = re.sub(r"(?<=[ :])6\.(?=\d)", "7.", before)
    assert broken != before
    expectation.write_text(broken)
    try:
        rebuilt = build(request_cpu)
        ran = {step.text.split()[-1]: step for step in rebuilt.steps if not step.cached}
        assert not set(ran) & {*INSTALLING, "harness"}, ran
        assert rebuilt.id != image.id
        done = compose("run", "--rm", "native", "run", "native", "--run", "random-init")
        assert done.returncode == 1, done.output
        assert "✗ loss" in done.output
    finally:
        expectation.write_text(before)
        assert build(request_cpu).id


def test_a_killed_container_is_exit_3_and_its_evidence_says_so(
    image: Built, checkout: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("COMPOSE_PROJECT_NAME", PROJECT)
    names: list[str] = []

    def kill_at_the_first_step(line: str) -> None:
        if line.strip().startswith("step 1 "):
            assert process.run(["docker", "kill", names[0]]).returncode == 0

    ended = run_in_container(
        checkout,
        "cpu",
        ["native", "--run", "random-init"],
        echo=kill_at_the_first_step,
        started=names.append,
    )
    assert ended.exit_code == 3
    assert "native/random-init" in ended.message
    outcome = json.loads((ended.folder / "native" / "random-init" / "outcome.json").read_text())
    assert outcome["outcome"] == "infrastructure"
    assert "killed (exit 137)" in outcome["reason"]


def test_an_unknown_recipe_is_exit_2(image: Built, checkout: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COMPOSE_PROJECT_NAME", PROJECT)
    said: list[str] = []
    assert run_in_container(checkout, "cpu", ["no-such-recipe"], echo=said.append).exit_code == 2
    assert any("no recipe `no-such-recipe`" in line for line in said)


def test_the_controllers_own_tests_pass_in_the_image(image: Built, compose: Compose) -> None:
    done = compose("run", "--rm", "tests")
    assert done.returncode == 0, done.output[-3000:]


def test_the_container_has_no_network_and_cannot_write(image: Built, compose: Compose) -> None:
    script = "ls /sys/class/net; touch /project/x"
    done = compose("run", "--rm", "--entrypoint", "/bin/sh", "native", "-c", script)
    assert "Read-only file system" in done.output
    assert "eth" not in done.output
