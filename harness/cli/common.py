"""What all commands share: the group, the project's folder, the options that recur."""

from pathlib import Path
from typing import Any

import click

from harness import __version__

__all__ = ["cli", "json_option", "root_of", "say", "stack_option"]

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


def root_of(context: click.Context) -> Path:
    from harness.project import find_root

    return find_root(context.obj)


stack_option = click.option("--stack", default="cpu", show_default=True, metavar="NAME", help="Stack to use.")
json_option = click.option("--json", "as_json", is_flag=True, help="Print JSON for a machine.")


def say(text: str) -> None:
    """Show progress: on stderr, so that stdout is the result alone."""
    click.echo(text, err=True)
