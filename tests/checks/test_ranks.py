"""Ranks at the start: different shards, equal replicas, everything finite, everybody there."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.checks.finding import CheckResult, Verdict
from harness.checks.ranks import check_ranks

Q, EMBEDDING, NORM, SMALL, GATE = (
    "layers.0.attention.wq.weight",
    "tok_embeddings.weight",
    "norm.weight",
    "tiny",
    "router",
)


def parameter(
    name: str,
    digest: str,
    shape: list[int],
    local: list[int],
    placements: list[str],
    *,
    constant: bool = False,
) -> dict[str, Any]:
    return {
        "name": name,
        "shape": shape,
        "local_shape": local,
        "dtype": "float32",
        "placements": placements,
        "sha256": digest,
        "finite": True,
        "constant": constant,
    }


def record(rank: int, world_size: int = 2) -> dict[str, Any]:
    rows = 8 // world_size
    return {
        "rank": rank,
        "world_size": world_size,
        "parameters": [
            parameter(Q, f"q{rank}", [8, 4], [rows, 4], ["Shard(0)"]),
            parameter(EMBEDDING, f"e{rank}", [8, 4], [rows, 4], ["Shard(dim=0)"]),
            parameter(NORM, "ones", [8], [rows], ["Shard(0)"], constant=True),
            parameter(SMALL, "empty" if rank else "all", [1], [0 if rank else 1], ["Shard(0)"]),
            parameter(GATE, "same", [4], [4], ["Replicate()"]),
        ],
    }


def records(world_size: int = 2) -> list[dict[str, Any]]:
    return [record(rank, world_size) for rank in range(world_size)]


def codes(result: CheckResult) -> list[str]:
    return [finding.code for finding in result.findings]


@pytest.mark.parametrize("world_size", [2, 4, 8])
def test_a_sound_start_passes_with_numbers(world_size: int) -> None:
    result = check_ranks(records(world_size), world_size=world_size)
    assert result.verdict is Verdict.PASS
    assert result.facts == (f"2 sharded parameters differ and 1 replicated one agree on {world_size} ranks",)


def test_equal_shards_name_parameter_ranks_and_repair() -> None:
    ranks = records()
    ranks[1]["parameters"][0]["sha256"] = "q0"
    result = check_ranks(ranks, world_size=2)
    assert codes(result) == ["ranks.equal-shards"]
    message = result.findings[0].message
    assert "ranks 0 and 1 hold byte-equal shards of 1 of 2 sharded parameters" in message
    assert Q in message
    assert "seed checkpoint" in message


def test_equal_shards_among_four_ranks() -> None:
    ranks = records(4)
    for rank in (1, 3):
        ranks[rank]["parameters"][0]["sha256"] = "same"
    result = check_ranks(ranks, world_size=4)
    assert result.findings[0].data["ranks"] == [1, 3]


def test_replication_over_a_second_dimension_is_no_fault() -> None:
    ranks = records(4)
    for rank, entry in enumerate(ranks):
        for number in (0, 1):
            entry["parameters"][number] |= {
                "placements": ["Replicate()", "Shard(0)"],
                "local_shape": [4, 4],
                "sha256": f"{number}{rank % 2}",
            }
    assert check_ranks(ranks, world_size=4).verdict is Verdict.PASS
    for entry in ranks:
        entry["parameters"][0]["sha256"] = "all equal"
    assert codes(check_ranks(ranks, world_size=4)) == ["ranks.equal-shards"]


def test_constant_and_empty_shards_say_nothing() -> None:
    ranks = records()
    for entry in ranks:
        entry["parameters"] = entry["parameters"][2:]
    assert codes(check_ranks(ranks, world_size=2)) == ["ranks.none-sharded"]


def test_only_replicated_parameters_on_two_ranks_are_no_pass() -> None:
    ranks = records()
    for entry in ranks:
        entry["parameters"] = entry["parameters"][4:]
    assert codes(check_ranks(ranks, world_size=2)) == ["ranks.none-sharded"]


def test_replicas_that_differ() -> None:
    ranks = records()
    ranks[1]["parameters"][4]["sha256"] = "other"
    result = check_ranks(ranks, world_size=2)
    assert codes(result) == ["ranks.replica-differs"]
    assert GATE in result.findings[0].message


@pytest.mark.parametrize("finite", [False, None])
def test_parameters_that_are_not_finite(finite: object) -> None:
    ranks = records()
    ranks[1]["parameters"][0]["finite"] = finite
    result = check_ranks(ranks, world_size=2)
    assert codes(result) == ["ranks.not-finite"]
    assert f"rank 1: 1 parameter not finite before the first step: {Q}" in result.findings[0].message


def test_a_rank_without_a_record() -> None:
    result = check_ranks(records()[:1], world_size=2)
    assert codes(result)[0] == "ranks.rank-missing"
    assert "no start record of rank 1" in result.findings[0].message
    assert codes(check_ranks([], world_size=2)) == ["ranks.rank-missing"]


def test_another_world_size_than_asked() -> None:
    assert "ranks.world-size" in codes(check_ranks(records(4), world_size=2))
    assert "ranks.rank-missing" in codes(check_ranks(records(2), world_size=4))
    assert "ranks.world-size" in codes(check_ranks([record(0), record(0), record(1)], world_size=2))
    lying = records()
    lying[0]["world_size"] = 1
    assert codes(check_ranks(lying, world_size=2)) == ["ranks.world-size"]


def test_one_rank_has_nothing_to_compare() -> None:
    one = record(0, 1)
    assert check_ranks([one], world_size=1).verdict is Verdict.PASS


def test_a_parameter_that_one_rank_lacks() -> None:
    ranks = records()
    del ranks[1]["parameters"][1]
    result = check_ranks(ranks, world_size=2)
    assert codes(result) == ["ranks.parameters-differ"]
    assert f"rank 1 does not hold 1 parameter: {EMBEDDING}" in result.findings[0].message


def test_shards_that_do_not_add_up() -> None:
    ranks = records()
    ranks[1]["parameters"][0]["local_shape"] = [3, 4]
    result = check_ranks(ranks, world_size=2)
    assert codes(result) == ["ranks.coverage"]
    assert f"{Q} has 32 elements, the ranks hold 28" in result.findings[0].message


@pytest.mark.parametrize("key", ["rank", "world_size", "parameters"])
def test_a_malformed_record(key: str) -> None:
    ranks = records()
    del ranks[1][key]
    assert codes(check_ranks(ranks, world_size=2)) == ["ranks.record"]


@pytest.mark.parametrize("key", ["name", "sha256", "shape", "local_shape", "placements"])
def test_a_malformed_parameter(key: str) -> None:
    ranks = records()
    del ranks[1]["parameters"][0][key]
    assert codes(check_ranks(ranks, world_size=2)) == ["ranks.record"]


def test_no_parameter_at_all() -> None:
    ranks = records()
    for entry in ranks:
        entry["parameters"] = []
    assert codes(check_ranks(ranks, world_size=2)) == ["ranks.record"]


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@given(st.sampled_from([*record(0), *record(0)["parameters"][0]]), st.integers(0, 4), JSON)
def test_a_damaged_record_never_raises(key: str, which: int, value: Any) -> None:
    ranks = records()
    (ranks[1] if key in ranks[1] else ranks[1]["parameters"][which])[key] = value
    for finding in check_ranks(ranks, world_size=2).findings:
        assert finding.message.isprintable()


@given(st.permutations(range(4)), st.sets(st.integers(0, 3), min_size=2), st.sampled_from([0, 1]))
def test_any_group_of_equal_shards_is_found_in_any_order(
    order: list[int], equal: set[int], which: int
) -> None:
    ranks = records(4)
    for rank in equal:
        ranks[rank]["parameters"][which]["sha256"] = "drawn alike"
    result = check_ranks([deepcopy(ranks[rank]) for rank in order], world_size=4)
    assert codes(result) == ["ranks.equal-shards"]
    assert set(result.findings[0].data["ranks"]) == equal
