"""Do the ranks hold what they should at the start: different shards, equal replicas. Pure.

Random initialisation of sharded tensors gives every rank the same shard on a CPU mesh: the run looks
well and trains another model than one rank would.
"""

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from math import prod
from typing import Any

from harness.checks.finding import CheckResult, Finding, judge
from harness.checks.wording import counted, few, shown

__all__ = ["check_ranks"]

_REPAIR = (
    "Make a seed checkpoint with one rank (checkpoint.create_seed_checkpoint) and start from it "
    "(checkpoint.initial_load_path)."
)


@dataclass(frozen=True, slots=True)
class _Local:
    """What one rank holds of a parameter."""

    rank: int
    elements: int
    digest: str
    sharded: bool
    constant: bool


def check_ranks(records: Sequence[Mapping[str, Any]], *, world_size: int) -> CheckResult:
    """Judge the start records of all ranks (observed/start-rank<r>.json) against each other.

    No two ranks hold byte-equal shards of a sharded parameter; empty shards and those marked
    `constant` (norm weights that start as ones) say nothing and are left out. Replicated parameters
    are equal on all ranks, everything is finite, every rank is there. Codes `ranks.world-size`,
    `.rank-missing`, `.record`, `.parameters-differ`, `.not-finite`, `.equal-shards`,
    `.replica-differs`, `.coverage`, `.none-sharded`.
    """
    findings = _judge_world(records, world_size)
    if any(finding.code == "ranks.record" for finding in findings) or not records:
        return judge("ranks", findings, ())
    names = sorted({parameter["name"] for record in records for parameter in record["parameters"]})
    if not names:
        findings.append(Finding("ranks.record", "no parameter was recorded on any rank.", {}))
        return judge("ranks", findings, ())
    findings += _judge_presence(records, names)
    findings += _judge_finite(records)
    found, facts = _judge_parameters(records, names, world_size)
    return judge("ranks", findings + found, facts)


def _judge_world(records: Sequence[Mapping[str, Any]], world_size: int) -> list[Finding]:
    if not all(_is_record(record) for record in records):
        return [Finding("ranks.record", "a rank's start record is malformed: it cannot be compared.", {})]
    findings = []
    ranks = [record["rank"] for record in records]
    absent = sorted(set(range(world_size)) - set(ranks))
    if absent:
        message = (
            f"no start record of rank {few(absent)}; {world_size} ranks were asked for. See the rank's log."
        )
        findings.append(Finding("ranks.rank-missing", message, {"missing": absent, "found": sorted(ranks)}))
    surplus = sorted(rank for rank in set(ranks) if rank not in range(world_size) or ranks.count(rank) > 1)
    other = sorted({record["world_size"] for record in records} - {world_size})
    if surplus or other:
        message = (
            f"asked for {world_size} ranks, but the records say world size {few(other) or world_size} "
            f"with ranks {few(sorted(ranks), 8)}. Records of another run in the folder?"
        )
        findings.append(Finding("ranks.world-size", message, {"asked": world_size, "ranks": sorted(ranks)}))
    return findings


def _judge_presence(records: Sequence[Mapping[str, Any]], names: Sequence[str]) -> list[Finding]:
    findings = []
    for record in records:
        absent = sorted(set(names) - {parameter["name"] for parameter in record["parameters"]})
        if absent:
            message = (
                f"rank {record['rank']} does not hold {counted(len(absent), 'parameter')}: {few(absent)}."
            )
            findings.append(
                Finding("ranks.parameters-differ", message, {"rank": record["rank"], "keys": absent})
            )
    return findings


def _judge_finite(records: Sequence[Mapping[str, Any]]) -> list[Finding]:
    findings = []
    for record in records:
        bad = sorted(
            parameter["name"] for parameter in record["parameters"] if parameter.get("finite") is not True
        )
        if bad:
            message = (
                f"rank {record['rank']}: {counted(len(bad), 'parameter')} not finite before the first step: "
                f"{few(bad)}. Uninitialised memory, or a damaged checkpoint."
            )
            findings.append(Finding("ranks.not-finite", message, {"rank": record["rank"], "keys": bad}))
    return findings


def _judge_parameters(
    records: Sequence[Mapping[str, Any]], names: Sequence[str], world_size: int
) -> tuple[list[Finding], list[str]]:
    equal: dict[tuple[int, ...], list[str]] = {}
    unequal, uncovered = [], []
    compared = replicated = 0
    for name in names:
        elements, pieces = _pieces(records, name)
        if not any(piece.sharded for piece in pieces):
            replicated += 1
            unequal += [name] if len({piece.digest for piece in pieces}) > 1 else []
            continue
        held = sum(piece.elements for piece in pieces)
        if elements and held % elements and len(pieces) == world_size:
            uncovered.append((name, held, elements))
        telling = [piece for piece in pieces if piece.elements and not piece.constant]
        compared += len(telling) > 1
        for ranks in _equal_groups(telling, copies=max(1, held // max(1, elements))):
            equal.setdefault(ranks, []).append(name)
    findings = [_equal_shards(ranks, found, compared) for ranks, found in sorted(equal.items())]
    if unequal:
        message = (
            f"{counted(len(unequal), 'replicated parameter')} of {replicated} differ between ranks: {few(unequal)}. "
            f"Each rank initialised its own. {_REPAIR}"
        )
        findings.append(Finding("ranks.replica-differs", message, {"keys": unequal}))
    if uncovered:
        name, held, elements = uncovered[0]
        message = (
            f"the shards of {counted(len(uncovered), 'parameter')} do not add up: {shown(name)} has {elements} "
            f"elements, the ranks hold {held} in all. A shard is lost or loaded to the wrong place."
        )
        findings.append(Finding("ranks.coverage", message, {"keys": [entry[0] for entry in uncovered]}))
    if world_size > 1 and not compared:
        message = f"{world_size} ranks, but no sharded parameter to compare: nothing shows how the model is laid out."
        findings.append(Finding("ranks.none-sharded", message, {}))
    if world_size == 1:
        return findings, ["one rank, which holds every parameter whole"]
    differ, agree = counted(compared, "sharded parameter"), counted(replicated, "replicated one")
    return findings, [f"{differ} differ and {agree} agree on {world_size} ranks"]


def _equal_groups(pieces: Sequence[_Local], copies: int) -> list[tuple[int, ...]]:
    """Return the groups of ranks with equal bytes that are larger than the layout's `copies`.

    With replication over a second mesh dimension every shard is held by `copies` ranks on purpose.
    """
    groups: dict[str, list[int]] = {}
    for piece in pieces:
        groups.setdefault(piece.digest, []).append(piece.rank)
    return [tuple(sorted(ranks)) for ranks in groups.values() if len(ranks) > copies]


def _equal_shards(ranks: tuple[int, ...], names: Sequence[str], compared: int) -> Finding:
    numbers = " and ".join(map(str, ranks)) if len(ranks) == 2 else few(ranks, 8)
    message = (
        f"ranks {numbers} hold byte-equal shards of {len(names)} of {counted(compared, 'sharded parameter')} "
        f"(first: {shown(names[0])}): every rank drew the same random numbers. {_REPAIR}"
    )
    return Finding("ranks.equal-shards", message, {"ranks": list(ranks), "keys": list(names)})


def _pieces(records: Sequence[Mapping[str, Any]], name: str) -> tuple[int, list[_Local]]:
    """Return a parameter's number of elements, and what each rank holds of it."""
    elements, pieces = 0, []
    for record in records:
        for parameter in record["parameters"]:
            if parameter["name"] == name:
                elements = max(elements, prod(parameter["shape"]))
                pieces.append(
                    _Local(
                        record["rank"],
                        prod(parameter["local_shape"]),
                        parameter["sha256"],
                        any("Shard" in str(placement) for placement in parameter["placements"]),
                        parameter.get("constant") is True,
                    )
                )
    return elements, pieces


def _is_record(record: Any) -> bool:
    return (
        isinstance(record, Mapping)
        and all(type(record.get(key)) is int for key in ("rank", "world_size"))
        and isinstance(record.get("parameters"), list)
        and all(_is_parameter(parameter) for parameter in record["parameters"])
    )


def _is_parameter(parameter: Any) -> bool:
    return (
        isinstance(parameter, Mapping)
        and all(isinstance(parameter.get(key), str) for key in ("name", "sha256"))
        and all(isinstance(parameter.get(key), list) for key in ("shape", "local_shape", "placements"))
        and all(type(length) is int for key in ("shape", "local_shape") for length in parameter[key])
    )
