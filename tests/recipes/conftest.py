"""Real runs on the cpu stack. One fork server serves all of them, so that the stack is imported once."""

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from harness import environment
from harness.execute import child_environment
from harness.launch import ForkLauncher
from harness.recipe import load_recipes
from harness.stack import load_stack
from harness.workflow import Session, Settings
from tests.conftest import ROOT

Run = Callable[..., Session]


@pytest.fixture(scope="session")
def launcher(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ForkLauncher]:
    """The fork launcher that all real runs share."""
    stack = load_stack(ROOT, "cpu")
    folder = tmp_path_factory.mktemp("forkserver")
    shared = ForkLauncher(environment.build(stack).python, child_environment(stack), folder)
    yield shared
    shared.close()


@pytest.fixture(scope="session")
def run(launcher: ForkLauncher, tmp_path_factory: pytest.TempPathFactory) -> Run:
    """Run recipes on the cpu stack: `run("native/random-init", ..., faults=(...))` gives the session."""

    def start(*runs: str, faults: tuple[str, ...] = (), given: Any = None) -> Session:
        output = tmp_path_factory.mktemp("evidence")
        session = Session(Settings(ROOT, output=output, faults=faults), launcher=given or launcher)
        recipes = load_recipes(ROOT)
        wanted = runs or [
            f"{name}/{run}" for name, recipe in recipes.items() for run in recipe.runs_on(session.stack)
        ]
        for path in wanted:
            recipe, name = path.split("/")
            session.ensure(recipes[recipe], name)
            for check in recipes[recipe].runs[name].checks:
                session.judge(recipes[recipe], name, check)
        session.close()
        return session

    return start


@pytest.fixture(scope="session")
def everything(run: Run) -> Session:
    """All runs of all recipes, once."""
    return run()


def path_of(session: Session, run: str) -> Path:
    """The evidence folder of `recipe/run`."""
    recipe, _, name = run.partition("/")
    return session.records[(recipe, name)].evidence.folder
