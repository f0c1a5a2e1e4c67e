"""Judge a checkpoint's tensors against what the model needs. Pure: headers in, findings out."""

from collections.abc import Collection, Mapping, Sequence, Set

from harness.checks.finding import CheckResult, Finding, Verdict, judge
from harness.checks.key_names import (
    WRAPPERS,
    AllowedKeys,
    canonicalise,
    find_prefix_fault,
    likely_renames,
    wrappers_in,
)
from harness.checks.key_storage import HeadBytes, check_adapter, check_aliases, judge_dtypes, judge_tie
from harness.checks.wording import counted, few, shown
from harness.model_needs import ModelNeeds
from harness.safetensors_files import CheckpointFiles
from harness.safetensors_header import Tensor

__all__ = [
    "AllowedKeys",
    "HeadBytes",
    "canonicalise",
    "check_adapter",
    "check_aliases",
    "check_keys",
    "check_without_sizes",
]

Held = dict[str, Tensor]


def check_keys(
    files: CheckpointFiles,
    needs: ModelNeeds,
    *,
    source: CheckpointFiles | None = None,
    allowed: Sequence[AllowedKeys] = (),
    declared_dtype: str | None = None,
    head: HeadBytes | None = None,
) -> CheckResult:
    """Judge names, shapes, dtypes and the tied head of a checkpoint.

    `source` is the checkpoint that training started from: an export must keep its key set and the
    form of its head. `declared_dtype` ("float32" or "F32") is what the export was asked to write.
    `head` compares the stored head with the embedding; without it a stored head of a tied model
    fails, because nobody looked. Findings have codes `keys.*`, the folder's own defects `files.*`.
    """
    findings = [*files.problems, *needs.problems]
    if not files.tensors:
        findings.append(Finding("keys.none", "no tensor could be read, so nothing was compared.", {}))
        return judge("keys", findings, ())
    held, found = _unwrap(files.tensors)
    findings += found
    promised = files.index.keys() if files.index is not None and files.problems else frozenset()
    held, found, facts = _judge_names(held, needs, allowed, promised)
    findings += found
    needed = {**needs.forms[needs.closest(held)], needs.head: needs.head_shape}
    ours = held if held.keys() <= needed.keys() else {name: held[name] for name in needed if name in held}
    findings += _judge_shapes(ours, needed)
    for found, seen in (
        judge_tie(held, needs, head),
        judge_dtypes(ours, files.config, declared_dtype, source),
        _judge_round_trip(held, source, needs, needed) if source is not None else ([], []),
    ):
        findings += found
        facts += seen
    facts.append(f"{files.nbytes} bytes in {counted(len(files.files), 'file')}")
    return judge("keys", findings, [*facts, *files.notes])


def check_without_sizes(
    files: CheckpointFiles,
    partial: ModelNeeds | None,
    *,
    reason: str,
    source: CheckpointFiles | None = None,
    declared_dtype: str | None = None,
    head: HeadBytes | None = None,
) -> CheckResult:
    """Judge what can be judged where config.json does not say which tensors the model needs.

    That is files, wrappers, dtypes, and with `partial` (needs of which only the tying is known) the
    head and the round trip. Never passes: with nothing wrong the verdict is "not judged", with
    `reason`; otherwise `reason` is the last finding, `keys.config`.
    """
    held, found = _unwrap(files.tensors)
    findings = [*files.problems, *(partial.problems if partial is not None else ()), *found]
    facts: list[str] = []
    judged = [judge_dtypes(held, files.config, declared_dtype, source)]
    if partial is not None:
        if held and not partial.tied and partial.head not in held:
            findings += _report_names([partial.head], [], held, {partial.head: ()}, partial.head)
        judged.append(judge_tie(held, partial, head))
        judged += [_judge_round_trip(held, source, partial, {})] if source is not None else []
    for found, seen in judged:
        findings += found
        facts += seen
    if not findings:
        return CheckResult("keys", Verdict.NOT_JUDGED, facts=tuple(facts), reason=reason)
    return judge("keys", [*findings, Finding("keys.config", reason, {})], facts)


def _unwrap(tensors: Mapping[str, Tensor]) -> tuple[Held, list[Finding]]:
    """Return the tensors under their canonical names, and a finding per kind of wrapper."""
    text = "\n".join(tensors)
    if not any(component in text for component in WRAPPERS):
        return dict(tensors), []
    wrapped: dict[str, list[str]] = {}
    held: Held = {}
    doubled = []
    for name, tensor in tensors.items():
        plain = name
        if components := wrappers_in(name):
            plain = canonicalise(name)
            for component in dict.fromkeys(components):
                wrapped.setdefault(component, []).append(name)
        if plain in held:
            doubled.append(sorted((name, held[plain].name)))
        held[plain] = tensor
    findings = [
        Finding(
            "keys.wrapper",
            f'{counted(len(names), "key")} of {len(tensors)} carry wrapper component "{component}" '
            f"(first: {shown(min(names))}). Save the unwrapped module.",
            {"component": component, "keys": sorted(names)},
        )
        for component, names in sorted(wrapped.items())
    ]
    if doubled:
        one, other = min(doubled)
        message = (
            f"{counted(len(doubled), 'key')} stored twice under names that differ only in wrappers: "
            f"{shown(one)} and {shown(other)}. Save the unwrapped module once."
        )
        findings.append(Finding("keys.collision", message, {"keys": sorted(doubled)}))
    return held, findings


def _judge_names(
    held: Held, needs: ModelNeeds, allowed: Sequence[AllowedKeys], promised: Set[str]
) -> tuple[Held, list[Finding], list[str]]:
    """Return the tensors under the names they should have, with findings and facts about the names.

    Names that the index promises but no header has are a fault of the files, reported as such: they
    are not reported as missing once more.
    """
    form = needs.closest(held)
    needed = needs.forms[form]
    optional = {needs.head} if needs.tied else set()
    missing = [] if needed.keys() <= held.keys() else [name for name in needed if name not in held]
    unexpected = sorted(held.keys() - needed.keys() - optional)
    if not missing and not unexpected and not allowed:
        of_form = "" if needs.fused is None else f' (experts in form "{form}")'
        return held, [], [f"all {len(needed)} tensors that config.json asks for are there{of_form}"]
    matched = len(needed) - len(missing)
    missing, unexpected, findings, facts = _apply_allowed(missing, unexpected, allowed)
    renamed, found = _judge_prefix(held, missing, unexpected, {**needed, needs.head: needs.head_shape})
    findings += found
    held = {renamed.get(name, name): tensor for name, tensor in held.items()}
    missing = [name for name in missing if name not in held and name not in promised]
    unexpected = [name for name in unexpected if name in held]
    findings += _report_names(missing, unexpected, held, {**needed, needs.head: needs.head_shape}, needs.head)
    if not findings and not promised:
        facts.insert(0, f"{matched} of {len(needed)} tensors that config.json asks for are there")
    return held, findings, facts


def _judge_prefix(
    held: Held, missing: Sequence[str], unexpected: Sequence[str], needed: Mapping[str, tuple[int, ...]]
) -> tuple[Mapping[str, str], list[Finding]]:
    """Return the names that only a prefix keeps from matching, and one finding for all of them."""
    # A tied head need not be there, but it may be there under a wrong prefix.
    wanted = {name: shape for name, shape in needed.items() if name not in held}
    fault = find_prefix_fault(wanted, {name: held[name].shape for name in unexpected})
    if fault is None:
        return {}, []
    first, right = min(fault.pairs.items())
    solved = set(missing) <= set(fault.pairs.values()) and set(unexpected) == fault.pairs.keys()
    asked = len(missing) + len(held) - len(unexpected)
    message = (
        f"{len(missing)} of {asked} keys missing and {len(unexpected)} unexpected. "
        f"{'All' if solved else f'{len(fault.pairs)} of them'} match after {fault.repair} (first: {shown(first)}, "
        f"expected {shown(right)}). Writer and model disagree on the prefix."
    )
    data = {"remove": fault.remove, "add": fault.add, "keys": dict(fault.pairs)}
    return fault.pairs, [Finding("keys.prefix", message, data)]


def _apply_allowed(
    missing: list[str], unexpected: list[str], allowed: Sequence[AllowedKeys]
) -> tuple[list[str], list[str], list[Finding], list[str]]:
    """Take the allowed keys out of both lists; a rule that matches another number is a finding."""
    sides = {"missing": missing, "unexpected": unexpected}
    findings, facts = [], []
    for rule in allowed:
        matched = rule.matches(sides[rule.side])
        sides[rule.side] = [name for name in sides[rule.side] if name not in matched]
        keys = counted(len(matched), f"{rule.side} key")
        outcome = f"{keys} accepted by allow-list rule {rule.rule} (expected {rule.count})"
        if len(matched) == rule.count:
            facts.append(outcome)
        else:
            message = (
                f"{outcome}: pattern {shown(rule.pattern)}. Correct the rule's count, or the checkpoint."
            )
            findings.append(Finding("keys.allow-count", message, {"keys": matched, "expected": rule.count}))
    return sides["missing"], sides["unexpected"], findings, facts


def _report_names(
    missing: list[str], unexpected: list[str], held: Held, needed: Mapping[str, tuple[int, ...]], head: str
) -> list[Finding]:
    findings = []
    renames = likely_renames({n: needed[n] for n in missing}, {n: held[n].shape for n in unexpected})
    hint = "".join(f"; {shown(other)} looks like {shown(name)} renamed" for name, other in renames.items())
    if head in missing:
        missing = [name for name in missing if name != head]
        message = (
            f"{head} is missing and config.json says tie_word_embeddings=false: the model has no output head{hint}. "
            "Export it, or correct the flag."
        )
        findings.append(Finding("keys.head-missing", message, {"key": head, "renamed": renames}))
    if missing:
        message = f"{counted(len(missing), 'key')} missing: {few(missing)}{hint}. They would start from random values."
        findings.append(Finding("keys.missing", message, {"keys": missing, "renamed": renames}))
    if unexpected:
        message = f"{counted(len(unexpected), 'unexpected key')}: {few(unexpected)}{hint}. The model would drop them."
        findings.append(Finding("keys.unexpected", message, {"keys": unexpected, "renamed": renames}))
    return findings


def _judge_shapes(ours: Held, needed: Mapping[str, tuple[int, ...]]) -> list[Finding]:
    wrong = {
        name: ours[name].shape for name, shape in needed.items() if name in ours and ours[name].shape != shape
    }
    if not wrong:
        return []
    name, shape = next(iter(wrong.items()))
    turned = " (transposed)" if shape == needed[name][::-1] else ""
    others = f"; also {few(list(wrong)[1:])}" if len(wrong) > 1 else ""
    message = (
        f"{counted(len(wrong), 'tensor')} of another shape than config.json says: {shown(name)} is "
        f"{list(shape)}{turned}, expected {list(needed[name])}{others}."
    )
    return [Finding("keys.shape", message, {n: [list(s), list(needed[n])] for n, s in wrong.items()})]


def _judge_round_trip(
    held: Held, source: CheckpointFiles, needs: ModelNeeds, needed: Collection[str]
) -> tuple[list[Finding], list[str]]:
    """Judge that an export has the keys of the checkpoint that it was loaded from, in the same form.

    What is missing or unexpected by the model's `needed` names is reported there and not here again.
    """
    if not source.tensors:
        return [
            Finding("keys.source-empty", f"{shown(str(source.folder))}: no tensor to compare with.", {})
        ], []
    before = {canonicalise(name) for name in source.tensors}
    lost = sorted(before - held.keys())
    gained = sorted(held.keys() - before)
    findings = []
    if needs.tied and (needs.head in lost or needs.head in gained):
        forms = ("explicit copy", "implicit") if needs.head in lost else ("implicit", "explicit copy")
        lost, gained = ([name for name in names if name != needs.head] for names in (lost, gained))
        message = (
            f'the source has its tied head in form "{forms[0]}", the export in form "{forms[1]}". '
            "An export must keep the form that was read."
        )
        findings.append(Finding("keys.form-changed", message, {"source": forms[0], "export": forms[1]}))
    kept = not findings and not lost and not gained
    lost, gained = (
        [name for name in lost if name not in needed],
        [name for name in gained if not needed or name in needed],
    )
    if lost or gained:
        message = f"round trip lost {_listed(lost)} and gained {_listed(gained)}; an export keeps its source's keys."
        findings.append(Finding("keys.round-trip", message, {"lost": lost, "gained": gained}))
    return findings, [] if not kept else [f"round trip kept {counted(len(before), 'key')}"]


def _listed(names: Sequence[str]) -> str:
    return f"{counted(len(names), 'key')} ({few(names)})" if names else "no key"
