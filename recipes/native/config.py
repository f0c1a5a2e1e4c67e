"""native: torchtitan's own Qwen3, the model spec replaced."""

from typing import Any

from torchtitan.models.common import CosSinRoPE

from harness.stackside.request import current, stack_module
from harness.stackside.settings import finish


def replaced() -> Any:
    """qwen3_32b() with the model spec of this run's model, and one sample per rank in a global batch."""
    run = current()
    config = stack_module("torchtitan.models.qwen3.config_registry").qwen3_32b()
    config.model_spec = model_spec(run.hf_config(), run.seq_len)
    config.loss.loss_fn.global_vocab_size = config.model_spec.model.vocab_size
    # The 32B schedule warms up for 600 steps; ten steps would only ever be the start of it.
    config.lr_scheduler.warmup_steps = 2
    config.lr_scheduler.decay_ratio = 0.8
    config.lr_scheduler.decay_type = "linear"
    config.lr_scheduler.min_lr_factor = 0.0
    config.training.global_batch_size = run.ranks * run.local_batch_size
    return finish(config)


def model_spec(hf: dict[str, Any], seq_len: int) -> Any:
    """Return torchtitan's Qwen3 in the shape that a Hugging Face configuration states.

    The registry has no such size; a tied and an untied entry of it give everything but the shape.
    """
    qwen3 = stack_module("torchtitan.models.qwen3")
    spec = qwen3.model_registry("debugmodel" if hf["tie_word_embeddings"] else "8B")
    model = spec.model
    model.dim, model.vocab_size = hf["hidden_size"], hf["vocab_size"]
    model.norm.normalized_shape = model.tok_embeddings.embedding_dim = model.lm_head.in_features = model.dim
    model.tok_embeddings.num_embeddings = model.lm_head.out_features = model.vocab_size
    rope = hf.get("rope_parameters") or hf
    model.layers = qwen3._build_qwen3_layers(
        n_layers=hf["num_hidden_layers"],
        dim=model.dim,
        n_heads=hf["num_attention_heads"],
        n_kv_heads=hf["num_key_value_heads"],
        head_dim=hf["head_dim"],
        hidden_dim=hf["intermediate_size"],
        attn_backend="flex",
        rope=CosSinRoPE.Config(
            dim=hf["head_dim"],
            max_seq_len=min(hf["max_position_embeddings"], max(seq_len, 2048)),
            theta=float(rope["rope_theta"]),
        ),
    )
    return spec
