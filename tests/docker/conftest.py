"""A real Docker engine, the test base image, and the cpu image built on it. Started by scripts/test.sh."""

import os
import shutil
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path

import pytest

from harness import process
from harness.errors import HarnessError
from harness.image import docker
from harness.image.build import Built, Request, build_image
from harness.image.context import FILES, FOLDERS
from harness.stack import load_stack
from tests.conftest import ROOT

OWNER = 1234
"""Who owns the checkout: neither root, who runs the tests, nor the image's own user."""
PROJECT = "trn-harness-test"
"""Compose's project, so that no volume or container of a user is touched."""


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Everything in this folder needs an engine."""
    for item in items:
        if Path(__file__).parent in item.path.parents:
            item.add_marker(pytest.mark.docker)


@pytest.fixture(scope="session")
def base() -> str:
    """The name of the test base image, made now if it is not there."""
    problem = ""
    try:
        docker.require_engine()
    except HarnessError as error:
        problem = str(error)
    if problem:
        pytest.exit(problem, returncode=3)
    done = process.run([str(ROOT / "scripts" / "test-base-image.sh")])
    assert done.returncode == 0, done.output
    return done.output.strip().splitlines()[-1]


def copy_project(target: Path) -> Path:
    """Copy what an image is made of, as a checkout of somebody else's, and return its folder."""
    for name in FILES:
        shutil.copy(ROOT / name, target / name)
    for name in FOLDERS:
        shutil.copytree(ROOT / name, target / name, ignore=shutil.ignore_patterns("__pycache__"))
    for path in (target, *target.rglob("*")):
        os.chown(path, OWNER, OWNER)
    return target


@pytest.fixture(scope="session")
def checkout(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A checkout that belongs to `OWNER`."""
    return copy_project(tmp_path_factory.mktemp("checkout"))


def build(request: Request) -> Built:
    """Build as `harness build` does."""
    return build_image(request)


@pytest.fixture(scope="session")
def request_cpu(base: str, checkout: Path) -> Request:
    """What to build: the cpu stack of the checkout on the test base."""
    return Request(checkout, load_stack(checkout, "cpu"), base, True, f"{PROJECT}:cpu")


@pytest.fixture(scope="session")
def image(request_cpu: Request) -> Iterator[Built]:
    """The cpu image. Its name goes at the end; its layers stay cached for the next time."""
    yield build(request_cpu)
    process.run(["docker", "image", "rm", "--force", request_cpu.name])
    # What a rebuild under the same name left without one.
    process.run(["docker", "image", "prune", "--force", "--filter=label=trn-harness.local-base=true"])


Compose = Callable[..., process.Completed]


@pytest.fixture(scope="session")
def compose(checkout: Path) -> Iterator[Compose]:
    """Calls `docker compose` in the checkout, as a user would."""
    env = {**os.environ, "COMPOSE_PROJECT_NAME": PROJECT}

    def call(*arguments: str, env: Mapping[str, str] = env) -> process.Completed:
        return process.run(["docker", "compose", *arguments], cwd=checkout, env=env)

    yield call
    call("down", "--volumes", "--remove-orphans")


@pytest.fixture
def small(base: str, checkout: Path, tmp_path: Path) -> Iterator[Callable[..., Request]]:
    """Makes a request for a stack of a few small packages: the whole build in seconds."""
    made: list[Request] = []

    def request(lock: str, *, base: str = base, keeps: tuple[str, ...] = ()) -> Request:
        project = tmp_path / f"project-{len(made)}"
        project.mkdir()
        copy_project(project)
        (project / "lockfiles" / "cpu" / "requirements.lock").write_text(lock)
        stack = load_stack(project, "cpu")
        assert stack.base_image is not None
        stack = stack.model_copy(update={"base_image": stack.base_image.model_copy(update={"keeps": keeps})})
        tag = f"{PROJECT}:small-{len(made)}"
        made.append(Request(project, stack, base, True, tag))
        return made[-1]

    yield request
    for built in made:
        process.run(["docker", "image", "rm", "--force", built.name])
