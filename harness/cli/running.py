"""Commands that show and run recipes."""

import json
from pathlib import Path

import click

from harness.cli.common import cli, json_option, root_of, stack_option

__all__ = ["faults", "list_command", "run"]


@cli.command("list")
@stack_option
@json_option
@click.pass_context
def list_command(context: click.Context, stack: str, as_json: bool) -> None:
    """Show recipes, their runs and their checks on a stack."""
    from harness.recipe import load_recipes
    from harness.stack import load_stack

    root = root_of(context)
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
@stack_option
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
@json_option
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
        context.exit(_run_in_container(root_of(context), stack, recipes, runs, launcher, faults))
    from harness.front import run_recipes
    from harness.workflow import Settings

    settings = Settings(root_of(context), stack, launcher, output, faults)
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
@json_option
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
