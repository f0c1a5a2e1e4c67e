"""Commands about a stack: its pins, its environment, its image, the machine it is to run on."""

import json
from pathlib import Path
from typing import Any

import click

from harness.cli.common import cli, json_option, root_of, say, stack_option

__all__ = ["assets", "build", "diff", "doctor", "env", "lock"]


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
@json_option
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
    root = root_of(context)
    if check:
        context.exit(run_check(root, stack, online=online, as_json=as_json, echo=click.echo))

    context.exit(
        run_lock(root, stack, upgrade=upgrade, parts=parts, as_json=as_json, echo=click.echo, say=say)
    )


@cli.command()
@click.argument("one", metavar="STACK_A")
@click.argument("other", metavar="STACK_B")
@json_option
@click.pass_context
def diff(context: click.Context, one: str, other: str, as_json: bool) -> None:
    """Show what differs between two stacks, given by name or by folder."""
    from harness.lock.front import run_diff

    context.exit(run_diff(root_of(context), one, other, as_json=as_json, echo=click.echo))


@cli.command()
@stack_option
@click.option("--with-tests", is_flag=True, help="Add the test tools, to test what runs inside the stack.")
@json_option
@click.pass_context
def env(context: click.Context, stack: str, with_tests: bool, as_json: bool) -> None:
    """Build a stack's environment from its lock, and print its Python."""
    from harness import environment
    from harness.stack import load_stack

    root = root_of(context)
    extra = [root / "lockfiles" / "testing" / "requirements.lock"] if with_tests else []
    built = environment.build(load_stack(root, stack), extra_locks=extra, say=say)
    if as_json:
        click.echo(
            json.dumps(
                {"python": str(built.python), "digest": built.digest, "packages": built.packages}, indent=1
            )
        )
    else:
        click.echo(built.python)


@cli.command()
@stack_option
@json_option
@click.pass_context
def assets(context: click.Context, stack: str, as_json: bool) -> None:
    """Make or fetch a stack's assets, verify every file, and print their folders."""
    from harness import environment
    from harness.assets_of import resolve_assets
    from harness.stack import load_stack

    chosen = load_stack(root_of(context), stack)

    folders = resolve_assets(chosen, environment.build(chosen, say=say), say=say)
    if as_json:
        click.echo(json.dumps({role: str(folder) for role, folder in folders.items()}, indent=1))
        return
    for role, folder in folders.items():
        click.echo(f"{role:16}{folder}")


@cli.command()
@click.argument("stack", metavar="STACK")
@click.option("--base", metavar="IMAGE", help="Base image instead of the stack's own.")
@click.option("--allow-local-base", is_flag=True, help="Take a base without digest; the image says so.")
@click.option("--tag", metavar="NAME", help="Name of the image on this machine.")
@click.option("--compare", is_flag=True, help="Build twice and say what differs in content.")
@json_option
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

    root = root_of(context)
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


@cli.command()
@stack_option
@click.option(
    "--environment",
    type=click.Path(path_type=Path),
    metavar="FOLDER",
    help="Python environment to look at (default: the stack's own).",
)
@json_option
@click.pass_context
def doctor(context: click.Context, stack: str, environment: Path | None, as_json: bool) -> None:
    """Say whether a stack's runs can work on this machine, and what to do if not."""
    from harness.doctor import examine, exit_code, report_lines
    from harness.environment import folder_of
    from harness.stack import load_stack

    root = root_of(context)
    chosen = load_stack(root, stack)
    report = examine(chosen, runs=root / "runs", environment=environment, built=folder_of(chosen))
    if as_json:
        click.echo(json.dumps(report.as_json(), indent=1))
    else:
        for line in report_lines(report):
            click.echo(line)
    context.exit(exit_code(report))
