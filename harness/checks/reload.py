"""Does an exported checkpoint load again, completely, and give the same logits. Pure."""

import math
from collections.abc import Mapping
from typing import Any

from harness.checks.finding import CheckResult, Finding, judge
from harness.checks.wording import counted, few, shown

__all__ = ["check_reload"]

_LOADERS = {
    "load_state_dict": {"missing": "missing", "unexpected": "unexpected"},
    "from_pretrained": {"missing_keys": "missing", "unexpected_keys": "unexpected"},
}
"""The two ways to load, and what each calls its lists."""


def check_reload(
    record: Mapping[str, Any], *, head: str = "lm_head.weight", tolerance: float = 0.0
) -> CheckResult:
    """Judge the record of loading an export twice, by `load_state_dict` and by `from_pretrained`.

    Nothing may be missing or unexpected but the head of a tied model; no shape mismatch, no error;
    the logits of both must equal the reference's, bit for bit or within `tolerance` (`max_abs_diff` is
    the largest absolute difference of either from the reference). Constant or non-finite logits
    fail: any two broken models agree on those. Codes `reload.record`, `.empty`, `.missing`,
    `.unexpected`, `.mismatched`, `.error`, `.logits-differ`, `.logits-constant`,
    `.logits-not-finite`, `.blind-norms`.
    """
    if not _is_complete(record):
        message = "the reload record is missing or malformed: the export was not loaded again."
        return judge("reload", [Finding("reload.record", message, {})], ())
    findings = []
    if not isinstance(record["tensors"], int) or record["tensors"] < 1:
        message = f"the export holds {shown(record['tensors'])} tensors: nothing was loaded again."
        findings.append(Finding("reload.empty", message, {}))
    allowed = {head} if record["tied"] is True else set()
    for loader, lists in _LOADERS.items():
        findings += _judge_lists(loader, record[loader], lists, allowed)
    findings += _judge_errors(record["from_pretrained"])
    found, fact = _judge_logits(record["logits"], str(record.get("compared_to", "the reference")), tolerance)
    findings += found
    if record.get("norm_weights_constant") is True:
        message = (
            "all norm weights are constant, so the order of norm and rotation cannot be seen in the logits. "
            "Use weights whose norms differ."
        )
        findings.append(Finding("reload.blind-norms", message, {}))
    loaded = (
        f"{counted(record['tensors'], 'tensor')} loaded by load_state_dict and from_pretrained, none missing"
    )
    return judge("reload", findings, [] if findings else [loaded, fact])


def _is_complete(record: Any) -> bool:
    return (
        isinstance(record, Mapping)
        and all(isinstance(record.get(key), Mapping) for key in (*_LOADERS, "logits"))
        and isinstance(record.get("tied"), bool)
        and "tensors" in record
        and all(
            isinstance(record[loader].get(key), list) for loader, keys in _LOADERS.items() for key in keys
        )
        and isinstance(record["from_pretrained"].get("mismatched_keys", []), list)
        and isinstance(record["from_pretrained"].get("error_msgs", []), list | str)
    )


def _judge_lists(
    loader: str, loaded: Mapping[str, Any], lists: Mapping[str, str], allowed: set[str]
) -> list[Finding]:
    findings = []
    for key, kind in lists.items():
        names = sorted(map(shown, loaded[key]))
        if kind == "missing":
            names = [name for name in names if name not in allowed]
        if names:
            effect = "they keep random values" if kind == "missing" else "the model has no place for them"
            message = f"{loader}: {counted(len(names), 'key')} {kind}: {few(names)}; {effect}. Compare the key sets."
            findings.append(Finding(f"reload.{kind}", message, {"loader": loader, "keys": names}))
    return findings


def _judge_errors(loaded: Mapping[str, Any]) -> list[Finding]:
    findings = []
    # Transformers gives triples of name and two shapes.
    mismatched = [
        entry[0] if isinstance(entry, list) and entry else entry
        for entry in loaded.get("mismatched_keys", [])
    ]
    if mismatched:
        keys = counted(len(mismatched), "key")
        message = f"from_pretrained: {keys} of another shape: {few(mismatched)}. Compare config.json."
        findings.append(Finding("reload.mismatched", message, {"keys": [shown(name) for name in mismatched]}))
    reported = loaded.get("error_msgs", [])
    errors = [reported] if isinstance(reported, str) else list(reported)
    errors = [error for error in (*errors, loaded.get("error")) if error]
    if errors:
        findings.append(
            Finding("reload.error", f"from_pretrained reported: {few(errors, 1)}.", {"errors": errors})
        )
    return findings


def _judge_logits(logits: Mapping[str, Any], compared_to: str, tolerance: float) -> tuple[list[Finding], str]:
    digests = {name: logits.get(f"{name}_sha256") for name in ("reference", "state_dict", "from_pretrained")}
    absent = [name for name, digest in digests.items() if not isinstance(digest, str) or not digest]
    if absent:
        message = f"logits of {few(absent)} were not recorded: nothing to compare."
        return [Finding("reload.record", message, {"absent": absent})], ""
    spread, difference = (_number(logits.get(key)) for key in ("std", "max_abs_diff"))
    if not math.isfinite(spread) or not math.isfinite(difference):
        message = (
            f"logits are not finite (std {spread}, max|diff| {difference}): the exported model is broken."
        )
        return [Finding("reload.logits-not-finite", message, {"std": str(spread)})], ""
    if spread <= 0:
        message = f"logits are constant (std {spread:g}): the model does nothing, equality proves nothing."
        return [Finding("reload.logits-constant", message, {"std": spread})], ""
    data = {"max_abs_diff": difference, "tolerance": tolerance, "sha256": digests}
    same = len(set(digests.values())) == 1
    if same and difference != 0:
        message = f"the record contradicts itself: equal digests of logits, but max|diff| {difference:g}."
        return [Finding("reload.record", message, data)], ""
    # Differing digests without a difference mean that another pair was measured than differs.
    if not same and not 0 < difference <= tolerance:
        other = "state_dict" if digests["state_dict"] != digests["reference"] else "from_pretrained"
        message = (
            f"logits of {other} differ from {shown(compared_to)} (max|diff| {difference:g}, allowed {tolerance:g}, "
            f"std {spread:g}). Keys match, so look at config.json (rope, norms, tying) and dtype."
        )
        return [Finding("reload.logits-differ", message, data)], ""
    how = "bit for bit" if same else f"within {tolerance:g} (max|diff| {difference:g})"
    return [], f"logits equal {compared_to} {how} (std {spread:.4g})"


def _number(value: Any) -> float:
    return float(value) if isinstance(value, int | float) and not isinstance(value, bool) else math.nan
