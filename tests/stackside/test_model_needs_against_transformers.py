"""What `model_needs` asks for is what Transformers' own models hold. Run by the stack's Python."""

from typing import Any

import pytest
import torch
from transformers import AutoConfig, AutoModelForCausalLM

from harness.model_needs import FUSED, PER_EXPERT, model_needs, rope_dim, rope_theta, rope_type

TINY: dict[str, Any] = {
    "hidden_size": 8,
    "intermediate_size": 12,
    "num_hidden_layers": 3,
    "num_attention_heads": 4,
    "num_key_value_heads": 2,
    "head_dim": 6,
    "vocab_size": 16,
    "rope_parameters": {"rope_type": "default", "rope_theta": 1000000.0},
}
MOE: dict[str, Any] = {**TINY, "moe_intermediate_size": 10, "num_experts": 4, "num_experts_per_tok": 2}

CASES = {
    "untied": ("qwen3", {**TINY, "tie_word_embeddings": False}),
    "tied": ("qwen3", {**TINY, "tie_word_embeddings": True}),
    "biased": ("qwen3", {**TINY, "attention_bias": True}),
    "moe": ("qwen3_moe", {**MOE, "tie_word_embeddings": False}),
    "moe with a dense layer": ("qwen3_moe", {**MOE, "mlp_only_layers": [1]}),
    "moe in every second layer": ("qwen3_moe", {**MOE, "decoder_sparse_step": 2}),
}


def build(model_type: str, options: dict[str, Any]) -> tuple[Any, dict[str, Any]]:
    """Return the model on the meta device, and its config as config.json holds it."""
    config = AutoConfig.for_model(model_type, **options)
    with torch.device("meta"):
        model = AutoModelForCausalLM.from_config(config)
    return model, config.to_dict()


@pytest.mark.parametrize("case", CASES)
def test_names_and_shapes_are_those_of_transformers(case: str) -> None:
    model, config = build(*CASES[case])
    held = {name: tuple(tensor.shape) for name, tensor in model.state_dict().items()}
    needs = model_needs(config)
    assert needs.accepts(held) == (FUSED if needs.fused is not None else PER_EXPERT)
    assert needs.tied == (case == "tied")
    assert held[needs.head] == needs.head_shape
    assert needs.problems == ()


def test_the_published_form_of_experts_loads_completely(tmp_path: Any) -> None:
    from safetensors.torch import save_file

    _, config = build(*CASES["moe with a dense layer"])
    AutoConfig.for_model(config.pop("model_type"), **config).save_pretrained(tmp_path)
    config["model_type"] = "qwen3_moe"
    save_file(
        {name: torch.zeros(shape) for name, shape in model_needs(config).shapes.items()},
        tmp_path / "model.safetensors",
    )
    _, info = AutoModelForCausalLM.from_pretrained(tmp_path, output_loading_info=True)
    assert not any(info.values()), info


def test_the_rotary_statements_are_those_of_the_model() -> None:
    options = CASES["untied"][1]
    _, config = build("qwen3", options)
    model = AutoModelForCausalLM.from_config(AutoConfig.for_model("qwen3", **options))
    buffer = model.model.rotary_emb.inv_freq
    theta, dim = rope_theta(config), rope_dim(config)
    assert rope_type(config) == "default"
    assert buffer.tolist() == pytest.approx([theta ** (-2 * i / dim) for i in range(dim // 2)], rel=1e-6)
