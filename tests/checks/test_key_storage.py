"""Adapters that change their input or lose keys, and names that share storage."""

from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.checks.finding import CheckResult, Verdict
from harness.checks.key_storage import header_dtype
from harness.checks.keys import check_adapter, check_aliases

HEAD, EMBEDDING, NORM = "lm_head.weight", "model.embed_tokens.weight", "model.norm.weight"
KEYS = [EMBEDDING, NORM, HEAD]


def codes(result: CheckResult) -> list[str]:
    return [finding.code for finding in result.findings]


def test_an_adapter_that_leaves_its_input_alone_and_returns_every_key() -> None:
    result = check_adapter(KEYS, KEYS, reversed(KEYS))
    assert result.verdict is Verdict.PASS
    assert result.facts == ("input unchanged and round trip exact for 3 keys",)


def test_an_adapter_that_writes_into_its_input() -> None:
    before = {EMBEDDING: 1, NORM: 2}
    result = check_adapter(before, {**before, HEAD: 1}, before)
    assert codes(result) == ["adapter.input-changed"]
    assert result.findings[0].message.startswith(
        "from_hf() changed its input: +lm_head.weight (aliases model.embed_tokens.weight)"
    )


def test_an_adapter_that_writes_into_its_input_seen_by_names_alone() -> None:
    result = check_adapter([EMBEDDING], [EMBEDDING, HEAD], [EMBEDDING], what="to_hf()")
    assert result.findings[0].message.startswith("to_hf() changed its input: +lm_head.weight.")


def test_an_adapter_that_removes_or_replaces() -> None:
    result = check_adapter({"a": 1, "b": 2}, {"a": 3}, ["a", "b"])
    assert codes(result) == ["adapter.input-changed"]
    assert "-b, a replaced" in result.findings[0].message


def test_a_round_trip_that_renames_the_head() -> None:
    after = [EMBEDDING, NORM, "model.lm_head.weight"]
    result = check_adapter(KEYS, KEYS, after)
    assert codes(result) == ["adapter.round-trip"]
    assert result.findings[0].message.startswith(
        "round trip renamed lm_head.weight to model.lm_head.weight (1 missing, 1 unexpected)"
    )


def test_a_round_trip_that_loses_and_one_that_gains() -> None:
    lost = check_adapter(KEYS, KEYS, KEYS[:2])
    assert "round trip lost lm_head.weight, gained none (1 missing, 0 unexpected)" in lost.findings[0].message
    gained = check_adapter(KEYS[:2], KEYS[:2], KEYS)
    assert (
        "round trip lost none, gained lm_head.weight (0 missing, 1 unexpected)" in gained.findings[0].message
    )


def test_no_key_at_all_is_no_pass() -> None:
    assert codes(check_adapter([], [], [])) == ["adapter.empty"]


@given(st.sets(st.text(max_size=5), min_size=1), st.sets(st.text(max_size=5)), st.sets(st.text(max_size=5)))
def test_an_adapter_passes_only_when_all_three_sets_are_equal(
    before: set[str], after: set[str], result: set[str]
) -> None:
    verdict = check_adapter(before, after, result).verdict
    assert (verdict is Verdict.PASS) == (before == after == result)


def test_names_that_share_storage() -> None:
    result = check_aliases({EMBEDDING: 7, HEAD: 7, NORM: 8})
    assert codes(result) == ["aliases.shared"]
    assert result.findings[0].message == (
        "export would write lm_head.weight and model.embed_tokens.weight from one storage. "
        "Drop lm_head.weight (tied) or clone it."
    )
    result = check_aliases({"a": (1, 0), "b": (1, 0), "c": (2, 0), "d": (2, 0)})
    assert [finding.data["keys"] for finding in result.findings] == [["a", "b"], ["c", "d"]]
    assert "Clone all but one." in result.findings[0].message


def test_names_with_their_own_storage() -> None:
    result = check_aliases({EMBEDDING: 1, HEAD: 2})
    assert result.verdict is Verdict.PASS
    assert result.facts == ("2 tensors, each with its own storage",)
    assert codes(check_aliases({})) == ["aliases.empty"]


@pytest.mark.parametrize(
    ("name", "expected"),
    [("float32", "F32"), ("torch.bfloat16", "BF16"), ("F16", "F16"), ("f32", "F32"), ("odd", "ODD")],
)
def test_dtype_names(name: str, expected: str) -> None:
    assert header_dtype(name) == expected


def test_types_of_identity_do_not_matter() -> None:
    identities: dict[str, Any] = {"a": "x", "b": 1, "c": (1, 2)}
    assert check_aliases(identities).verdict is Verdict.PASS
