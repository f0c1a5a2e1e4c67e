"""Reads one package's page of an index (PEP 503 and 691), and what its files say of themselves."""

import io
import json
import re
import urllib.parse
import zipfile
from dataclasses import dataclass
from html.parser import HTMLParser
from typing import Any

from packaging.specifiers import InvalidSpecifier, SpecifierSet
from packaging.utils import InvalidWheelFilename, parse_wheel_filename
from packaging.version import Version

from harness.errors import InfrastructureError
from harness.lock import web
from harness.pins import Target

__all__ = ["IndexFile", "excluded_because", "newest_left_out", "read_metadata", "read_page"]

_ACCEPT = "application/vnd.pypi.simple.v1+json, application/vnd.pypi.simple.v1+html;q=0.2, text/html;q=0.1"
_LARGEST_PLACEHOLDER = 1 << 20
"""Bytes. The placeholders that were opened have less than 2 KB; a compiler has hundreds of megabytes."""
_MISSING = (403, 404, 410)
"""Storage services answer 403 for what is not there."""


@dataclass(frozen=True, slots=True)
class IndexFile:
    """A wheel that an index offers."""

    name: str
    url: str
    requires_python: str
    has_metadata: bool
    """Whether the index serves its METADATA beside it (PEP 658)."""

    @property
    def version(self) -> Version | None:
        """Its version, None if its name is no wheel's."""
        try:
            return parse_wheel_filename(self.name)[1]
        except InvalidWheelFilename:
            return None


def read_page(index: str, package: str) -> tuple[IndexFile, ...] | None:
    """Return the files that an index offers of a (normalised) package, None if it has no such package.

    Raises `InfrastructureError` if the index cannot be reached or answers something else than a page.
    """
    address = f"{index.rstrip('/')}/{package}/"
    answer = web.get(address, headers={"Accept": _ACCEPT})
    if answer.status in _MISSING:
        return None
    if answer.status != 200:
        raise InfrastructureError(f"{web.without_credentials(address)} answered {answer.status}")
    if "json" in answer.headers.get("content-type", ""):
        return _from_json(answer)
    return _from_html(answer)


def _from_json(answer: web.Answer) -> tuple[IndexFile, ...]:
    try:
        listed = json.loads(answer.body)["files"]
        return tuple(_file_of_json(answer.url, item) for item in listed)
    except (ValueError, KeyError, TypeError) as error:
        raise InfrastructureError(f"{answer.url} is not a package page: {error!r}") from error


def _file_of_json(page: str, item: dict[str, Any]) -> IndexFile:
    metadata = item.get("core-metadata") or item.get("data-dist-info-metadata")
    return IndexFile(
        item["filename"],
        urllib.parse.urljoin(page, item["url"]),
        item.get("requires-python") or "",
        bool(metadata),
    )


def _from_html(answer: web.Answer) -> tuple[IndexFile, ...]:
    parser = _Anchors()
    parser.feed(answer.body.decode("utf-8", errors="replace"))
    files = []
    for attributes in parser.found:
        address = urllib.parse.urljoin(answer.url, attributes["href"]).partition("#")[0]
        name = urllib.parse.unquote(urllib.parse.urlsplit(address).path.rpartition("/")[2])
        metadata = attributes.get("data-core-metadata") or attributes.get("data-dist-info-metadata")
        files.append(
            IndexFile(
                name,
                address,
                attributes.get("data-requires-python", ""),
                metadata not in (None, "", "false"),
            )
        )
    return tuple(files)


class _Anchors(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.found: list[dict[str, str]] = []

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        attributes = {name: value or "" for name, value in attrs}
        if tag == "a" and "href" in attributes:
            self.found.append(attributes)


def read_metadata(file: IndexFile) -> str | None:
    """Return the METADATA of a wheel, None if the wheel is too large to be a placeholder and offers none apart.

    Raises `InfrastructureError` if it cannot be read.
    """
    if file.has_metadata:
        answer = web.get(f"{file.url}.metadata")
        if answer.status == 200:
            return answer.body.decode("utf-8", errors="replace")
    answer = web.get(file.url, limit=_LARGEST_PLACEHOLDER + 1)
    if answer.status != 200:
        raise InfrastructureError(f"{web.without_credentials(file.url)} answered {answer.status}")
    if len(answer.body) > _LARGEST_PLACEHOLDER:
        return None
    try:
        with zipfile.ZipFile(io.BytesIO(answer.body)) as wheel:
            name = next(name for name in wheel.namelist() if name.endswith(".dist-info/METADATA"))
            return wheel.read(name).decode("utf-8", errors="replace")
    except (zipfile.BadZipFile, StopIteration) as error:
        raise InfrastructureError(f"{file.name} is not a wheel: {error!r}") from error


def excluded_because(file: IndexFile, target: Target) -> str:
    """Return why a wheel does not fit a lock's target, empty if it fits."""
    try:
        wanted = SpecifierSet(file.requires_python)
    except InvalidSpecifier:
        wanted = SpecifierSet()
    if not wanted.contains(target.python, prereleases=True):
        return f"requires Python {file.requires_python} (this is {target.python})"
    machine = target.platform.partition("-")[0]
    tags = parse_wheel_filename(file.name)[3]
    if not any(
        tag.platform == "any"
        or tag.platform.endswith(f"linux_{machine}")
        or re.fullmatch(rf"manylinux.*_{machine}", tag.platform)
        for tag in tags
    ):
        return f"has no wheel for Linux on {machine}"
    if not any(_runs(tag.interpreter, tag.abi, target) for tag in tags):
        return f"has no wheel for Python {target.python}"
    return ""


def _runs(interpreter: str, abi: str, target: Target) -> bool:
    digits = re.fullmatch(r"(cp|py)3(\d*)", interpreter)
    if digits is None:
        return False
    minor = int(target.python.split(".")[1])
    if digits[1] == "py" or abi == "abi3":
        return not digits[2] or int(digits[2]) <= minor
    return digits[2] == str(minor)


def newest_left_out(
    files: tuple[IndexFile, ...], specifier: SpecifierSet, locked: str, target: Target
) -> str:
    """Return why the newest version in `specifier` that is above `locked` was not taken, empty if there is none.

    For example "2.22.0 exists but requires Python <3.0 (this is 3.11)".
    """
    newer = {
        version
        for file in files
        if (version := file.version) is not None
        and version > Version(locked)
        and specifier.contains(version, prereleases=version.is_prerelease and Version(locked).is_prerelease)
    }
    if not newer:
        return ""
    newest = max(newer)
    reasons = [excluded_because(file, target) for file in files if file.version == newest]
    reason = reasons[0] if all(reasons) else "conflicts with another requirement"
    return f"{newest} exists but {reason}"
