"""Wrappers, prefixes, renames and the allow-list."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from harness.checks.key_names import (
    WRAPPERS,
    AllowedKeys,
    canonicalise,
    find_prefix_fault,
    likely_renames,
    wrappers_in,
)

COMPONENTS = st.sampled_from([*WRAPPERS, "model", "layers", "0", "weight", ""])
NAMES = st.lists(COMPONENTS, max_size=8).map(".".join)
SHAPES = st.dictionaries(NAMES, st.tuples(st.integers(1, 3)), max_size=6)


@pytest.mark.parametrize(
    ("name", "plain"),
    [
        ("layers.0._orig_mod.weight", "layers.0.weight"),
        ("_orig_mod.module._orig_mod.weight", "weight"),
        ("module.module.module.a", "a"),
        ("a._fsdp_wrapped_module._checkpoint_wrapped_module.b", "a.b"),
        ("a.module", "a"),
        ("modules.submodule.weight", "modules.submodule.weight"),
        ("module", "module"),
        ("", ""),
    ],
)
def test_wrappers_are_removed_wherever_they_stand(name: str, plain: str) -> None:
    assert canonicalise(name) == plain


@given(NAMES)
def test_canonicalise_is_idempotent_and_leaves_no_wrapper(name: str) -> None:
    once = canonicalise(name)
    assert canonicalise(once) == once
    assert not wrappers_in(once) or once == name


@given(NAMES, NAMES)
def test_wrapping_never_changes_the_canonical_name(front: str, back: str) -> None:
    for wrapper in WRAPPERS:
        assert canonicalise(f"{front}.{wrapper}.{back}.w") == canonicalise(f"{front}.{back}.w")


def test_a_prefix_to_add_and_one_to_remove() -> None:
    wanted = {"model.a.weight": (1,), "model.b.weight": (2,)}
    found = {"a.weight": (1,), "b.weight": (2,)}
    added = find_prefix_fault(wanted, found)
    assert added is not None
    assert (added.remove, added.add, added.repair) == ("", "model.", 'adding prefix "model."')
    assert added.pairs == {"a.weight": "model.a.weight", "b.weight": "model.b.weight"}
    removed = find_prefix_fault(found, wanted)
    assert removed is not None
    assert removed.repair == 'removing prefix "model."'


def test_a_doubled_and_a_replaced_prefix() -> None:
    wanted = {"model.a.x.weight": (1,), "model.b.x.weight": (2,)}
    doubled = find_prefix_fault(wanted, {f"model.{name}": shape for name, shape in wanted.items()})
    assert doubled is not None
    assert doubled.repair == 'removing prefix "model."'
    replaced = find_prefix_fault(wanted, {"transformer.a.x.weight": (1,), "transformer.b.x.weight": (2,)})
    assert replaced is not None
    assert replaced.repair == 'replacing prefix "transformer." by "model."'


def test_a_prefix_needs_equal_shapes_and_more_than_a_common_ending() -> None:
    assert find_prefix_fault({"model.a.weight": (1,)}, {"a.weight": (2,)}) is None
    assert find_prefix_fault({"model.a.weight": (1,)}, {"model.b.weight": (1,)}) is None
    assert find_prefix_fault({}, {"a": (1,)}) is None
    assert find_prefix_fault({"a": (1,)}, {}) is None


def test_a_prefix_over_many_layers_is_found_whole() -> None:
    names = [
        f"layers.{layer}.mlp.experts.{expert}.w{n}.weight"
        for layer in range(8)
        for expert in range(32)
        for n in "123"
    ]
    fault = find_prefix_fault({f"model.{name}": (1,) for name in names}, dict.fromkeys(names, (1,)))
    assert fault is not None
    assert (fault.remove, fault.add) == ("", "model.")
    assert len(fault.pairs) == len(names)


@given(SHAPES, SHAPES)
def test_a_prefix_fault_always_maps_found_names_to_missing_ones(
    missing: dict[str, tuple[int, ...]], unexpected: dict[str, tuple[int, ...]]
) -> None:
    fault = find_prefix_fault(missing, unexpected)
    if fault is not None:
        assert fault.pairs.keys() <= unexpected.keys()
        assert set(fault.pairs.values()) <= missing.keys()
        assert len(set(fault.pairs.values())) == len(fault.pairs)
        assert all(missing[wanted] == unexpected[name] for name, wanted in fault.pairs.items())


def test_likely_renames() -> None:
    assert likely_renames({"model.norm.weight": (8,)}, {"final_ln": (8,)}) == {
        "model.norm.weight": "final_ln"
    }
    assert likely_renames({"model.norm.weight": (8,)}, {"final_ln": (9,)}) == {}
    pairs = likely_renames(
        {"a.q_norm.weight": (4,), "a.k_norm.weight": (4,)},
        {"a.q_norm.scale": (4,), "a.k_norm.scale": (4,), "x": (4,)},
    )
    assert pairs == {"a.q_norm.weight": "a.q_norm.scale", "a.k_norm.weight": "a.k_norm.scale"}
    many = {f"n{number}": (1,) for number in range(50)}
    assert likely_renames(many, {"other": (1,)}) == {}


def test_a_pattern_matches_whole_names_and_only_the_star_is_special() -> None:
    rule = AllowedKeys("rotary-inv-freq", "*.rotary_emb.inv_freq", 2)
    names = [
        "model.layers.0.self_attn.rotary_emb.inv_freq",
        "rotary_emb.inv_freq",
        "a.rotary_emb.inv_freq.b",
        "aXrotary_emb.inv_freq",
    ]
    assert rule.matches(names) == names[:1]
    assert AllowedKeys("exact", "a.b", 1).matches(["a.b", "aXb", "a.b.c"]) == ["a.b"]
    assert AllowedKeys("brackets", "a[0].?", 1).matches(["a0.b", "a[0].?"]) == ["a[0].?"]
