"""What differs between two stacks: packages with their full versions, base image, variables, layout, profile."""

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from itertools import groupby
from typing import Any, Literal

from harness.lock.requirements import parse_lock, read_requirements
from harness.lock.versions import other_build
from harness.stack import Stack

__all__ = ["Change", "StackDiff", "StackView", "diff_stacks", "diff_views", "text_lines", "view"]

SECTIONS = (
    "stack",
    "base image",
    "packages",
    "sources",
    "indexes",
    "environment",
    "profile",
    "assets",
)
"""In the order they are shown."""
OTHER_BUILD = "same number, other build"


@dataclass(frozen=True, slots=True)
class StackView:
    """A stack as the comparison sees it: section -> key -> value, all of them text.

    `packages` says what the section `packages` is made of: the lock, or the direct pins where there is none.
    """

    name: str
    where: str
    packages: Literal["lock", "pins"]
    sections: Mapping[str, Mapping[str, str]]


@dataclass(frozen=True, slots=True)
class Change:
    """One difference. `before` is empty for what was added, `after` for what was removed."""

    section: str
    key: str
    kind: Literal["added", "removed", "changed"]
    before: str
    after: str
    note: str = ""


@dataclass(frozen=True, slots=True)
class StackDiff:
    """All differences between two stacks, by section, then key."""

    before: str
    after: str
    changes: tuple[Change, ...]
    unchanged: Mapping[str, int]
    """Section -> how many of its keys are the same in both."""
    notes: tuple[str, ...] = ()


def view(stack: Stack, packages: Literal["lock", "pins"] = "lock") -> StackView:
    """Return a stack as sections of keys and values, its packages from the lock or from the direct pins."""
    data = stack.model_dump(mode="json", exclude={"folder", "unresolved", "summary", "name"})
    image = data.pop("base_image") or {}
    sections: dict[str, dict[str, str]] = {
        "base image": _flat(image),
        "packages": _locked(stack) if packages == "lock" else _pinned(stack),
        "sources": _flat(data.pop("sources")),
        "indexes": _flat(data.pop("indexes")),
        "environment": _flat(data.pop("environment")),
        "profile": _flat(data.pop("profile")),
        "assets": _flat(data.pop("assets")),
    }
    sections["stack"] = _flat(data)
    return StackView(stack.name, str(stack.folder), packages, sections)


def _locked(stack: Stack) -> dict[str, str]:
    text = stack.lock.read_text(encoding="utf-8", errors="replace")
    found: dict[str, list[str]] = {}
    for entry in parse_lock(text, str(stack.lock))[0]:
        found.setdefault(entry.name, []).append(entry.version)
    return {name: ", ".join(versions) for name, versions in found.items()}


def _pinned(stack: Stack) -> dict[str, str]:
    wanted = read_requirements(stack.requirements, stack.locked_for)
    return {item.name: item.exact or str(item.specifier) or "any version" for item in wanted}


def _flat(data: Any, prefix: str = "") -> dict[str, str]:
    if isinstance(data, dict):
        flat: dict[str, str] = {}
        for name, value in data.items():
            flat |= _flat(value, f"{prefix}.{name}" if prefix else str(name))
        return flat
    if data is None or data == []:
        return {}
    text = ", ".join(map(str, data)) if isinstance(data, list) else str(data)
    return {prefix: text}


def diff_stacks(before: Stack, after: Stack) -> StackDiff:
    """Return what differs between two stacks.

    Where one of them has no lock, the direct pins of both are compared, and a note says so.
    """
    missing = [stack for stack in (before, after) if not stack.lock.is_file()]
    kind: Literal["lock", "pins"] = "pins" if missing else "lock"
    notes = tuple(
        f"{stack.name} has no lock, so the direct pins are compared. {stack.unresolved_sentence()}".strip()
        for stack in missing
    )
    return diff_views(view(before, kind), view(after, kind), notes)


def diff_views(before: StackView, after: StackView, notes: tuple[str, ...] = ()) -> StackDiff:
    """Return the differences between two views, in the order of `SECTIONS` and then of the keys."""
    changes: list[Change] = []
    unchanged: dict[str, int] = {}
    for section in SECTIONS:
        old, new = before.sections.get(section, {}), after.sections.get(section, {})
        found = [
            _change(section, key, old.get(key), new.get(key))
            for key in sorted(old.keys() | new.keys())
            if old.get(key) != new.get(key)
        ]
        changes += found
        unchanged[section] = len(old.keys() | new.keys()) - len(found)
    same = before.name == after.name
    names = [f"{item.name} ({item.where})" if same else item.name for item in (before, after)]
    return StackDiff(names[0], names[1], tuple(changes), unchanged, notes)


def _change(section: str, key: str, old: str | None, new: str | None) -> Change:
    if old is None:
        return Change(section, key, "added", "", new or "")
    if new is None:
        return Change(section, key, "removed", old, "")
    note = OTHER_BUILD if section == "packages" and other_build(old, new) else ""
    return Change(section, key, "changed", old, new, note)


def text_lines(difference: StackDiff) -> Iterator[str]:
    """Yield a difference as plain lines: `+` added, `-` removed, `~` changed, with the number of equal keys."""
    yield f"{difference.before} -> {difference.after}"
    yield from (f"note: {note}" for note in difference.notes)
    if not difference.changes:
        yield "no difference"
    for section, group in groupby(difference.changes, key=lambda change: change.section):
        changes = list(group)
        same = difference.unchanged.get(section, 0)
        yield f"{section}: {len(changes)} different, {same} the same"
        for change in changes:
            yield f"  {_line(change)}"


def _line(change: Change) -> str:
    if change.kind == "added":
        return f"+ {change.key} {change.after}"
    if change.kind == "removed":
        return f"- {change.key} {change.before}"
    note = f"  ({change.note})" if change.note else ""
    return f"~ {change.key} {change.before} -> {change.after}{note}"
