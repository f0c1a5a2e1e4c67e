"""The command line: parses, calls one function per command, maps the result to an exit code.

Exit codes: 0 passed, 1 a check or a run failed, 2 usage or bad input, 3 infrastructure, 130 interrupted.
Heavy imports stay inside the commands, so that `harness --help` and `harness list` answer at once.
"""

import json
import signal
import sys
from pathlib import Path
from typing import Any

import click

from harness import __version__

__all__ = ["cli", "main"]

_CONTEXT = {"help_option_names": ["-h", "--help"], "max_content_width": 110}


class _Group(click.Group):
    """Turns the project's own errors into one message and an exit code."""

    def invoke(self, context: click.Context) -> Any:
        """Run the command; no traceback for a user's mistake."""
        from harness.errors import HarnessError

        try:
            return super().invoke(context)
        except HarnessError as error:
            click.echo(f"harness: {error}", err=True)
            context.exit(error.exit_code)
        except KeyboardInterrupt:
            click.echo("harness: interrupted", err=True)
            context.exit(130)


@click.group(cls=_Group, context_settings=_CONTEXT)
@click.version_option(__version__, prog_name="harness")
@click.option(
    "-C",
    "--project",
    type=click.Path(path_type=Path),
    help="Project folder (default: found upwards from here).",
)
@click.pass_context
def cli(context: click.Context, project: Path | None) -> None:
    """Run Qwen3 training recipes end to end on a pinned stack, and judge them."""
    context.obj = project


def _root(context: click.Context) -> Path:
    from harness.project import find_root

    return find_root(context.obj)


_stack_option = click.option(
    "--stack", default="cpu", show_default=True, metavar="NAME", help="Stack to use."
)
_json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for a machine.")


@cli.command("list")
@_stack_option
@_json_option
@click.pass_context
def list_command(context: click.Context, stack: str, as_json: bool) -> None:
    """Show recipes, their runs and their checks on a stack."""
    from harness.recipe import load_recipes
    from harness.stack import load_stack

    root = _root(context)
    chosen = load_stack(root, stack)
    recipes = load_recipes(root)
    if as_json:
        found = {
            name: {run: list(recipe.runs[run].checks) for run in recipe.runs_on(chosen)}
            for name, recipe in recipes.items()
        }
        click.echo(json.dumps({"stack": stack, "recipes": found}, indent=1))
        return
    click.echo(f"stack {chosen.name}: {chosen.summary}")
    for name, recipe in recipes.items():
        click.echo(f"\n{click.style(name, bold=True)}  {recipe.summary}")
        for run_name, run in recipe.runs_on(chosen).items():
            click.echo(f"  {run_name:24}{run.summary}")
            click.echo(f"  {'':24}checks: {', '.join(run.checks)}")


@cli.command()
@click.argument("recipes", nargs=-1, metavar="[RECIPE]...")
@_stack_option
@click.option("--run", "runs", multiple=True, metavar="NAME", help="Only this run (repeatable).")
@click.option(
    "--launcher", type=click.Choice(["fork", "torchrun"]), help="Launcher (default: the stack's own)."
)
@click.option(
    "--output",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Evidence folder (default: runs/<id>).",
)
@click.option("--container", is_flag=True, help="In a container of the stack's image (see `harness build`).")
@click.option("--junit", type=click.Path(path_type=Path), metavar="FILE", help="Also write JUnit XML there.")
@click.option(
    "--fault",
    "faults",
    multiple=True,
    metavar="NAME",
    help="Break one thing on purpose (see `harness faults`).",
)
@_json_option
@click.pass_context
def run(
    context: click.Context,
    recipes: tuple[str, ...],
    stack: str,
    runs: tuple[str, ...],
    launcher: str | None,
    output: Path | None,
    container: bool,
    junit: Path | None,
    faults: tuple[str, ...],
    as_json: bool,
) -> None:
    """Run recipes (all by default) and judge every check of every run."""
    if container:
        if output or junit or as_json:
            raise click.UsageError(
                "--container writes its evidence to runs/<id>: no --output, --junit or --json."
            )
        context.exit(_run_in_container(_root(context), stack, recipes, runs, launcher, faults))
    from harness.front import run_recipes
    from harness.workflow import Settings

    settings = Settings(_root(context), stack, launcher, output, faults)
    context.exit(run_recipes(settings, recipes, runs, junit, as_json=as_json))


def _run_in_container(
    root: Path,
    stack: str,
    recipes: tuple[str, ...],
    runs: tuple[str, ...],
    launcher: str | None,
    faults: tuple[str, ...],
) -> int:
    from harness.launch.docker import run_in_container
    from harness.stack import load_stack

    load_stack(root, stack).require_resolved()
    arguments = [*recipes, *(f"--run={name}" for name in runs), *(f"--fault={name}" for name in faults)]
    if launcher:
        arguments.append(f"--launcher={launcher}")
    ended = run_in_container(root, stack, arguments, echo=click.echo)
    if ended.message:
        click.echo(f"harness: {ended.message}", err=True)
    return ended.exit_code


@cli.command()
@_stack_option
@click.option("--with-tests", is_flag=True, help="Add the test tools, to test what runs inside the stack.")
@_json_option
@click.pass_context
def env(context: click.Context, stack: str, with_tests: bool, as_json: bool) -> None:
    """Build a stack's environment from its lock, and print its Python."""
    from harness import environment
    from harness.stack import load_stack

    root = _root(context)
    extra = [root / "lockfiles" / "testing" / "requirements.lock"] if with_tests else []
    built = environment.build(
        load_stack(root, stack), extra_locks=extra, say=lambda text: click.echo(text, err=True)
    )
    if as_json:
        click.echo(
            json.dumps(
                {"python": str(built.python), "digest": built.digest, "packages": built.packages}, indent=1
            )
        )
    else:
        click.echo(built.python)


@cli.command()
@_stack_option
@_json_option
@click.pass_context
def assets(context: click.Context, stack: str, as_json: bool) -> None:
    """Make or fetch a stack's assets, verify every file, and print their folders."""
    from harness import environment
    from harness.assets_of import resolve_assets
    from harness.stack import load_stack

    chosen = load_stack(_root(context), stack)

    def say(text: str) -> None:
        click.echo(text, err=True)

    folders = resolve_assets(chosen, environment.build(chosen, say=say), say=say)
    if as_json:
        click.echo(json.dumps({role: str(folder) for role, folder in folders.items()}, indent=1))
        return
    for role, folder in folders.items():
        click.echo(f"{role:16}{folder}")


@cli.command()
@_stack_option
@click.option(
    "--environment",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Python environment to look at (default: the stack's own).",
)
@_json_option
@click.pass_context
def doctor(context: click.Context, stack: str, environment: Path | None, as_json: bool) -> None:
    """Say whether a stack's runs can work on this machine, and what to do if not."""
    from harness.doctor import examine, exit_code, report_lines
    from harness.environment import folder_of
    from harness.stack import load_stack

    root = _root(context)
    chosen = load_stack(root, stack)
    report = examine(chosen, runs=root / "runs", environment=environment, built=folder_of(chosen))
    if as_json:
        click.echo(json.dumps(report.as_json(), indent=1))
    else:
        for line in report_lines(report):
            click.echo(line)
    context.exit(exit_code(report))


@cli.command()
@_json_option
def faults(as_json: bool) -> None:
    """List the seeded faults, and the check that must catch each."""
    from harness.faults import FAULTS

    if as_json:
        found = {
            fault.name: {"summary": fault.summary, "caught_by": fault.caught_by} for fault in FAULTS.values()
        }
        click.echo(json.dumps(found, indent=1))
        return
    for fault in FAULTS.values():
        click.echo(f"{fault.name:28}{fault.summary}")
        click.echo(f"{'':28}caught by {fault.caught_by}, seen in {fault.seen_in}")


@cli.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--model", type=click.Path(path_type=Path), metavar="FOLDER", help="Folder with the model's config.json."
)
@_json_option
@click.pass_context
def keys(context: click.Context, folder: Path, model: Path | None, as_json: bool) -> None:
    """Judge the keys, shapes and dtypes of a safetensors checkpoint by its headers alone."""
    from harness.key_report import check_folder
    from harness.report.terminal import result_lines

    result = check_folder(folder, model)
    if as_json:
        click.echo(
            json.dumps(
                {
                    "verdict": result.verdict,
                    "facts": list(result.facts),
                    "findings": [{"code": f.code, "message": f.message} for f in result.findings],
                },
                indent=1,
            )
        )
    else:
        for line in result_lines(result):
            click.echo(line)
    context.exit(0 if result.verdict == "pass" else 1)


@cli.command()
@click.argument("folders", nargs=-1, required=True, type=click.Path(path_type=Path), metavar="RUN...")
@click.pass_context
def verify(context: click.Context, folders: tuple[Path, ...]) -> None:
    """Say which files of a run's evidence are no longer as they were sealed."""
    from harness.evidence import Evidence

    wrong = [f"{folder}: {line}" for folder in folders for line in Evidence(folder).verify()]
    for line in wrong:
        click.echo(line)
    if not wrong:
        click.echo(f"{len(folders)} evidence folder(s) are as they were sealed")
    context.exit(1 if wrong else 0)


@cli.command()
@click.argument("stack", metavar="STACK")
@click.option("--check", is_flag=True, help="Only say whether pins, lock and record agree. No network.")
@click.option("--online", is_flag=True, help="With --check: also ask whether tags still mean what is pinned.")
@click.option("--upgrade", is_flag=True, help="Move every pin to what its tag or range means today.")
@click.option(
    "--part",
    "parts",
    multiple=True,
    type=click.Choice(["sources", "assets", "packages", "image"]),
    help="Resolve only this (repeatable).",
)
@_json_option
@click.pass_context
def lock(
    context: click.Context,
    stack: str,
    check: bool,
    online: bool,
    upgrade: bool,
    parts: tuple[Any, ...],
    as_json: bool,
) -> None:
    """Resolve a stack's pins with hashes, or check that they agree."""
    from harness.lock.front import run_check, run_lock

    if check and (upgrade or parts):
        raise click.UsageError("--check changes nothing: leave out --upgrade and --part.")
    if online and not check:
        raise click.UsageError("--online goes with --check.")
    root = _root(context)
    if check:
        context.exit(run_check(root, stack, online=online, as_json=as_json, echo=click.echo))

    def say(text: str) -> None:
        click.echo(text, err=True)

    context.exit(
        run_lock(root, stack, upgrade=upgrade, parts=parts, as_json=as_json, echo=click.echo, say=say)
    )


@cli.command()
@click.argument("one", metavar="STACK_A")
@click.argument("other", metavar="STACK_B")
@_json_option
@click.pass_context
def diff(context: click.Context, one: str, other: str, as_json: bool) -> None:
    """Show what differs between two stacks, given by name or by folder."""
    from harness.lock.front import run_diff

    context.exit(run_diff(_root(context), one, other, as_json=as_json, echo=click.echo))


@cli.command()
@click.argument("stack", metavar="STACK")
@click.option("--base", metavar="IMAGE", help="Base image instead of the stack's own.")
@click.option("--allow-local-base", is_flag=True, help="Take a base without digest; the image says so.")
@click.option("--tag", metavar="NAME", help="Name of the image on this machine.")
@click.option("--compare", is_flag=True, help="Build twice and say what differs in content.")
@_json_option
@click.pass_context
def build(
    context: click.Context,
    stack: str,
    base: str | None,
    allow_local_base: bool,
    tag: str | None,
    compare: bool,
    as_json: bool,
) -> None:
    """Build a stack's image, verified inside against its lock."""
    from harness.image.front import run_build

    def say(text: str) -> None:
        click.echo(text, err=True)

    root = _root(context)
    context.exit(
        run_build(
            root,
            stack,
            base,
            allow_local_base,
            tag,
            compare=compare,
            as_json=as_json,
            echo=click.echo,
            say=say,
        )
    )


def _terminated(*_: object) -> None:
    raise KeyboardInterrupt


def main() -> None:
    """Entry point of the `harness` command. A polite kill ends it as Ctrl-C does: children stopped, evidence kept."""
    signal.signal(signal.SIGTERM, _terminated)
    cli.main(prog_name="harness", standalone_mode=True, args=sys.argv[1:])
