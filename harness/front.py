"""`harness run`: a thin front over pytest, with progress, a summary and the project's exit codes."""

import contextlib
import json
from pathlib import Path
from typing import Any

import click
import pytest

from harness import pytest_plugin
from harness.errors import HarnessError, UserError
from harness.report.terminal import Reporter
from harness.workflow import Session, Settings, resolve

__all__ = ["run_recipes"]


class _Front:
    """The pytest plugin of one `harness run`: selects runs and stops at the first mistake of the user's."""

    def __init__(self, runs: tuple[str, ...], session: Session) -> None:
        self.runs, self.session = runs, session
        self.error: HarnessError | None = None
        self.problems: list[str] = []

    @pytest.hookimpl(trylast=True)
    def pytest_configure(self, config: pytest.Config) -> None:
        pytest_plugin.use_session(config, self.session)

    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        if self.runs:
            items[:] = [item for item in items if item.parent is not None and item.parent.name in self.runs]

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.problems.append(str(report.longrepr))

    def pytest_exception_interact(self, node: Any, call: pytest.CallInfo[Any]) -> None:
        assert call.excinfo is not None
        error = call.excinfo.value
        if isinstance(error, HarnessError):
            self.error = error
            node.session.shouldstop = str(error)
        elif not pytest_plugin.is_verdict(error):
            # A fault of the harness itself: its traceback is what a person needs.
            self.problems.append(str(call.excinfo.getrepr(style="native")))


def run_recipes(
    settings: Settings, recipes: tuple[str, ...], runs: tuple[str, ...], junit: Path | None, *, as_json: bool
) -> int:
    """Run the recipes, show progress on stderr and the summary on stdout; return the exit code.

    Raises `UserError` for a selection that selects nothing, `HarnessError` for what stops everything.
    """
    stack, found = resolve(settings.root, recipes, settings.stack)
    known = {run for recipe in found.values() for run in recipe.runs_on(stack)}
    for run in runs:
        if run not in known:
            raise UserError(
                f"no run `{run}` in {', '.join(found)} on stack {stack.name}. Next: see `harness list`."
            )
    reporter = Reporter()
    session = Session(settings, reporter.event)
    front = _Front(runs, session)
    arguments = _arguments(settings, [recipe.folder / "recipe.yaml" for recipe in found.values()], junit)
    try:
        session.prepare()
        with contextlib.redirect_stdout(reporter.discard):
            code = pytest.main(arguments, plugins=[front])
    finally:
        session.close()
        reporter.close()
    if front.error is not None:
        raise front.error
    for problem in front.problems:
        click.echo(f"harness: {problem}", err=True)
    summary = session.summary()
    if as_json:
        click.echo(json.dumps(summary, indent=1))
    else:
        reporter.summary(summary)
    if code == pytest.ExitCode.INTERRUPTED:
        return 130
    return 3 if front.problems else session.exit_code()


def _arguments(settings: Settings, files: list[Path], junit: Path | None) -> list[str]:
    arguments = [
        *map(str, files),
        f"--rootdir={settings.root}",
        "--config-file=/dev/null",
        f"--stack={settings.stack}",
        "-p",
        "no:terminal",
        "-p",
        "no:cacheprovider",
        "--capture=no",
    ]
    if junit:
        arguments.append(f"--junit-xml={junit}")
    return arguments
