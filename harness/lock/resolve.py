"""Resolves direct pins to a hashed lock with uv, each Neuron package from the Neuron index only.

uv pins an index per package, but only for packages that are asked for directly: what another package
requires is looked for in the default index, where a placeholder of the same name may wait. So whatever
came from the wrong index is asked for directly and resolved again, until every package came from where
its rule says.
"""

import json
import re
import tempfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path

from packaging.requirements import Requirement
from packaging.specifiers import SpecifierSet
from packaging.utils import canonicalize_name

from harness import process
from harness.errors import InfrastructureError, UserError
from harness.lock.index_page import IndexFile, excluded_because, newest_left_out, read_metadata, read_page
from harness.lock.requirements import Wanted
from harness.lock.rules import index_of, is_neuron_name
from harness.lock.uv import resolver_environment, scrub, uv_program, uv_version
from harness.pins import IndexRule
from harness.placeholders import is_placeholder_version, says_placeholder
from harness.stack import Stack

__all__ = ["Resolution", "resolve"]

_FROM = re.compile(r"^\s+# from (?P<url>\S+)\s*$")
_PIN = re.compile(r"^(?P<name>[A-Za-z0-9._-]+)==(?P<version>[^\s;\\]+)")
_NO_SOLUTION = "No solution found"
"""How uv opens when the pins contradict each other; every other failure is the network's or its own."""


@dataclass(frozen=True, slots=True)
class Resolution:
    """What was resolved. `text` is the lock file's content."""

    text: str
    packages: dict[str, str]
    """Normalised name -> full version."""
    origins: dict[str, str | None]
    """Normalised name -> the stack's index it came from, None for the machine's default index."""
    held_back: dict[str, str] = field(default_factory=dict)
    """Neuron package -> why a newer version was not taken."""
    uv: str = ""


def resolve(
    stack: Stack,
    wanted: Sequence[Wanted],
    *,
    more: Sequence[str] = (),
    keep: Mapping[str, str] | None = None,
) -> Resolution:
    """Return the lock of direct pins for the stack's target.

    `more` are further requirements (those of source pins), `keep` versions that stay as they are wherever
    the pins allow it. Raises `UserError` where a placeholder would be installed and where nothing satisfies
    the pins; `InfrastructureError` where an index cannot be reached.
    """
    _require_own_default_index(stack)
    requirements = [*(item.text for item in wanted), *more]
    named = {str(canonicalize_name(Requirement(text).name)) for text in requirements}
    pages = {name: _page(stack, name, "requirements.in") for name in sorted(named) if _ruled(stack, name)}
    while True:
        compiled = _compile(stack, requirements, keep or {})
        misplaced = [
            name
            for name, index in compiled.origins.items()
            if index_of(name, stack.indexes) != index and _ruled(stack, name)
        ]
        if not misplaced:
            break
        for name in misplaced:
            if name in pages:
                raise InfrastructureError(f"uv took {name} from another index than it was told to")
            pages[name] = _page(stack, name, "another package")
            requirements.append(name)
    _refuse_unruled(stack, compiled)
    for name, files in pages.items():
        _refuse_placeholder(stack, name, compiled.packages, files)
        _refuse_unfit(stack, name, compiled.packages, files)
    held_back = _held_back(stack, wanted, compiled, pages)
    return Resolution(compiled.text, compiled.packages, compiled.origins, held_back, uv_version())


def _ruled(stack: Stack, name: str) -> bool:
    return index_of(name, stack.indexes) is not None


def _rule(stack: Stack, name: str) -> tuple[str, IndexRule]:
    index = index_of(name, stack.indexes)
    assert index is not None
    return index, stack.indexes[index]


def _require_own_default_index(stack: Stack) -> None:
    """A Neuron index in the place of the default one cannot serve ordinary packages."""
    environment = resolver_environment()
    default = environment.get("UV_DEFAULT_INDEX") or environment.get("UV_INDEX_URL") or ""
    for name, rule in stack.indexes.items():
        if default and _same(default, rule.url):
            raise UserError(
                f"this machine's default index is the index `{name}` of stack `{stack.name}` ({rule.url}); ordinary "
                "packages (numpy) cannot be resolved there. Next: set the default index back; stack.yaml already "
                "says which packages come from the other one."
            )


def _same(one: str, other: str) -> bool:
    return _bare(one) == _bare(other)


def _bare(url: str) -> str:
    return re.sub(r"//[^/@]*@", "//", url).rstrip("/")


def _page(stack: Stack, name: str, asked_by: str) -> tuple[IndexFile, ...]:
    """Return what the package's own index has of it. Raises `UserError` if that is nothing."""
    index, rule = _rule(stack, name)
    files = read_page(rule.url, name)
    if not files:
        raise UserError(
            f"{name} (asked for by {asked_by}) is not on the index `{index}` ({rule.url}). {_would_be(stack, name)} "
            f"Refused. Next: correct `indexes.{index}` in {stack.folder / 'stack.yaml'}, or remove the package."
        )
    return files


def _would_be(stack: Stack, name: str) -> str:
    """One sentence: what the default index would have installed under a name."""
    environment = resolver_environment()
    argv = [
        uv_program(),
        "pip",
        "compile",
        "--quiet",
        "--no-header",
        "--no-annotate",
        "--no-deps",
        *_target(stack),
    ]
    with tempfile.TemporaryDirectory(prefix="harness-lock-") as folder:
        (Path(folder) / "requirements.in").write_text(f"{name}\n")
        done = process.run([*argv, "requirements.in"], env=environment, cwd=Path(folder))
    found = _PIN.match(done.output.strip())
    if done.returncode != 0 or found is None:
        return "The default index has nothing of that name."
    return f"The default index would have given {found['name']} {found['version']}."


def _target(stack: Stack) -> list[str]:
    target = stack.locked_for
    return ["--python-version", target.python, "--python-platform", target.platform]


def _compile(stack: Stack, requirements: Sequence[str], keep: Mapping[str, str]) -> Resolution:
    """Resolve once. Which index each package came from is in `origins`, right or wrong."""
    with tempfile.TemporaryDirectory(prefix="harness-lock-") as name:
        folder = Path(name)
        (folder / "pyproject.toml").write_text(_project(stack, requirements))
        output = folder / "requirements.lock"
        # Without hashes: uv would take those over, right or wrong, instead of asking the index.
        output.write_text("".join(f"{name}=={version}\n" for name, version in keep.items()))
        argv = [uv_program(), "pip", "compile", "--quiet", "--no-header", "--no-annotate"]
        argv += ["--generate-hashes", "--emit-index-annotation", *_target(stack)]
        argv += ["-o", output.name, "pyproject.toml"]
        done = process.run(argv, env=resolver_environment(), cwd=folder)
        if done.returncode == 0:
            return _read(stack, output.read_text(encoding="utf-8"))
    words = scrub(done.output.strip(), (rule.url for rule in stack.indexes.values()))
    words = words.replace("lock-input", "requirements.in")
    if _NO_SOLUTION in words:
        raise UserError(f"stack `{stack.name}`: nothing satisfies the pins. uv says:\n{words}")
    raise InfrastructureError(f"stack `{stack.name}` cannot be resolved. uv says:\n{words}")


def _project(stack: Stack, requirements: Sequence[str]) -> str:
    """Return a pyproject.toml that asks for the requirements, each from its index.

    JSON's strings and lists of strings are TOML's too.
    """
    lines = [
        "[project]",
        'name = "lock-input"',
        'version = "0"',
        f"requires-python = {json.dumps(f'>={stack.locked_for.python}')}",
        f"dependencies = {json.dumps(list(requirements))}",
    ]
    for name, rule in stack.indexes.items():
        lines += [
            "[[tool.uv.index]]",
            f"name = {json.dumps(name)}",
            f"url = {json.dumps(rule.url)}",
            "explicit = true",
        ]
    pinned = [(name, index) for name in _names(requirements) if (index := index_of(name, stack.indexes))]
    if pinned:
        lines.append("[tool.uv.sources]")
        lines += [f"{json.dumps(name)} = {{ index = {json.dumps(index)} }}" for name, index in pinned]
    return "\n".join(lines) + "\n"


def _names(requirements: Iterable[str]) -> list[str]:
    return sorted({str(canonicalize_name(Requirement(text).name)) for text in requirements})


def _read(stack: Stack, annotated: str) -> Resolution:
    """Take uv's output apart: the lock without its notes, and the notes on where each package came from."""
    kept: list[str] = []
    packages: dict[str, str] = {}
    origins: dict[str, str | None] = {}
    name = ""
    for line in annotated.splitlines():
        if note := _FROM.match(line):
            url = note["url"]
            origins[name] = next((i for i, rule in stack.indexes.items() if _same(url, rule.url)), None)
            continue
        if pin := _PIN.match(line):
            name = str(canonicalize_name(pin["name"]))
            packages[name] = pin["version"]
            origins.setdefault(name, None)
        kept.append(line)
    return Resolution("\n".join(kept) + "\n", packages, origins)


def _refuse_unruled(stack: Stack, compiled: Resolution) -> None:
    for name, version in compiled.packages.items():
        if is_neuron_name(name) and not _ruled(stack, name):
            raise UserError(
                f"{name} is a Neuron package, but no index of stack `{stack.name}` lists it: {name} {version} from the "
                f"default index would have been installed. Refused. Next: add {name} to `indexes.neuron.packages` in "
                f"{stack.folder / 'stack.yaml'}."
            )


def _refuse_placeholder(
    stack: Stack, name: str, packages: Mapping[str, str], files: Sequence[IndexFile]
) -> None:
    """The metadata of what was resolved must not call itself a placeholder, whatever index it came from."""
    if name not in packages:
        return
    index, rule = _rule(stack, name)
    chosen = [file for file in files if str(file.version) == packages[name]]
    words = next((says_placeholder(text) for file in chosen[:1] if (text := read_metadata(file))), "")
    if not words and not is_placeholder_version(name, packages[name]):
        return
    reason = f"its description says {words!r}" if words else "that is the placeholder's version"
    raise UserError(
        f"{name} {packages[name]} from the index `{index}` ({rule.url}) would have been installed, and it is a "
        f"placeholder: {reason}. Refused. Next: correct `indexes.{index}.url` in {stack.folder / 'stack.yaml'}: that "
        "index hands out the public packages."
    )


def _refuse_unfit(stack: Stack, name: str, packages: Mapping[str, str], files: Sequence[IndexFile]) -> None:
    """uv does not heed an upper bound of Requires-Python; a compiler that states one means it."""
    chosen = [file for file in files if file.version is not None and str(file.version) == packages.get(name)]
    reasons = [excluded_because(file, stack.locked_for) for file in chosen]
    if reasons and all(reasons):
        raise UserError(
            f"{name} {packages[name]} {reasons[0]}. Refused. Next: pin a version that fits in "
            f"{stack.requirements}, or change `locked_for` in {stack.folder / 'stack.yaml'}."
        )


def _held_back(
    stack: Stack,
    wanted: Sequence[Wanted],
    compiled: Resolution,
    pages: Mapping[str, tuple[IndexFile, ...]],
) -> dict[str, str]:
    asked = {item.name: item for item in wanted}
    found = {}
    for name, files in pages.items():
        item = asked.get(name)
        if name in compiled.packages and (item is None or item.exact is None):
            specifier = item.specifier if item else SpecifierSet()
            if why := newest_left_out(files, specifier, compiled.packages[name], stack.locked_for):
                found[name] = why
    return found
