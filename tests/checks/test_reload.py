"""An export that loads again gives the same logits; every way in which it does not is named."""

from copy import deepcopy
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.checks.finding import CheckResult, Verdict
from harness.checks.reload import check_reload

SHA, OTHER = "a" * 64, "b" * 64
GOOD: dict[str, Any] = {
    "load_state_dict": {"missing": [], "unexpected": []},
    "from_pretrained": {"missing_keys": [], "unexpected_keys": [], "mismatched_keys": [], "error_msgs": []},
    "tied": False,
    "logits": {
        "reference_sha256": SHA,
        "state_dict_sha256": SHA,
        "from_pretrained_sha256": SHA,
        "max_abs_diff": 0.0,
        "std": 0.4,
    },
    "tensors": 25,
    "compared_to": "plain Transformers",
}


def changed(part: str | None = None, **values: Any) -> dict[str, Any]:
    record = deepcopy(GOOD)
    (record[part] if part else record).update(values)
    return record


def codes(result: CheckResult) -> list[str]:
    return [finding.code for finding in result.findings]


def test_a_complete_reload_passes() -> None:
    result = check_reload(GOOD)
    assert result.verdict is Verdict.PASS
    assert result.facts == (
        "25 tensors loaded by load_state_dict and from_pretrained, none missing",
        "logits equal plain Transformers bit for bit (std 0.4)",
    )


@pytest.mark.parametrize(
    ("part", "key", "code"),
    [
        ("load_state_dict", "missing", "reload.missing"),
        ("load_state_dict", "unexpected", "reload.unexpected"),
        ("from_pretrained", "missing_keys", "reload.missing"),
        ("from_pretrained", "unexpected_keys", "reload.unexpected"),
    ],
)
def test_missing_and_unexpected_keys(part: str, key: str, code: str) -> None:
    result = check_reload(changed(part, **{key: ["model.norm.weight", "b"]}))
    assert codes(result) == [code]
    assert f"{part}: 2 keys" in result.findings[0].message
    assert "model.norm.weight" in result.findings[0].message


def test_the_head_of_a_tied_model_may_be_missing() -> None:
    record = changed("load_state_dict", missing=["lm_head.weight"])
    assert codes(check_reload(record)) == ["reload.missing"]
    assert check_reload({**record, "tied": True}).verdict is Verdict.PASS
    unexpected = changed("load_state_dict", unexpected=["lm_head.weight"]) | {"tied": True}
    assert codes(check_reload(unexpected)) == ["reload.unexpected"]
    more = changed("load_state_dict", missing=["lm_head.weight", "model.norm.weight"]) | {"tied": True}
    assert check_reload(more).findings[0].data["keys"] == ["model.norm.weight"]


def test_mismatched_shapes_and_errors() -> None:
    result = check_reload(
        changed("from_pretrained", mismatched_keys=[["model.norm.weight", [8], [9]], "other"])
    )
    assert codes(result) == ["reload.mismatched"]
    assert "2 keys of another shape: model.norm.weight, other" in result.findings[0].message
    assert codes(check_reload(changed("from_pretrained", error_msgs=["boom"]))) == ["reload.error"]
    assert codes(check_reload(changed("from_pretrained", error_msgs="boom"))) == ["reload.error"]
    result = check_reload(changed("from_pretrained", error="OSError: no file"))
    assert "OSError: no file" in result.findings[0].message


@pytest.mark.parametrize("which", ["reference", "state_dict", "from_pretrained"])
def test_differing_logits(which: str) -> None:
    result = check_reload(changed("logits", **{f"{which}_sha256": OTHER, "max_abs_diff": 0.47}))
    assert codes(result) == ["reload.logits-differ"]
    assert "differ from plain Transformers (max|diff| 0.47, allowed 0" in result.findings[0].message


def test_a_tolerance_is_respected_and_said() -> None:
    record = changed("logits", reference_sha256=OTHER, max_abs_diff=3e-6)
    assert codes(check_reload(record)) == ["reload.logits-differ"]
    assert codes(check_reload(record, tolerance=1e-6)) == ["reload.logits-differ"]
    result = check_reload(record, tolerance=1e-5)
    assert result.verdict is Verdict.PASS
    assert "within 1e-05 (max|diff| 3e-06)" in result.facts[1]


def test_a_record_that_contradicts_itself() -> None:
    assert codes(check_reload(changed("logits", max_abs_diff=0.1))) == ["reload.record"]
    unmeasured = changed("logits", from_pretrained_sha256=OTHER, max_abs_diff=0.0)
    assert codes(check_reload(unmeasured, tolerance=1.0)) == ["reload.logits-differ"]


@pytest.mark.parametrize("std", [0.0, 0])
def test_constant_logits_fail(std: float) -> None:
    assert codes(check_reload(changed("logits", std=std))) == ["reload.logits-constant"]


@pytest.mark.parametrize("value", [float("nan"), float("inf"), None, "NaN", True])
@pytest.mark.parametrize("key", ["std", "max_abs_diff"])
def test_logits_that_are_not_finite_fail(key: str, value: Any) -> None:
    assert codes(check_reload(changed("logits", **{key: value}))) == ["reload.logits-not-finite"]


@pytest.mark.parametrize("number", [0, -1, None, "25"])
def test_zero_tensors_fail(number: Any) -> None:
    assert codes(check_reload(changed(tensors=number))) == ["reload.empty"]


def test_constant_norm_weights_hide_an_order() -> None:
    assert codes(check_reload(changed(norm_weights_constant=True))) == ["reload.blind-norms"]
    assert check_reload(changed(norm_weights_constant=False)).verdict is Verdict.PASS


@pytest.mark.parametrize("key", ["load_state_dict", "from_pretrained", "tied", "logits", "tensors"])
def test_an_incomplete_record_fails(key: str) -> None:
    record = {name: value for name, value in GOOD.items() if name != key}
    assert codes(check_reload(record)) == ["reload.record"]


def test_logits_that_were_not_recorded_fail() -> None:
    record = deepcopy(GOOD)
    del record["logits"]["reference_sha256"]
    assert codes(check_reload(record)) == ["reload.record"]
    assert "logits of reference were not recorded" in check_reload(record).findings[0].message
    assert codes(check_reload(changed("logits", state_dict_sha256=""))) == ["reload.record"]


@pytest.mark.parametrize(
    ("part", "key", "value"),
    [
        ("from_pretrained", "mismatched_keys", True),
        ("from_pretrained", "mismatched_keys", None),
        ("from_pretrained", "error_msgs", 1.0),
        ("from_pretrained", "missing_keys", None),
        ("load_state_dict", "missing", "abc"),
    ],
)
def test_lists_that_are_none_fail(part: str, key: str, value: Any) -> None:
    assert codes(check_reload(changed(part, **{key: value}))) == ["reload.record"]


def test_odd_entries_in_lists_are_reported() -> None:
    assert codes(check_reload(changed("from_pretrained", mismatched_keys=[[]]))) == ["reload.mismatched"]
    assert codes(check_reload(changed("load_state_dict", missing=[["a"], {}]))) == ["reload.missing"]


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@settings(max_examples=1000)
@given(st.sampled_from([*GOOD]), st.sampled_from([None, *GOOD["logits"], *GOOD["from_pretrained"]]), JSON)
def test_a_damaged_record_never_raises(part: str, key: str | None, value: Any) -> None:
    record = deepcopy(GOOD)
    if key is None or not isinstance(record[part], dict):
        record[part] = value
    else:
        record[part][key] = value
    for finding in check_reload(record).findings:
        assert finding.message.isprintable()
