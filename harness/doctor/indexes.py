"""The package indexes that pip and uv would use here, and whether Neuron packages would come from theirs."""

import configparser
import tomllib
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from harness.doctor.host import Host, Index
from harness.doctor.report import Line, error, ok, skipped, warning
from harness.placeholders import NEURON_PACKAGES

__all__ = ["NEURON_INDEX", "check_indexes", "parse_pip", "parse_uv", "read_indexes"]

NEURON_INDEX = "pip.repos.neuron.amazonaws.com"

_PIP_FILES = ("etc/xdg/pip/pip.conf", "etc/pip.conf")
"""In the order of precedence, the strongest last (pip's documentation); the user's and a venv's follow."""
_PIP_VARIABLES = (("default", "PIP_INDEX_URL"), ("extra", "PIP_EXTRA_INDEX_URL"))
_UV_VARIABLES = (
    ("default", "UV_INDEX_URL"),
    ("default", "UV_DEFAULT_INDEX"),
    ("extra", "UV_EXTRA_INDEX_URL"),
    ("extra", "UV_INDEX"),
)


def read_indexes(
    root: Path, home: Path, environment: Path | None, variables: Mapping[str, str]
) -> tuple[tuple[Index, ...], tuple[str, ...]]:
    """Return the effective indexes of pip and uv, and what is wrong with their files, one line each.

    Of pip's files the strongest that sets a key wins whole: a second `extra-index-url` elsewhere replaces the
    first, it does not add to it. Variables are stronger than files.
    """
    pip_files = [root / name for name in _PIP_FILES]
    pip_files += [home / ".pip" / "pip.conf", home / ".config" / "pip" / "pip.conf"]
    pip_files += [environment / "pip.conf"] if environment else []
    pip_files += [Path(variables["PIP_CONFIG_FILE"])] if variables.get("PIP_CONFIG_FILE") else []
    uv_files = [root / "etc" / "uv" / "uv.toml", home / ".config" / "uv" / "uv.toml"]
    problems: list[str] = []
    effective: dict[tuple[str, str], list[Index]] = {}
    for path in pip_files:
        for index in _parsed(path, parse_pip, problems):
            _replace(effective, index)
    for path in uv_files:
        for index in _parsed(path, parse_uv, problems):
            _replace(effective, index)
    for tool, names in (("pip", _PIP_VARIABLES), ("uv", _UV_VARIABLES)):
        for role, name in names:
            for url in variables.get(name, "").split():
                # UV_INDEX entries can be named: `name=url`.
                _replace(effective, Index(tool, role, url.rpartition("=")[2], f"${name}"))
    return tuple(index for group in effective.values() for index in group), tuple(problems)


def _replace(effective: dict[tuple[str, str], list[Index]], index: Index) -> None:
    group = effective.setdefault((index.tool, index.role), [])
    if group and group[0].source != index.source:
        group.clear()
    group.append(index)


def _parsed(path: Path, parse: Any, problems: list[str]) -> list[Index]:
    try:
        text = path.read_text(encoding="utf-8")
    except (OSError, UnicodeDecodeError):
        return []
    indexes, wrong = parse(text, str(path))
    problems += [f"{path}: {line}" for line in wrong]
    return list(indexes)


def parse_pip(text: str, source: str) -> tuple[list[Index], list[str]]:
    """Return the indexes in a pip.conf, and what is wrong with it."""
    parser = configparser.RawConfigParser(strict=True)
    wrong: list[str] = []
    try:
        parser.read_string(text)
    except configparser.DuplicateOptionError as problem:
        wrong.append(f"line {problem.lineno}: `{problem.option}` is set twice, only the last would count")
        parser = configparser.RawConfigParser(strict=False)
        parser.read_string(text)
    except configparser.Error as problem:
        return [], [f"not readable as a pip configuration: {str(problem).splitlines()[0]}"]
    indexes = []
    # `[install]` is stronger than `[global]`.
    for key, role in (("index-url", "default"), ("extra-index-url", "extra")):
        for section in ("install", "global"):
            if parser.has_option(section, key):
                urls = parser.get(section, key).split()
                indexes += [Index("pip", role, url, source) for url in urls]
                break
    return indexes, wrong


def parse_uv(text: str, source: str) -> tuple[list[Index], list[str]]:
    """Return the indexes in a uv.toml, and what is wrong with it."""
    try:
        data = tomllib.loads(text)
    except tomllib.TOMLDecodeError as problem:
        return [], [f"not valid TOML: {problem}"]
    legacy = {**data, **data.get("pip", {})}
    indexes = [Index("uv", "default", legacy["index-url"], source)] if "index-url" in legacy else []
    indexes += [Index("uv", "extra", url, source) for url in legacy.get("extra-index-url", ())]
    for entry in data.get("index", ()):
        role = "default" if entry.get("default") else "extra"
        indexes.append(Index("uv", role, str(entry.get("url", "")), source))
    return indexes, []


def check_indexes(
    host: Host, wanted: Iterable[str], ruled: Iterable[str] = (), *, neuron: bool
) -> list[Line]:
    """Judge the indexes: no global index replaced by the Neuron one, and the Neuron one there when needed.

    `wanted` are the packages of the lock (empty where there is no lock), `ruled` those that the stack itself
    takes from a named index, `neuron` whether the stack's device is. Without the Neuron index a package that is
    still to be installed would be the public placeholder: an error; when all of them are installed already, a
    warning.
    """
    lines = [
        error(
            "indexes.replaced",
            f"{index.source} sets {index.tool}'s default index to the Neuron repository",
            "an additional index: packages outside it (numpy) cannot be resolved there",
            "use extra-index-url, or an index per package",
        )
        for index in host.indexes
        if index.role == "default" and NEURON_INDEX in index.url
    ]
    lines += [
        warning("indexes.file", problem, "one setting per key", "merge the two lines into one")
        for problem in host.index_problems
    ]
    needed = sorted(set(wanted) & NEURON_PACKAGES)
    if not needed and not neuron:
        return lines or [skipped("indexes", "not needed: nothing of this stack comes from the Neuron index")]
    covered = set(ruled) & NEURON_PACKAGES
    loose = [name for name in needed if name not in covered]
    known = sorted({index.source for index in host.indexes if NEURON_INDEX in index.url})
    if not known and (loose or not covered):
        missing = [name for name in loose if name not in host.installed()]
        lines.append(_no_index(missing, loose))
    stated = [f"the stack ({len(covered)} packages)"] if covered else []
    return lines or [ok("indexes", f"the Neuron index is set in {', '.join([*stated, *known])}")]


def _no_index(missing: list[str], needed: list[str]) -> Line:
    names = ", ".join(missing or needed or ["the Neuron packages"])
    expected = f"{NEURON_INDEX} as an additional index of pip or uv"
    if needed and not missing:
        return warning(
            "indexes.no-neuron",
            f"no Neuron index is configured; {names} are installed already",
            expected,
            "add the index before anything is installed again",
        )
    return error(
        "indexes.no-neuron",
        f"no Neuron index is configured: {names} would come from the public index, which has placeholders only",
        expected,
        f"set PIP_EXTRA_INDEX_URL (UV_INDEX for uv) to https://{NEURON_INDEX}",
    )
