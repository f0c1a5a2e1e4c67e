"""Do the rotary buffers hold what config.json says: values against their formula. Pure.

They are in no checkpoint, so keys and weights can all be right while a buffer is uninitialised or
has another base.
"""

import math
import re
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple

from harness.checks.finding import CheckResult, Finding, judge, not_judged
from harness.checks.rotary import Rotary, judge_inv_freq, judge_rows
from harness.checks.wording import counted, few, shown
from harness.model_config import ConfigError, rope_dim, rope_theta, rope_type

__all__ = ["check_buffers"]

_INV_FREQ, _COS_SIN = "inv_freq", "cos_sin"
_FLOAT32_END = 2.0**128
_POSITION = re.compile(r"[0-9]{1,9}")
_LOW_PRECISION = ("float16", "bfloat16")


class _Buffer(NamedTuple):
    """One rank's buffer as recorded."""

    rank: str
    name: str
    record: Mapping[str, Any]

    @property
    def rotary(self) -> bool:
        return self.record.get("kind") in (_INV_FREQ, _COS_SIN)

    @property
    def content(self) -> str:
        """Everything that must be the same on all ranks, as text."""
        return repr([self.record.get(key) for key in ("kind", "dtype", "shape", "values")]) + repr(
            sorted(_rows(self.record).items())
        )

    @property
    def poisoned(self) -> bool:
        """Whether any element is NaN or infinite."""
        lists = (self.record.get("values"), *_rows(self.record).values())
        finite = all(math.isfinite(number) for numbers in lists for number in _numbers(numbers))
        return bool(self.record.get("nan")) or not finite


def check_buffers(records: Sequence[Mapping[str, Any]], config: Mapping[str, Any]) -> CheckResult:
    """Judge the buffers in the start records of all ranks against `config` (a parsed config.json).

    A buffer of kind `inv_freq` has its `values`, one of kind `cos_sin` some `rows` by position, each
    `[cos(dim), sin(dim)]` with the frequencies twice. Every buffer must be free of NaN and the same on
    all ranks. No rotary buffer at all is a failure. Scalings other than "default" are not judged.
    Codes `buffers.config`, `.missing`, `.nan`, `.dtype`, `.shape`, `.first`, `.rope-base`,
    `.inv-freq`, `.cos-sin`, `.rows`, `.ranks-differ`.
    """
    ranks = [shown(record.get("rank", "?")) for record in records]
    buffers = [
        _Buffer(rank, shown(buffer.get("name")), buffer)
        for rank, record in zip(ranks, records, strict=True)
        for buffer in _listed(record.get("buffers"))
        if isinstance(buffer, Mapping)
    ]
    findings = _judge_presence(ranks, buffers) + _judge_poison(buffers) + _judge_agreement(ranks, buffers)
    try:
        rotary, kind = Rotary(rope_theta(config), rope_dim(config)), rope_type(config)
    except ConfigError as error:
        return judge("buffers", [*findings, Finding("buffers.config", str(error), {"key": error.key})], ())
    if kind != "default" and not findings:
        return not_judged(
            "buffers", f"rope_type {kind}: only the default formula is known (buffers are finite)"
        )
    sound = (
        [buffer for buffer in buffers if buffer.rotary and not buffer.poisoned] if kind == "default" else []
    )
    for label, buffer in _grouped(sound):
        findings += _judge_rotary(label, buffer.record, rotary)
    checked = counted(len(sound), "rotary buffer")
    facts = [f"{checked} equal the formula with base {rotary.theta:.12g} and {rotary.dim} elements"]
    return judge("buffers", findings, facts if sound and not findings else ())


def _judge_presence(ranks: Sequence[str], buffers: Sequence[_Buffer]) -> list[Finding]:
    with_rotary = {buffer.rank for buffer in buffers if buffer.rotary}
    without = [rank for rank in ranks if rank not in with_rotary]
    if ranks and not without:
        return []
    where = f"rank {few(without)}" if without else "any rank"
    message = f"no rotary buffer was recorded on {where}: the rotation was not checked. Record buffers after loading."
    return [Finding("buffers.missing", message, {"ranks": without})]


def _judge_poison(buffers: Sequence[_Buffer]) -> list[Finding]:
    findings = []
    for stored in (False, True):
        bad = [
            buffer
            for buffer in buffers
            if buffer.poisoned and bool(buffer.record.get("persistent")) is stored
        ]
        if bad:
            names = list(dict.fromkeys(buffer.name for buffer in bad))
            ranks = sorted({buffer.rank for buffer in bad})
            cause = (
                "holds NaN or infinity"
                if stored
                else "is not stored in the checkpoint and was not rebuilt after loading (still NaN from the poison)"
            )
            message = f"buffer {few(names)} {cause}, rank {few(ranks)}. Initialise the model's buffers after loading."
            findings.append(Finding("buffers.nan", message, {"buffers": names, "ranks": ranks}))
    return findings


def _judge_agreement(ranks: Sequence[str], buffers: Sequence[_Buffer]) -> list[Finding]:
    contents: dict[str, dict[str, list[str]]] = {}
    for buffer in buffers:
        if not buffer.poisoned:
            contents.setdefault(buffer.name, {}).setdefault(buffer.content, []).append(buffer.rank)
    present: dict[str, int] = {}
    for buffer in buffers:
        present[buffer.name] = present.get(buffer.name, 0) + 1
    differing = [name for name, found in contents.items() if len(found) > 1 or present[name] != len(ranks)]
    if not differing:
        return []
    groups = " and ".join("rank " + few(ranks) for ranks in contents[differing[0]].values())
    message = (
        f"{counted(len(differing), 'buffer')} not the same on all ranks: {few(differing)} ({groups}). "
        "Uninitialised memory differs by luck; rebuild the buffers after loading."
    )
    return [Finding("buffers.ranks-differ", message, {"buffers": differing})]


def _grouped(buffers: Sequence[_Buffer]) -> list[tuple[str, _Buffer]]:
    """Return one buffer per content, labelled with all the names and ranks that share it."""
    groups: dict[str, list[_Buffer]] = {}
    for buffer in buffers:
        groups.setdefault(buffer.content, []).append(buffer)
    labelled = []
    for group in groups.values():
        names = list(dict.fromkeys(buffer.name for buffer in group))
        ranks = sorted({buffer.rank for buffer in group})
        labelled.append((f"buffer {few(names, 1)}, rank {few(ranks)}", group[0]))
    return labelled


def _judge_rotary(label: str, record: Mapping[str, Any], rotary: Rotary) -> list[Finding]:
    dtype = str(record.get("dtype")).removeprefix("torch.")
    if dtype in _LOW_PRECISION:
        message = (
            f"{label} is held in {dtype}: positions lose their precision. Keep rotary buffers in float32."
        )
        return [Finding("buffers.dtype", message, {"dtype": dtype})]
    if record.get("kind") == _INV_FREQ:
        return judge_inv_freq(label, _numbers(record.get("values")), rotary)
    rows = {position: _numbers(row) for position, row in _rows(record).items()}
    return judge_rows(label, rows, rotary)


def _rows(record: Mapping[str, Any]) -> dict[int, Any]:
    rows = record.get("rows")
    if not isinstance(rows, Mapping):
        return {}
    return {int(position): row for position, row in rows.items() if _POSITION.fullmatch(str(position))}


def _numbers(values: Any) -> list[float]:
    """Return recorded numbers; what is no number that float32 can hold counts as NaN."""
    return [
        float(value) if type(value) in (int, float) and abs(value) < _FLOAT32_END else math.nan
        for value in _listed(values)
    ]


def _listed(value: Any) -> Sequence[Any]:
    """Return `value` if it is a list, else an empty one: a damaged record has nothing to judge."""
    return value if isinstance(value, list | tuple) else ()
