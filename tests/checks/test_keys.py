"""The key check: passes on sound checkpoints, and names every way in which one can be wrong."""

import random
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from harness.checks.finding import CheckResult, Finding, Verdict
from harness.checks.keys import AllowedKeys, HeadBytes, check_keys
from harness.model_needs import FUSED, PER_EXPERT, ModelNeeds, model_needs
from harness.safetensors_files import CheckpointFiles
from harness.safetensors_header import BITS, Tensor
from tests.checkpoints import TINY, TINY_MOE, TINY_TIED

HEAD, EMBEDDING, NORM = "lm_head.weight", "model.embed_tokens.weight", "model.norm.weight"
Q_PROJ = "model.layers.0.self_attn.q_proj.weight"
EQUAL = HeadBytes(None)

Shapes = Mapping[str, tuple[int, ...]]


def files_of(
    shapes: Shapes,
    dtype: str = "F32",
    config: Mapping[str, Any] | None = None,
    dtypes: Mapping[str, str] | None = None,
) -> CheckpointFiles:
    """Return what reading a sound file with these tensors gives."""
    tensors, position = {}, 0
    for name, shape in shapes.items():
        held = (dtypes or {}).get(name, dtype)
        size = BITS[held] // 8
        for length in shape:
            size *= length
        tensors[name] = Tensor(name, held, shape, Path("model.safetensors"), position, position + size)
        position += size
    return CheckpointFiles(Path("model"), tensors, ("model.safetensors",), None, config, ())


def codes(result: CheckResult) -> list[str]:
    return [finding.code for finding in result.findings]


def message(result: CheckResult, code: str) -> str:
    (found,) = [finding.message for finding in result.findings if finding.code == code]
    return found


NEEDS = model_needs(TINY)
TIED = model_needs(TINY_TIED)
MOE = model_needs(TINY_MOE)


def renamed(needs: ModelNeeds, change: Any) -> dict[str, tuple[int, ...]]:
    return {change(name): shape for name, shape in needs.shapes.items()}


# --- sound checkpoints ------------------------------------------------------------------------


def test_an_untied_checkpoint_passes_with_facts() -> None:
    result = check_keys(files_of(NEEDS.shapes, config=TINY), NEEDS, source=files_of(NEEDS.shapes))
    assert result.verdict is Verdict.PASS
    assert "all 25 tensors that config.json asks for are there" in result.facts
    assert "untied, lm_head.weight stored" in result.facts
    assert "dtype F32 for 25 tensors, as config.json's dtype and the source's dtype" in result.facts
    assert "round trip kept 25 keys" in result.facts
    assert any(fact.endswith("bytes in 1 file") for fact in result.facts)


def test_both_forms_of_a_tied_head_pass_and_are_named() -> None:
    implicit = files_of(TIED.shapes)
    explicit = files_of({**TIED.shapes, HEAD: TIED.head_shape})
    result = check_keys(implicit, TIED, source=implicit)
    assert result.verdict is Verdict.PASS
    assert 'tied checkpoint, head not stored (form "implicit"), 24 keys' in result.facts
    assert "round trip kept 24 keys" in result.facts
    result = check_keys(explicit, TIED, source=explicit, head=EQUAL)
    assert result.verdict is Verdict.PASS
    assert 'tied checkpoint, head stored (form "explicit copy"), bytes equal' in result.facts


@pytest.mark.parametrize("form", [PER_EXPERT, FUSED])
def test_both_forms_of_experts_pass_and_are_named(form: str) -> None:
    result = check_keys(files_of(MOE.forms[form]), MOE)
    assert result.verdict is Verdict.PASS
    assert f'experts in form "{form}"' in result.facts[0]


# --- names ------------------------------------------------------------------------------------


def test_a_missing_key() -> None:
    shapes = {name: shape for name, shape in NEEDS.shapes.items() if name != NORM}
    result = check_keys(files_of(shapes), NEEDS)
    assert codes(result) == ["keys.missing"]
    assert NORM in message(result, "keys.missing")
    assert not any("that config.json asks for are there" in fact for fact in result.facts)


def test_an_unexpected_key() -> None:
    name = "model.layers.0.self_attn.q_proj.bias"
    result = check_keys(files_of({**NEEDS.shapes, name: (8,)}), NEEDS)
    assert codes(result) == ["keys.unexpected"]
    assert name in message(result, "keys.unexpected")


def test_a_renamed_key_says_the_likely_pair() -> None:
    result = check_keys(
        files_of(renamed(NEEDS, lambda name: name.replace("model.norm.weight", "model.ln.weight"))), NEEDS
    )
    assert codes(result) == ["keys.missing", "keys.unexpected"]
    assert "model.ln.weight looks like model.norm.weight renamed" in message(result, "keys.missing")


def test_many_missing_keys_are_a_short_list() -> None:
    shapes = {name: shape for name, shape in NEEDS.shapes.items() if ".layers." not in name}
    text = message(check_keys(files_of(shapes), NEEDS), "keys.missing")
    assert "22 keys missing" in text
    assert "and 19 more" in text


@pytest.mark.parametrize("needs", [NEEDS, TIED, MOE])
def test_a_missing_prefix_is_one_fault(needs: ModelNeeds) -> None:
    result = check_keys(files_of(renamed(needs, lambda name: name.removeprefix("model."))), needs)
    assert codes(result) == ["keys.prefix"]
    text = message(result, "keys.prefix")
    number = len(needs.shapes) - (0 if needs.tied else 1)
    assert f"{number} of {len(needs.shapes)} keys missing and {number} unexpected" in text
    assert 'All match after adding prefix "model."' in text


@pytest.mark.parametrize("needs", [NEEDS, TIED, MOE])
def test_a_prefix_too_many_is_one_fault(needs: ModelNeeds) -> None:
    result = check_keys(files_of(renamed(needs, lambda name: "model." + name)), needs)
    assert codes(result) == ["keys.prefix"]
    assert 'removing prefix "model."' in message(result, "keys.prefix")


def test_a_blanket_prefix_on_the_head_alone() -> None:
    result = check_keys(files_of(renamed(NEEDS, lambda name: name.replace(HEAD, "model." + HEAD))), NEEDS)
    assert codes(result) == ["keys.prefix"]
    text = message(result, "keys.prefix")
    assert "1 of 25 keys missing and 1 unexpected" in text
    assert "first: model.lm_head.weight, expected lm_head.weight" in text


def test_a_tied_head_under_a_wrong_prefix() -> None:
    shapes = {**TIED.shapes, "model." + HEAD: TIED.head_shape}
    assert codes(check_keys(files_of(shapes), TIED, head=EQUAL)) == ["keys.prefix"]


def test_a_replaced_prefix() -> None:
    result = check_keys(
        files_of(renamed(TIED, lambda name: name.replace("model.", "language_model.", 1))), TIED
    )
    assert codes(result) == ["keys.prefix"]
    assert 'replacing prefix "language_model." by "model."' in message(result, "keys.prefix")


def test_a_prefix_fault_does_not_hide_a_missing_key() -> None:
    shapes = renamed(TIED, lambda name: name.removeprefix("model."))
    del shapes["norm.weight"]
    result = check_keys(files_of(shapes), TIED)
    assert codes(result) == ["keys.prefix", "keys.missing"]
    assert "23 of them match" in message(result, "keys.prefix")
    assert NORM in message(result, "keys.missing")


@pytest.mark.parametrize("wrapper", ["_orig_mod", "module", "_fsdp_wrapped_module"])
@pytest.mark.parametrize("place", ["front", "middle", "everywhere"])
def test_wrappers_are_reported_and_then_looked_through(wrapper: str, place: str) -> None:
    def wrap(name: str) -> str:
        if place == "front":
            return f"{wrapper}.{name}"
        if place == "middle":
            return name.replace(".0.self_attn", f".0.{wrapper}.self_attn")
        return f".{wrapper}.".join(name.split("."))

    result = check_keys(files_of(renamed(NEEDS, wrap)), NEEDS)
    assert codes(result) == ["keys.wrapper"]
    assert f'wrapper component "{wrapper}"' in message(result, "keys.wrapper")


def test_nested_wrappers_in_either_order_each_have_a_finding() -> None:
    result = check_keys(files_of(renamed(TIED, lambda name: f"_orig_mod.module._orig_mod.{name}")), TIED)
    assert codes(result) == ["keys.wrapper", "keys.wrapper"]
    assert all("24 keys of 24" in finding.message for finding in result.findings)


def test_two_names_that_differ_only_in_wrappers() -> None:
    result = check_keys(files_of({**TIED.shapes, f"module.{NORM}": (8,)}), TIED)
    assert codes(result) == ["keys.wrapper", "keys.collision"]
    assert f"model.norm.weight and module.{NORM}" in message(result, "keys.collision")


def test_an_untied_model_without_its_head() -> None:
    result = check_keys(files_of(TIED.shapes), NEEDS)
    assert codes(result) == ["keys.head-missing"]
    assert "tie_word_embeddings=false" in message(result, "keys.head-missing")


def test_experts_in_two_forms_at_once() -> None:
    assert MOE.fused is not None
    first = {name: shape for name, shape in MOE.fused.items() if ".layers.0." in name}
    rest = {name: shape for name, shape in MOE.shapes.items() if ".layers.0.mlp.experts" not in name}
    result = check_keys(files_of({**first, **rest}), MOE)
    assert result.verdict is Verdict.FAIL
    assert {"keys.missing", "keys.unexpected"} <= set(codes(result))


def test_a_missing_expert() -> None:
    name = "model.layers.1.mlp.experts.2.up_proj.weight"
    result = check_keys(files_of({n: shape for n, shape in MOE.shapes.items() if n != name}), MOE)
    assert codes(result) == ["keys.missing"]
    assert name in message(result, "keys.missing")


def test_nothing_read_is_never_a_pass() -> None:
    assert codes(check_keys(files_of({}), NEEDS)) == ["keys.none"]
    assert codes(check_keys(files_of({"x": (1,)}), NEEDS, declared_dtype="F32"))[0] == "keys.head-missing"


def test_problems_of_files_and_config_are_passed_on() -> None:
    files = replace(
        files_of(NEEDS.shapes), problems=(Finding("files.stale-index", "stale"),), notes=("seen",)
    )
    result = check_keys(files, replace(NEEDS, problems=(Finding("keys.tie-conflict", "conflict"),)))
    assert codes(result) == ["files.stale-index", "keys.tie-conflict"]
    assert "seen" in result.facts


# --- allow-list -------------------------------------------------------------------------------

INV_FREQ = {f"model.layers.{layer}.self_attn.rotary_emb.inv_freq": (2,) for layer in (0, 1)}
RULE = AllowedKeys("rotary-inv-freq", "*.rotary_emb.inv_freq", 2)


def test_an_allowed_key_is_accepted_by_rule_and_count() -> None:
    files = files_of({**NEEDS.shapes, **INV_FREQ}, dtype="BF16", dtypes=dict.fromkeys(INV_FREQ, "F32"))
    result = check_keys(files, NEEDS, allowed=[RULE])
    assert result.verdict is Verdict.PASS
    assert "2 unexpected keys accepted by allow-list rule rotary-inv-freq (expected 2)" in result.facts
    assert "25 of 25 tensors that config.json asks for are there" in result.facts


def test_an_allow_list_does_not_cover_another_key() -> None:
    bias = "model.layers.0.self_attn.q_proj.bias"
    result = check_keys(files_of({**NEEDS.shapes, **INV_FREQ, bias: (8,)}), NEEDS, allowed=[RULE])
    assert codes(result) == ["keys.unexpected"]
    assert message(result, "keys.unexpected").startswith(f"1 unexpected key: {bias}")
    assert "2 unexpected keys accepted by allow-list rule rotary-inv-freq (expected 2)" in result.facts


@pytest.mark.parametrize("count", [0, 1, 3])
def test_an_allow_list_entry_must_match_its_count(count: int) -> None:
    rule = replace(RULE, count=count)
    result = check_keys(files_of({**NEEDS.shapes, **INV_FREQ}), NEEDS, allowed=[rule])
    assert codes(result) == ["keys.allow-count"]
    assert (
        f"2 unexpected keys accepted by allow-list rule rotary-inv-freq (expected {count})"
        in result.findings[0].message
    )


def test_a_missing_key_can_be_allowed_too() -> None:
    shapes = {name: shape for name, shape in NEEDS.shapes.items() if name != NORM}
    rule = AllowedKeys("norm", NORM, 1, "missing")
    assert check_keys(files_of(shapes), NEEDS, allowed=[rule]).verdict is Verdict.PASS
    assert codes(check_keys(files_of(shapes), NEEDS, allowed=[replace(rule, side="unexpected")])) == [
        "keys.allow-count",
        "keys.missing",
    ]


# --- shapes and dtypes ------------------------------------------------------------------------


def test_a_wrong_and_a_transposed_shape() -> None:
    up = "model.layers.0.mlp.up_proj.weight"
    result = check_keys(files_of({**NEEDS.shapes, up: (8, 12)}), NEEDS)
    assert codes(result) == ["keys.shape"]
    assert f"{up} is [8, 12] (transposed), expected [12, 8]" in message(result, "keys.shape")
    result = check_keys(files_of({**NEEDS.shapes, up: (12, 9), NORM: (9,)}), NEEDS)
    assert f"2 tensors of another shape than config.json says: {up} is [12, 9], expected" in message(
        result, "keys.shape"
    )


def test_a_declared_dtype_that_the_headers_do_not_have() -> None:
    result = check_keys(files_of(TIED.shapes, "BF16"), TIED, declared_dtype="float32")
    assert codes(result) == ["keys.declared-dtype"]
    assert message(result, "keys.declared-dtype").startswith(
        "declared export dtype float32, headers say BF16 for 24 of 24 tensors"
    )


@pytest.mark.parametrize("declared", ["float32", "torch.float32", "F32"])
def test_a_declared_dtype_by_any_of_its_names(declared: str) -> None:
    result = check_keys(
        files_of(TIED.shapes), TIED, declared_dtype=declared, source=files_of(TIED.shapes, "BF16")
    )
    assert result.verdict is Verdict.PASS
    assert "as declared export dtype" in "".join(result.facts)


@pytest.mark.parametrize("key", ["dtype", "torch_dtype"])
def test_a_config_dtype_that_the_headers_do_not_have(key: str) -> None:
    config = {"tie_word_embeddings": True, key: "float32"}
    result = check_keys(files_of(TIED.shapes, "BF16", config), TIED, declared_dtype="bfloat16")
    assert codes(result) == ["keys.config-dtype"]
    assert "config.json's dtype float32, headers say BF16" in message(result, "keys.config-dtype")


def test_two_config_dtypes_that_differ() -> None:
    config = {"dtype": "float32", "torch_dtype": "bfloat16"}
    assert codes(check_keys(files_of(TIED.shapes, config=config), TIED)) == ["keys.config-dtype"]


def test_a_converter_that_widened_its_source() -> None:
    result = check_keys(files_of(TIED.shapes, "F32"), TIED, source=files_of(TIED.shapes, "BF16"))
    assert codes(result) == ["keys.source-dtype"]


def test_mixed_dtypes_name_the_odd_ones() -> None:
    result = check_keys(files_of(TIED.shapes, "BF16", dtypes={NORM: "F32"}), TIED)
    assert codes(result) == ["keys.mixed-dtype"]
    assert "BF16 x 23, F32 x 1; not BF16: model.norm.weight" in message(result, "keys.mixed-dtype")


def test_weights_that_are_no_floats() -> None:
    result = check_keys(files_of(TIED.shapes, "F32", dtypes={NORM: "I32"}), TIED)
    assert codes(result) == ["keys.dtype"]
    assert "model.norm.weight (I32)" in message(result, "keys.dtype")


# --- the tied head, the round trip ------------------------------------------------------------


def test_a_stored_head_with_other_bytes() -> None:
    files = files_of({**TIED.shapes, HEAD: TIED.head_shape})
    result = check_keys(files, TIED, head=HeadBytes(0))
    assert codes(result) == ["keys.head-differs"]
    assert message(result, "keys.head-differs").startswith(
        "tie_word_embeddings=true but lm_head.weight differs from model.embed_tokens.weight (first differing byte 0)"
    )


def test_a_stored_head_in_another_dtype_says_so() -> None:
    files = files_of({**TIED.shapes, HEAD: TIED.head_shape}, dtypes={HEAD: "BF16"})
    result = check_keys(files, TIED, head=HeadBytes(0))
    assert set(codes(result)) == {"keys.head-differs", "keys.mixed-dtype"}
    assert "(BF16 against F32)" in message(result, "keys.head-differs")


def test_a_stored_head_that_nobody_compared() -> None:
    files = files_of({**TIED.shapes, HEAD: TIED.head_shape})
    assert codes(check_keys(files, TIED)) == ["keys.head-not-compared"]


def test_an_untied_head_equal_to_the_embedding_is_said() -> None:
    result = check_keys(files_of(NEEDS.shapes), NEEDS, head=EQUAL)
    assert "untied, lm_head.weight stored, bytes equal to the embedding's" in result.facts


@pytest.mark.parametrize("explicit_first", [True, False])
def test_a_round_trip_keeps_the_form_of_the_head(explicit_first: bool) -> None:
    implicit, explicit = files_of(TIED.shapes), files_of({**TIED.shapes, HEAD: TIED.head_shape})
    source, export = (explicit, implicit) if explicit_first else (implicit, explicit)
    result = check_keys(export, TIED, source=source, head=EQUAL)
    assert codes(result) == ["keys.form-changed"]
    forms = ("explicit copy", "implicit") if explicit_first else ("implicit", "explicit copy")
    assert 'in form "{}", the export in form "{}"'.format(*forms) in message(result, "keys.form-changed")


def test_a_round_trip_keeps_the_keys() -> None:
    source = files_of({**NEEDS.shapes, **INV_FREQ})
    result = check_keys(files_of(NEEDS.shapes), NEEDS, source=source)
    assert codes(result) == ["keys.round-trip"]
    assert "lost 2 keys (model.layers.0.self_attn.rotary_emb.inv_freq" in message(result, "keys.round-trip")
    assert "gained no key" in message(result, "keys.round-trip")


def test_a_key_that_the_model_needs_is_reported_once() -> None:
    shapes = {name: shape for name, shape in NEEDS.shapes.items() if name != NORM} | {"more": (1,)}
    result = check_keys(files_of(shapes), NEEDS, source=files_of(NEEDS.shapes))
    assert codes(result) == ["keys.missing", "keys.unexpected"]
    assert not any("round trip kept" in fact for fact in result.facts)


def test_what_the_index_promised_is_the_files_fault() -> None:
    shapes = {name: shape for name, shape in NEEDS.shapes.items() if name not in (NORM, HEAD)}
    files = replace(
        files_of(shapes), index=dict.fromkeys([*shapes, NORM], "x"), problems=(Finding("files.x", "x"),)
    )
    assert codes(check_keys(files, NEEDS)) == ["files.x", "keys.head-missing"]


def test_a_round_trip_keeps_the_form_of_experts() -> None:
    result = check_keys(files_of(MOE.shapes), MOE, source=files_of(MOE.forms[FUSED]))
    assert codes(result) == ["keys.round-trip"]


def test_a_source_without_tensors_is_no_source() -> None:
    assert codes(check_keys(files_of(NEEDS.shapes), NEEDS, source=files_of({}))) == ["keys.source-empty"]


# --- properties -------------------------------------------------------------------------------

ALL_NEEDS = st.sampled_from([NEEDS, TIED, MOE, model_needs({**TINY, "attention_bias": True})])


@given(ALL_NEEDS, st.randoms(use_true_random=False))
def test_the_order_of_keys_never_matters(needs: ModelNeeds, shuffler: random.Random) -> None:
    names = list(needs.shapes)
    shuffler.shuffle(names)
    files = files_of({name: needs.shapes[name] for name in names})
    assert check_keys(files, needs).verdict is Verdict.PASS
    broken = {f"x.{name}" if ".1." in name else name: shape for name, shape in needs.shapes.items()}
    broken[NORM] = (3,)
    mixed = list(broken)
    shuffler.shuffle(mixed)
    first = check_keys(files_of(broken), needs)
    assert check_keys(files_of({name: broken[name] for name in mixed}), needs).findings == first.findings


def drop(tensors: dict[str, Tensor], name: str) -> None:
    del tensors[name]


def rename(tensors: dict[str, Tensor], name: str) -> None:
    tensors[name + "x"] = tensors.pop(name)


def move_up(tensors: dict[str, Tensor], name: str) -> None:
    tensors[name.split(".", 1)[1]] = tensors.pop(name)


def wrap(tensors: dict[str, Tensor], name: str) -> None:
    tensors[name.replace(".weight", "._orig_mod.weight")] = tensors.pop(name)


def add(tensors: dict[str, Tensor], name: str) -> None:
    tensors[name + "_scale_inv"] = tensors[name]


def reshape(tensors: dict[str, Tensor], name: str) -> None:
    tensors[name] = tensors[name]._replace(shape=(*tensors[name].shape, 1))


def transpose(tensors: dict[str, Tensor], name: str) -> None:
    tensors[name] = tensors[name]._replace(shape=(tensors[name].shape[0] + 1, *tensors[name].shape[1:]))


def recast(tensors: dict[str, Tensor], name: str) -> None:
    tensors[name] = tensors[name]._replace(dtype="BF16")


def quantise(tensors: dict[str, Tensor], name: str) -> None:
    tensors[name] = tensors[name]._replace(dtype="U8")


MUTATIONS = [drop, rename, move_up, wrap, add, reshape, transpose, recast, quantise]


@settings(deadline=None)
@given(ALL_NEEDS, st.sampled_from(MUTATIONS), st.data())
def test_every_single_mutation_is_found(needs: ModelNeeds, mutation: Any, data: st.DataObject) -> None:
    files = files_of(needs.shapes)
    name = data.draw(st.sampled_from([name for name in needs.shapes if name.endswith(".weight")]))
    tensors = dict(files.tensors)
    mutation(tensors, name)
    result = check_keys(replace(files, tensors=tensors), needs)
    assert result.verdict is Verdict.FAIL
    assert all(finding.message.isprintable() for finding in result.findings)
    assert all(len(finding.message) < 600 for finding in result.findings)


@settings(deadline=None)
@given(st.dictionaries(st.text(max_size=12), st.tuples(st.integers(0, 3)), max_size=5))
def test_arbitrary_names_never_raise_or_pass(shapes: dict[str, tuple[int, ...]]) -> None:
    result = check_keys(
        files_of(shapes), NEEDS, source=files_of(NEEDS.shapes), allowed=[RULE], declared_dtype="x"
    )
    assert result.verdict is Verdict.FAIL
    assert all(finding.message.isprintable() for finding in result.findings)
