"""`harness lock`: resolves every pin of a stack that can be resolved from here, and writes it down.

Four parts, in this order because the later ones read the earlier: source pins, the Hub's revisions,
packages, the base image. What cannot be reached stays unresolved and is said; nothing is ever guessed.
A pin that is there is kept, unless an upgrade is asked for.
"""

import datetime
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Literal

from harness.errors import InfrastructureError, UserError
from harness.lock import rules
from harness.lock.check import LockFiles, judge_lock
from harness.lock.hub import read_commit
from harness.lock.record import (
    RECORD_NAME,
    LockRecord,
    read_record,
    record_text,
    requirements_digest,
    text_digest,
)
from harness.lock.registry import read_digest
from harness.lock.requirements import Wanted, parse_lock, read_requirements
from harness.lock.resolve import Resolution, resolve
from harness.lock.sources import declared_requirements, read_ref, tree_digest, verified_tree
from harness.lock.stackfile import set_values, write_text
from harness.pins import OPEN, SourcePin
from harness.stack import HubAssets, Stack, load_stack

__all__ = ["PARTS", "LockReport", "Part", "PartReport", "lock_stack"]

Part = Literal["sources", "assets", "packages", "image"]
PARTS: tuple[Part, ...] = ("sources", "assets", "packages", "image")
Say = Callable[[str], None]


@dataclass(frozen=True, slots=True)
class PartReport:
    """What became of one pin, or of the packages as a whole."""

    part: Part
    state: Literal["kept", "resolved", "moved", "unreachable"]
    text: str


@dataclass(frozen=True, slots=True)
class LockReport:
    """What `lock_stack` did, part by part."""

    stack: str
    parts: tuple[PartReport, ...]

    @property
    def exit_code(self) -> int:
        """0 if every part was seen to, 3 if one could not be reached from here."""
        return 3 if any(report.state == "unreachable" for report in self.parts) else 0


def lock_stack(
    root: Path,
    name: str,
    *,
    upgrade: bool = False,
    parts: Sequence[Part] = PARTS,
    say: Say = lambda _: None,
) -> LockReport:
    """Resolve the pins of stack `name` and write them into its folder.

    With `upgrade` every pin moves to what its tag, branch or range means today. Raises `UserError` for what
    must not be locked (a placeholder, a range, a moved tag, pins that contradict each other): the lock file
    is then as it was.
    """
    works: Mapping[Part, Callable[[Stack, bool, Say], Iterator[PartReport]]] = {
        "sources": _sources,
        "assets": _assets,
        "packages": _packages,
        "image": _image,
    }
    reports: list[PartReport] = []
    for part in PARTS:
        if part in parts:
            reports += works[part](load_stack(root, name), upgrade, say)
    return LockReport(name, tuple(reports))


def _unreachable(
    stack: Stack, part: Part, what: str, error: InfrastructureError, *, is_open: bool
) -> PartReport:
    stays = "stays unresolved" if is_open else "stays as it was"
    reason = " ".join(str(error).split()).rstrip(".")
    following = f"Next: `harness lock {stack.name}` on a machine that reaches it."
    return PartReport(part, "unreachable", f"{what} {stays}: {reason}. {following}")


def _write(stack: Stack, values: Mapping[str, str]) -> None:
    set_values(stack.folder / "stack.yaml", values)


def _sources(stack: Stack, upgrade: bool, say: Say) -> Iterator[PartReport]:
    for name, pin in stack.sources.items():
        try:
            yield _source(stack, name, pin, upgrade, say)
        except InfrastructureError as error:
            yield _unreachable(stack, "sources", name, error, is_open=not pin.resolved)


def _source(stack: Stack, name: str, pin: SourcePin, upgrade: bool, say: Say) -> PartReport:
    if pin.resolved and not upgrade:
        verified_tree(name, pin, say=say)
        return PartReport("sources", "kept", f"{name} {pin.version} at {pin.commit}, its files as pinned")
    commit = pin.commit
    if commit == OPEN or upgrade:
        now = read_ref(pin.repository, pin.ref)
        if now is None:
            raise UserError(
                f"{name}: {pin.repository} has no tag or branch {pin.ref}. Next: correct `sources.{name}.ref` in "
                f"{stack.folder / 'stack.yaml'}."
            )
        commit = now.commit
    tree = tree_digest(verified_tree(name, pin.model_copy(update={"commit": commit, "tree": OPEN}), say=say))
    _write(stack, {f"sources.{name}.commit": commit, f"sources.{name}.tree": tree})
    if (commit, tree) == (pin.commit, pin.tree):
        return PartReport("sources", "kept", f"{name} {pin.version} at {commit}, {pin.ref} has not moved")
    if pin.commit == OPEN:
        return PartReport("sources", "resolved", f"{name} {pin.version}: {pin.ref} is {commit}, files {tree}")
    return PartReport("sources", "moved", f"{name} {pin.version}: {pin.ref} was {pin.commit}, is {commit}")


def _assets(stack: Stack, upgrade: bool, say: Say) -> Iterator[PartReport]:
    if not isinstance(stack.assets, HubAssets):
        return
    for role, model in stack.assets.models.items():
        if model.revision != OPEN and not upgrade:
            yield PartReport("assets", "kept", f"{role}: {model.repo} at {model.revision}")
            continue
        say(f"asking the Hub for {model.repo}")
        try:
            commit = read_commit(model.repo)
        except InfrastructureError as error:
            yield _unreachable(stack, "assets", role, error, is_open=model.revision == OPEN)
            continue
        _write(stack, {f"assets.models.{role}.revision": commit})
        state: Literal["kept", "moved", "resolved"] = "resolved"
        if model.revision != OPEN:
            state = "kept" if model.revision == commit else "moved"
        yield PartReport("assets", state, f"{role}: {model.repo} at {commit}")


def _packages(stack: Stack, upgrade: bool, say: Say) -> Iterator[PartReport]:
    wanted = read_requirements(stack.requirements, stack.locked_for)
    open_sources = [name for name, pin in stack.sources.items() if not pin.resolved]
    if open_sources:
        error = InfrastructureError(
            f"what {', '.join(open_sources)} needs is read from its files, not here yet"
        )
        yield _unreachable(stack, "packages", "requirements.lock", error, is_open=not stack.lock.is_file())
        return
    present = stack.lock.read_text(encoding="utf-8", errors="replace") if stack.lock.is_file() else None
    keep = {} if upgrade or present is None else _versions(present)
    try:
        more = [
            line
            for name, pin in stack.sources.items()
            for line in declared_requirements(verified_tree(name, pin, say=say), pin)
        ]
        say(f"resolving {len(wanted) + len(more)} requirements of stack {stack.name}")
        resolution = resolve(stack, wanted, more=more, keep=keep)
    except InfrastructureError as error:
        yield _unreachable(stack, "packages", "requirements.lock", error, is_open=present is None)
        return
    except UserError as error:
        # Where a range led to it, the range is what there is to mend.
        _require_exact(stack, wanted, {}, {item.name: str(error) for item in wanted})
        raise
    _require_exact(stack, wanted, resolution.packages, resolution.held_back)
    record = _record(stack, wanted, resolution)
    _require_clean(stack, LockFiles(wanted, resolution.text, record))
    write_text(stack.lock, resolution.text)
    write_text(stack.folder / RECORD_NAME, record_text(record))
    yield _package_report(present, resolution)


def _versions(text: str) -> dict[str, str]:
    return {entry.name: entry.version for entry in parse_lock(text, "")[0]}


def _require_exact(
    stack: Stack, wanted: Sequence[Wanted], locked: Mapping[str, str], reasons: Mapping[str, str]
) -> None:
    findings = rules.judge_pins(
        wanted, stack.indexes, str(stack.requirements), locked=locked, reasons=reasons
    )
    if findings:
        raise UserError("\n".join(finding.message for finding in findings))


def _require_clean(stack: Stack, files: LockFiles) -> None:
    """What `--check` would not accept is not written."""
    findings = judge_lock(stack, files).findings
    if findings:
        raise UserError(
            f"{stack.lock} was left as it was; the resolved one is not acceptable:\n"
            + "\n".join(f"  {finding.code}: {finding.message}" for finding in findings)
        )


def _record(stack: Stack, wanted: Sequence[Wanted], resolution: Resolution) -> LockRecord:
    others: dict[str, list[str]] = {}
    for name, index in sorted(resolution.origins.items()):
        if index is not None:
            others.setdefault(index, []).append(name)
    record = LockRecord(
        stack=stack.name,
        written=datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        uv=resolution.uv,
        python=stack.locked_for.python,
        platform=stack.locked_for.platform,
        requirements_sha256=requirements_digest(wanted),
        lock_sha256=text_digest(resolution.text),
        sources={name: pin.tree for name, pin in sorted(stack.sources.items())},
        default_index=sum(index is None for index in resolution.origins.values()),
        other_indexes={index: tuple(names) for index, names in others.items()},
        held_back=dict(sorted(resolution.held_back.items())),
    )
    former = read_record(stack.folder)
    # The same lock from the same inputs is the same record: its date is that of the resolution that changed it.
    if former and former.model_copy(update={"written": "", "uv": ""}) == record.model_copy(
        update={"written": "", "uv": ""}
    ):
        return former
    return record


def _package_report(present: str | None, resolution: Resolution) -> PartReport:
    count = f"{len(resolution.packages)} packages"
    if present is None:
        return PartReport("packages", "resolved", count)
    if present == resolution.text:
        return PartReport("packages", "kept", f"{count}, byte for byte the same lock")
    before, now = _versions(present), resolution.packages
    changed = [
        f"{name} {before.get(name, 'new')} -> {now.get(name, 'gone')}"
        for name in sorted(before.keys() | now.keys())
        if before.get(name) != now.get(name)
    ]
    return PartReport(
        "packages", "moved", f"{count}; {', '.join(changed) or 'the same versions, other hashes'}"
    )


def _image(stack: Stack, upgrade: bool, say: Say) -> Iterator[PartReport]:
    image = stack.base_image
    if image is None:
        return
    if image.digest != OPEN and not upgrade:
        yield PartReport("image", "kept", image.reference)
        return
    tagged = f"{image.repository}:{image.tag}"
    say(f"asking the registry for {tagged}")
    try:
        digest = read_digest(image.repository, image.tag)
    except InfrastructureError as error:
        yield _unreachable(stack, "image", tagged, error, is_open=image.digest == OPEN)
        return
    if digest is None:
        raise UserError(
            f"the registry has no {tagged}. Next: correct `base_image` in {stack.folder / 'stack.yaml'}."
        )
    _write(stack, {"base_image.digest": digest})
    state: Literal["kept", "moved", "resolved"] = "resolved"
    if image.digest != OPEN:
        state = "kept" if image.digest == digest else "moved"
    yield PartReport("image", state, f"{tagged}@{digest}")
