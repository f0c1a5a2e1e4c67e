"""Installs what a lock and its source pins name, each package from the index its rule says."""

import shutil
import tempfile
from collections.abc import Callable, Iterable, Mapping, Sequence
from pathlib import Path

from harness import process
from harness.errors import InfrastructureError, UserError
from harness.lock.requirements import logical_lines, parse_lock
from harness.lock.rules import index_of
from harness.lock.sources import verified_tree
from harness.lock.uv import installer_environment, resolver_environment, scrub, uv_program
from harness.pins import IndexRule
from harness.stack import Stack

__all__ = ["groups_by_index", "install_locks", "install_sources"]

Say = Callable[[str], None]


def groups_by_index(text: str, indexes: Mapping[str, IndexRule], source: str) -> dict[str | None, str]:
    """Return a lock's content split by the index each package comes from; None is the default index.

    Raises `UserError` for a line that is no hashed pin: nothing is installed from such a lock.
    """
    _, problems = parse_lock(text, source)
    if problems:
        raise UserError(problems[0].message)
    groups: dict[str | None, list[str]] = {}
    for _, line in logical_lines(text):
        (entry,), _ = parse_lock(line, source)
        groups.setdefault(index_of(entry.name, indexes), []).append(line)
    return {index: "\n".join(lines) + "\n" for index, lines in groups.items()}


def install_locks(locks: Sequence[Path], python: Path, indexes: Mapping[str, IndexRule]) -> None:
    """Install hashed locks into the environment of `python`: hashes required, nothing beside the locks.

    Raises `UserError` for a lock that is none, and `InfrastructureError` with uv's own words, which name the
    package whose hash is not the lock's.
    """
    groups: dict[str | None, str] = {}
    for lock in locks:
        for index, text in groups_by_index(lock.read_text(encoding="utf-8"), indexes, str(lock)).items():
            groups[index] = groups.get(index, "") + text
    with tempfile.TemporaryDirectory(prefix="harness-install-") as folder:
        for index, text in groups.items():
            listed = Path(folder) / f"{index or 'default'}.lock"
            listed.write_text(text)
            arguments = ["--require-hashes", "-r", str(listed)]
            # Further indexes of the machine would be asked before an index of the stack's own.
            env = installer_environment() if index is None else resolver_environment()
            if index is not None:
                arguments += ["--default-index", indexes[index].url]
            _install(python, arguments, env, (rule.url for rule in indexes.values()))


def install_sources(stack: Stack, python: Path, *, say: Say = lambda _: None) -> None:
    """Install a stack's source pins, checked first, with the build tools that the lock brought.

    Building writes into the tree, so a copy is built and the checked tree stays as it is.
    """
    for name, pin in stack.sources.items():
        if not pin.resolved:
            raise UserError(f"stack `{stack.name}`: {name} is unresolved. {stack.unresolved_sentence()}")
        tree = verified_tree(name, pin, say=say)
        with tempfile.TemporaryDirectory(prefix="harness-source-") as folder:
            copy = Path(folder) / name
            shutil.copytree(tree, copy, symlinks=True, ignore=shutil.ignore_patterns(".complete"))
            _install(
                python,
                ["--no-build-isolation", "--no-index", "--no-cache", str(copy)],
                installer_environment(),
            )


def _install(
    python: Path, arguments: Sequence[str], env: Mapping[str, str], named: Iterable[str] = ()
) -> None:
    argv = [uv_program(), "pip", "install", "--quiet", "--no-deps", "--python", str(python), *arguments]
    done = process.run(argv, env=env)
    if done.returncode != 0:
        words = scrub(done.output.strip(), named)
        raise InfrastructureError(f"`uv pip install` failed (exit {done.returncode}):\n{words}")
