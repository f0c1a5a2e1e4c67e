"""moe-nki: a reduced mixture of experts, with the NKI rotary kernel through the override registry."""

from pathlib import Path
from typing import Any

from torchtitan.models.common import CosSinRoPE

from harness.stackside.nki import kernel_source
from harness.stackside.request import current, stack_module
from harness.stackside.settings import finish


def reduced() -> Any:
    """The mixture of experts in this run's sizes, sharded by FSDP alone; overrides as the run asks."""
    run = current()
    sizes = run.sizes
    for mutant in run.faults:
        # A seeded fault of the kernel: its modules are loaded broken, before the override imports them.
        if mutant in kernel_source.read_mutants(Path(run.recipe_folder)):
            kernel_source.load_recipe(Path(run.recipe_folder), mutant)
    qwen3 = stack_module("torchtitan.models.qwen3")
    config = stack_module("torchtitan.models.qwen3.config_registry").qwen3_moe_debug()
    spec = qwen3.model_registry("debugmodel_moe", moe_comm_backend="standard")
    model = spec.model
    model.dim = sizes["dim"]
    model.vocab_size = run.hf_config()["vocab_size"]
    model.norm.normalized_shape = model.tok_embeddings.embedding_dim = model.lm_head.in_features = model.dim
    model.tok_embeddings.num_embeddings = model.lm_head.out_features = model.vocab_size
    model.layers = qwen3._build_qwen3_moe_layers(
        n_layers=sizes["layers"],
        dim=model.dim,
        n_heads=sizes["heads"],
        n_kv_heads=sizes["kv_heads"],
        head_dim=sizes["head_dim"],
        moe_hidden_dim=sizes["expert_hidden"],
        num_experts=sizes["experts"],
        top_k=sizes["top_k"],
        attn_backend=sizes["attention"],
        moe_comm_backend="standard",
        rope=CosSinRoPE.Config(
            dim=sizes["head_dim"], max_seq_len=max(run.seq_len, 2048), theta=float(sizes["rope_theta"])
        ),
    )
    config.model_spec = spec
    config.loss.loss_fn.global_vocab_size = model.vocab_size
    config.parallelism.tensor_parallel_degree = 1
    config.parallelism.expert_parallel_degree = 1
    # Recomputing a layer would launch its kernels a second time: the counts would prove nothing.
    config.activation_checkpoint = None
    return finish(config, override_target=CosSinRoPE.Config)
