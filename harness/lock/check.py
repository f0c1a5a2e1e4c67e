"""Whether a stack's lock, its direct pins and the record of the resolution agree. No network."""

from collections.abc import Mapping
from dataclasses import dataclass

from packaging.markers import InvalidMarker, Marker
from packaging.version import InvalidVersion, Version

from harness.checks.finding import CheckResult, Finding, judge
from harness.checks.wording import counted
from harness.lock import rules
from harness.lock.record import LockRecord, read_record, requirements_digest, text_digest
from harness.lock.requirements import LockEntry, Wanted, marker_environment, parse_lock, read_requirements
from harness.lock.versions import label, other_build
from harness.pins import OPEN
from harness.stack import Stack

__all__ = ["LockFiles", "check_lock", "judge_lock", "read_lock_files"]


@dataclass(frozen=True, slots=True)
class LockFiles:
    """The three files that must agree. `text` is None without a lock, `record` None without a `lock.json`."""

    wanted: tuple[Wanted, ...]
    text: str | None
    record: LockRecord | None


def read_lock_files(stack: Stack) -> LockFiles:
    """Return the lock files of a stack's folder. Raises `UserError` for a `requirements.in` that is none."""
    wanted = read_requirements(stack.requirements, stack.locked_for)
    text = stack.lock.read_text(encoding="utf-8", errors="replace") if stack.lock.is_file() else None
    return LockFiles(wanted, text, read_record(stack.folder))


def check_lock(stack: Stack) -> CheckResult:
    """Read the lock files of a stack and judge them, see `judge_lock`."""
    return judge_lock(stack, read_lock_files(stack))


def judge_lock(stack: Stack, files: LockFiles) -> CheckResult:
    """Return whether pins, lock and record agree; every difference is a finding.

    Codes: `lock.missing`, `lock.address`, `lock.form`, `lock.hash-missing`, `lock.hash-form`, `lock.twice`,
    `lock.empty`, `lock.absent`, `lock.pin`, `lock.label`, `lock.range`, `lock.placeholder`,
    `lock.no-index-rule`, `lock.source`, `lock.family`, `lock.no-record`, `lock.target`,
    `lock.requirements-changed`, `lock.edited`, `lock.index`, `lock.source-changed`.
    """
    if files.text is None:
        sentence = stack.unresolved_sentence()
        message = f"{stack.lock}: no such file. {sentence or f'Next: harness lock {stack.name}.'}"
        return judge("lock", [Finding("lock.missing", message)], ())
    source = str(stack.lock)
    entries, problems = parse_lock(files.text, source)
    packages, more = _applying(stack, entries, source)
    findings = [
        *problems,
        *more,
        *_pins(stack, files.wanted, packages),
        *_labels(stack, files.wanted, packages, source),
        *rules.judge_pins(files.wanted, stack.indexes, str(stack.requirements), locked=packages),
        *rules.judge_placeholders(packages, source),
        *rules.judge_names(packages, stack.indexes, stack.sources, source),
        *rules.judge_family(packages, source),
        *_record(stack, files, packages),
    ]
    if not entries and not problems:
        findings.append(
            Finding("lock.empty", f"{source}: no package in it. Next: harness lock {stack.name}.")
        )
    return judge("lock", findings, _facts(stack, files, entries, packages))


def _applying(
    stack: Stack, entries: tuple[LockEntry, ...], source: str
) -> tuple[dict[str, str], list[Finding]]:
    """Return name -> version of the entries whose marker holds on the target, and what stands twice."""
    environment = marker_environment(stack.locked_for)
    packages: dict[str, str] = {}
    findings = []
    for entry in entries:
        try:
            if entry.marker and not Marker(entry.marker).evaluate(environment):
                continue
        except InvalidMarker:
            findings.append(
                Finding(
                    "lock.form", f"{source}:{entry.line}: {entry.marker!r} is no marker. Next: lock again."
                )
            )
            continue
        if entry.name in packages:
            findings.append(
                Finding(
                    "lock.twice",
                    f"{source}:{entry.line}: {entry.name} {entry.version} stands beside {packages[entry.name]}. "
                    "Next: lock again.",
                )
            )
        packages.setdefault(entry.name, entry.version)
    return packages, findings


def _pins(stack: Stack, wanted: tuple[Wanted, ...], packages: Mapping[str, str]) -> list[Finding]:
    findings = []
    for item in wanted:
        where = f"{stack.requirements}:{item.line}"
        version = packages.get(item.name)
        if version is None:
            findings.append(
                Finding(
                    "lock.absent",
                    f"{where}: {item.text}, but the lock has no {item.name}. Next: harness lock {stack.name}.",
                    {"package": item.name},
                )
            )
        elif not _accepts(item, version) and not (item.exact and other_build(item.exact, version)):
            findings.append(
                Finding(
                    "lock.pin",
                    f"{where}: {item.text}, but the lock has {item.name} {version}. Next: harness lock {stack.name}.",
                    {"package": item.name, "locked": version},
                )
            )
    return findings


def _accepts(item: Wanted, version: str) -> bool:
    try:
        return item.specifier.contains(Version(version), prereleases=True)
    except InvalidVersion:
        return False


def _labels(
    stack: Stack, wanted: tuple[Wanted, ...], packages: Mapping[str, str], source: str
) -> list[Finding]:
    """A label that nobody asked for: the lock was taken where an index offered another build.

    Packages with an index of their own carry their vendor's build hash as a label; that one belongs there.
    """
    asked = {item.name: item.exact for item in wanted}
    findings = []
    for name, version in sorted(packages.items()):
        if rules.index_of(name, stack.indexes) is not None and not label(asked.get(name) or ""):
            continue
        exact = asked.get(name)
        if (exact is None and label(version)) or (exact is not None and other_build(exact, version)):
            findings.append(
                Finding(
                    "lock.label",
                    f"{source}: the lock has {name} {version}, requirements.in asks for {exact or 'no build label'}. "
                    "Same number, other build: the lock was taken on another platform or from another index. "
                    f"Next: harness lock {stack.name}, or write the label into requirements.in.",
                    {"package": name, "locked": version},
                )
            )
    return findings


def _record(stack: Stack, files: LockFiles, packages: Mapping[str, str]) -> list[Finding]:
    record, again = files.record, f"Next: harness lock {stack.name}."
    if record is None:
        return [
            Finding("lock.no-record", f"{stack.folder}: no lock.json says how the lock was resolved. {again}")
        ]
    where = str(stack.folder / "lock.json")
    findings = []
    target = (stack.locked_for.python, stack.locked_for.platform)
    if (record.python, record.platform) != target:
        findings.append(
            Finding(
                "lock.target",
                f"{where}: resolved for Python {record.python} on {record.platform}, the stack asks for "
                f"Python {target[0]} on {target[1]}. {again}",
            )
        )
    if record.requirements_sha256 != requirements_digest(files.wanted):
        findings.append(
            Finding(
                "lock.requirements-changed",
                f"{stack.requirements} changed since the lock was resolved. {again}",
            )
        )
    if record.lock_sha256 != text_digest(files.text or ""):
        findings.append(
            Finding("lock.edited", f"{stack.lock} is not the file that was resolved; it was edited. {again}")
        )
    return findings + _origins(stack, record, packages) + _sources(stack, record, where)


def _origins(stack: Stack, record: LockRecord, packages: Mapping[str, str]) -> list[Finding]:
    came = {name: index for index, names in record.other_indexes.items() for name in names}
    return [
        Finding(
            "lock.index",
            f"{stack.lock}: {name} {version} came from {_index(came.get(name))}, it may come from "
            f"{_index(rule)} only. Next: harness lock {stack.name}.",
            {"package": name},
        )
        for name, version in sorted(packages.items())
        if (rule := rules.index_of(name, stack.indexes)) != came.get(name)
    ]


def _index(name: str | None) -> str:
    return f"the index `{name}`" if name else "the default index"


def _sources(stack: Stack, record: LockRecord, where: str) -> list[Finding]:
    return [
        Finding(
            "lock.source-changed",
            f"{where}: resolved with {name} at {record.sources.get(name, 'nothing')}, stack.yaml pins {pin.tree}. "
            f"Next: harness lock {stack.name}.",
        )
        for name, pin in sorted(stack.sources.items())
        if pin.tree not in (OPEN, record.sources.get(name))
    ]


def _facts(
    stack: Stack, files: LockFiles, entries: tuple[LockEntry, ...], packages: Mapping[str, str]
) -> list[str]:
    if not entries:
        return []
    hashes = sum(len(entry.hashes) for entry in entries)
    facts = [
        f"{counted(len(packages), 'package')}, {counted(hashes, 'hash') if hashes == 1 else f'{hashes} hashes'}",
        f"{counted(len(files.wanted), 'direct pin')} of requirements.in compared",
    ]
    if files.record:
        facts.append(
            f"resolved {files.record.written} with uv {files.record.uv} for Python {files.record.python} "
            f"on {files.record.platform}"
        )
    cuda = sum(name.startswith("nvidia-") for name in packages)
    if cuda:
        facts.append(f"{cuda} nvidia-* packages come with torch; no stack has a CUDA device, they lie idle")
    facts += [f"{name}: {why}" for name, why in (files.record.held_back if files.record else {}).items()]
    facts += [f"still unresolved: {item.what}" for item in stack.open_pins()]
    return facts
