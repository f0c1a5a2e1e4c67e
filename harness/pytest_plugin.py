"""Recipes as pytest items: `pytest recipes/ --stack cpu`.

A recipe file is a collector of runs; a run is a collector with one item `run` and one item per check. A
check whose run broke is an error ("not judged"), never passed and never skipped.
"""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

__all__ = ["CheckItem", "RunItem"]


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the options of recipes."""
    group = parser.getgroup("recipes", "running recipes (recipes/*/recipe.yaml)")
    group.addoption("--stack", default="cpu", help="stack the recipes run on (default: cpu)")
    group.addoption("--launcher", choices=("fork", "torchrun"), help="launcher (default: the stack's own)")
    group.addoption(
        "--evidence", metavar="FOLDER", help="folder for the evidence (default: a fresh one in runs/)"
    )
    group.addoption("--fault", action="append", default=[], metavar="NAME", help="break one thing on purpose")


_SESSION = pytest.StashKey[Any]()


def session_of(config: pytest.Config) -> Any:
    """Return this pytest run's `workflow.Session`, made when it is first needed."""
    if _SESSION not in config.stash:
        from harness.project import find_root
        from harness.workflow import Session, Settings

        evidence = config.getoption("--evidence")
        settings = Settings(
            root=find_root(config.rootpath),
            stack=config.getoption("--stack"),
            launcher=config.getoption("--launcher"),
            output=Path(evidence) if evidence else None,
            faults=tuple(config.getoption("--fault")),
        )
        config.stash[_SESSION] = Session(settings)
        config.add_cleanup(config.stash[_SESSION].close)
    return config.stash[_SESSION]


def use_session(config: pytest.Config, session: Any) -> None:
    """Use a session that somebody else made, and closes."""
    config.stash[_SESSION] = session


def pytest_collect_file(file_path: Path, parent: pytest.Collector) -> pytest.Collector | None:
    """Collect recipe files."""
    if file_path.name == "recipe.yaml" and file_path.parent.parent.name == "recipes":
        collector: pytest.Collector = RecipeFile.from_parent(parent, path=file_path)
        return collector
    return None


class RecipeFile(pytest.File):
    """One recipe."""

    def collect(self) -> Iterator["RunCollector"]:
        """Yield the recipe's runs that the chosen stack has the assets for."""
        from harness.errors import HarnessError
        from harness.recipe import load_recipe

        try:
            recipe = load_recipe(self.path)
            stack = session_of(self.config).stack
        except HarnessError as error:
            raise self.CollectError(str(error)) from None
        for name in recipe.runs_on(stack):
            yield RunCollector.from_parent(self, name=name, recipe=recipe)


class RunCollector(pytest.Collector):
    """One run of a recipe."""

    def __init__(self, *, recipe: Any, **kwargs: Any) -> None:
        """Remember the recipe."""
        super().__init__(**kwargs)
        self.recipe = recipe

    def collect(self) -> Iterator[pytest.Item]:
        """Yield the run itself, then its checks."""
        run: pytest.Item = RunItem.from_parent(self, name="run")
        yield run
        for check in self.recipe.runs[self.name].checks:
            item: pytest.Item = CheckItem.from_parent(self, name=check)
            yield item


class NotJudgedError(Exception):
    """Nothing can be said of the recipe: the run broke, or left nothing to judge."""


class FailedError(Exception):
    """A run or a check failed."""


def is_verdict(error: BaseException) -> bool:
    """Return whether an exception is a recipe's result rather than a fault of the harness."""
    return isinstance(error, NotJudgedError | FailedError)


class _Item(pytest.Item):
    parent: RunCollector

    def _session(self) -> Any:
        return session_of(self.config)

    def reportinfo(self) -> tuple[Path, int | None, str]:
        """Say where the item comes from."""
        return self.path, None, f"{self.parent.recipe.name} {self.parent.name} {self.name}"

    def repr_failure(self, excinfo: pytest.ExceptionInfo[BaseException], *args: Any, **kwargs: Any) -> Any:
        """Show a failure of the recipe as its message; anything else as pytest does."""
        if is_verdict(excinfo.value):
            return str(excinfo.value)
        return super().repr_failure(excinfo, *args, **kwargs)


class RunItem(_Item):
    """The execution of a run. Setting it up executes it: what breaks there is an error, not a failure."""

    def setup(self) -> None:
        """Execute the run."""
        record = self._session().ensure(self.parent.recipe, self.parent.name)
        if record.end.outcome.broken:
            raise NotJudgedError(f"{record.end.outcome}: {record.end.reason}\n{record.end.traceback}".strip())

    def runtest(self) -> None:
        """Fail if the recipe itself failed."""
        end = self._session().ensure(self.parent.recipe, self.parent.name).end
        if end.outcome != "passed":
            raise FailedError(f"{end.reason}\n{end.traceback}".strip())


class CheckItem(_Item):
    """The verdict of one check of a run."""

    def setup(self) -> None:
        """Judge; a check that could not be judged is an error."""
        result = self._session().judge(self.parent.recipe, self.parent.name, self.name)
        if result.verdict == "not-judged":
            raise NotJudgedError(f"not judged: {result.reason}")

    def runtest(self) -> None:
        """Fail with the check's findings."""
        result = self._session().judge(self.parent.recipe, self.parent.name, self.name)
        if result.verdict == "fail":
            raise FailedError("\n".join(f"{finding.code}: {finding.message}" for finding in result.findings))
        self.add_report_section("call", "facts", "\n".join(result.facts))


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport(item: pytest.Item, call: pytest.CallInfo[None]) -> Any:
    """Show the message of a setup that could not be judged, without this module's traceback."""
    report = yield
    if isinstance(item, _Item) and call.excinfo is not None:
        from harness.errors import HarnessError

        if is_verdict(call.excinfo.value) or isinstance(call.excinfo.value, HarnessError):
            report.longrepr = str(call.excinfo.value)
    return report
