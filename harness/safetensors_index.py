"""The index of a sharded checkpoint against the shards beside it. Pure: names in, findings out."""

import re
from collections.abc import Mapping, Sequence, Set
from typing import Any

from harness.checks.finding import Finding
from harness.checks.wording import counted, few, shown

__all__ = ["INDEX_NAME", "check_index", "check_no_index", "check_shard_names", "parse_weight_map"]

INDEX_NAME = "model.safetensors.index.json"

_NUMBERED = re.compile(r"-(?P<number>\d{1,9})-of-(?P<total>\d{1,9})\.safetensors$")
_UNMERGED = re.compile(r"shard-\d{5}-model-\d{5}-of-\d{5}\.safetensors$")


def parse_weight_map(document: Mapping[str, Any], label: str) -> tuple[dict[str, str] | None, list[Finding]]:
    """Return the index's map from tensor to shard file, and its defects.

    Entries that are not plain file names (`../x`, `/x`, `sub/x`) are dropped and reported: a shard
    lies beside its index, and a path that leads elsewhere is never opened.
    """
    weight_map = document.get("weight_map")
    if not isinstance(weight_map, dict) or set(map(type, weight_map.values())) != {str}:
        message = f"{label}: weight_map is not a filled object from tensor name to shard file; fetch the index again."
        return None, [Finding("files.index-json", message, {"file": label})]
    paths = sorted(shard for shard in set(weight_map.values()) if not _is_plain(shard))
    if not paths:
        return weight_map, []
    outside = {name for name, shard in weight_map.items() if shard in paths}
    finding = Finding(
        "files.index-path",
        f"{label}: {counted(len(outside), 'tensor')} mapped to {counted(len(paths), 'path')} that is no plain file "
        f"name ({few(paths)}); not opened. Shards must lie beside their index.",
        {"paths": paths, "tensors": sorted(outside)},
    )
    return {name: shard for name, shard in weight_map.items() if name not in outside}, [finding]


def check_index(
    weight_map: Mapping[str, str],
    located: Mapping[str, str],
    on_disk: Sequence[str],
    unreadable: Set[str] = frozenset(),
) -> list[Finding]:
    """Judge an index against the shards: `located` maps each header tensor to its file.

    `located` covers the named files only; `on_disk` are all the folder's safetensors files,
    `unreadable` those whose header has defects of its own: what cannot be said about them is not
    said. The first cause wins: an index that names other files than the folder has is not compared
    tensor by tensor.
    """
    if weight_map == located and set(weight_map.values()) == set(on_disk):
        return []
    named = set(weight_map.values())
    missing, extra = sorted(named - set(on_disk)), sorted(set(on_disk) - named)
    if missing and extra:
        return [_stale(sorted(named), on_disk)]
    if missing:
        return [_missing_files(weight_map, missing, len(named))]
    findings = [_unlisted(extra)] if extra else []
    return findings + _check_tensors(weight_map, located, unreadable)


def check_no_index(shards: Sequence[str], elsewhere: Sequence[str]) -> list[Finding]:
    """Judge a folder without an index: more than one shard, or a numbered one, needs one.

    `elsewhere` says where an index was found instead ("in the parent folder").
    """
    if len(shards) < 2 and not any(_NUMBERED.search(shard) for shard in shards):
        return []
    if all(_UNMERGED.match(shard) for shard in shards):
        message = (
            f"{counted(len(shards), 'file')} like {shown(shards[0])}: torchtitan's shards before they are merged, "
            "each with a part of every tensor. Give the folder above, which holds the merged files."
        )
        return [Finding("files.unmerged", message, {"files": list(shards)})]
    found = f" (found one {' and '.join(elsewhere)})" if elsewhere else ""
    return [
        Finding(
            "files.no-index",
            f"{counted(len(shards), 'shard')} ({few(shards)}) but no {INDEX_NAME} beside them{found}. "
            "Write the index into the same folder.",
            {"files": list(shards), "found_in": list(elsewhere)},
        )
    ]


def check_shard_names(shards: Sequence[str]) -> list[Finding]:
    """Judge that files numbered `...-i-of-N` are all there, whatever an index says."""
    findings = []
    totals: dict[tuple[str, int], set[int]] = {}
    for shard in shards:
        if match := _NUMBERED.search(shard):
            series = (shard[: match.start()], int(match["total"]))
            totals.setdefault(series, set()).add(int(match["number"]))
    for (stem, total), numbers in totals.items():
        if len(numbers) < total:
            absent = [number for number in range(1, min(total, 10_000) + 1) if number not in numbers]
            findings.append(
                Finding(
                    "files.incomplete-set",
                    f"{shown(stem)}: file names say {counted(total, 'shard')}, {len(numbers)} on disk; "
                    f"missing number {few(absent)}. Incomplete download?",
                    {"total": total, "missing": absent},
                )
            )
    return findings


def _is_plain(shard: str) -> bool:
    return shard not in ("", ".", "..") and not any(character in shard for character in "/\\\0")


def _stale(named: Sequence[str], on_disk: Sequence[str]) -> Finding:
    return Finding(
        "files.stale-index",
        f"stale index: it lists {counted(len(named), 'file')} ({few(named, 4)}), the folder has {len(on_disk)} "
        f"({few(on_disk, 4)}). The index does not belong to these files; fetch the matching one.",
        {"index": list(named), "folder": list(on_disk)},
    )


def _missing_files(weight_map: Mapping[str, str], missing: Sequence[str], named: int) -> Finding:
    tensors = {shard: sum(value == shard for value in weight_map.values()) for shard in missing}
    parts = [f"{shown(shard)} ({counted(count, 'tensor')})" for shard, count in tensors.items()]
    verb = "is" if len(missing) == 1 else "are"
    return Finding(
        "files.index-missing-file",
        f"index names {counted(named, 'shard file')}, {len(missing)} {verb} not on disk: {few(parts)}. "
        "Incomplete download?",
        {"files": dict(tensors)},
    )


def _unlisted(extra: Sequence[str]) -> Finding:
    return Finding(
        "files.unlisted-file",
        f"{counted(len(extra), 'safetensors file')} that the index does not name: {few(extra)}. "
        "Some loaders read every file; move it away or fetch the matching index.",
        {"files": list(extra)},
    )


def _check_tensors(
    weight_map: Mapping[str, str], located: Mapping[str, str], unreadable: Set[str]
) -> list[Finding]:
    findings = []
    wrong = {
        name: shard
        for name, shard in weight_map.items()
        if located.get(name) != shard and shard not in unreadable
    }
    if wrong:
        name, shard = next(iter(wrong.items()))
        found = f"found in {shown(located[name])}" if name in located else "found in no shard"
        more = f"; {counted(len(wrong) - 1, 'more tensor')} like it" if len(wrong) > 1 else ""
        findings.append(
            Finding(
                "files.index-wrong-file",
                f"index puts {shown(name)} in {shown(shard)}, whose header does not have it ({found}){more}. "
                "Index and shards do not belong together; fetch both again.",
                {"tensors": {name: [shard, located.get(name)] for name, shard in wrong.items()}},
            )
        )
    absent = [name for name in located if name not in weight_map]
    if absent:
        findings.append(
            Finding(
                "files.not-in-index",
                f"{counted(len(absent), 'tensor')} in the shards but not in the index: {few(absent)}. "
                "A loader that follows the index never reads them.",
                {"tensors": absent},
            )
        )
    return findings
