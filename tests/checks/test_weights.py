"""Weights really loaded: digests of what the model holds against the file's."""

from collections.abc import Mapping
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.checks.finding import CheckResult, Verdict
from harness.checks.weights import FileDigest, check_weights

HEAD, EMBEDDING = "lm_head.weight", "model.embed_tokens.weight"
NAMES = [
    EMBEDDING,
    "model.layers.0.self_attn.q_proj.weight",
    "model.layers.0.self_attn.q_norm.weight",
    "model.norm.weight",
]
SOURCE = "/models/qwen3-tiny"
LOADED = {"requested": True, "loaded": True, "source": SOURCE, "format": "hf"}


def stored(names: list[str] = NAMES, dtype: str = "F32", **more: str) -> dict[str, FileDigest]:
    return {name: FileDigest(dtype, (4, 2), {dtype: f"{name}-{dtype}", **more}) for name in names}


def held(names: list[str] = NAMES, dtype: str = "float32") -> dict[str, Any]:
    tensors = {
        name: {"shape": [4, 2], "dtype": dtype, "sha256": {"F32": f"{name}-F32", "BF16": f"{name}-BF16"}}
        for name in names
    }
    return {"tensors": tensors, "adapter": "Qwen3StateDictAdapter"}


def randomise(observed: dict[str, Any], *names: str) -> dict[str, Any]:
    for name in names:
        observed["tensors"][name]["sha256"] = {"F32": "random", "BF16": "random"}
    return observed


def check(
    observed: Mapping[str, Any], files: Mapping[str, FileDigest], *, tied: bool = False, **more: Any
) -> CheckResult:
    return check_weights(observed, files, tied=tied, source=SOURCE, **more)


def codes(result: CheckResult) -> list[str]:
    return [finding.code for finding in result.findings]


def test_equal_weights_pass_with_their_number() -> None:
    result = check(held(), stored(), load=LOADED)
    assert result.verdict is Verdict.PASS
    assert result.facts == (f"4 of 4 tensors equal the bytes of {SOURCE} (as F32)",)


def test_the_digest_of_the_files_dtype_is_compared() -> None:
    result = check(held(), stored(dtype="BF16", F32="another"))
    assert result.verdict is Verdict.PASS
    assert "(as BF16)" in result.facts[0]


def test_a_model_in_a_narrower_dtype_is_compared_in_that_dtype() -> None:
    observed = randomise(held(dtype="bfloat16"))
    for name in NAMES:
        observed["tensors"][name]["sha256"]["F32"] = "rounded"
    files = {
        name: FileDigest("F32", (4, 2), {"F32": f"{name}-F32", "BF16": f"{name}-BF16"}) for name in NAMES
    }
    assert check(observed, files).verdict is Verdict.PASS
    assert codes(check(observed, stored())) == ["weights.no-digest", "weights.none-compared"]


def test_a_float16_file_is_compared_after_conversion() -> None:
    files = {name: FileDigest("F16", (4, 2), {"F16": "x", "F32": f"{name}-F32"}) for name in NAMES}
    assert check(held(), files).verdict is Verdict.PASS


def test_random_weights_are_not_loaded() -> None:
    result = check(randomise(held(), *NAMES), stored())
    assert codes(result) == ["weights.not-loaded"]
    assert f"4 of 4 tensors differ from {SOURCE}" in result.findings[0].message


def test_norm_weights_of_ones_are_no_sign_of_a_load() -> None:
    result = check(randomise(held(), *NAMES[:2]), stored())
    assert codes(result) == ["weights.not-loaded"]
    assert "only norm weights are equal" in result.findings[0].message


def test_a_partial_load_lists_what_differs() -> None:
    result = check(randomise(held(), NAMES[1]), stored())
    assert codes(result) == ["weights.partial"]
    assert f"only 3 of 4 tensors equal {SOURCE}; different: {NAMES[1]}" in result.findings[0].message


def test_another_shape_is_a_difference() -> None:
    observed = held()
    observed["tensors"][NAMES[1]]["shape"] = [2, 4]
    assert codes(check(observed, stored())) == ["weights.partial"]


def test_a_tensor_that_the_model_does_not_hold() -> None:
    result = check(held(NAMES[:3]), stored())
    assert codes(result) == ["weights.not-held"]
    assert NAMES[3] in result.findings[0].message


def test_a_tensor_that_the_file_does_not_have() -> None:
    result = check(held(), stored(NAMES[:3]))
    assert codes(result) == ["weights.not-in-file"]
    assert NAMES[3] in result.findings[0].message


def test_a_dropped_head() -> None:
    result = check(held(), stored([*NAMES, HEAD]))
    assert codes(result) == ["weights.head-dropped"]


def test_a_tied_head_may_be_on_either_side_alone() -> None:
    result = check(held(), stored([*NAMES, HEAD]), tied=True)
    assert result.verdict is Verdict.PASS
    assert any("the model holds it as model.embed_tokens.weight" in fact for fact in result.facts)
    observed = held([*NAMES, HEAD])
    observed["tensors"][HEAD]["sha256"] = observed["tensors"][EMBEDDING]["sha256"]
    result = check(observed, stored(), tied=True)
    assert result.verdict is Verdict.PASS
    assert result.facts[0].startswith("5 of 5")


def test_a_tied_head_with_other_bytes_than_the_embedding() -> None:
    assert codes(check(held([*NAMES, HEAD]), stored(), tied=True)) == ["weights.partial"]


def test_an_untied_head_is_not_excused() -> None:
    observed = held([*NAMES, HEAD])
    observed["tensors"][HEAD]["sha256"] = observed["tensors"][EMBEDDING]["sha256"]
    assert codes(check(observed, stored())) == ["weights.not-in-file"]


@pytest.mark.parametrize("files", [{}, stored(["other"])])
def test_nothing_compared_is_a_failure(files: dict[str, FileDigest]) -> None:
    assert "weights.none-compared" in codes(check(held(), files))


def test_empty_on_both_sides_is_a_failure() -> None:
    assert codes(check({"tensors": {}}, {})) == ["weights.none-compared"]


@pytest.mark.parametrize(
    "observed", [{}, {"tensors": []}, {"tensors": {"a": 1}}, {"tensors": {"a": {"sha256": "x"}}}]
)
def test_a_malformed_record_is_a_failure(observed: dict[str, Any]) -> None:
    assert codes(check(observed, stored())) == ["weights.record"]


def test_the_load_record_is_judged_too() -> None:
    result = check(
        held(), stored(), load={"requested": True, "loaded": False, "source": None, "format": None}
    )
    assert codes(result) == ["load.nothing"]


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@given(st.sampled_from(["shape", "dtype", "sha256", "all"]), JSON)
def test_a_damaged_record_never_raises(key: str, value: Any) -> None:
    observed = held()
    if key == "all":
        observed["tensors"] = value
    else:
        observed["tensors"][NAMES[0]][key] = value
    for finding in check(observed, stored()).findings:
        assert finding.message.isprintable()


@given(st.sets(st.sampled_from(NAMES), min_size=1))
def test_any_set_of_changed_tensors_is_found_by_name(changed: set[str]) -> None:
    result = check(randomise(held(), *changed), stored())
    assert result.verdict is Verdict.FAIL
    assert set(result.findings[0].data["different"]) == changed
