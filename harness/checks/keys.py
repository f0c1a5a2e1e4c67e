"""Judge a checkpoint's tensors against what the model needs. Pure: headers in, findings out."""

from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from harness.checks.finding import CheckResult, Finding, judge
from harness.checks.key_names import (
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
    held, found, facts = _judge_names(held, needs, allowed)
    findings += found
    needed = {**needs.forms[needs.closest(held)], needs.head: needs.head_shape}
    ours = {name: tensor for name, tensor in held.items() if name in needed}
    findings += _judge_shapes(ours, needed)
    for found, seen in (
        judge_tie(held, needs, head),
        judge_dtypes(ours, files.config, declared_dtype, source),
        _judge_round_trip(held, source, needs) if source else ([], []),
    ):
        findings += found
        facts += seen
    facts.append(f"{files.nbytes} bytes in {counted(len(files.files), 'file')}")
    return judge("keys", findings, [*facts, *files.notes])
