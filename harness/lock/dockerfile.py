"""Lints Dockerfiles and shell scripts for what makes a build unrepeatable, or a failure invisible.

A base without digest, packages that are not installed from a hashed lock, Debian packages without
version, git without commit, downloads without checksum, and `| tee` without pipefail.
"""

import io
import re
import shlex
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass

from packaging.requirements import InvalidRequirement, Requirement
from packaging.utils import canonicalize_name

from harness.checks.finding import Finding
from harness.checks.wording import shown

__all__ = ["lint_dockerfile", "lint_script"]

_DIGEST = re.compile(r"@sha256:[0-9a-f]{64}$")
_VARIABLE = re.compile(r"\$\{?(\w+)")
_COMMIT = re.compile(r"\b[0-9a-f]{40}\b")
_HEREDOC = re.compile(r"<<-?\s*[\"']?(\w+)[\"']?")
_PIPEFAIL = re.compile(r"\bset\s+(-\w*\s+)*-\w*o\s+pipefail\b")
_TEE = re.compile(r"\|&?\s*(?:\S*/)?tee\b")
_CONTINUED = "\v"
"""Stands where a backslash joined two lines: a blank to the shell, and still countable."""
_TAKES_VALUE = frozenset(
    (
        *(
            "-r",
            "--requirement",
            "-c",
            "--constraint",
            "-f",
            "--find-links",
            "-t",
            "--target",
            "-p",
            "--python",
        ),
        *("-i", "--index-url", "--extra-index-url", "--index", "--default-index", "--prefix", "--root"),
        *("--no-binary", "--only-binary", "--platform", "--python-version", "--cache-dir"),
    )
)
_SNAPSHOT = re.compile(r"//snapshot\.[\w.]+/|APT::Snapshot", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class _Instruction:
    line: int
    keyword: str
    text: str


def lint_dockerfile(
    text: str, *, source: str = "Dockerfile", locked: Mapping[str, str] | None = None
) -> tuple[Finding, ...]:
    """Return what makes a Dockerfile unrepeatable, in the order of its lines.

    `locked` (normalised name -> version) lets a message say what the lock has. Codes: `dockerfile.base` (no
    `@sha256:`), `dockerfile.pip`, `dockerfile.apt`, `dockerfile.git`, `dockerfile.download`,
    `dockerfile.pipefail`, `dockerfile.empty` (no FROM).
    """
    findings: list[Finding] = []
    stages: set[str] = set()
    arguments: dict[str, str | None] = {}
    pipefail = snapshot = False
    instructions = list(_instructions(text))
    for item in instructions:
        where = f"{source}:{item.line}"
        snapshot = snapshot or bool(_SNAPSHOT.search(item.text))
        if item.keyword == "FROM":
            pipefail = False
            findings += _base(item.text, where, stages, arguments)
        elif item.keyword == "ARG":
            name, found, default = item.text.strip().partition("=")
            arguments[name.strip()] = default.strip("\"' ") if found else None
        elif item.keyword == "SHELL":
            pipefail = "pipefail" in item.text
        elif item.keyword == "RUN":
            findings += _commands(item.text, item.line, source, locked or {}, snapshot=snapshot)
            findings += _pipes(item.text, where, pipefail=pipefail)
        elif item.keyword in ("COPY", "ADD"):
            findings += _copied(item, where, stages)
    if not any(item.keyword == "FROM" for item in instructions):
        findings.append(Finding("dockerfile.empty", f"{source}: no FROM in it."))
    return tuple(findings)


def lint_script(text: str, *, source: str) -> tuple[Finding, ...]:
    """Return a `dockerfile.pipefail` finding if a shell script pipes into `tee` without pipefail."""
    return tuple(_pipes(text, source, pipefail=False))


def _instructions(text: str) -> Iterator[_Instruction]:
    """Yield the instructions: comments gone, continued lines joined, heredocs taken in line by line."""
    lines = text.splitlines()
    position = 0
    while position < len(lines):
        start = position
        parts: list[str] = []
        while position < len(lines):
            line = lines[position].strip()
            position += 1
            if line.startswith("#"):
                # A comment between two continued lines does not end the instruction.
                parts += [""] if parts else []
                start += 0 if parts else 1
                continue
            parts.append(line.removesuffix("\\"))
            if not line.endswith("\\"):
                break
        body = _CONTINUED.join(parts)
        for end in _HEREDOC.findall(body) if body.upper().startswith(("RUN", "COPY", "ADD")) else ():
            while position < len(lines) and lines[position].strip() != end:
                body += "\n" + lines[position]
                position += 1
            position += 1
        if match := re.match(r"\s*(\w+)(.*)", body, re.DOTALL):
            yield _Instruction(start + 1, match[1].upper(), match[2])


def _base(text: str, where: str, stages: set[str], arguments: Mapping[str, str | None]) -> Iterator[Finding]:
    words = [word for word in text.split() if not word.startswith("--")]
    image = words[0] if words else ""
    if len(words) == 3 and words[1].upper() == "AS":
        stages.add(words[2].lower())
    if image.lower() in stages or image == "scratch":
        return
    variable = _VARIABLE.match(image)
    if variable and variable[1] in arguments and not _DIGEST.search(image):
        default = arguments[variable[1]]
        # Without a default nothing is built by accident; who builds passes a reference that is checked there.
        if default is None or _DIGEST.search(default):
            return
        image = default or f"${{{variable[1]}}}"
    if not _DIGEST.search(image):
        yield Finding(
            "dockerfile.base",
            f"{where}: the base {shown(image)!r} has no @sha256 digest; its tag can mean another image tomorrow. "
            "Next: pin it, `harness lock` resolves the digest.",
            {"image": image},
        )


def _copied(item: _Instruction, where: str, stages: set[str]) -> Iterator[Finding]:
    source = re.search(r"--from=(\S+)", item.text)
    if source and not (source[1].lower() in stages or source[1].isdigit() or _DIGEST.search(source[1])):
        yield Finding(
            "dockerfile.base",
            f"{where}: --from={source[1]} is no stage and has no @sha256 digest. Next: pin it.",
        )
    if item.keyword == "ADD" and re.search(r"\bhttps?://", item.text) and "--checksum=" not in item.text:
        yield Finding("dockerfile.download", f"{where}: a download without --checksum. Next: add it.")


def _pipes(text: str, where: str, *, pipefail: bool) -> Iterator[Finding]:
    code = "\n".join(line for line in text.splitlines() if not line.lstrip().startswith("#"))
    tee = _TEE.search(code)
    told = _PIPEFAIL.search(code)
    if tee and not pipefail and not (told and told.start() < tee.start()):
        yield Finding(
            "dockerfile.pipefail",
            f"{where}: `| tee` without pipefail: the command's exit status is lost, tee's counts. "
            "Next: `set -o pipefail` before it.",
        )


def _commands(
    text: str, first: int, source: str, locked: Mapping[str, str], *, snapshot: bool
) -> Iterator[Finding]:
    for offset, words in _split(text):
        where = f"{source}:{first + offset}"
        yield from _pip(words, where, locked)
        yield from _apt(words, where, snapshot=snapshot)
        yield from _git(words, text, where)


def _split(text: str) -> Iterator[tuple[int, list[str]]]:
    """Yield the simple commands of a shell text, each with the line (from 0) it starts on."""
    source = io.StringIO(text)
    lexer = shlex.shlex(source, posix=True, punctuation_chars="();<>|&\n")
    lexer.whitespace, lexer.whitespace_split, lexer.commenters = f" \t\r{_CONTINUED}", True, "#"
    words: list[str] = []
    start = 0
    try:
        while (token := lexer.get_token()) is not None:
            if not set(token) <= set("();<>|&\n{}"):
                # The lexer has read one character beyond the word.
                before = text[: max(source.tell() - 1, 0)]
                start = start if words else before.count("\n") + before.count(_CONTINUED)
                words.append(token)
            elif words and not set(token) <= set("<>"):
                yield start, words
                words = []
    except ValueError:
        # An unclosed quote: the shell will refuse it, there is nothing more to read here.
        pass
    if words:
        yield start, words


def _pip(words: Sequence[str], where: str, locked: Mapping[str, str]) -> Iterator[Finding]:
    """Only a hashed lock, or the project itself without its dependencies, is installed in an image."""
    position = next((i for i, word in enumerate(words) if re.search(r"(^|/)pip[\d.]*$", word)), None)
    if position is None or "install" not in words[position + 1 :]:
        return
    arguments = list(words[words.index("install", position) + 1 :])
    targets, files = _targets(arguments)
    if files and "--require-hashes" not in arguments:
        yield Finding(
            "dockerfile.pip",
            f"{where}: pip installs {', '.join(files)} without --require-hashes. Next: add it.",
        )
    for target in targets:
        problem = _unpinned(target, locked)
        if problem:
            yield Finding("dockerfile.pip", f"{where}: {problem}", {"requirement": target})
        elif _local(target) and "--no-deps" not in arguments:
            message = f"{where}: {target} is installed with its dependencies, unpinned. Next: --no-deps, and the lock."
            yield Finding("dockerfile.pip", message)


def _targets(arguments: Sequence[str]) -> tuple[list[str], list[str]]:
    targets: list[str] = []
    files: list[str] = []
    pending = ""
    for word in arguments:
        if pending:
            files += [word] if pending in ("-r", "--requirement") else []
            pending = ""
        elif word in _TAKES_VALUE:
            pending = word
        elif (
            word.startswith(("-r", "--requirement="))
            and word != "-r"
            and not word.startswith("--require-hashes")
        ):
            files.append(word.removeprefix("--requirement=").removeprefix("-r"))
        elif not word.startswith("-"):
            targets.append(word)
    return targets, files


def _local(target: str) -> bool:
    return target.startswith((".", "/", "$")) or target.endswith(".whl")


def _unpinned(target: str, locked: Mapping[str, str]) -> str:
    if _local(target):
        return ""
    if "git+" in target:
        return "" if _COMMIT.search(target) else f"{target} names no commit. Next: add @ and 40 hex digits."
    try:
        requirement = Requirement(target)
    except InvalidRequirement:
        return f"{shown(target)!r} is not a pinned requirement. Next: install the hashed lock."
    name = str(canonicalize_name(requirement.name))
    says = f"; the lock says {locked[name]}" if name in locked else ""
    pins = list(requirement.specifier)
    if not pins:
        return f"{target} has no version{says}. Next: install the hashed lock."
    if len(pins) == 1 and pins[0].operator in ("==", "===") and not pins[0].version.endswith(".*"):
        return f"{target} is installed without hash{says}. Next: install the hashed lock."
    return f"{target} is a range{says}. Next: install the hashed lock."


def _apt(words: Sequence[str], where: str, *, snapshot: bool) -> Iterator[Finding]:
    position = next((i for i, word in enumerate(words) if re.search(r"(^|/)apt(-get)?$", word)), None)
    if position is None or snapshot or "install" not in words[position + 1 :]:
        return
    named = [word for word in words[words.index("install", position) + 1 :] if not word.startswith("-")]
    bare = [word for word in named if "=" not in word and not word.startswith((".", "/"))]
    if bare:
        yield Finding(
            "dockerfile.apt",
            f"{where}: apt installs {', '.join(bare)} without version. Next: name=version, or a dated snapshot.",
            {"packages": bare},
        )


def _git(words: Sequence[str], text: str, where: str) -> Iterator[Finding]:
    if len(words) > 1 and re.search(r"(^|/)git$", words[0]) and "clone" in words and not _COMMIT.search(text):
        address = next((word for word in words if "://" in word or word.startswith("git@")), "a repository")
        yield Finding(
            "dockerfile.git",
            f"{where}: git clones {address} without a commit. Next: a source pin, or check out 40 hex digits.",
        )
