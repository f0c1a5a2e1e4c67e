"""The files that a person or a CI system runs, as their own linters see them."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest
import yaml

from harness import process

BIN = Path(sys.prefix) / "bin"
WORKFLOWS = ("recipes", "pull-request")


def linted(root: Path, *argv: str) -> str:
    done = process.run([str(BIN / argv[0]), *argv[1:]], cwd=root)
    return done.output if done.returncode else ""


def workflow(root: Path, name: str) -> dict[Any, Any]:
    found: dict[Any, Any] = yaml.safe_load((root / ".github" / "workflows" / f"{name}.yml").read_text())
    return found


def test_hadolint_has_nothing_to_say(root: Path) -> None:
    assert linted(root, "hadolint", "Dockerfile") == ""


def test_hadolint_would_say_something(root: Path, tmp_path: Path) -> None:
    (tmp_path / "Dockerfile").write_text("FROM debian\nRUN cd /x\n")
    assert "DL3006" in linted(tmp_path, "hadolint", "Dockerfile")


@pytest.mark.parametrize("name", WORKFLOWS)
def test_actionlint_has_nothing_to_say(root: Path, name: str) -> None:
    argv = ("actionlint", "-config-file", ".github/actionlint.yaml", f".github/workflows/{name}.yml")
    assert linted(root, *argv) == ""


def test_actionlint_would_say_something(root: Path, tmp_path: Path) -> None:
    path = tmp_path / "bad.yml"
    path.write_text(
        (root / ".github/workflows/recipes.yml").read_text().replace("matrix.recipe", "matrix.recipy")
    )
    assert "recipy" in linted(root, "actionlint", "-config-file", ".github/actionlint.yaml", str(path))


@pytest.mark.parametrize("name", WORKFLOWS)
def test_every_action_is_a_commit_and_every_job_has_a_limit(root: Path, name: str) -> None:
    found = workflow(root, name)
    assert found["permissions"] == {"contents": "read"}
    assert found["concurrency"]["group"]
    for job in found["jobs"].values():
        assert 0 < job["timeout-minutes"] <= 300
        for step in job["steps"]:
            assert "uses" not in step or re.search(r"@[0-9a-f]{40}$", step["uses"])


def test_the_self_hosted_workflow_is_guarded(root: Path) -> None:
    found = workflow(root, "recipes")
    # YAML 1.1 reads the key `on` as true.
    assert "pull_request" not in found[True]
    assert found["concurrency"] == {"group": "trn2", "cancel-in-progress": False}
    recipe = found["jobs"]["recipe"]
    assert recipe["needs"] == "doctor"
    assert recipe["strategy"]["max-parallel"] == 1
    text = str(recipe["steps"])
    for part in ("--stack trn2 --container", "GITHUB_STEP_SUMMARY", "upload-artifact"):
        assert part in text


def test_every_variable_of_compose_has_a_default_or_a_message(root: Path) -> None:
    text = (root / "compose.yaml").read_text()
    found = re.findall(r"\$\{(\w+)(:[-?][^}]*)?\}", text)
    assert {name for name, _ in found} >= {"HARNESS_CPU_IMAGE", "HARNESS_TRN2_IMAGE"}
    assert [name for name, rest in found if len(rest) < 3] == []
    assert not re.search(r"\$(?!\{)", text)


def test_compose_never_asks_for_privileges_or_pulls(root: Path) -> None:
    text = (root / "compose.yaml").read_text()
    assert "privileged:" not in text
    assert text.count("pull_policy: never") == 1


def test_a_recipe_without_a_service_is_noticed(root: Path) -> None:
    services = yaml.safe_load((root / "compose.yaml").read_text())["services"]
    for folder in (root / "recipes").glob("*/recipe.yaml"):
        assert {folder.parent.name, f"{folder.parent.name}-trn2"} <= set(services)


def test_the_context_of_a_build_by_hand_is_a_list_of_what_goes_in(root: Path) -> None:
    from harness.image.context import FILES, FOLDERS

    lines = (root / ".dockerignore").read_text().splitlines()
    assert lines[lines.index("*") + 1 :]
    assert {line[1:] for line in lines if line.startswith("!")} == {*FILES, *FOLDERS}


@pytest.mark.parametrize(
    "script", ["scripts/docker-engine.sh", "scripts/test-base-image.sh", "scripts/image-for-ci.sh"]
)
def test_scripts_parse(root: Path, script: str) -> None:
    assert process.run(["bash", "-n", str(root / script)]).output == ""


@pytest.mark.parametrize("script", ["inside/step", "entrypoint", "run-tests"])
def test_scripts_of_the_image_parse_in_a_plain_shell(root: Path, script: str) -> None:
    path = root / "harness" / "image" / f"{script}.sh"
    assert process.run(["sh", "-n", str(path)]).output == ""
    # The shell of the base may be any: none of bash's own words.
    assert not re.search(r"\[\[|\bfunction |^\s*local |<<<|\bpipefail\b", path.read_text(), re.MULTILINE)
