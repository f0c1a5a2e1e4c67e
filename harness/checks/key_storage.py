"""Judge what lies behind the names: a tied head, stored dtypes, shared storage, adapters. Pure."""

from collections import Counter
from collections.abc import Hashable, Iterable, Mapping
from dataclasses import dataclass

from harness.checks.finding import CheckResult, Finding, judge
from harness.checks.key_names import find_prefix_fault
from harness.checks.wording import counted, few, shown
from harness.model_config import ConfigError, config_dtype
from harness.model_needs import ModelNeeds
from harness.safetensors_files import CheckpointFiles
from harness.safetensors_header import Tensor

__all__ = ["HeadBytes", "check_adapter", "check_aliases", "header_dtype", "judge_dtypes", "judge_tie"]

Judged = tuple[list[Finding], list[str]]

_HEADER_DTYPES = {
    "float64": "F64",
    "float32": "F32",
    "float": "F32",
    "float16": "F16",
    "half": "F16",
    "bfloat16": "BF16",
    "float8_e4m3fn": "F8_E4M3",
    "float8_e5m2": "F8_E5M2",
}
_FLOATS = ("F64", "F32", "F16", "BF16", "F8_E4M3", "F8_E5M2", "F8_E4M3FNUZ", "F8_E5M2FNUZ")


@dataclass(frozen=True, slots=True)
class HeadBytes:
    """How the stored head's bytes compare with the embedding's.

    `first_difference` is the position of the first byte that differs, None if all are equal.
    """

    first_difference: int | None


def header_dtype(name: str) -> str:
    """Return the safetensors name of a dtype: "float32", "torch.float32" and "F32" give "F32"."""
    plain = name.removeprefix("torch.")
    return _HEADER_DTYPES.get(plain, plain.upper())


def judge_tie(held: Mapping[str, Tensor], needs: ModelNeeds, head: HeadBytes | None) -> Judged:
    """Judge the output head: say which form a tied one has; differing bytes fail.

    A missing head of an untied model is a missing key and not reported here.
    """
    stored = held.get(needs.head)
    if not needs.tied:
        same = (
            ", bytes equal to the embedding's" if head is not None and head.first_difference is None else ""
        )
        return [], [f"untied, {needs.head} stored{same}"] if stored else []
    if stored is None:
        return [], [f'tied checkpoint, head not stored (form "implicit"), {counted(len(held), "key")}']
    if head is None:
        message = f"{needs.head} is stored in a tied checkpoint, but its bytes were not compared with the embedding's."
        return [Finding("keys.head-not-compared", message, {"key": needs.head})], []
    if head.first_difference is None:
        return [], ['tied checkpoint, head stored (form "explicit copy"), bytes equal']
    embedding = held.get(needs.embedding)
    dtypes = (
        f" ({stored.dtype} against {embedding.dtype})"
        if embedding and embedding.dtype != stored.dtype
        else ""
    )
    message = (
        f"tie_word_embeddings=true but {needs.head} differs from {needs.embedding}{dtypes} "
        f"(first differing byte {head.first_difference}). Either the flag or the file is wrong; decide which."
    )
    return [Finding("keys.head-differs", message, {"first_difference": head.first_difference})], []


def judge_dtypes(
    tensors: Mapping[str, Tensor],
    config: Mapping[str, object] | None,
    declared: str | None,
    source: CheckpointFiles | None,
) -> Judged:
    """Judge the dtypes in the headers: one floating dtype, the declared one, and config.json's.

    Without a declared dtype an export must have the dtype of its `source`.
    """
    if not tensors:
        return [], []
    counts = Counter([tensor.dtype for tensor in tensors.values()])
    findings = _judge_kinds(tensors, counts)
    expected: dict[str, tuple[str, str]] = {}
    if declared is not None:
        expected["keys.declared-dtype"] = ("declared export dtype", declared)
    try:
        if config is not None and (stated := config_dtype(config)) is not None:
            expected["keys.config-dtype"] = ("config.json's dtype", stated)
    except ConfigError as error:
        findings.append(Finding("keys.config-dtype", str(error), {}))
    if declared is None and source is not None and source.tensors:
        before = Counter(tensor.dtype for tensor in source.tensors.values())
        expected["keys.source-dtype"] = ("the source's dtype", before.most_common(1)[0][0])
    for code, (what, dtype) in expected.items():
        others = {found: count for found, count in counts.items() if found != header_dtype(dtype)}
        if others:
            message = (
                f"{what} {shown(dtype)}, headers say {_listed(others)} for {sum(others.values())} of "
                f"{counted(len(tensors), 'tensor')}. Convert the weights or correct the declaration."
            )
            findings.append(Finding(code, message, {"expected": header_dtype(dtype), "found": dict(counts)}))
    agreed = [what for what, _ in expected.values()]
    as_declared = f", as {' and '.join(agreed)}" if agreed else ""
    facts = (
        [] if findings else [f"dtype {_listed(counts)} for {counted(len(tensors), 'tensor')}{as_declared}"]
    )
    return findings, facts


def check_adapter(
    before: Mapping[str, Hashable] | Iterable[str],
    after: Mapping[str, Hashable] | Iterable[str],
    result: Iterable[str],
    *,
    what: str = "from_hf()",
) -> CheckResult:
    """Judge a state-dict adapter: it leaves its input alone and the round trip returns every key.

    `before` and `after` are the Hugging Face dictionary's keys around the conversion, `result` the
    keys that HF -> native -> HF gave. Given as maps from name to storage identity, a replaced or
    aliased value is found too. Codes: `adapter.input-changed`, `adapter.round-trip`.
    """
    old, new = _identities(before), _identities(after)
    added = [name for name in new if name not in old]
    removed = [name for name in old if name not in new]
    replaced = [name for name in new if name in old and new[name] != old[name]]
    findings = []
    if added or removed or replaced:
        parts = [f"+{shown(name)}{_alias(name, new)}" for name in added]
        parts += [f"-{shown(name)}" for name in removed] + [f"{shown(name)} replaced" for name in replaced]
        message = f"{what} changed its input: {few(parts)}. Convert into a dictionary of its own."
        data = {"added": added, "removed": removed, "replaced": replaced}
        findings.append(Finding("adapter.input-changed", message, data))
    returned = dict.fromkeys(result)
    missing, unexpected = [n for n in old if n not in returned], [n for n in returned if n not in old]
    if missing or unexpected:
        fault = find_prefix_fault(dict.fromkeys(missing, ()), dict.fromkeys(unexpected, ()))
        renames = {wanted: name for name, wanted in fault.pairs.items()} if fault else {}
        parts = [f"{shown(wanted)} to {shown(name)}" for wanted, name in renames.items()]
        how = (
            f"renamed {few(parts)}"
            if parts
            else f"lost {few(missing) or 'none'}, gained {few(unexpected) or 'none'}"
        )
        message = f"round trip {how} ({len(missing)} missing, {len(unexpected)} unexpected). It must return every key."
        findings.append(
            Finding("adapter.round-trip", message, {"missing": missing, "unexpected": unexpected})
        )
    facts = (
        [f"input unchanged and round trip exact for {counted(len(old), 'key')}"]
        if old and not findings
        else []
    )
    return judge("adapter", findings, facts)


def check_aliases(storage_ids: Mapping[str, Hashable], *, head: str = "lm_head.weight") -> CheckResult:
    """Judge that no two names of an export share storage; code `aliases.shared`.

    `storage_ids` maps each name to anything that identifies its memory. The safetensors library
    refuses such a dictionary, at the end of training.
    """
    groups: dict[Hashable, list[str]] = {}
    for name, identity in storage_ids.items():
        groups.setdefault(identity, []).append(name)
    findings = []
    for names in groups.values():
        if len(names) > 1:
            advice = f"Drop {head} (tied) or clone it." if head in names else "Clone all but one."
            message = (
                f"export would write {' and '.join(map(shown, sorted(names)))} from one storage. {advice}"
            )
            findings.append(Finding("aliases.shared", message, {"keys": sorted(names)}))
    facts = (
        [f"{counted(len(storage_ids), 'tensor')}, each with its own storage"]
        if storage_ids and not findings
        else []
    )
    return judge("aliases", findings, facts)


def _judge_kinds(tensors: Mapping[str, Tensor], counts: Counter[str]) -> list[Finding]:
    findings = []
    if not counts.keys() <= set(_FLOATS):
        odd = sorted(name for name, tensor in tensors.items() if tensor.dtype not in _FLOATS)
        message = (
            f"{counted(len(odd), 'weight')} not in a floating dtype: {few(odd)} ({tensors[odd[0]].dtype}). "
            "Quantised or damaged; export floating weights."
        )
        findings.append(Finding("keys.dtype", message, {"keys": odd}))
    floats = {dtype: count for dtype, count in counts.items() if dtype in _FLOATS}
    if len(floats) > 1:
        usual = max(floats, key=lambda dtype: (floats[dtype], dtype))
        minority = floats.keys() - {usual}
        others = sorted(name for name, tensor in tensors.items() if tensor.dtype in minority)
        message = (
            f"mixed dtypes: {_listed(floats)}; not {usual}: {few(others)}. Export every tensor in one dtype."
        )
        findings.append(Finding("keys.mixed-dtype", message, {"counts": floats, "keys": others}))
    return findings


def _identities(names: Mapping[str, Hashable] | Iterable[str]) -> Mapping[str, Hashable]:
    return names if isinstance(names, Mapping) else dict.fromkeys(names)


def _alias(name: str, identities: Mapping[str, Hashable]) -> str:
    """Say whose storage `name` has as well, if anybody's."""
    mine = identities[name]
    others = [other for other, identity in identities.items() if other != name and identity == mine]
    return f" (aliases {shown(others[0])})" if mine is not None and others else ""


def _listed(counts: Mapping[str, int]) -> str:
    if len(counts) == 1:
        return shown(next(iter(counts)))
    return ", ".join(f"{shown(dtype)} x {count}" for dtype, count in sorted(counts.items()))
