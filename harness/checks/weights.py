"""Were the weights really loaded: what the model holds against the bytes of the file it claims. Pure.

The loss of the first step plays no part: it can be right by chance and wrong for other reasons.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from harness.checks.finding import CheckResult, Finding, judge
from harness.checks.key_storage import header_dtype
from harness.checks.load import check_fresh_folder, check_load
from harness.checks.parameter_dtypes import check_dtypes, compare_dtypes, dtype_counts
from harness.checks.wording import counted, few, shown
from harness.safetensors_header import BITS

__all__ = [
    "FileDigest",
    "check_dtypes",
    "check_fresh_folder",
    "check_load",
    "check_weights",
    "compare_dtypes",
    "dtype_counts",
]

_HEAD = "lm_head.weight"
_EMBEDDING = "model.embed_tokens.weight"


@dataclass(frozen=True, slots=True)
class FileDigest:
    """A stored tensor: its header dtype and shape, and hex sha256 of its bytes by dtype.

    `sha256` always has the stored dtype; other entries are of the values converted to that dtype.
    """

    dtype: str
    shape: tuple[int, ...]
    sha256: Mapping[str, str]


@dataclass(slots=True)
class _Comparison:
    """Names by what came of comparing them."""

    equal: list[str] = field(default_factory=list)
    different: list[str] = field(default_factory=list)
    absent: list[str] = field(default_factory=list)
    incomparable: list[str] = field(default_factory=list)
    dtypes: set[str] = field(default_factory=set)

    def add(self, name: str, held: Mapping[str, Any], stored: FileDigest) -> None:
        """Compare one tensor and note the outcome."""
        dtype = _common_dtype(held, stored)
        if dtype is None:
            self.incomparable.append(name)
            return
        self.dtypes.add(dtype)
        same_shape = list(held.get("shape", stored.shape)) == list(stored.shape)
        same = same_shape and held["sha256"][dtype] == stored.sha256[dtype]
        (self.equal if same else self.different).append(name)


def check_weights(
    observed: Mapping[str, Any],
    stored: Mapping[str, FileDigest],
    *,
    tied: bool,
    source: str,
    load: Mapping[str, Any] | None = None,
) -> CheckResult:
    """Judge that every tensor the model holds equals the file's bytes.

    `observed` is the record observed/weights.json, `stored` the digests of the checkpoint named
    `source`, `load` the run's load record (judged too when given). A tensor is compared in the
    file's dtype, or in the model's where that is narrower. A tied head may be on either side alone;
    it is then compared with the embedding. Codes `weights.*` and `load.*`.
    """
    findings = list(check_load(load, source=source).findings) if load is not None else []
    tensors = observed.get("tensors") if isinstance(observed, Mapping) else None
    if not isinstance(tensors, Mapping) or not all(_is_record(held) for held in tensors.values()):
        message = "observed/weights.json is missing or malformed: what the model held was not recorded."
        findings.append(Finding("weights.record", message, {}))
        return judge("weights", findings, ())
    comparison, never_stored, facts = _compare(tensors, stored, tied)
    findings += _judge(comparison, source)
    if never_stored:
        message = (
            f"the model holds {counted(len(never_stored), 'tensor')} that {shown(source)} does not have: "
            f"{few(never_stored)}. Nothing was loaded into them."
        )
        findings.append(Finding("weights.not-in-file", message, {"keys": never_stored}))
    if not findings:
        of = len(comparison.equal)
        facts.insert(
            0,
            f"{of} of {of} tensors equal the bytes of {shown(source)} (as {few(sorted(comparison.dtypes))})",
        )
    return judge("weights", findings, facts)


def _compare(
    tensors: Mapping[str, Any], stored: Mapping[str, FileDigest], tied: bool
) -> tuple[_Comparison, list[str], list[str]]:
    """Return the comparison, the names that the file lacks, and facts about the tied head."""
    comparison, facts = _Comparison(), []
    for name in sorted(stored):
        if name in tensors:
            comparison.add(name, tensors[name], stored[name])
        elif tied and name == _HEAD:
            facts.append(f"{_HEAD} is tied: the model holds it as {_EMBEDDING}")
        else:
            comparison.absent.append(name)
    never_stored = sorted(tensors.keys() - stored.keys())
    if tied and _HEAD in never_stored and _EMBEDDING in stored:
        never_stored.remove(_HEAD)
        comparison.add(_HEAD, tensors[_HEAD], stored[_EMBEDDING])
        facts.append(f"{_HEAD} is tied and not stored: compared with {_EMBEDDING}")
    return comparison, never_stored, facts


def _judge(comparison: _Comparison, source: str) -> list[Finding]:
    findings = []
    equal, different, absent = comparison.equal, comparison.different, comparison.absent
    compared = len(equal) + len(different)
    if _HEAD in absent:
        absent = [name for name in absent if name != _HEAD]
        message = f"{shown(source)} has {_HEAD}, the model does not hold it: the output head was dropped."
        findings.append(Finding("weights.head-dropped", message, {"key": _HEAD}))
    if absent:
        message = (
            f"{counted(len(absent), 'tensor')} of {shown(source)} not held by the model: {few(absent)}. "
            "The adapter lost or renamed them."
        )
        findings.append(Finding("weights.not-held", message, {"keys": absent}))
    if comparison.incomparable:
        message = (
            f"{counted(len(comparison.incomparable), 'tensor')} without a digest in a dtype that file and model "
            f"share: {few(comparison.incomparable)}. Record the file's dtype."
        )
        findings.append(Finding("weights.no-digest", message, {"keys": comparison.incomparable}))
    if not compared:
        message = f"no tensor was compared with {shown(source)}: nothing shows that weights were loaded."
        findings.append(Finding("weights.none-compared", message, {}))
    elif different:
        findings.append(_not_equal(equal, different, source))
    return findings


def _not_equal(equal: list[str], different: list[str], source: str) -> Finding:
    """Return one finding: nothing loaded, or only a part.

    Norm weights are ones in many a model before it is trained, so their equality is no sign of a load.
    """
    compared = len(equal) + len(different)
    data = {"equal": equal, "different": different}
    if all("norm" in name for name in equal):
        message = (
            f"{len(different)} of {counted(compared, 'tensor')} differ from {shown(source)} "
            f"(first: {shown(different[0])}){'; only norm weights are equal' if equal else ''}: "
            "the model was not loaded from it. Random weights or another checkpoint."
        )
        return Finding("weights.not-loaded", message, data)
    message = (
        f"only {len(equal)} of {counted(compared, 'tensor')} equal {shown(source)}; different: {few(different, 5)}. "
        "A partial load: the rest is random or from elsewhere."
    )
    return Finding("weights.partial", message, data)


def _common_dtype(held: Mapping[str, Any], stored: FileDigest) -> str | None:
    """Return the dtype to compare in: the file's, or the model's if values were rounded to it."""
    ours = header_dtype(str(held.get("dtype", stored.dtype)))
    narrower = BITS.get(ours, 0) < BITS.get(stored.dtype, 0)
    order = (ours,) if narrower else (stored.dtype, ours)
    return next((dtype for dtype in order if dtype in held["sha256"] and dtype in stored.sha256), None)


def _is_record(held: Any) -> bool:
    return (
        isinstance(held, Mapping)
        and isinstance(held.get("sha256"), Mapping)
        and isinstance(held.get("shape", []), Sequence)
    )
