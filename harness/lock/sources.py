"""Source pins: a package from a git repository, at one commit, with one content, checked before it is used."""

import hashlib
import os
import shutil
import stat
import tomllib
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from packaging.requirements import InvalidRequirement, Requirement

from harness import process
from harness.cache import cache_root, make_once
from harness.errors import InfrastructureError, UserError
from harness.lock.requirements import logical_lines
from harness.pins import SourcePin

__all__ = ["Ref", "declared_requirements", "read_ref", "tree_digest", "verified_tree"]

_SECONDS = 600.0
_PLAIN = (
    # The files as they are in the repository, whatever this machine's settings or the tree's attributes say.
    *(
        "-c",
        "core.autocrlf=false",
        "-c",
        "core.eol=lf",
        "-c",
        "core.symlinks=true",
        "-c",
        "core.fileMode=true",
    ),
    *("-c", "filter.lfs.smudge=", "-c", "filter.lfs.process=", "-c", "filter.lfs.required=false"),
    *("-c", "core.hooksPath=/dev/null", "-c", "advice.detachedHead=false", "-c", "gc.auto=0"),
)
_CHECKOUT_MARK = b".complete"
"""`harness.cache` puts it beside the files."""


@dataclass(frozen=True, slots=True)
class Ref:
    """What a name means in a repository now."""

    kind: Literal["tag", "branch"]
    commit: str


def tree_digest(folder: Path) -> str:
    """Return `sha256:...` over a folder's content: paths in byte order, kinds, executable bits, bytes.

    Each file contributes `kind NUL sha256(content) NUL path LF`, where the kind is `file`, `exec` or `link`
    (content: its target). Times, owners, other permission bits, empty folders and `.git` do not count.
    """
    total = hashlib.sha256()
    files = {
        os.fsencode(path.relative_to(folder)): path
        for path in folder.rglob("*")
        if path.is_symlink() or path.is_file()
    }
    for name, path in sorted(files.items()):
        if name.split(b"/")[0] in (b".git", _CHECKOUT_MARK):
            continue
        kind, content = _content(path)
        total.update(kind + b"\0" + hashlib.sha256(content).hexdigest().encode() + b"\0" + name + b"\n")
    return f"sha256:{total.hexdigest()}"


def _content(file: Path) -> tuple[bytes, bytes]:
    if file.is_symlink():
        return b"link", os.fsencode(file.readlink())
    kind = b"exec" if file.stat().st_mode & stat.S_IXUSR else b"file"
    return kind, file.read_bytes()


def read_ref(repository: str, name: str) -> Ref | None:
    """Return what a tag or branch of a repository means now, None if it has neither.

    An annotated tag means its commit. Raises `UserError` if there are a tag and a branch of that name which
    mean different commits, and `InfrastructureError` if the repository cannot be read.
    """
    names = [f"refs/tags/{name}", f"refs/tags/{name}^{{}}", f"refs/heads/{name}"]
    lines = _git(["ls-remote", "--quiet", repository, *names]).splitlines()
    found = {ref: commit for commit, tab, ref in (line.partition("\t") for line in lines) if tab}
    tag = found.get(f"refs/tags/{name}^{{}}") or found.get(f"refs/tags/{name}")
    branch = found.get(f"refs/heads/{name}")
    if tag and branch and tag != branch:
        raise UserError(
            f"{repository} has a tag {name} ({tag}) and a branch {name} ({branch}). Next: write the commit you mean."
        )
    if tag:
        return Ref("tag", tag)
    return Ref("branch", branch) if branch else None


def verified_tree(
    name: str, pin: SourcePin, *, say: Callable[[str], None] = lambda _: None, cache: Path | None = None
) -> Path:
    """Return the folder with a source pin's files, fetched now if they are not in the cache.

    The digest of the files is compared with the pin every time; while the pin's is unresolved the files are
    taken as they are. Raises `UserError` for an unresolved commit, a tag that means another commit now, and
    content that is not the pinned one; `InfrastructureError` if the repository cannot be read.
    """
    if pin.commit == "unresolved":
        raise UserError(
            f"{name}: its commit is unresolved. Next: lock the stack where {pin.repository} is reachable."
        )
    key = hashlib.sha256(pin.repository.encode()).hexdigest()[:8]
    folder = (cache or cache_root()) / "sources" / f"{name}-{pin.commit[:16]}-{key}"

    def fetch(partial: Path) -> None:
        say(f"fetching {name} {pin.version} at {pin.commit[:12]}")
        _require_same_ref(name, pin, say)
        _fetch(name, pin, partial)
        _require_content(name, pin, partial)

    make_once(folder, fetch)
    _require_content(name, pin, folder)
    return folder


def _require_same_ref(name: str, pin: SourcePin, say: Callable[[str], None]) -> None:
    """A tag never moves; where one did, somebody should look. A branch goes on, and its commits stay."""
    now = read_ref(pin.repository, pin.ref)
    if now is None:
        raise UserError(
            f"{name}: {pin.repository} has no tag or branch {pin.ref}; the pin is {pin.commit}. "
            "Next: correct `ref` in stack.yaml."
        )
    if now.commit == pin.commit:
        return
    if now.kind == "tag":
        raise UserError(
            f"{name}: the tag {pin.ref} of {pin.repository} moved: expected {pin.commit}, found {now.commit}. Refused. "
            "Next: look at what changed, then lock again with --upgrade."
        )
    say(f"{name}: the branch {pin.ref} is at {now.commit} now; the pin stays at {pin.commit}")


def _require_content(name: str, pin: SourcePin, folder: Path) -> None:
    if pin.tree == "unresolved":
        return
    found = tree_digest(folder)
    if found != pin.tree:
        raise UserError(
            f"{name} at {pin.commit}: the files are not the pinned ones: expected {pin.tree}, found {found}, in "
            f"{folder}. Refused. Next: remove that folder; if it comes back the same, the repository changed."
        )


def _fetch(name: str, pin: SourcePin, folder: Path) -> None:
    _git(["init", "--quiet", str(folder)])
    inside = ["-C", str(folder)]
    done = process.run(
        ["git", *_PLAIN, *inside, "fetch", "--quiet", "--depth=1", pin.repository, pin.commit],
        env=_environment(),
        timeout=_SECONDS,
    )
    if done.returncode != 0:
        # Some servers hand out only what a tag or branch names.
        _git([*inside, "fetch", "--quiet", "--tags", pin.repository, pin.ref])
    _git([*inside, "checkout", "--quiet", "--force", pin.commit])
    if (folder / ".gitmodules").exists():
        raise UserError(f"{name}: {pin.repository} has submodules, which a source pin does not cover.")
    shutil.rmtree(folder / ".git")


def _git(arguments: list[str]) -> str:
    done = process.run(["git", *_PLAIN, *arguments], env=_environment(), timeout=_SECONDS)
    if done.returncode != 0:
        verb = next((word for word in arguments if word in ("ls-remote", "fetch", "checkout", "init")), "")
        raise InfrastructureError(f"`git {verb}` failed (exit {done.returncode}): {done.output.strip()}")
    return done.output


def _environment() -> dict[str, str]:
    """git must not stop to ask for a password, and must not act on a repository around it."""
    inherited = {
        name: value for name, value in os.environ.items() if name not in ("GIT_DIR", "GIT_WORK_TREE")
    }
    return {**inherited, "GIT_TERMINAL_PROMPT": "0", "LC_ALL": "C"}


def declared_requirements(folder: Path, pin: SourcePin) -> list[str]:
    """Return what a source tree says it needs: its `pyproject.toml` and the files that the pin lists.

    Requirements of extras are left out. Raises `UserError` for a listed file that is missing, and where the
    dependencies are computed at build time and no file is listed in their place.
    """
    found: list[str] = []
    project = folder / "pyproject.toml"
    if project.is_file():
        try:
            table = tomllib.loads(project.read_text(encoding="utf-8")).get("project", {})
        except tomllib.TOMLDecodeError as error:
            raise UserError(f"{project}: not valid TOML: {error}") from None
        if "dependencies" in table.get("dynamic", ()) and not pin.requirements:
            raise UserError(
                f"{project}: its dependencies are computed when it is built. Next: list the file they come from under "
                "`requirements` of the source pin."
            )
        for line in table.get("dependencies", []):
            _require_plain(line, str(project))
            found.append(line)
    for name in pin.requirements:
        path = folder / name
        if not path.is_file():
            raise UserError(
                f"{path}: no such file. Next: correct `requirements` of the source pin in stack.yaml."
            )
        for number, line in logical_lines(path.read_text(encoding="utf-8")):
            _require_plain(line, f"{path}:{number}")
            found.append(line)
    return list(dict.fromkeys(found))


def _require_plain(line: str, where: str) -> None:
    """An option or an address in another project's list would resolve from where nobody here decided."""
    try:
        address = Requirement(line).url
    except InvalidRequirement:
        address = line
    if address:
        raise UserError(
            f"{where}: {line!r} is not a plain requirement. Next: leave the file out of the source pin's "
            "`requirements`, and list what it needs in requirements.in."
        )
