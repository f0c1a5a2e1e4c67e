"""Needs of a model from its config.json: counts, shapes, forms, and refusal instead of defaults."""

from typing import Any

import pytest

from harness.model_needs import (
    FUSED,
    PER_EXPERT,
    ConfigError,
    config_dtype,
    model_needs,
    rope_dim,
    rope_theta,
    rope_type,
    tie_conflicts,
)
from tests.checkpoints import TINY, TINY_MOE, TINY_TIED

# Published sizes, from the model's config.json on the Hub.
QWEN3_4B = {
    "model_type": "qwen3",
    "hidden_size": 2560,
    "intermediate_size": 9728,
    "num_hidden_layers": 36,
    "num_attention_heads": 32,
    "num_key_value_heads": 8,
    "head_dim": 128,
    "vocab_size": 151936,
    "attention_bias": False,
    "tie_word_embeddings": True,
    "torch_dtype": "bfloat16",
    "rope_theta": 1000000,
    "rope_scaling": None,
}


def test_qwen3_4b_needs_398_tensors() -> None:
    needs = model_needs(QWEN3_4B)
    assert len(needs.shapes) == 398
    assert needs.tied
    assert needs.head not in needs.shapes
    assert needs.head_shape == (151936, 2560)
    assert needs.shapes["model.layers.35.self_attn.q_proj.weight"] == (4096, 2560)
    # 4 022 468 096 parameters, as the published index's total_size of 8 044 936 192 bytes says.
    assert sum(a * (b or 1) for a, b in ((*shape, 0)[:2] for shape in needs.shapes.values())) == 4022468096


def test_an_untied_model_needs_its_head() -> None:
    assert model_needs(TINY).shapes["lm_head.weight"] == (16, 8)
    assert len(model_needs(TINY).shapes) == len(model_needs(TINY_TIED).shapes) + 1 == 25


def test_a_dense_model_has_one_form_and_accepts_its_head_if_tied() -> None:
    tied = model_needs(TINY_TIED)
    shapes = dict(tied.shapes)
    assert tied.accepts(shapes) == PER_EXPERT
    assert tied.accepts({**shapes, "lm_head.weight": (16, 8)}) == PER_EXPERT
    assert tied.accepts({**shapes, "lm_head.weight": (8, 16)}) is None
    assert tied.accepts({**shapes, "more": (1,)}) is None
    assert model_needs(TINY).accepts(shapes) is None
    assert list(tied.forms) == [PER_EXPERT]
    assert tied.closest(()) == PER_EXPERT


def test_experts_have_two_forms() -> None:
    needs = model_needs(TINY_MOE)
    assert needs.fused is not None
    assert needs.shapes["model.layers.1.mlp.experts.3.gate_proj.weight"] == (6, 8)
    assert needs.shapes["model.layers.1.mlp.gate.weight"] == (4, 8)
    assert needs.fused["model.layers.1.mlp.experts.gate_up_proj"] == (4, 12, 8)
    assert needs.fused["model.layers.1.mlp.experts.down_proj"] == (4, 8, 6)
    assert needs.accepts(dict(needs.fused)) == FUSED
    assert needs.accepts(dict(needs.shapes)) == PER_EXPERT
    assert needs.closest(needs.fused) == FUSED
    assert needs.closest(needs.shapes) == PER_EXPERT
    one_fused_layer = [name for name in needs.fused if ".0.mlp" in name]
    assert needs.closest([*one_fused_layer, *needs.shapes]) == PER_EXPERT


def test_dense_layers_among_experts() -> None:
    only = model_needs({**TINY_MOE, "mlp_only_layers": [0]})
    assert only.shapes["model.layers.0.mlp.gate_proj.weight"] == (12, 8)
    assert "model.layers.1.mlp.experts.0.gate_proj.weight" in only.shapes
    every_second = model_needs({**TINY_MOE, "decoder_sparse_step": 2})
    assert every_second.shapes == only.shapes


def test_biases_only_when_asked() -> None:
    biased = model_needs({**TINY, "attention_bias": True}).shapes
    plain = model_needs(TINY).shapes
    assert {name for name in biased if name not in plain} == {
        f"model.layers.{layer}.self_attn.{part}_proj.bias" for layer in (0, 1) for part in "qkvo"
    }


def test_experts_are_counted_under_either_name() -> None:
    local = {key: value for key, value in TINY_MOE.items() if key != "num_experts"} | {"num_local_experts": 4}
    assert model_needs(local).shapes == model_needs(TINY_MOE).shapes
    with pytest.raises(ConfigError, match="differ") as error:
        model_needs({**TINY_MOE, "num_local_experts": 5})
    assert error.value.key == "num_experts"


FLAGS = ("attention_bias", "tie_word_embeddings")
SIZES = (
    "hidden_size",
    "intermediate_size",
    "num_hidden_layers",
    "num_attention_heads",
    "num_key_value_heads",
    "head_dim",
    "vocab_size",
)
BAD = ("absent", None, "8", -1, 0, 2.0, [1], 10**40)


@pytest.mark.parametrize(
    ("key", "value"),
    [
        *((key, value) for key in ("model_type", *FLAGS) for value in BAD),
        *((key, value) for key in SIZES for value in (*BAD, True)),
    ],
)
def test_no_field_has_a_default(key: str, value: Any) -> None:
    config = {name: old for name, old in TINY.items() if name != key}
    if value != "absent":
        config[key] = value
    with pytest.raises(ConfigError, match=key) as error:
        model_needs(config)
    assert error.value.key == key


@pytest.mark.parametrize("key", ["moe_intermediate_size", "num_experts", "decoder_sparse_step"])
def test_no_field_of_experts_has_a_default(key: str) -> None:
    with pytest.raises(ConfigError, match=key) as error:
        model_needs({name: value for name, value in TINY_MOE.items() if name != key})
    assert error.value.key == key


def test_another_model_type_is_refused_with_the_known_ones() -> None:
    with pytest.raises(ConfigError, match=r"model_type is llama; known are qwen3, qwen3_moe"):
        model_needs({**TINY, "model_type": "llama"})
    with pytest.raises(ConfigError, match="mlp_only_layers"):
        model_needs({**TINY_MOE, "mlp_only_layers": 3})


# --- rotary base ------------------------------------------------------------------------------


def test_the_base_is_read_from_either_place() -> None:
    assert rope_theta({"rope_theta": 1000000}) == 1e6
    assert rope_theta({"rope_parameters": {"rope_theta": 1000000.0}}) == 1e6
    assert rope_theta({"rope_parameters": {"rope_theta": 5e5}, "rope_theta": 500000}) == 5e5
    assert rope_theta({"rope_parameters": None, "rope_theta": 1e4}) == 1e4


@pytest.mark.parametrize(
    "config", [{}, {"rope_parameters": {}}, {"rope_theta": None}, {"rope_parameters": "x"}]
)
def test_there_is_no_default_base(config: dict[str, Any]) -> None:
    with pytest.raises(ConfigError, match="neither") as error:
        rope_theta(config)
    assert error.value.key == "rope_theta"


def test_two_bases_that_differ_are_refused() -> None:
    with pytest.raises(ConfigError, match=r"1000000.*10000"):
        rope_theta({"rope_parameters": {"rope_theta": 1000000}, "rope_theta": 10000})


@pytest.mark.parametrize("value", ["1e6", True, 0, -5, float("nan"), float("inf")])
def test_a_base_that_is_no_number_is_refused(value: Any) -> None:
    with pytest.raises(ConfigError, match="rope_theta is"):
        rope_theta({"rope_theta": value})


def test_scaling_is_named() -> None:
    assert rope_type(TINY) == "default"
    assert rope_type(QWEN3_4B) == "default"
    assert rope_type({"rope_parameters": {"rope_type": "yarn"}}) == "yarn"
    assert rope_type({"rope_scaling": {"type": "linear", "factor": 2}}) == "linear"
    assert rope_type({"rope_parameters": {"full_attention": {"rope_theta": 1}}}) == "per layer type"


def test_the_rotated_part_of_a_head() -> None:
    assert rope_dim(TINY) == 4
    with pytest.raises(ConfigError, match="partial_rotary_factor"):
        rope_dim({**TINY, "partial_rotary_factor": 0.5})
    with pytest.raises(ConfigError, match="head_dim"):
        rope_dim({})


# --- other statements -------------------------------------------------------------------------


def test_dtype_is_read_from_either_place() -> None:
    assert config_dtype({"dtype": "float32"}) == "float32"
    assert config_dtype({"torch_dtype": "torch.bfloat16"}) == "bfloat16"
    assert config_dtype({"dtype": "auto"}) is None
    assert config_dtype({}) is None
    with pytest.raises(ConfigError, match=r"float32.*bfloat16"):
        config_dtype({"dtype": "float32", "torch_dtype": "bfloat16"})


def test_a_nested_config_that_disagrees_on_tying() -> None:
    config = {"tie_word_embeddings": False, "text_config": {"tie_word_embeddings": True}}
    (finding,) = tie_conflicts(config)
    assert finding.code == "keys.tie-conflict"
    assert "text_config.tie_word_embeddings is True" in finding.message
    assert model_needs({**TINY, **config}).problems == (finding,)
    assert tie_conflicts({"tie_word_embeddings": True, "a": {"b": {"tie_word_embeddings": True}}}) == ()
    (deep,) = tie_conflicts({"tie_word_embeddings": True, "a": {"b": {"tie_word_embeddings": False}}})
    assert "a.b." in deep.message
