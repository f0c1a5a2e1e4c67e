"""Rotary buffers against their formula: float32 passes, everything else is named."""

import json
import math
from collections.abc import Sequence
from copy import deepcopy
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.checks.buffers import check_buffers
from harness.checks.finding import CheckResult, Verdict
from harness.checks.rotary import Rotary, effective_base

CONFIG: dict[str, Any] = {
    "head_dim": 128,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
}
NAN = float("nan")


def frequencies(theta: float = 1e6, dim: int = 128) -> np.ndarray:
    """As Transformers and torchtitan compute them, in float32 throughout."""
    exponent = np.arange(0, dim, 2).astype(np.float32) / np.float32(dim)
    return np.float32(1.0) / np.power(np.float32(theta), exponent)


def row(position: int, theta: float = 1e6, dim: int = 128) -> list[float]:
    """A row of torchtitan's cache, in float32 throughout."""
    angles = np.float32(position) * frequencies(theta, dim)
    both = np.concatenate([angles, angles])
    return [float(x) for x in np.concatenate([np.cos(both), np.sin(both)])]


def inv_freq(
    values: Sequence[float] | None = None, name: str = "model.rotary_emb.inv_freq", **more: Any
) -> dict[str, Any]:
    numbers = [float(x) for x in (frequencies() if values is None else values)]
    shape = [len(numbers)]
    return {
        "name": name,
        "shape": shape,
        "dtype": "float32",
        "persistent": False,
        "nan": 0,
        "kind": "inv_freq",
        "values": numbers,
    } | more


def cache(
    theta: float = 1e6, dim: int = 128, positions: Sequence[int] = (0, 1, 127), **more: Any
) -> dict[str, Any]:
    rows = {str(position): row(position, theta, dim) for position in positions}
    shape = [2048, 2 * dim]
    return {
        "name": "layers.0.rope.cache",
        "shape": shape,
        "dtype": "float32",
        "persistent": False,
        "nan": 0,
        "kind": "cos_sin",
        "rows": rows,
    } | more


def ranks(*buffers: dict[str, Any], number: int = 2) -> list[dict[str, Any]]:
    return [
        {"rank": rank, "world_size": number, "buffers": deepcopy(list(buffers))} for rank in range(number)
    ]


def codes(result: CheckResult) -> list[str]:
    return [finding.code for finding in result.findings]


def test_float32_buffers_pass_with_their_number() -> None:
    result = check_buffers(ranks(inv_freq(), cache()), CONFIG)
    assert result.verdict is Verdict.PASS
    assert result.facts == ("4 rotary buffers equal the formula with base 1000000 and 128 elements",)


@settings(deadline=None)
@given(
    st.sampled_from([1e4, 5e5, 1e6, 5e6, 1e7]),
    st.sampled_from([4, 32, 64, 80, 96, 128, 256]),
    st.lists(st.integers(1, 131071), min_size=1, max_size=3),
)
def test_any_float32_buffer_is_within_its_tolerance(theta: float, dim: int, positions: list[int]) -> None:
    config = {"head_dim": dim, "rope_theta": theta}
    records = ranks(inv_freq(frequencies(theta, dim)), cache(theta, dim, positions))
    assert check_buffers(records, config).verdict is Verdict.PASS


@settings(deadline=None)
@given(
    st.sampled_from([1e4, 5e5, 1e6, 1e7]),
    st.sampled_from([1e4, 5e5, 1e6, 1e7]),
    st.sampled_from([32, 64, 128]),
    st.integers(1, 4095),
)
def test_any_other_base_is_found_and_named(base: float, theta: float, dim: int, position: int) -> None:
    config = {"head_dim": dim, "rope_theta": theta}
    for buffer in (inv_freq(frequencies(base, dim)), cache(base, dim, [position])):
        result = check_buffers(ranks(buffer), config)
        if base == theta:
            assert result.verdict is Verdict.PASS
        else:
            assert codes(result) == ["buffers.rope-base"]
            assert (
                f"effective rope base {int(base)}, config.json says {int(theta)}"
                in result.findings[0].message
            )


def test_the_class_default_instead_of_the_configs_base() -> None:
    result = check_buffers(ranks(inv_freq(frequencies(10000.0))), CONFIG)
    assert codes(result) == ["buffers.rope-base"]
    assert result.findings[0].message.startswith("effective rope base 10000, config.json says 1000000")
    assert result.findings[0].data == {"effective": 10000.0, "config": 1e6}


def test_the_base_is_never_a_default() -> None:
    result = check_buffers(ranks(inv_freq()), {"head_dim": 128})
    assert codes(result) == ["buffers.config"]
    assert "neither rope_parameters.rope_theta nor rope_theta" in result.findings[0].message
    assert codes(check_buffers(ranks(inv_freq()), {"rope_theta": 1e6})) == ["buffers.config"]
    both = {**CONFIG, "rope_theta": 10000.0}
    assert codes(check_buffers(ranks(inv_freq()), both)) == ["buffers.config"]


def test_a_buffer_that_was_never_rebuilt() -> None:
    poisoned = {
        "name": "rope_cache",
        "shape": [4],
        "dtype": "float32",
        "persistent": False,
        "nan": 4,
        "kind": "other",
    }
    result = check_buffers(ranks(inv_freq(), poisoned), CONFIG)
    assert codes(result) == ["buffers.nan"]
    assert result.findings[0].message.startswith(
        "buffer rope_cache is not stored in the checkpoint and was not rebuilt after loading (still NaN"
    )


@pytest.mark.parametrize("value", [NAN, float("inf"), None, "NaN"])
def test_a_value_that_is_no_number(value: Any) -> None:
    broken = inv_freq()
    broken["values"][3] = value
    assert codes(check_buffers(ranks(broken), CONFIG)) == ["buffers.nan"]
    rows = cache()
    rows["rows"]["1"][3] = value
    assert codes(check_buffers(ranks(rows), CONFIG)) == ["buffers.nan"]


def test_a_persistent_buffer_with_nan() -> None:
    other = {
        "name": "expert_bias",
        "shape": [4],
        "dtype": "float32",
        "persistent": True,
        "nan": 1,
        "kind": "other",
    }
    result = check_buffers(ranks(inv_freq(), other), CONFIG)
    assert "expert_bias holds NaN" in result.findings[0].message


def test_uninitialised_but_finite_memory() -> None:
    result = check_buffers(ranks(inv_freq([0.0] * 64)), CONFIG)
    assert codes(result) == ["buffers.first"]
    assert "inv_freq[0] is 0, must be 1.0" in result.findings[0].message
    assert codes(check_buffers(ranks(inv_freq([1.0] * 64)), CONFIG)) == ["buffers.inv-freq"]
    zeros = cache(rows={"1": [0.0] * 256})
    assert codes(check_buffers(ranks(zeros), CONFIG)) == ["buffers.cos-sin"]


@pytest.mark.parametrize("at", [1, 31, 63])
def test_one_wrong_frequency(at: int) -> None:
    broken = inv_freq()
    broken["values"][at] *= 1.0001
    result = check_buffers(ranks(broken), CONFIG)
    assert codes(result) == ["buffers.inv-freq"]
    assert f"inv_freq[{at}] is" in result.findings[0].message


@pytest.mark.parametrize("position", [1, 127, 2047])
@pytest.mark.parametrize("at", [0, 63, 64, 127, 128, 200, 255])
def test_one_wrong_element_of_a_row(position: int, at: int) -> None:
    broken = cache(positions=[0, position])
    broken["rows"][str(position)][at] += 0.01
    result = check_buffers(ranks(broken), CONFIG)
    assert codes(result) == ["buffers.cos-sin"]
    assert f"row {position}, element {at} is" in result.findings[0].message


def test_a_row_of_the_next_position() -> None:
    shifted = cache(rows={"1": row(2)})
    assert result_code(shifted) in ("buffers.cos-sin", "buffers.rope-base")


def test_interleaved_or_swapped_layouts() -> None:
    swapped = cache(rows={"5": row(5)[128:] + row(5)[:128]})
    assert result_code(swapped) == "buffers.cos-sin"
    interleaved = [value for pair in zip(row(5)[:64], row(5)[128:192], strict=True) for value in pair] * 2
    assert result_code(cache(rows={"5": interleaved})) == "buffers.cos-sin"


def result_code(buffer: dict[str, Any]) -> str:
    (code,) = codes(check_buffers(ranks(buffer), CONFIG))
    return code


def test_row_zero_alone_proves_nothing() -> None:
    result = check_buffers(ranks(cache(positions=[0])), CONFIG)
    assert codes(result) == ["buffers.rows"]
    assert codes(check_buffers(ranks(cache(rows={})), CONFIG)) == ["buffers.rows"]
    assert codes(check_buffers(ranks(cache(rows={"x": [], "9" * 5000: []})), CONFIG)) == ["buffers.rows"]


def test_another_size_than_the_head() -> None:
    assert codes(check_buffers(ranks(inv_freq(frequencies(dim=64))), CONFIG)) == ["buffers.shape"]
    assert codes(check_buffers(ranks(cache(dim=64)), CONFIG)) == ["buffers.shape"]
    assert codes(check_buffers(ranks(inv_freq([])), CONFIG)) == ["buffers.shape"]


@pytest.mark.parametrize("dtype", ["bfloat16", "float16", "torch.bfloat16"])
def test_a_rotary_buffer_in_low_precision(dtype: str) -> None:
    result = check_buffers(ranks(inv_freq(dtype=dtype)), CONFIG)
    assert codes(result) == ["buffers.dtype"]
    assert dtype.removeprefix("torch.") in result.findings[0].message


def test_no_rotary_buffer_is_never_a_pass() -> None:
    other = {"name": "x", "shape": [1], "dtype": "float32", "persistent": True, "nan": 0, "kind": "other"}
    assert codes(check_buffers(ranks(other), CONFIG)) == ["buffers.missing"]
    assert codes(check_buffers(ranks(), CONFIG)) == ["buffers.missing"]
    assert codes(check_buffers([], CONFIG)) == ["buffers.missing"]
    half = ranks(inv_freq())
    half[1]["buffers"] = []
    result = check_buffers(half, CONFIG)
    assert codes(result) == ["buffers.missing", "buffers.ranks-differ"]
    assert "rank 1" in result.findings[0].message


def test_ranks_that_disagree() -> None:
    records = ranks(inv_freq())
    records[1]["buffers"][0]["values"][5] *= 1.00000005
    result = check_buffers(records, CONFIG)
    assert codes(result) == ["buffers.ranks-differ"]
    assert "model.rotary_emb.inv_freq (rank 0 and rank 1)" in result.findings[0].message


def test_a_fault_in_many_layers_is_one_finding() -> None:
    buffers = [inv_freq(frequencies(10000.0), name=f"layers.{layer}.inv_freq") for layer in range(36)]
    result = check_buffers(ranks(*buffers), CONFIG)
    assert codes(result) == ["buffers.rope-base"]
    assert "layers.0.inv_freq and 35 more, rank 0, 1" in result.findings[0].message


def test_other_scalings_are_not_judged_but_poison_is() -> None:
    config = {"head_dim": 128, "rope_parameters": {"rope_type": "yarn", "rope_theta": 1e6, "factor": 4.0}}
    result = check_buffers(ranks(inv_freq()), config)
    assert result.verdict is Verdict.NOT_JUDGED
    assert "yarn" in result.reason
    assert codes(check_buffers(ranks(inv_freq(nan=1)), config)) == ["buffers.nan"]
    assert codes(check_buffers(ranks(), config)) == ["buffers.missing"]


def test_the_record_survives_json() -> None:
    records = json.loads(json.dumps(ranks(inv_freq(), cache())))
    assert check_buffers(records, CONFIG).verdict is Verdict.PASS


JSON = st.recursive(
    st.none() | st.booleans() | st.floats() | st.integers() | st.text(max_size=3),
    lambda inner: st.lists(inner, max_size=2) | st.dictionaries(st.text(max_size=3), inner, max_size=2),
    max_leaves=4,
)


@settings(deadline=None, max_examples=300)
@given(st.sampled_from([*cache(), *inv_freq(), None, "rank"]), st.integers(0, 1), JSON)
def test_a_damaged_record_never_raises_and_never_hides(key: str | None, which: int, value: Any) -> None:
    records = ranks(inv_freq(), cache())
    if key is None:
        records[0]["buffers"] = value
    elif key == "rank":
        records[0]["rank"] = value
    else:
        records[0]["buffers"][which][key] = value
    result = check_buffers(records, CONFIG)
    assert all(finding.message.isprintable() for finding in result.findings)
    if key in ("kind", "values", "rows", None) and records != ranks(inv_freq(), cache()):
        assert result.verdict is Verdict.FAIL or (key, which) in (("values", 1), ("rows", 0))


def test_the_base_of_a_frequency() -> None:
    assert effective_base(1e6 ** (-126 / 128), 128) == pytest.approx(1e6)
    assert effective_base(0.0, 128) is None
    assert effective_base(1.5, 128) is None
    assert effective_base(0.5, 2) is None
    assert effective_base(1e-300, 4) is None
    assert effective_base(NAN, 128) is None


def test_the_tolerance_grows_with_the_position() -> None:
    rotary = Rotary(1e6, 128)
    near, far = rotary.row_tolerance(1)[0], rotary.row_tolerance(4096)[0]
    assert near < 3e-6 < far < 1e-2
    assert math.isclose(rotary.row(0)[0], 1.0)
