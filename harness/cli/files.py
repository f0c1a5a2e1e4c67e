"""Commands that look at files a run left."""

import json
from pathlib import Path

import click

from harness.cli.common import cli, json_option

__all__ = ["keys", "verify"]


@cli.command()
@click.argument("folder", type=click.Path(path_type=Path))
@click.option(
    "--model", type=click.Path(path_type=Path), metavar="FOLDER", help="Folder with the model's config.json."
)
@json_option
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
