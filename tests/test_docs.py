"""The docs speak of what there is: every command, check, fault place and request field."""

import ast
import re
from pathlib import Path

import pytest

from harness.cli import cli
from harness.recipe import CHECKS


@pytest.mark.parametrize("command", sorted(cli.commands))
def test_every_command_has_a_section(root: Path, command: str) -> None:
    assert f"\n## harness {command}\n" in (root / "docs" / "cli.md").read_text()


def test_every_section_is_a_command(root: Path) -> None:
    sections = re.findall(r"^## harness (\S+)$", (root / "docs" / "cli.md").read_text(), re.MULTILINE)
    assert sorted(sections) == sorted(cli.commands)


@pytest.mark.parametrize("check", CHECKS)
def test_every_check_is_explained(root: Path, check: str) -> None:
    assert f"\n| {check} |" in (root / "docs" / "how-a-verdict-is-made.md").read_text()


def test_every_field_of_a_request_is_documented(root: Path) -> None:
    tree = ast.parse((root / "harness" / "stackside" / "request.py").read_text())
    request = next(node for node in tree.body if isinstance(node, ast.ClassDef) and node.name == "Request")
    fields = [
        node.target.id
        for node in request.body
        if isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name)
    ]
    text = (root / "docs" / "adding-a-recipe.md").read_text()
    assert [name for name in fields if f"`{name}`" not in text] == []


def test_the_readme_leads_with_the_two_commands(root: Path) -> None:
    lines = (root / "README.md").read_text().splitlines()
    assert [line.split("#")[0].strip() for line in lines[2:4]] == ["make run", "make test"]


def test_links_and_pictures_exist(root: Path) -> None:
    pages = [root / "README.md", *(root / "docs").glob("*.md")]
    for page in pages:
        for target in re.findall(r"\]\(([^)#:]+)\)", page.read_text()):
            assert (page.parent / target).exists(), f"{page}: {target}"


def test_no_file_names_a_package_registry(root: Path) -> None:
    """The index belongs to the machine. Neuron's own index is a fact of the product, and allowed."""
    # Put together here, so that this file names none either.
    names = [
        ("pypi", "org"),
        ("files", "pythonhosted", "org"),
        ("registry", "npmjs", "org"),
        ("deb", "debian", "org"),
    ]
    hosts = re.compile("|".join(re.escape(".".join(parts)) for parts in names))
    skipped = {
        ".git",
        ".venv",
        "runs",
        ".mypy_cache",
        ".ruff_cache",
        ".pytest_cache",
        ".hypothesis",
        "__pycache__",
    }
    for path in root.rglob("*"):
        if path.is_file() and not skipped & set(path.relative_to(root).parts):
            assert not hosts.search(path.read_text(errors="replace")), path
