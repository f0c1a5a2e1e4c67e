"""hf-backend: Transformers builds the model, torchtitan trains it."""

from collections.abc import Callable
from typing import Any

from transformers.modeling_rope_utils import ROPE_INIT_FUNCTIONS
from transformers.models.qwen3.modeling_qwen3 import Qwen3RotaryEmbedding

from harness.stackside import faults
from harness.stackside.request import current, stack_module
from harness.stackside.settings import finish, repaired


def full() -> Any:
    """The backend's own full-size configuration on this run's model; published or random by the run."""
    _repair_rotary_buffers()
    backend = stack_module("torchtitan.experiments.transformers_modeling_backend.config_registry")
    config = backend.transformers_modeling_backend_full()
    # A local folder: the backend asks the Hub with trust_remote_code otherwise.
    config.hf_model = current().model
    return finish(config)


def _repair_rotary_buffers() -> None:
    # torchtitan 0.3.0 refills `inv_freq` after the meta device only where the module has a `rope_init_fn`.
    # Transformers 5 no longer sets one, and both of its tables stay uninitialised memory (torchtitan issue
    # 4783). Without this the `buffers` check fails.
    if hasattr(Qwen3RotaryEmbedding, "rope_init_fn") or faults.asked("rotary-repair-off"):
        return
    Qwen3RotaryEmbedding.rope_init_fn = property(_rope_init_fn)
    repaired(
        "Qwen3RotaryEmbedding.rope_init_fn refills inv_freq and original_inv_freq (torchtitan issue 4783)"
    )


def _rope_init_fn(module: Qwen3RotaryEmbedding) -> Callable[..., Any]:
    default = module.rope_type == "default"
    compute = module.compute_default_rope_parameters if default else ROPE_INIT_FUNCTIONS[module.rope_type]

    def refill(config: Any, device: Any) -> Any:
        frequencies, scaling = compute(config, device)
        module.original_inv_freq.copy_(frequencies)
        return frequencies, scaling

    return refill
