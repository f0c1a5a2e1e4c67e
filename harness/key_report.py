"""Check checkpoint folders from the outside: read headers, compare what must be compared, judge.

The thin layer of reading and writing around the pure checks `keys` and `fresh-folder`.
"""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from harness.checks.finding import CheckResult, Finding, judge
from harness.checks.keys import AllowedKeys, HeadBytes, check_keys, check_without_sizes
from harness.checks.load import check_fresh_folder
from harness.checks.wording import shown
from harness.errors import UserError
from harness.model_needs import ConfigError, ModelNeeds, model_needs, tie_conflicts
from harness.safetensors_files import CheckpointFiles, first_difference, read_checkpoint

__all__ = ["check_folder", "check_fresh_dump_folder", "compare_head"]


def check_folder(
    folder: Path,
    model_folder: Path | None = None,
    *,
    allowed: Sequence[AllowedKeys] = (),
    declared_dtype: str | None = None,
    require_config: bool = True,
) -> CheckResult:
    """Judge the checkpoint in `folder`, as an export of `model_folder` when that is given.

    Reads headers only, and the bytes of a stored tied head. With `model_folder` the export must have
    its keys, the form of its head and, unless `declared_dtype` says otherwise, its dtype.
    `require_config=False` accepts an export without config.json, as torchtitan writes it; the model
    folder's is used then. A config.json that does not say what the model is leaves names and shapes
    not judged, and the verdict with them unless something else is wrong. Never raises: every defect
    is a finding.
    """
    files = read_checkpoint(folder, require_config=require_config)
    source = read_checkpoint(model_folder) if model_folder is not None else None
    config = files.config if files.config is not None else source.config if source is not None else None
    if config is None:
        return judge("keys", files.problems or (_no_config(folder),), ())
    findings = [
        Finding(problem.code, f"model folder: {problem.message}", problem.data)
        for problem in (source.problems if source is not None else ())
    ]
    try:
        needs = model_needs(config)
    except ConfigError as error:
        partial = _tying_only(config)
        head = compare_head(files, partial) if partial is not None else None
        result = check_without_sizes(
            files,
            partial,
            reason=f"{error} Names and shapes were not judged.",
            source=source,
            declared_dtype=declared_dtype,
            head=head,
        )
    else:
        findings += _compare_configs(files.config, source, needs)
        head = compare_head(files, needs)
        result = check_keys(
            files, needs, source=source, allowed=allowed, declared_dtype=declared_dtype, head=head
        )
    return judge("keys", [*findings, *result.findings], result.facts) if findings else result


def compare_head(files: CheckpointFiles, needs: ModelNeeds) -> HeadBytes | None:
    """Return how a tied model's stored head compares with the embedding, None if there is none to compare.

    Both are found under wrapper or prefix faults too, so that such a fault is the only one reported.
    Reads the bytes of both up to the first difference.
    """
    if not needs.tied or needs.head not in "\n".join(files.tensors):
        return None
    ends = (needs.head, needs.embedding.removeprefix("model."))
    head, embedding = ([name for name in files.tensors if name.endswith(end)] for end in ends)
    if len(head) != 1 or len(embedding) != 1:
        return None
    try:
        return HeadBytes(first_difference(files.tensors[head[0]], files.tensors[embedding[0]]))
    except UserError:  # the file's own defect is among its problems
        return None


def check_fresh_dump_folder(
    dump_folder: Path, *, initial_load: str | None = None, load_step: int | None = None
) -> CheckResult:
    """Judge that `dump_folder`/checkpoint, torchtitan's place for checkpoints, is empty or not there.

    See `checks.load.check_fresh_folder` for the options. A folder that cannot be listed is a finding.
    """
    folder = dump_folder / "checkpoint"
    try:
        entries = sorted(os.listdir(folder))  # noqa: PTH208 - names are wanted, not paths
    except FileNotFoundError:
        entries = []
    except OSError as error:
        message = f"{folder} cannot be listed: {error.strerror}. Use a fresh dump folder."
        return judge("fresh-folder", [Finding("fresh-folder.unreadable", message, {})], ())
    return check_fresh_folder(str(folder), entries, initial_load=initial_load, load_step=load_step)


def _no_config(folder: Path) -> Finding:
    message = (
        f"{shown(str(folder))} has no config.json and no model folder was given: nothing to compare with."
    )
    return Finding("keys.config", message, {"key": "model_type"})


def _tying_only(config: Mapping[str, Any]) -> ModelNeeds | None:
    """Return needs of which only the tying is known, None when not even that is."""
    tied = config.get("tie_word_embeddings")
    return (
        ModelNeeds("", {}, None, tied, (), problems=tie_conflicts(config)) if isinstance(tied, bool) else None
    )


def _compare_configs(
    config: Mapping[str, Any] | None, source: CheckpointFiles | None, needs: ModelNeeds
) -> list[Finding]:
    """Find an export's config.json that describes another model than its source's."""
    if config is None or source is None or source.config is None:
        return []
    try:
        before = model_needs(source.config)
    except ConfigError as error:
        return [Finding("keys.config", f"model folder: {error}", {"key": error.key})]
    if before.tied != needs.tied:
        message = (
            f"config.json of the export says tie_word_embeddings={str(needs.tied).lower()}, "
            f"the model folder's {str(before.tied).lower()}. Copy the model folder's."
        )
        return [Finding("keys.config-changed", message, {"key": "tie_word_embeddings"})]
    if before.shapes != needs.shapes:
        differing = [name for name, shape in before.shapes.items() if needs.shapes.get(name) != shape]
        name = differing[0] if differing else next(name for name in needs.shapes if name not in before.shapes)
        message = (
            f"config.json of the export describes another model than the model folder's (first: {name}, "
            f"{needs.shapes.get(name)} against {before.shapes.get(name)}). Copy the model folder's."
        )
        return [Finding("keys.config-changed", message, {"key": name})]
    return []
